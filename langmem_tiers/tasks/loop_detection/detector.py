"""Tells when a run of an agent goes in circles, and how surely."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

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
"""Times that make a loop worth telling of."""
_MAX_REMEMBERED_ACTIONS = 512
"""Actions done once, and as many done again, that a tracker remembers: the latest ones."""
_MAX_CHAINS = 64


class LoopKind(StrEnum):
    """In which way it goes in circles."""

    EXACT = "exact"
    """The same tool with the same parameters at the same address."""
    NEAR = "near"
    """Parameters that differ in a counter, an id or a little, or the same at several addresses."""
    OSCILLATION = "oscillation"
    """A-B-A-B, and longer cycles."""
    UNCHANGED = "unchanged"
    """Repeats that succeed and change nothing."""
    FAILURE = "failure"
    """The same failed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop(Displayable):
    """Something that was done again and again."""

    kind: LoopKind
    tool: str
    count: int
    """Steps in it."""
    first: int
    """Number of its first step, from 0."""
    last: int
    period: int = 1
    """Steps until it starts again."""
    score: float
    """From 0 to 1, how surely it is no progress."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReport(Displayable):
    """What was found in a run."""

    loops: tuple[Loop, ...] = ()
    """All repeats worth telling of, the surest first; by themselves they need not make the run a loop."""
    score: float = 0.0
    is_loop: bool = False


class LoopTracker:
    """Follows a run step by step, in bounded memory and at the same cost each step.

    Args:
        start: How many steps of the run came before the first one that it is told.
    """

    def __init__(self, start: int = 0) -> None:
        self.step_count = start
        self._new_step_count = 0
        self._done_once: OrderedDict[str, ActionRepeats] = OrderedDict()
        self._done_again: OrderedDict[str, ActionRepeats] = OrderedDict()
        self._chains = ChainTracker()
        self._found_chains: OrderedDict[int, Tally] = OrderedDict()
        self._cycles = OscillationTracker()
        self._latest_step: StepKey | None = None

    def add(self, step: Step) -> Loop | None:
        """Takes in the next step and gives the surest loop that it is part of, if any."""
        return self.add_step_key(build_step_key(step))

    def add_step_key(self, mark: StepKey) -> Loop | None:
        """As `add`, for a step whose mark is known already."""
        at = self.step_count
        chain, how = self._chains.add(mark, at)
        repeats = self._count_repeat(mark, at)
        is_variant = how in (ActionDifference.DRIFT, ActionDifference.LITTLE)
        is_new = repeats.count == 1 and mark.kind in (StepKind.ACT, StepKind.VISIT)
        self._new_step_count += (
            is_new and not mark.is_unsuccessful and not is_variant
        ) or repeats.is_progress
        repeats.new_steps_before = self._new_step_count
        if chain.count >= _MIN_REPEATS and chain.differing_count:
            self._found_chains[chain.first] = chain
            self._found_chains.move_to_end(chain.first)
            _limit_size(self._found_chains, _MAX_CHAINS)
        cycle = self._cycles.add(mark, at)
        self.step_count += 1
        self._latest_step = mark
        parts: list[Tally] = [repeats, chain, *([cycle] if cycle else [])]
        surest = max((one for one in parts if _is_reportable(one)), key=self._compute_weight, default=None)
        return None if surest is None else self._to_loop(surest)

    def report(self, *, threshold: float = RUN_LOOP_THRESHOLD) -> LoopReport:
        """What the run holds up to here."""
        repeats = [one for one in self._done_again.values() if _is_reportable(one)]
        others = [*self._found_chains.values(), *self._cycles.active_tallies, *self._cycles.ended_tallies]
        tallies: list[Tally] = [*repeats, *(one for one in others if _is_reportable(one))]
        if not tallies:
            return LoopReport()
        weights = sorted((self._compute_weight(one) for one in repeats), reverse=True)
        strongest = max(self._compute_weight(one) for one in tallies)
        score = _compute_score(strongest + OTHER_REPEATS_FACTOR * sum(weights[1:]))
        loops = sorted((self._to_loop(one) for one in tallies), key=_certainty_key, reverse=True)
        return LoopReport(loops=tuple(loops), score=score, is_loop=score >= threshold)

    def _count_repeat(self, mark: StepKey, at: int) -> ActionRepeats:
        known = self._done_again.get(mark.action) or self._done_once.pop(mark.action, None)
        if known is None:
            known = self._done_once[mark.action] = ActionRepeats(mark, at, at)
            known.record_address(mark, self._new_step_count)
            _limit_size(self._done_once, _MAX_REMEMBERED_ACTIONS)
            return known
        known.add_repeat(mark, at, self._new_step_count)
        self._done_again[mark.action] = known
        self._done_again.move_to_end(mark.action)
        _limit_size(self._done_again, _MAX_REMEMBERED_ACTIONS)
        return known

    def _compute_weight(self, tally: Tally) -> float:
        """The evidence in the light of the whole run."""
        after = self.step_count - 1 - tally.last
        weight = tally.weight
        answered = self._latest_step is not None and self._latest_step.kind is StepKind.TALK
        if after >= 5 and after * 3 >= self.step_count:
            weight *= MOVED_ON_FACTOR
        elif answered and tally.latest_step.kind is not StepKind.TALK:
            weight *= ANSWERED_FACTOR
        elif after <= tally.period:
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
    """The loops of a whole run.

    Args:
        steps: In order.
        threshold: The score from which on the run as a whole is called a loop.
    """
    return _track(steps).report(threshold=threshold)


def _track(steps: Iterable[Step]) -> LoopTracker:
    tracker = LoopTracker()
    for step in steps:
        tracker.add(step)
    return tracker


def _is_reportable(tally: Tally) -> bool:
    if tally.period > 1:
        return tally.count >= 2 * tally.period
    return tally.count >= _MIN_REPEATS and (isinstance(tally, ActionRepeats) or tally.differing_count > 0)


def _classify(tally: Tally) -> LoopKind:
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
        return f"the same {tally.period} steps, {shown} among them, came {rounds} times {where}"
    ending = {
        LoopKind.EXACT: "",
        LoopKind.NEAR: ", with small differences",
        LoopKind.UNCHANGED: ", and nothing changed",
        LoopKind.FAILURE: ", and it failed again",
    }[kind]
    what = f"calls like {shown} came" if tally.differing_count else f"{shown} was done"
    return f"{what} {tally.count} times {where}{ending}"


def _compute_score(weight: float) -> float:
    return weight / (weight + LOOP_EVIDENCE)


def _certainty_key(loop: Loop) -> tuple[float, int, str]:
    return loop.score, -loop.first, loop.kind.value


def _limit_size(kept: OrderedDict[str, ActionRepeats] | OrderedDict[int, Tally], most: int) -> None:
    if len(kept) > most:
        kept.popitem(last=False)
