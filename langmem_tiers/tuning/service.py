"""The adaptive optimizer: tidies what changed, and tunes itself by what it sees."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.leases import Lease, LeaseKind
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.common.prompt_fences import without_fences
from langmem_tiers.config import MAX_LIMIT, check_limit
from langmem_tiers.display.displayable import Listed, Showing
from langmem_tiers.display.tables import Sheet
from langmem_tiers.errors import SessionNotFoundError
from langmem_tiers.session import Session
from langmem_tiers.sessions.compression_plan import Planner
from langmem_tiers.sessions.compression_target import Load, fit
from langmem_tiers.sessions.models import Savings
from langmem_tiers.sessions.session_view import Standing
from langmem_tiers.telemetry.instruments import Verb
from langmem_tiers.tuning.background import BackgroundRuns, Changes
from langmem_tiers.tuning.models import (
    EfficiencyReport,
    Snapshot,
    SnapshotPage,
    TuningParameters,
    TuningState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import MemoryParts
    from langmem_tiers.sessions.compression_plan import PlanReport
    from langmem_tiers.sessions.models import View


LEARNING_RATE = 0.05
OVER_BY = 0.10
UNDER_BY = 0.15
SMALL_SAVINGS = 0.05
WORSE_BY = 0.02
"""How much further from its target usage must be for a change to count as worse."""


def adapt(parameters: TuningParameters, usage: float, savings: float) -> tuple[TuningParameters, str]:
    """The next parameters, within their ranges, and why.

    Args:
        parameters: The present ones.
        usage: Tokens in use before the run, as a share of the budget.
        savings: What the run saved, as a share of the tokens before it.
    """
    trigger, window = parameters.compression_trigger, parameters.full_message_window
    relevance, target = parameters.min_relevance, parameters.target_usage
    reasons = []
    if usage > target + OVER_BY + 1e-9:
        trigger -= LEARNING_RATE
        window -= 2
        relevance += LEARNING_RATE
        reasons.append(f"usage {usage:.2f} is over {target + OVER_BY:.2f}")
    elif usage < target - UNDER_BY - 1e-9:
        trigger += LEARNING_RATE * 0.5
        window += 1
        relevance -= LEARNING_RATE * 0.5
        reasons.append(f"usage {usage:.2f} is under {target - UNDER_BY:.2f}")
    if savings < SMALL_SAVINGS and usage > target + 1e-9:
        trigger -= LEARNING_RATE * 2
        relevance += LEARNING_RATE * 2
        reasons.append(f"only {savings:.0%} were saved at usage {usage:.2f}")
    moved = replace(
        parameters, compression_trigger=trigger, full_message_window=window, min_relevance=relevance
    )
    return moved.clamped() if reasons else parameters, "; ".join(reasons) or "usage is near its target"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where parameters lead a session."""

    usage: float
    key_facts: int
    """Entries with key facts that stay in the context."""


def why_worse(now: Outcome, before: Outcome, target: float) -> str | None:
    """Why the parameters of now are worse for the same session than those before; None if they are not."""
    distance, former = abs(now.usage - target), abs(before.usage - target)
    if distance > former + WORSE_BY:
        return f"usage would be {now.usage:.2f}, before the change {before.usage:.2f}, the target is {target:.2f}"
    if now.key_facts < before.key_facts and before.usage <= target + OVER_BY:
        lost = before.key_facts - now.key_facts
        return f"{lost} entries with key facts would leave the context without need"
    return None


OVERLAP = timedelta(seconds=60)
"""Sessions that changed shortly before the last run are looked at again: clocks and commits are not one."""
TRIED_ON = 3
"""The sessions on which a change of parameters is tried: those that changed last."""


