"""Detection of loops in a run of an agent, with a score for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cachetools import FIFOCache

from langmem_tiers.display.displayable import Displayable
from langmem_tiers.tasks.loop_detection.actions import Step
from langmem_tiers.tasks.loop_detection.evidence import ActionRepeats, ChainTracker, OscillationTracker, Tally
from langmem_tiers.tasks.loop_detection.step_keys import StepKey, build_step_key
from langmem_tiers.tasks.loop_detection.weights import (
    ANSWERED_FACTOR,
    DEFAULT_LOOP_THRESHOLD,
    ENDED_IN_LOOP_FACTOR,
    LARGE_SHARE_FACTOR,
    LOOP_EVIDENCE,
    MOVED_ON_FACTOR,
    OTHER_REPEATS_FACTOR,
    RUN_LOOP_THRESHOLD,
    SMALL_SHARE_FACTOR,
    ActionDifference,
    StepKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "DEFAULT_LOOP_THRESHOLD",
    "RUN_LOOP_THRESHOLD",
    "Loop",
    "LoopKind",
    "LoopReport",
    "LoopTracker",
    "Step",
    "find_loops",
]

_MIN_REPEATS = 3
"""Minimum number of occurrences of a reported loop."""
_MAX_REMEMBERED_ACTIONS = 512
"""Maximum number of remembered single actions, and of repeated actions. The oldest are dropped first."""
_MAX_CHAINS = 64


class LoopKind(StrEnum):
    """Kind of a loop."""

    EXACT = "exact"
    """Repeats with the same tool and parameters on the same page."""
    NEAR = "near"
    """Repeats with slightly different parameters, for example a counter or id, or on several pages."""
    OSCILLATION = "oscillation"
    """Repeated sequences of two or more actions, such as A-B-A-B."""
    UNCHANGED = "unchanged"
    """Repeats that succeed without any change of the observation."""
    FAILURE = "failure"
    """Repeats that fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop(Displayable):
    """A loop in a run."""

    kind: LoopKind
    tool: str
    count: int
    """Number of steps in the loop."""
    first: int
    """Number of the first step, from 0."""
    last: int
    """Number of the last step."""
    period: int = 1
    """Number of steps in one round."""
    score: float
    """Confidence from 0 to 1 that the loop makes no progress."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReport(Displayable):
    """Loops of a whole run."""

    loops: tuple[Loop, ...] = ()
    """Reported repeats, highest score first. A run may contain repeats without being a loop."""
    score: float = 0.0
    is_loop: bool = False
    """True if the score reaches the threshold."""


class LoopTracker:
    """Follows a run step by step, with bounded memory and constant cost per step.

    Args:
        start: Number of steps before the first one that is added. Default: 0.
    """

    def __init__(self, start: int = 0) -> None:
        self.step_count = start
        self._new_step_count = 0
        # First in, first out: a lookup must not keep an action remembered.
        self._done_once: FIFOCache[str, ActionRepeats] = FIFOCache(_MAX_REMEMBERED_ACTIONS)
        self._done_again: FIFOCache[str, ActionRepeats] = FIFOCache(_MAX_REMEMBERED_ACTIONS)
        self._chains = ChainTracker()
        self._found_chains: FIFOCache[int, Tally] = FIFOCache(_MAX_CHAINS)
        self._cycles = OscillationTracker()
        self._latest_step: StepKey | None = None

    def add(self, step: Step) -> Loop | None:
        """Add the next step and return the loop with the highest score that it belongs to, or None."""
        return self.add_step_key(build_step_key(step))

    def add_step_key(self, step_key: StepKey) -> Loop | None:
        """Add the next step by its key, see `add`."""
        number = self.step_count
        # Each step is counted in three ways: as repeat of the same action, as part of a chain of similar actions, and
        # as part of an oscillation.
        chain, difference = self._chains.add(step_key, number)
        repeats = self._count_repeat(step_key, number)
        # A step is new if its action occurs for the first time, succeeds and is not a variant of an earlier action.
        # Repeats that observe something new count too. The number of new steps between two repeats tells progress
        # from a loop.
        is_variant = difference in (ActionDifference.DRIFT, ActionDifference.LITTLE)
        is_new = repeats.count == 1 and step_key.kind in (StepKind.ACT, StepKind.VISIT)
        self._new_step_count += (
            is_new and not step_key.is_unsuccessful and not is_variant
        ) or repeats.is_progress
        repeats.new_steps_before = self._new_step_count
        if chain.count >= _MIN_REPEATS and chain.differing_count:
            self._found_chains[chain.first] = chain
        cycle = self._cycles.add(step_key, number)
        self.step_count += 1
        self._latest_step = step_key
        tallies: list[Tally] = [repeats, chain, *([cycle] if cycle else [])]
        strongest = max(
            (tally for tally in tallies if _is_reportable(tally)), key=self._compute_weight, default=None
        )
        return None if strongest is None else self._to_loop(strongest)

    def report(self, *, threshold: float = RUN_LOOP_THRESHOLD) -> LoopReport:
        """Return the loops of the run so far.

        Args:
            threshold: Minimum score at which the whole run is called a loop.
        """
        repeats = [tally for tally in self._done_again.values() if _is_reportable(tally)]
        others = [*self._found_chains.values(), *self._cycles.active_tallies, *self._cycles.ended_tallies]
        tallies: list[Tally] = [*repeats, *(tally for tally in others if _is_reportable(tally))]
        if not tallies:
            return LoopReport()
        # The score of the run is that of its strongest loop plus a share of all other repeated actions. Chains and
        # oscillations are not added: their steps are counted as repeats already.
        weights = sorted((self._compute_weight(tally) for tally in repeats), reverse=True)
        strongest = max(self._compute_weight(tally) for tally in tallies)
        score = _compute_score(strongest + OTHER_REPEATS_FACTOR * sum(weights[1:]))
        loops = sorted((self._to_loop(tally) for tally in tallies), key=_certainty_key, reverse=True)
        return LoopReport(loops=tuple(loops), score=score, is_loop=score >= threshold)

    def _count_repeat(self, step_key: StepKey, number: int) -> ActionRepeats:
        # Single and repeated actions have separate limits, so that many new actions do not push out a repeated one.
        repeats = self._done_again.get(step_key.action) or self._done_once.pop(step_key.action, None)
        if repeats is None:
            repeats = self._done_once[step_key.action] = ActionRepeats(step_key, number, number)
            repeats.record_address(step_key, self._new_step_count)
            return repeats
        repeats.add_repeat(step_key, number, self._new_step_count)
        self._done_again[step_key.action] = repeats
        return repeats

    def _compute_weight(self, tally: Tally) -> float:
        """Adjust the evidence by the position of the loop in the run and its share of all steps."""
        steps_after = self.step_count - 1 - tally.last
        weight = tally.weight
        is_answered = self._latest_step is not None and self._latest_step.kind is StepKind.TALK
        if steps_after >= 5 and steps_after * 3 >= self.step_count:
            weight *= MOVED_ON_FACTOR
        elif is_answered and tally.latest_step.kind is not StepKind.TALK:
            weight *= ANSWERED_FACTOR
        elif steps_after <= tally.period:
            weight *= ENDED_IN_LOOP_FACTOR
        share = tally.count / self.step_count
        if share >= 0.4:
            return weight * LARGE_SHARE_FACTOR
        return weight * SMALL_SHARE_FACTOR if share < 0.125 else weight

    def _to_loop(self, tally: Tally) -> Loop:
        kind = _classify(tally)
        return Loop(
            kind=kind,
            tool=tally.latest_step.tool,
            count=tally.count,
            first=tally.first,
            last=tally.last,
            period=tally.period,
            score=_compute_score(self._compute_weight(tally)),
            message=_format_message(kind, tally),
        )


def find_loops(steps: Sequence[Step], *, threshold: float = RUN_LOOP_THRESHOLD) -> LoopReport:
    """Find the loops of a whole run.

    Args:
        steps: The steps in chronological order.
        threshold: Minimum score at which the run as a whole is called a loop.

    Example::

        report = find_loops([Step.of("click('a51')")] * 4)
        report.is_loop  # True
    """
    return _track(steps).report(threshold=threshold)


def _track(steps: Iterable[Step]) -> LoopTracker:
    tracker = LoopTracker()
    for step in steps:
        tracker.add(step)
    return tracker


def _is_reportable(tally: Tally) -> bool:
    # An oscillation needs two full rounds. A chain of identical actions is reported as repeats, not as a chain.
    if tally.period > 1:
        return tally.count >= 2 * tally.period
    return tally.count >= _MIN_REPEATS and (isinstance(tally, ActionRepeats) or tally.differing_count > 0)


def _classify(tally: Tally) -> LoopKind:
    # The first round is not a repeat. A property of the loop holds if more than half of the repeats have it.
    repeats = tally.count - tally.period
    if tally.period > 1:
        return LoopKind.OSCILLATION
    if 2 * tally.failed_count > repeats:
        return LoopKind.FAILURE
    if tally.differing_count or (isinstance(tally, ActionRepeats) and tally.max_count_per_url < 2):
        return LoopKind.NEAR
    return LoopKind.UNCHANGED if 2 * tally.unchanged_count > repeats else LoopKind.EXACT


def _format_message(kind: LoopKind, tally: Tally) -> str:
    shown = tally.latest_step.shown
    where = f"in steps {tally.first + 1} to {tally.last + 1}"
    if kind is LoopKind.OSCILLATION:
        rounds = tally.count // tally.period
        return f"the same {tally.period} steps, including {shown}, occurred {rounds} times {where}"
    ending = {
        LoopKind.EXACT: "",
        LoopKind.NEAR: ", with small differences",
        LoopKind.UNCHANGED: ", and nothing changed",
        LoopKind.FAILURE: ", and it failed again",
    }[kind]
    what = f"calls like {shown}" if tally.differing_count else shown
    return f"{what} occurred {tally.count} times {where}{ending}"


def _compute_score(weight: float) -> float:
    # Maps evidence to 0..1; LOOP_EVIDENCE gives 0.5.
    return weight / (weight + LOOP_EVIDENCE)


def _certainty_key(loop: Loop) -> tuple[float, int, str]:
    return loop.score, -loop.first, loop.kind.value
