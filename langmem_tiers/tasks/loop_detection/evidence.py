"""How evidence of a loop adds up while a run goes on: repeats of one action, chains of like ones, cycles."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from langmem_tiers.tasks.loop_detection.step_keys import StepKey, compare_actions, compare_pages
from langmem_tiers.tasks.loop_detection.weights import (
    CYCLE_ELSEWHERE_WEIGHT,
    CYCLE_HERE_WEIGHT,
    DIFFERENCE_FACTORS,
    MAX_CHANGED_ONLY_EVIDENCE,
    MAX_NUMBERS_ONLY_EVIDENCE,
    MIN_NEW_STEPS_SHARE,
    NEW_ADDRESS_FACTOR,
    NEW_BETWEEN_FACTOR,
    NEXT_ADDRESS_FACTOR,
    PAGE_FACTORS,
    PROGRESS_FACTOR,
    REPEAT_WEIGHTS,
    REPEATED_FAILURE_FACTOR,
    SAME_STATUS_FACTOR,
    ActionDifference,
    PageComparison,
    StepKind,
)

_MAX_ADDRESSES = 16
"""Of one action that are remembered."""
_MAX_PAGES_PER_ADDRESS = 3
"""Of each address."""
_LOOKBACK_STEPS = 12
"""Steps in which something like the new action is looked for."""
MAX_PERIOD_STEPS = 6


@dataclass(slots=True)
class Tally:
    """What is known of one loop so far."""

    latest_step: StepKey
    """Its latest step."""
    first: int
    last: int
    count: int = 1
    evidence: float = 0.0
    unchanged_count: int = 0
    """Repeats after which the same was observed."""
    failed_count: int = 0
    """Repeats that failed as the one before did."""
    period: int = 1
    differing_count: int = 0
    """Steps that were not quite the same."""
    exact_evidence: float = 0.0
    """Evidence, in a chain, of steps that were quite the same: it counts as far as others bear it out."""
    capped_evidence: float = 0.0
    """Evidence from counters and ids alone."""
    changed_evidence: float = 0.0
    """Evidence of repeats after which something new was observed, or that stand among steps that get on."""
    is_progress: bool = False
    """Whether the latest step brought something new."""

    @property
    def weight(self) -> float:
        """All of its evidence."""
        told = (
            self.evidence
            + min(self.exact_evidence, self.evidence)
            + min(self.capped_evidence, MAX_NUMBERS_ONLY_EVIDENCE)
        )
        return told + min(self.changed_evidence, MAX_CHANGED_ONLY_EVIDENCE)

    def add_evidence(self, worth: float, mark: StepKey, old: StepKey, *, goes_on: bool = False) -> None:
        """Takes in what a repeat is worth.

        Args:
            worth: As evidence.
            mark: The repeat.
            old: What it repeats.
            goes_on: Whether what was done around it brings the task forward.
        """
        self.is_progress = shows_progress(mark, old)
        if self.is_progress:
            self.evidence *= PROGRESS_FACTOR
            self.exact_evidence *= PROGRESS_FACTOR
        if self.is_progress or goes_on:
            self.changed_evidence += worth
        else:
            self.evidence += worth

    def add_step(self, mark: StepKey, old: StepKey, at: int) -> None:
        """Takes in a further step."""
        self.count += 1
        self.last = at
        self.latest_step = mark
        self.failed_count += mark.failed and old.failed
        self.unchanged_count += not mark.failed and compare_pages(mark, old) is PageComparison.SAME


@dataclass(slots=True)
class ActionRepeats(Tally):
    """All steps with exactly one action."""

    steps_by_url: OrderedDict[str, tuple[StepKey, ...]] = field(default_factory=OrderedDict)
    """Its latest steps at each address: what is opened and shut in turn has two pages."""
    counts_by_url: dict[str, int] = field(default_factory=dict)
    """How often at each of these."""
    new_steps_before: int = 0
    """Steps of the run that were new when it was last done."""

    def add_repeat(self, mark: StepKey, at: int, new_steps: int) -> None:
        """The same action once more, after so many new steps in all."""
        here = self.steps_by_url.get(mark.url, ())
        old = (
            max(reversed(here), key=lambda one: PAGE_FACTORS[compare_pages(mark, one)])
            if here
            else self.latest_step
        )
        between = at - self.last - 1
        worth = REPEAT_WEIGHTS[mark.kind] * compute_page_factor(mark, old)
        share = min(1.0, (new_steps - self.new_steps_before) / between) if between else 0.0
        worth *= 1 - (1 - NEW_BETWEEN_FACTOR) * share
        is_elsewhere = not here and mark.kind is not StepKind.VISIT
        if is_elsewhere:
            worth *= NEW_ADDRESS_FACTOR if between else NEXT_ADDRESS_FACTOR
        goes_on = not mark.is_unsuccessful and (
            share >= MIN_NEW_STEPS_SHARE or (is_elsewhere and not between)
        )
        self.add_evidence(worth, mark, old, goes_on=goes_on)
        self.add_step(mark, old, at)
        self.record_address(mark, new_steps)

    def record_address(self, mark: StepKey, new_steps: int) -> None:
        """Remembers where it was done."""
        self.steps_by_url[mark.url] = (*self.steps_by_url.get(mark.url, ()), mark)[-_MAX_PAGES_PER_ADDRESS:]
        self.steps_by_url.move_to_end(mark.url)
        self.counts_by_url[mark.url] = self.counts_by_url.get(mark.url, 0) + 1
        self.new_steps_before = new_steps
        if len(self.steps_by_url) > _MAX_ADDRESSES:
            gone, _ = self.steps_by_url.popitem(last=False)
            del self.counts_by_url[gone]

    @property
    def max_count_per_url(self) -> int:
        """How often it was done where it was done most."""
        return max(self.counts_by_url.values())


class ChainTracker:
    """Steps that are like one shortly before, strung together."""

    def __init__(self) -> None:
        self._recent: deque[tuple[StepKey, Tally]] = deque(maxlen=_LOOKBACK_STEPS)

    def add(self, mark: StepKey, at: int) -> tuple[Tally, ActionDifference | None]:
        """The chain that the step belongs to, and how it differs from the step before it in the chain."""
        for old, chain in reversed(self._recent):
            found = compare_actions(mark, old)
            if found is not None:
                self._extend_chain(chain, mark, old, at, found)
                self._recent.append((mark, chain))
                return chain, found
        if self._recent and _fails_again(self._recent[-1][0], mark):
            old, chain = self._recent[-1]
            self._extend_chain(chain, mark, old, at, ActionDifference.LITTLE)
            self._recent.append((mark, chain))
            return chain, ActionDifference.LITTLE
        chain = Tally(mark, at, at)
        self._recent.append((mark, chain))
        return chain, None

    @staticmethod
    def _extend_chain(chain: Tally, mark: StepKey, old: StepKey, at: int, found: ActionDifference) -> None:
        worth = REPEAT_WEIGHTS[mark.kind] * DIFFERENCE_FACTORS[found] * compute_page_factor(mark, old)
        if mark.url != old.url and mark.kind is not StepKind.VISIT:
            worth *= NEW_ADDRESS_FACTOR if found in (ActionDifference.NONE, ActionDifference.NUMBER) else 1.0
        if found is ActionDifference.DRIFT and chain.last == at - 1:
            found = ActionDifference.NUMBER  # the same text into one field after the other
        is_same = compare_pages(mark, old) is PageComparison.SAME
        seen = bool(mark.lines) and chain.last == at - 1 and is_same
        is_done = is_same and not mark.lines  # "OK" to something else is no sign of a loop
        chain.is_progress = shows_progress(mark, old)
        if mark.action == old.action:
            chain.exact_evidence += worth
        elif (found is ActionDifference.NUMBER or is_done) and not (mark.is_unsuccessful or seen):
            chain.capped_evidence += worth
            chain.evidence *= PROGRESS_FACTOR if chain.is_progress else 1.0
        else:
            chain.add_evidence(worth, mark, old)
        chain.differing_count += mark.action != old.action
        chain.add_step(mark, old, at)


class OscillationTracker:
    """Sequences of two to six steps that come again at once."""

    def __init__(self) -> None:
        self._recent: deque[StepKey] = deque(maxlen=MAX_PERIOD_STEPS)
        self._running: dict[int, Tally] = {}
        self._same_step_count = 0
        self._last_new_step = -MAX_PERIOD_STEPS - 1
        self.ended_tallies: list[Tally] = []
        """The strongest of those that are over."""

    def add(self, mark: StepKey, at: int) -> Tally | None:
        """The cycle that the step goes on with, if it came round at least once."""
        self._same_step_count = (
            self._same_step_count + 1 if self._recent and _is_loosely_same(self._recent[-1], mark) else 0
        )
        for period in range(2, MAX_PERIOD_STEPS + 1):
            old = self._recent[-period] if period <= len(self._recent) else None
            if old is not None and _is_loosely_same(old, mark) and self._same_step_count < period:
                self._continue_cycle(period, mark, old, at)
            elif period in self._running:
                self._end_cycle(self._running.pop(period))
        self._recent.append(mark)
        return next(iter(self.active_tallies), None)

    @property
    def active_tallies(self) -> list[Tally]:
        """Those that came round at least once, the shortest period first."""
        return [one for _, one in sorted(self._running.items()) if one.count >= 2 * one.period][:1]

    def _continue_cycle(self, period: int, mark: StepKey, old: StepKey, at: int) -> None:
        cycle = self._running.get(period)
        if cycle is None:
            first = at - period
            cycle = self._running[period] = Tally(mark, first, at - 1, count=period, period=period)
        if mark.action == old.action:
            worth = REPEAT_WEIGHTS[mark.kind] * compute_page_factor(mark, old)
        else:
            elsewhere = {one.url for one in self._recent} != {mark.url}
            worth = CYCLE_ELSEWHERE_WEIGHT if elsewhere else CYCLE_HERE_WEIGHT
            cycle.differing_count += 1
        if shows_progress(mark, old):
            self._last_new_step = at
        goes_on = at - self._last_new_step <= period  # something of this round or of the last one was new
        cycle.add_evidence(worth / period, mark, old, goes_on=goes_on)
        cycle.add_step(mark, old, at)

    def _end_cycle(self, cycle: Tally) -> None:
        if cycle.count >= 2 * cycle.period:
            self.ended_tallies = sorted(
                [*self.ended_tallies, cycle], key=lambda one: (-one.weight, one.first)
            )[:8]


def compute_page_factor(new: StepKey, old: StepKey) -> float:
    """What the observations of a step and of the earlier one say about progress."""
    if new.is_unsuccessful and old.is_unsuccessful:
        return REPEATED_FAILURE_FACTOR
    page = compare_pages(new, old)
    if page is PageComparison.SAME and (not new.lines or new.kind is StepKind.EXPLORE):
        return SAME_STATUS_FACTOR
    return PAGE_FACTORS[page]


def shows_progress(new: StepKey, old: StepKey) -> bool:
    """Whether something else was observed than after the earlier step, and it did not just fail in another way."""
    return (
        not (new.is_unsuccessful and old.is_unsuccessful)
        and compare_pages(new, old) is PageComparison.CHANGED
    )


def _fails_again(old: StepKey, new: StepKey) -> bool:
    """Whether one tool fails again at once, whatever it is asked for."""
    return new.failed and old.failed and new.tool == old.tool


def _is_loosely_same(old: StepKey, new: StepKey) -> bool:
    return new.rest == old.rest and new.url == old.url
