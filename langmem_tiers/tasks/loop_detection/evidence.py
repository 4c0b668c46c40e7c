"""How evidence of a loop adds up while a run goes on: repeats of one action, chains of like ones, cycles."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from langmem_tiers.tasks.loop_detection.step_keys import Mark, difference, same_page
from langmem_tiers.tasks.loop_detection.weights import (
    ALIKE,
    CHANGED_ALONE,
    CYCLE_ELSEWHERE,
    CYCLE_HERE,
    FAILED,
    MOSTLY_NEW,
    NEW_ADDRESS,
    NEW_BETWEEN,
    NEXT_ADDRESS,
    NUMBERS_ALONE,
    OBSERVED,
    PROGRESS,
    REPEAT,
    SAME_STATUS,
    ActionKind,
    Difference,
    Page,
)

_ADDRESSES = 16
"""Of one action that are remembered."""
_PAGES = 3
"""Of each address."""
_LOOKED_BACK = 12
"""Steps in which something like the new action is looked for."""
LONGEST_PERIOD = 6


@dataclass(slots=True)
class Tally:
    """What is known of one loop so far."""

    mark: Mark
    """Its latest step."""
    first: int
    last: int
    count: int = 1
    evidence: float = 0.0
    unchanged: int = 0
    """Repeats after which the same was observed."""
    failed: int = 0
    """Repeats that failed as the one before did."""
    period: int = 1
    differing: int = 0
    """Steps that were not quite the same."""
    exact: float = 0.0
    """Evidence, in a chain, of steps that were quite the same: it counts as far as others bear it out."""
    capped: float = 0.0
    """Evidence from counters and ids alone."""
    changed: float = 0.0
    """Evidence of repeats after which something new was observed, or that stand among steps that get on."""
    is_progress: bool = False
    """Whether the latest step brought something new."""

    @property
    def weight(self) -> float:
        """All of its evidence."""
        told = self.evidence + min(self.exact, self.evidence) + min(self.capped, NUMBERS_ALONE)
        return told + min(self.changed, CHANGED_ALONE)

    def weigh(self, worth: float, mark: Mark, old: Mark, *, goes_on: bool = False) -> None:
        """Takes in what a repeat is worth.

        Args:
            worth: As evidence.
            mark: The repeat.
            old: What it repeats.
            goes_on: Whether what was done around it brings the task forward.
        """
        self.is_progress = brings_new(mark, old)
        if self.is_progress:
            self.evidence *= PROGRESS
            self.exact *= PROGRESS
        if self.is_progress or goes_on:
            self.changed += worth
        else:
            self.evidence += worth

    def note(self, mark: Mark, old: Mark, at: int) -> None:
        """Takes in a further step."""
        self.count += 1
        self.last = at
        self.mark = mark
        self.failed += mark.failed and old.failed
        self.unchanged += not mark.failed and same_page(mark, old) is Page.SAME


@dataclass(slots=True)
class Repeats(Tally):
    """All steps with exactly one action."""

    pages: OrderedDict[str, tuple[Mark, ...]] = field(default_factory=OrderedDict)
    """Its latest steps at each address: what is opened and shut in turn has two pages."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often at each of these."""
    new_before: int = 0
    """Steps of the run that were new when it was last done."""

    def repeat(self, mark: Mark, at: int, new_steps: int) -> None:
        """The same action once more, after so many new steps in all."""
        here = self.pages.get(mark.url, ())
        old = max(reversed(here), key=lambda one: OBSERVED[same_page(mark, one)]) if here else self.mark
        between = at - self.last - 1
        worth = REPEAT[mark.kind] * page_factor(mark, old)
        share = min(1.0, (new_steps - self.new_before) / between) if between else 0.0
        worth *= 1 - (1 - NEW_BETWEEN) * share
        is_elsewhere = not here and mark.kind is not ActionKind.VISIT
        if is_elsewhere:
            worth *= NEW_ADDRESS if between else NEXT_ADDRESS
        goes_on = not mark.is_vain and (share >= MOSTLY_NEW or (is_elsewhere and not between))
        self.weigh(worth, mark, old, goes_on=goes_on)
        self.note(mark, old, at)
        self.stand(mark, new_steps)

    def stand(self, mark: Mark, new_steps: int) -> None:
        """Remembers where it was done."""
        self.pages[mark.url] = (*self.pages.get(mark.url, ()), mark)[-_PAGES:]
        self.pages.move_to_end(mark.url)
        self.counts[mark.url] = self.counts.get(mark.url, 0) + 1
        self.new_before = new_steps
        if len(self.pages) > _ADDRESSES:
            gone, _ = self.pages.popitem(last=False)
            del self.counts[gone]

    @property
    def most_at_one_address(self) -> int:
        """How often it was done where it was done most."""
        return max(self.counts.values())


