"""Tells when a run of an agent goes in circles, and how surely."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.display.displayable import Told
from langmem_tiers.tasks.loop_detection.actions import Step
from langmem_tiers.tasks.loop_detection.evidence import Chains, Cycles, Repeats, Tally
from langmem_tiers.tasks.loop_detection.step_keys import Mark, mark_of
from langmem_tiers.tasks.loop_detection.weights import (
    ANSWERED,
    DEFAULT_THRESHOLD,
    ENDED_IN_IT,
    LITTLE_OF_RUN,
    MOVED_ON,
    MUCH_OF_RUN,
    NEEDED,
    OTHER_REPEATS,
    RUN_THRESHOLD,
    ActionKind,
    Difference,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "DEFAULT_THRESHOLD",
    "RUN_THRESHOLD",
    "Loop",
    "LoopKind",
    "LoopReport",
    "LoopTracker",
    "Step",
    "find_loops",
]

_FEWEST = 3
"""Times that make a loop worth telling of."""
_REMEMBERED = 512
"""Actions done once, and as many done again, that a tracker remembers: the latest ones."""
_CHAINS = 64


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
class Loop(Told):
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
class LoopReport(Told):
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
        self.steps = start
        self._new_steps = 0
        self._once: OrderedDict[str, Repeats] = OrderedDict()
        self._again: OrderedDict[str, Repeats] = OrderedDict()
        self._chains = Chains()
        self._found_chains: OrderedDict[int, Tally] = OrderedDict()
        self._cycles = Cycles()
        self._latest: Mark | None = None

    def add(self, step: Step) -> Loop | None:
        """Takes in the next step and gives the surest loop that it is part of, if any."""
        return self.add_mark(mark_of(step))

    def add_mark(self, mark: Mark) -> Loop | None:
        """As `add`, for a step whose mark is known already."""
        at = self.steps
        chain, how = self._chains.add(mark, at)
        repeats = self._repeat(mark, at)
        is_variant = how in (Difference.DRIFT, Difference.LITTLE)
        is_new = repeats.count == 1 and mark.kind in (ActionKind.ACT, ActionKind.VISIT)
        self._new_steps += (is_new and not mark.is_vain and not is_variant) or repeats.is_progress
        repeats.new_before = self._new_steps
        if chain.count >= _FEWEST and chain.differing:
            self._found_chains[chain.first] = chain
            self._found_chains.move_to_end(chain.first)
            _shrink(self._found_chains, _CHAINS)
        cycle = self._cycles.add(mark, at)
        self.steps += 1
        self._latest = mark
        parts: list[Tally] = [repeats, chain, *([cycle] if cycle else [])]
        surest = max((one for one in parts if _is_told(one)), key=self._weight, default=None)
        return None if surest is None else self._loop(surest)

    def report(self, *, threshold: float = RUN_THRESHOLD) -> LoopReport:
        """What the run holds up to here."""
        repeats = [one for one in self._again.values() if _is_told(one)]
        others = [*self._found_chains.values(), *self._cycles.under_way, *self._cycles.ended]
        tallies: list[Tally] = [*repeats, *(one for one in others if _is_told(one))]
        if not tallies:
            return LoopReport()
        weights = sorted((self._weight(one) for one in repeats), reverse=True)
        strongest = max(self._weight(one) for one in tallies)
        score = _score(strongest + OTHER_REPEATS * sum(weights[1:]))
        loops = sorted((self._loop(one) for one in tallies), key=_surest, reverse=True)
        return LoopReport(loops=tuple(loops), score=score, is_loop=score >= threshold)

    def _repeat(self, mark: Mark, at: int) -> Repeats:
        known = self._again.get(mark.action) or self._once.pop(mark.action, None)
        if known is None:
            known = self._once[mark.action] = Repeats(mark, at, at)
            known.stand(mark, self._new_steps)
            _shrink(self._once, _REMEMBERED)
            return known
        known.repeat(mark, at, self._new_steps)
        self._again[mark.action] = known
        self._again.move_to_end(mark.action)
        _shrink(self._again, _REMEMBERED)
        return known

    def _weight(self, tally: Tally) -> float:
        """The evidence in the light of the whole run."""
        after = self.steps - 1 - tally.last
        weight = tally.weight
        answered = self._latest is not None and self._latest.kind is ActionKind.TALK
        if after >= 5 and after * 3 >= self.steps:
            weight *= MOVED_ON
        elif answered and tally.mark.kind is not ActionKind.TALK:
            weight *= ANSWERED
        elif after <= tally.period:
            weight *= ENDED_IN_IT
        share = tally.count / self.steps
        if share >= 0.4:
            return weight * MUCH_OF_RUN
        return weight * LITTLE_OF_RUN if share < 0.125 else weight

    def _loop(self, tally: Tally) -> Loop:
        kind = _kind(tally)
        return Loop(
            kind=kind,
            tool=tally.mark.tool,
            count=tally.count,
            first=tally.first,
            last=tally.last,
            period=tally.period,
            score=_score(self._weight(tally)),
            message=_message(kind, tally),
        )


def find_loops(steps: Sequence[Step], *, threshold: float = RUN_THRESHOLD) -> LoopReport:
    """The loops of a whole run.

    Args:
        steps: In order.
        threshold: The score from which on the run as a whole is called a loop.
    """
    return _tracked(steps).report(threshold=threshold)


def _tracked(steps: Iterable[Step]) -> LoopTracker:
    tracker = LoopTracker()
    for step in steps:
        tracker.add(step)
    return tracker


def _is_told(tally: Tally) -> bool:
    if tally.period > 1:
        return tally.count >= 2 * tally.period
    return tally.count >= _FEWEST and (isinstance(tally, Repeats) or tally.differing > 0)


def _kind(tally: Tally) -> LoopKind:
    repeats = tally.count - tally.period
    if tally.period > 1:
        return LoopKind.OSCILLATION
    if 2 * tally.failed > repeats:
        return LoopKind.FAILURE
    if tally.differing or (isinstance(tally, Repeats) and tally.most_at_one_address < 2):
        return LoopKind.NEAR
    return LoopKind.UNCHANGED if 2 * tally.unchanged > repeats else LoopKind.EXACT


def _message(kind: LoopKind, tally: Tally) -> str:
    shown = tally.mark.shown
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
    what = f"calls like {shown} came" if tally.differing else f"{shown} was done"
    return f"{what} {tally.count} times {where}{ending}"


def _score(weight: float) -> float:
    return weight / (weight + NEEDED)


def _surest(loop: Loop) -> tuple[float, int, str]:
    return loop.score, -loop.first, loop.kind.value


def _shrink(kept: OrderedDict[str, Repeats] | OrderedDict[int, Tally], most: int) -> None:
    if len(kept) > most:
        kept.popitem(last=False)
