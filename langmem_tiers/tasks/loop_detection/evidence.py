"""Accumulation of evidence for loops: repeats of an action, chains of similar actions, and oscillations."""

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
"""Maximum number of addresses remembered per action."""
_MAX_PAGES_PER_ADDRESS = 3
"""Maximum number of steps remembered per address of an action."""
_LOOKBACK_STEPS = 12
"""Number of previous steps that are searched for a similar action."""
MAX_PERIOD_STEPS = 6
"""Maximum period of an oscillation."""


@dataclass(slots=True)
class Tally:
    """Evidence for one possible loop."""

    latest_step: StepKey
    first: int
    """Number of the first step."""
    last: int
    """Number of the latest step."""
    count: int = 1
    """Number of steps."""
    evidence: float = 0.0
    unchanged_count: int = 0
    """Number of repeats with an unchanged observation."""
    failed_count: int = 0
    """Number of repeats that failed like the previous one."""
    period: int = 1
    differing_count: int = 0
    """Number of steps whose action differs slightly."""
    exact_evidence: float = 0.0
    """Evidence of identical steps in a chain. It counts only up to the amount of ``evidence``."""
    capped_evidence: float = 0.0
    """Evidence of steps that differ only in counters and ids; it has an upper limit."""
    changed_evidence: float = 0.0
    """Evidence of repeats with a new observation, or among steps with progress; it has an upper limit."""
    is_progress: bool = False
    """True if the latest step observed something new."""

    @property
    def weight(self) -> float:
        """Sum of all evidence, with its limits applied."""
        return (
            self.evidence
            + min(self.exact_evidence, self.evidence)
            + min(self.capped_evidence, MAX_NUMBERS_ONLY_EVIDENCE)
            + min(self.changed_evidence, MAX_CHANGED_ONLY_EVIDENCE)
        )

    def add_evidence(self, worth: float, step_key: StepKey, old: StepKey, *, goes_on: bool = False) -> None:
        """Add the evidence of a repeat.

        Args:
            worth: Amount of evidence.
            step_key: The repeat.
            old: The repeated step.
            goes_on: True if the surrounding steps make progress. Default: False.
        """
        self.is_progress = shows_progress(step_key, old)
        # Progress devalues earlier evidence: a form that fails twice and then works is not a loop.
        if self.is_progress:
            self.evidence *= PROGRESS_FACTOR
            self.exact_evidence *= PROGRESS_FACTOR
        if self.is_progress or goes_on:
            self.changed_evidence += worth
        else:
            self.evidence += worth

    def add_step(self, step_key: StepKey, old: StepKey, at: int) -> None:
        """Add a step."""
        self.count += 1
        self.last = at
        self.latest_step = step_key
        self.failed_count += step_key.failed and old.failed
        self.unchanged_count += not step_key.failed and compare_pages(step_key, old) is PageComparison.SAME