class Chains:
    """Steps that are like one shortly before, strung together."""

    def __init__(self) -> None:
        self._recent: deque[tuple[Mark, Tally]] = deque(maxlen=_LOOKED_BACK)

    def add(self, mark: Mark, at: int) -> tuple[Tally, Difference | None]:
        """The chain that the step belongs to, and how it differs from the step before it in the chain."""
        for old, chain in reversed(self._recent):
            found = difference(mark, old)
            if found is not None:
                self._join(chain, mark, old, at, found)
                self._recent.append((mark, chain))
                return chain, found
        if self._recent and _fails_on(self._recent[-1][0], mark):
            old, chain = self._recent[-1]
            self._join(chain, mark, old, at, Difference.LITTLE)
            self._recent.append((mark, chain))
            return chain, Difference.LITTLE
        chain = Tally(mark, at, at)
        self._recent.append((mark, chain))
        return chain, None

    @staticmethod
    def _join(chain: Tally, mark: Mark, old: Mark, at: int, found: Difference) -> None:
        worth = REPEAT[mark.kind] * ALIKE[found] * page_factor(mark, old)
        if mark.url != old.url and mark.kind is not ActionKind.VISIT:
            worth *= NEW_ADDRESS if found in (Difference.NONE, Difference.NUMBER) else 1.0
        if found is Difference.DRIFT and chain.last == at - 1:
            found = Difference.NUMBER  # the same text into one field after the other
        is_same = same_page(mark, old) is Page.SAME
        seen = bool(mark.lines) and chain.last == at - 1 and is_same
        is_done = is_same and not mark.lines  # "OK" to something else is no sign of a loop
        chain.is_progress = brings_new(mark, old)
        if mark.action == old.action:
            chain.exact += worth
        elif (found is Difference.NUMBER or is_done) and not (mark.is_vain or seen):
            chain.capped += worth
            chain.evidence *= PROGRESS if chain.is_progress else 1.0
        else:
            chain.weigh(worth, mark, old)
        chain.differing += mark.action != old.action
        chain.note(mark, old, at)


class Cycles:
    """Sequences of two to six steps that come again at once."""

    def __init__(self) -> None:
        self._recent: deque[Mark] = deque(maxlen=LONGEST_PERIOD)
        self._running: dict[int, Tally] = {}
        self._same_run = 0
        self._new_at = -LONGEST_PERIOD - 1
        self.ended: list[Tally] = []
        """The strongest of those that are over."""

    def add(self, mark: Mark, at: int) -> Tally | None:
        """The cycle that the step goes on with, if it came round at least once."""
        self._same_run = self._same_run + 1 if self._recent and _loose(self._recent[-1], mark) else 0
        for period in range(2, LONGEST_PERIOD + 1):
            old = self._recent[-period] if period <= len(self._recent) else None
            if old is not None and _loose(old, mark) and self._same_run < period:
                self._go_on(period, mark, old, at)
            elif period in self._running:
                self._end(self._running.pop(period))
        self._recent.append(mark)
        return next(iter(self.under_way), None)

    @property
    def under_way(self) -> list[Tally]:
        """Those that came round at least once, the shortest period first."""
        return [one for _, one in sorted(self._running.items()) if one.count >= 2 * one.period][:1]

    def _go_on(self, period: int, mark: Mark, old: Mark, at: int) -> None:
        cycle = self._running.get(period)
        if cycle is None:
            first = at - period
            cycle = self._running[period] = Tally(mark, first, at - 1, count=period, period=period)
        if mark.action == old.action:
            worth = REPEAT[mark.kind] * page_factor(mark, old)
        else:
            elsewhere = {one.url for one in self._recent} != {mark.url}
            worth = CYCLE_ELSEWHERE if elsewhere else CYCLE_HERE
            cycle.differing += 1
        if brings_new(mark, old):
            self._new_at = at
        goes_on = at - self._new_at <= period  # something of this round or of the last one was new
        cycle.weigh(worth / period, mark, old, goes_on=goes_on)
        cycle.note(mark, old, at)

    def _end(self, cycle: Tally) -> None:
        if cycle.count >= 2 * cycle.period:
            self.ended = sorted([*self.ended, cycle], key=lambda one: (-one.weight, one.first))[:8]


def page_factor(new: Mark, old: Mark) -> float:
    """What the observations of a step and of the earlier one say about progress."""
    if new.is_vain and old.is_vain:
        return FAILED
    page = same_page(new, old)
    if page is Page.SAME and (not new.lines or new.kind is ActionKind.EXPLORE):
        return SAME_STATUS
    return OBSERVED[page]


def brings_new(new: Mark, old: Mark) -> bool:
    """Whether something else was observed than after the earlier step, and it did not just fail in another way."""
    return not (new.is_vain and old.is_vain) and same_page(new, old) is Page.CHANGED


def _fails_on(old: Mark, new: Mark) -> bool:
    """Whether one tool fails again at once, whatever it is asked for."""
    return new.failed and old.failed and new.tool == old.tool


def _loose(old: Mark, new: Mark) -> bool:
    return new.rest == old.rest and new.url == old.url