class _Totals:
    """What a run did to all sessions together, and what contexts saved since the run before."""

    def __init__(self, pending: Savings) -> None:
        self.after = 0
        self.before = pending.tokens
        self.compressed = pending.compressed
        self.dropped = pending.dropped
        self.promoted = pending.promoted
        self.fullest_before = self.fullest_after = 0
        self.sessions = 0
        self.problems: dict[str, None] = {}

    def add(self, report: PlanReport) -> None:
        self.sessions += 1
        self.problems.update(dict.fromkeys(report.problems))
        if report.missing:
            self.problems[f"{len(report.missing)} facts had no room in a summary"] = None
        self.before += report.tokens_before
        self.after += report.tokens_after
        self.compressed += report.compressed
        self.dropped += report.dropped
        self.promoted += report.promoted
        if report.tokens_before >= self.fullest_before:
            self.fullest_before, self.fullest_after = report.tokens_before, report.tokens_after

    def snapshot(
        self, now: datetime, available: int, parameters: TuningParameters, reason: str, *, is_reverted: bool
    ) -> Snapshot:
        """What was done, written down."""
        return Snapshot(
            created_at=now,
            tokens_before=self.before,
            tokens_after=self.after,
            entries_compressed=self.compressed,
            entries_dropped=self.dropped,
            entries_promoted=self.promoted,
            usage_before=round(self.fullest_before / available, 6),
            usage_after=round(self.fullest_after / available, 6),
            parameters=parameters,
            reason="; ".join([reason, *self.problems]),
            is_reverted=is_reverted,
        )

    @property
    def savings_ratio(self) -> float:
        """What was saved of all that there was."""
        return (self.before - self.after) / self.before if self.before else 0.0