@dataclass(slots=True)
class ActionRepeats(Tally):
    """Evidence of all steps with exactly the same action."""

    steps_by_url: OrderedDict[str, tuple[StepKey, ...]] = field(default_factory=OrderedDict)
    """Latest steps per address. Several, because a menu that opens and closes in turn has two page states."""
    counts_by_url: dict[str, int] = field(default_factory=dict)
    """Number of steps per address."""
    new_steps_before: int = 0
    """Number of new steps in the run at the time of the latest repeat."""

    def add_repeat(self, step_key: StepKey, at: int, new_steps: int) -> None:
        """Add a repeat of the action.

        Args:
            step_key: The repeat.
            at: Number of the step.
            new_steps: Number of new steps in the run so far.
        """
        # Compare with the most similar earlier observation on the same page, the latest one if several are equal.
        steps_here = self.steps_by_url.get(step_key.url, ())
        old = (
            max(reversed(steps_here), key=lambda step: PAGE_FACTORS[compare_pages(step_key, step)])
            if steps_here
            else self.latest_step
        )
        between = at - self.last - 1
        worth = REPEAT_WEIGHTS[step_key.kind] * compute_page_factor(step_key, old)
        # Share of new steps since the previous repeat: 0 gives the full weight, 1 gives NEW_BETWEEN_FACTOR.
        share = min(1.0, (new_steps - self.new_steps_before) / between) if between else 0.0
        worth *= 1 - (1 - NEW_BETWEEN_FACTOR) * share
        is_elsewhere = not steps_here and step_key.kind is not StepKind.VISIT
        if is_elsewhere:
            worth *= NEW_ADDRESS_FACTOR if between else NEXT_ADDRESS_FACTOR
        goes_on = not step_key.is_unsuccessful and (
            share >= MIN_NEW_STEPS_SHARE or (is_elsewhere and not between)
        )
        self.add_evidence(worth, step_key, old, goes_on=goes_on)
        self.add_step(step_key, old, at)
        self.record_address(step_key, new_steps)

    def record_address(self, step_key: StepKey, new_steps: int) -> None:
        """Record the address of a step of this action."""
        self.steps_by_url[step_key.url] = (*self.steps_by_url.get(step_key.url, ()), step_key)[
            -_MAX_PAGES_PER_ADDRESS:
        ]
        self.steps_by_url.move_to_end(step_key.url)
        self.counts_by_url[step_key.url] = self.counts_by_url.get(step_key.url, 0) + 1
        self.new_steps_before = new_steps
        if len(self.steps_by_url) > _MAX_ADDRESSES:
            dropped_url, _ = self.steps_by_url.popitem(last=False)
            del self.counts_by_url[dropped_url]

    @property
    def max_count_per_url(self) -> int:
        """Highest number of steps on a single page."""
        return max(self.counts_by_url.values())


class ChainTracker:
    """Groups steps into chains in which each step is similar to one shortly before it."""

    def __init__(self) -> None:
        self._recent: deque[tuple[StepKey, Tally]] = deque(maxlen=_LOOKBACK_STEPS)

    def add(self, step_key: StepKey, at: int) -> tuple[Tally, ActionDifference | None]:
        """Return the chain of a step and its difference from the similar step (None for a new chain)."""
        for old, chain in reversed(self._recent):
            difference = compare_actions(step_key, old)
            if difference is not None:
                self._extend_chain(chain, step_key, old, at, difference)
                self._recent.append((step_key, chain))
                return chain, difference
        # A tool that fails twice in a row forms a chain even if the parameters have nothing in common.
        if self._recent and _fails_again(self._recent[-1][0], step_key):
            old, chain = self._recent[-1]
            self._extend_chain(chain, step_key, old, at, ActionDifference.LITTLE)
            self._recent.append((step_key, chain))
            return chain, ActionDifference.LITTLE
        chain = Tally(step_key, at, at)
        self._recent.append((step_key, chain))
        return chain, None

    @staticmethod
    def _extend_chain(
        chain: Tally, step_key: StepKey, old: StepKey, at: int, difference: ActionDifference
    ) -> None:
        worth = (
            REPEAT_WEIGHTS[step_key.kind]
            * DIFFERENCE_FACTORS[difference]
            * compute_page_factor(step_key, old)
        )
        if step_key.url != old.url and step_key.kind is not StepKind.VISIT:
            worth *= (
                NEW_ADDRESS_FACTOR if difference in (ActionDifference.NONE, ActionDifference.NUMBER) else 1.0
            )
        # The same text in several fields in a row is the filling of a form, not a retry.
        if difference is ActionDifference.DRIFT and chain.last == at - 1:
            difference = ActionDifference.NUMBER
        is_same = compare_pages(step_key, old) is PageComparison.SAME
        # Two consecutive steps left a whole page unchanged: they had no effect.
        is_page_unchanged = bool(step_key.lines) and chain.last == at - 1 and is_same
        # The same short status, such as "OK", after a different action is not a sign of a loop.
        is_same_status = is_same and not step_key.lines
        chain.is_progress = shows_progress(step_key, old)
        if step_key.action == old.action:
            # ActionRepeats counts identical steps; in the chain they only support the evidence of differing ones.
            chain.exact_evidence += worth
        elif (difference is ActionDifference.NUMBER or is_same_status) and not (
            step_key.is_unsuccessful or is_page_unchanged
        ):
            chain.capped_evidence += worth
            chain.evidence *= PROGRESS_FACTOR if chain.is_progress else 1.0
        else:
            chain.add_evidence(worth, step_key, old)
        chain.differing_count += step_key.action != old.action
        chain.add_step(step_key, old, at)


class OscillationTracker:
    """Finds sequences of two to six steps that repeat immediately."""

    def __init__(self) -> None:
        self._recent: deque[StepKey] = deque(maxlen=MAX_PERIOD_STEPS)
        self._running: dict[int, Tally] = {}
        self._same_step_count = 0
        self._last_new_step = -MAX_PERIOD_STEPS - 1
        self.ended_tallies: list[Tally] = []
        """Ended oscillations with the most evidence, at most eight."""

    def add(self, step_key: StepKey, at: int) -> Tally | None:
        """Return the oscillation that the step continues, if it has at least two full rounds."""
        # Number of equal steps in a row. A run of at least ``period`` equal steps is a plain repeat, not an
        # oscillation.
        self._same_step_count = (
            self._same_step_count + 1 if self._recent and _is_loosely_same(self._recent[-1], step_key) else 0
        )
        for period in range(2, MAX_PERIOD_STEPS + 1):
            old = self._recent[-period] if period <= len(self._recent) else None
            if old is not None and _is_loosely_same(old, step_key) and self._same_step_count < period:
                self._continue_cycle(period, step_key, old, at)
            elif period in self._running:
                self._end_cycle(self._running.pop(period))
        self._recent.append(step_key)
        return next(iter(self.active_tallies), None)

    @property
    def active_tallies(self) -> list[Tally]:
        """The running oscillation of the shortest period that has at least two full rounds, if any."""
        # A sequence of period 2 also repeats with periods 4 and 6; only the shortest is reported.
        return [tally for _, tally in sorted(self._running.items()) if tally.count >= 2 * tally.period][:1]

    def _continue_cycle(self, period: int, step_key: StepKey, old: StepKey, at: int) -> None:
        cycle = self._running.get(period)
        if cycle is None:
            # The first round was seen before this step; this step begins the second.
            first = at - period
            cycle = self._running[period] = Tally(step_key, first, at - 1, count=period, period=period)
        if step_key.action == old.action:
            worth = REPEAT_WEIGHTS[step_key.kind] * compute_page_factor(step_key, old)
        else:
            is_elsewhere = {step.url for step in self._recent} != {step_key.url}
            worth = CYCLE_ELSEWHERE_WEIGHT if is_elsewhere else CYCLE_HERE_WEIGHT
            cycle.differing_count += 1
        if shows_progress(step_key, old):
            self._last_new_step = at
        # The oscillation makes progress if any step of the last round observed something new.
        goes_on = at - self._last_new_step <= period
        cycle.add_evidence(worth / period, step_key, old, goes_on=goes_on)
        cycle.add_step(step_key, old, at)

    def _end_cycle(self, cycle: Tally) -> None:
        if cycle.count >= 2 * cycle.period:
            self.ended_tallies = sorted(
                [*self.ended_tallies, cycle], key=lambda tally: (-tally.weight, tally.first)
            )[:8]


def compute_page_factor(new: StepKey, old: StepKey) -> float:
    """Return the factor for the evidence of a repeat that follows from both observations."""
    if new.is_unsuccessful and old.is_unsuccessful:
        return REPEATED_FAILURE_FACTOR
    page = compare_pages(new, old)
    if page is PageComparison.SAME and (not new.lines or new.kind is StepKind.EXPLORE):
        return SAME_STATUS_FACTOR
    return PAGE_FACTORS[page]


def shows_progress(new: StepKey, old: StepKey) -> bool:
    """Return True if the observation changed, and not only from one failure to another."""
    return (
        not (new.is_unsuccessful and old.is_unsuccessful)
        and compare_pages(new, old) is PageComparison.CHANGED
    )


def _fails_again(old: StepKey, new: StepKey) -> bool:
    """Return True if the same tool failed twice, whatever its parameters."""
    return new.failed and old.failed and new.tool == old.tool


def _is_loosely_same(old: StepKey, new: StepKey) -> bool:
    return new.rest == old.rest and new.url == old.url