class Optimizer(Showing):
    """Runs over a namespace by call, or in the background over what changed. Get it from ``engine.optimizer``."""

    def __init__(self, parts: MemoryParts, changes: Changes) -> None:
        self._parts = parts
        self._background = BackgroundRuns(self.run, changes, parts.config.optimizer.interval_seconds)

    def __repr__(self) -> str:
        return f"Optimizer({'running' if self.is_running else 'not running'} in the background)"

    def _sheet(self) -> Sheet:
        config = self._parts.config
        facts = {
            "runs every, in seconds": config.optimizer.interval_seconds,
            "failed runs": self.failures,
            "tokens for memory": config.budget.available,
            "per namespace": "optimizer.report(namespace) and optimizer.history(namespace)",
        }
        return Sheet(repr(self), facts)

    def start(self) -> None:
        """Run every 2 minutes, or as configured, for what this process writes."""
        self._background.start()

    def stop(self) -> bool:
        """End the background thread once its present run is done. Says whether it has ended."""
        return self._background.stop(self._parts.config.busy_timeout_seconds)

    @property
    def is_running(self) -> bool:
        """Whether the background thread is at work."""
        return self._background.is_running

    @property
    def failures(self) -> int:
        """How many runs in the background failed."""
        return self._background.failures

    def run(self, namespace: str | Iterable[str], session: str | None = None) -> Snapshot | None:
        """Tidy the sessions that changed since the last run, and adapt the parameters.

        Args:
            namespace: Whose memory.
            session: This session only.

        Returns:
            What was done; None if another runner is at work on the same namespace, or if the
            background thread was told to stop.
        """
        path = check_namespace(namespace)
        session = None if session is None else check_name(session)
        lease = Lease.of(self._parts, LeaseKind.OPTIMIZER, path)
        if not lease.hold():
            return None
        with self._parts.instruments.watch(Verb.OPTIMIZE) as watch:
            snapshot = self._run_with(lease, path, session)
            if snapshot is not None:
                watch.note(tokens_before=snapshot.tokens_before, tokens_after=snapshot.tokens_after)
            return snapshot

    def _run_with(self, lease: Lease, path: NamespacePath, session: str | None) -> Snapshot | None:
        try:
            pending, is_saved = self._parts.tuning.take_savings(path), False
            try:
                snapshot, is_saved = self._run(path, session, lease, pending)
                return snapshot
            finally:
                is_there = bool(self._parts.short_term.sessions.changed(path, since=None, limit=1))
                if not is_saved and pending != Savings() and is_there:
                    self._parts.tuning.add_savings(path, pending, self._parts.now())
        finally:
            lease.give_back()

    def parameters(self, namespace: str | Iterable[str]) -> TuningParameters:
        """The parameters in force."""
        return self._parts.parameters_of(check_namespace(namespace))

    def report(self, namespace: str | Iterable[str]) -> EfficiencyReport:
        """What the optimizer achieved in a namespace."""
        state = self._parts.tuning_of(check_namespace(namespace))
        return EfficiencyReport(
            total_optimizations=state.runs,
            total_tokens_saved=state.tokens_saved,
            parameters=state.parameters,
        )

    def history(self, namespace: str | Iterable[str], limit: int = 500) -> tuple[Snapshot, ...]:
        """The newest runs, newest first."""
        return Listed(self._parts.tuning.snapshots(check_namespace(namespace), check_limit(limit)))

    def page(
        self, namespace: str | Iterable[str], *, before: int | None = None, limit: int = 100
    ) -> SnapshotPage:
        """A page of the runs, newest first.

        Args:
            namespace: Whose.
            before: ``next_before`` of the page before; from the newest, if left out.
            limit: Runs per page.
        """
        check_limit(limit)
        found = self._parts.tuning.snapshot_page(check_namespace(namespace), before=before, limit=limit + 1)
        return SnapshotPage(
            snapshots=tuple(one.snapshot for one in found[:limit]),
            next_before=found[limit - 1].key if len(found) > limit else None,
        )

    def _run(
        self, namespace: NamespacePath, name: str | None, lease: Lease, pending: Savings
    ) -> tuple[Snapshot | None, bool]:
        parts, state, start = self._parts, self._parts.tuning_of(namespace), self._parts.now()
        parts.knowledge_of(namespace).decay()
        sessions = self._sessions(namespace, name, state)
        reverted = self._why_reverted(state, sessions)
        in_force = state.parameters if reverted is None or state.previous is None else state.previous
        totals = _Totals(pending)
        for session in sessions:
            if self._background.is_told_to_stop or not lease.hold():
                return None, False
            with suppress(SessionNotFoundError):  # deleted meanwhile
                totals.add(session.tidy_with(in_force))
                if parts.config.optimizer.learns:
                    session.learn()
        available = parts.config.budget.available
        usage = totals.fullest_before / available
        parameters, reason = in_force, "nothing changed"
        if reverted is not None:
            reason = f"taken back: {reverted}"
        elif totals.sessions:
            parameters, reason = adapt(in_force, usage, totals.savings_ratio)
        snapshot = totals.snapshot(
            parts.now(), available, parameters, reason, is_reverted=reverted is not None
        )
        if not totals.sessions:
            return snapshot, False  # nothing to remember, perhaps not even the namespace
        after = TuningState(
            parameters=parameters,
            previous=in_force if parameters != in_force else None,
            since=start if name is None else state.since,
            runs=state.runs + 1,
            tokens_saved=state.tokens_saved + snapshot.tokens_saved,
        )
        keep, held = parts.config.optimizer.snapshots, (lease.name, lease.holder)
        is_saved = parts.tuning.save(namespace, after, snapshot, keep=keep, lease=held)
        return snapshot if is_saved else None, is_saved

    def _sessions(self, namespace: NamespacePath, name: str | None, state: TuningState) -> list[Session]:
        store = self._parts.short_term.sessions
        if name is not None:
            info = store.find(namespace, name)
            return [] if info is None else [Session(self._parts, info)]
        since = None if state.since is None or state.since > self._parts.now() else state.since - OVERLAP
        found = store.changed(namespace, since=since, limit=MAX_LIMIT)
        found = found or store.changed(namespace, since=None, limit=1)
        return [Session(self._parts, info) for info in found]

    def _why_reverted(self, state: TuningState, sessions: list[Session]) -> str | None:
        # Both sets of parameters are tried on the same session as it is now: what grew or shrank
        # for other reasons does not count for or against a change.
        if state.previous is None or not sessions:
            return None
        view = max(
            (self._parts.views.read(session.key) for session in sessions[:TRIED_ON]),
            key=lambda one: sum(item.message.token_count for item in one.items),
        )
        now, before = (self._outcome(view, tried) for tried in (state.parameters, state.previous))
        return why_worse(now, before, state.parameters.target_usage)

    def _outcome(self, view: View, parameters: TuningParameters) -> Outcome:
        parts, moment, items, tokens = self._parts, self._parts.now(), list(view.items), 0
        for _ in range(2):  # what is compressed in one run can be dropped in the next
            planner = Planner(parts, replace(view, items=tuple(items)), parameters)
            sketch = parts.analyzer.sketch(items, moment, parameters.min_relevance)
            hidden = fit(sketch, parts.analyzer, planner.goal, planner.window, moment)
            items = sketch.items[hidden:]
            standing = Standing.of_items(items, planner.window)
            load = Load(standing, parts.counter)
            tokens = load.tokens + (planner.goal.summary_for(load.window) if hidden else 0)
        shown = [message for message in standing.shown if message is not None]
        facts = sum(bool(parts.analyzer.key_facts(without_fences(message.content))) for message in shown)
        return Outcome(tokens / parts.config.budget.available, facts)
