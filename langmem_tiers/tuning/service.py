"""The adaptive optimizer: it compresses sessions that changed and adapts its parameters to the results."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.leases import Lease, LeaseKind, build_lease_name
from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.config import MAX_LIMIT, check_limit
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable
from langmem_tiers.display.tables import DisplayContent
from langmem_tiers.errors import SessionNotFoundError
from langmem_tiers.session import Session
from langmem_tiers.sessions.compression_target import SessionLoad
from langmem_tiers.sessions.models import Savings
from langmem_tiers.sessions.session_view import SessionView
from langmem_tiers.telemetry.instruments import Operation
from langmem_tiers.tuning.models import (
    EfficiencyReport,
    TuningParameters,
    TuningSnapshot,
    TuningSnapshotPage,
    TuningState,
)
from langmem_tiers.tuning.scheduler import BackgroundRunner, ChangedNamespaces

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.compression_plan import PlanReport
    from langmem_tiers.sessions.models import StoredView


LEARNING_RATE = 0.05
"""Step by which the compression trigger and the minimum relevance change."""
MAX_USAGE_ABOVE_TARGET = 0.10
MAX_USAGE_BELOW_TARGET = 0.15
MIN_SAVINGS_SHARE = 0.05
"""Share of tokens that a run should save at least while usage is above the target."""
MAX_USAGE_REGRESSION = 0.02
"""Increase of the distance from the target usage above which a change counts as worse."""


def adapt_parameters(
    parameters: TuningParameters, usage: float, savings: float
) -> tuple[TuningParameters, str]:
    """Return the next parameters, within their ranges, and the reason for the change.

    Args:
        parameters: Current parameters.
        usage: Tokens in use before the run, as a share of the budget.
        savings: Tokens saved by the run, as a share of the tokens before it.
    """
    trigger, window = parameters.compression_trigger, parameters.full_message_window
    relevance, target = parameters.min_relevance, parameters.target_usage
    reasons = []
    # 1e-9 keeps rounding errors of floats from deciding at the limits.
    if usage > target + MAX_USAGE_ABOVE_TARGET + 1e-9:
        trigger -= LEARNING_RATE
        window -= 2
        relevance += LEARNING_RATE
        reasons.append(f"usage {usage:.1%} is over {target + MAX_USAGE_ABOVE_TARGET:.0%}")
    elif usage < target - MAX_USAGE_BELOW_TARGET - 1e-9:
        trigger += LEARNING_RATE * 0.5
        window += 1
        relevance -= LEARNING_RATE * 0.5
        reasons.append(f"usage {usage:.1%} is under {target - MAX_USAGE_BELOW_TARGET:.0%}")
    if savings < MIN_SAVINGS_SHARE and usage > target + 1e-9:
        trigger -= LEARNING_RATE * 2
        relevance += LEARNING_RATE * 2
        reasons.append(f"only {savings:.0%} were saved at usage {usage:.1%}")
    changed = replace(
        parameters, compression_trigger=trigger, full_message_window=window, min_relevance=relevance
    )
    return changed.clamped() if reasons else parameters, "; ".join(reasons) or "usage is near its target"


@dataclass(frozen=True, slots=True)
class TuningOutcome:
    """Simulated effect of parameters on a session."""

    usage: float
    key_facts: int
    """Number of entries with key facts that remain in the context."""


def explain_regression(now: TuningOutcome, before: TuningOutcome, target: float) -> str | None:
    """Explain why the current parameters are worse for a session than the previous ones; None if they are not."""
    distance, former = abs(now.usage - target), abs(before.usage - target)
    if distance > former + MAX_USAGE_REGRESSION:
        return f"usage would be {now.usage:.1%}, before the change {before.usage:.1%}, the target is {target:.0%}"
    if now.key_facts < before.key_facts and before.usage <= target + MAX_USAGE_ABOVE_TARGET:
        lost = before.key_facts - now.key_facts
        return f"{lost} entries with key facts would be removed from the context unnecessarily"
    return None


CHANGED_SINCE_OVERLAP = timedelta(seconds=60)
"""Sessions that changed this long before the last run are processed again: clocks differ, and commits take time."""
MAX_TRIAL_SESSIONS = 3
"""Number of most recently changed sessions from which the one for a trial of parameters is chosen."""


class _RunTotals:
    """Totals of a run over all sessions, including the savings of contexts since the previous run."""

    def __init__(self, pending: Savings) -> None:
        self.tokens_after = 0
        self.tokens_before = pending.tokens
        self.compressed = pending.compressed
        self.dropped = pending.dropped
        self.promoted = pending.promoted
        self.fullest_before = self.fullest_after = 0
        self.session_count = 0
        self.problems: dict[str, None] = {}

    def add(self, report: PlanReport) -> None:
        self.session_count += 1
        self.problems.update(dict.fromkeys(report.problems))
        if report.missing:
            self.problems[f"{len(report.missing)} facts did not fit into a summary"] = None
        self.tokens_before += report.tokens_before
        self.tokens_after += report.tokens_after
        self.compressed += report.compressed
        self.dropped += report.dropped
        self.promoted += report.promoted
        if report.tokens_before >= self.fullest_before:
            self.fullest_before, self.fullest_after = report.tokens_before, report.tokens_after

    def build_snapshot(
        self, now: datetime, available: int, parameters: TuningParameters, reason: str, *, is_reverted: bool
    ) -> TuningSnapshot:
        """Build the record of the run."""
        return TuningSnapshot(
            created_at=now,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after,
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
        """Saved tokens as a share of the tokens before the run."""
        return (self.tokens_before - self.tokens_after) / self.tokens_before if self.tokens_before else 0.0


class Optimizer(NotebookDisplayable):
    """Adaptive optimizer, on demand or in a background thread. Get it from ``engine.optimizer``."""

    def __init__(self, services: EngineServices, changes: ChangedNamespaces) -> None:
        self._services = services
        self._background = BackgroundRunner(self.run, changes, services.config.optimizer.interval_seconds)

    def __repr__(self) -> str:
        return f"Optimizer({'running' if self.is_running else 'not running'} in the background)"

    def _to_display(self) -> DisplayContent:
        config = self._services.config
        facts = {
            "runs every, in seconds": config.optimizer.interval_seconds,
            "failed runs": self.failures,
            "tokens for memory": config.budget.available,
            "per namespace": "optimizer.report(namespace) and optimizer.history(namespace)",
        }
        return DisplayContent(repr(self), facts)

    def start(self) -> None:
        """Start a thread that optimizes the namespaces this process writes to; every 2 minutes by default."""
        self._background.start()

    def stop(self) -> bool:
        """Stop the background thread after its current run; return True if it has ended."""
        return self._background.stop(self._services.config.busy_timeout_seconds)

    @property
    def is_running(self) -> bool:
        """True if the background thread is running."""
        return self._background.is_running

    @property
    def failures(self) -> int:
        """Number of failed background runs."""
        return self._background.failures

    def run(self, namespace: str | Iterable[str], session: str | None = None) -> TuningSnapshot | None:
        """Compress the sessions that changed since the last run, and adapt the parameters.

        Args:
            namespace: Namespace to optimize.
            session: Optimize only this session.

        Returns:
            Record of the run; None if another process optimizes the same namespace, or if the background thread was
            asked to stop.
        """
        path = check_namespace(namespace)
        session = None if session is None else check_name(session)
        lease = self._services.get_lease(build_lease_name(LeaseKind.OPTIMIZER, path))
        if not lease.acquire():
            return None
        with self._services.instruments.measure(Operation.OPTIMIZE) as watch:
            snapshot = self._run_with_lease(lease, path, session)
            if snapshot is not None:
                watch.record(tokens_before=snapshot.tokens_before, tokens_after=snapshot.tokens_after)
            return snapshot

    def _run_with_lease(
        self, lease: Lease, path: NamespacePath, session: str | None
    ) -> TuningSnapshot | None:
        try:
            pending, is_saved = self._services.tuning.take_savings(path), False
            try:
                snapshot, is_saved = self._run(path, session, lease, pending)
                return snapshot
            finally:
                # If the run was not saved, put its savings back. add_savings() creates a missing namespace, so check
                # that it still has a session: an erased namespace must not come back.
                exists = bool(self._services.short_term.sessions.list_changed(path, since=None, limit=1))
                if not is_saved and pending != Savings() and exists:
                    self._services.tuning.add_savings(path, pending, self._services.now())
        finally:
            lease.release()

    def parameters(self, namespace: str | Iterable[str]) -> TuningParameters:
        """Return the current parameters of a namespace."""
        return self._services.load_parameters(check_namespace(namespace))

    def report(self, namespace: str | Iterable[str]) -> EfficiencyReport:
        """Return the results of the optimizer in a namespace."""
        state = self._services.load_tuning_state(check_namespace(namespace))
        return EfficiencyReport(
            total_optimizations=state.runs,
            total_tokens_saved=state.tokens_saved,
            parameters=state.parameters,
        )

    def history(self, namespace: str | Iterable[str], limit: int = 500) -> tuple[TuningSnapshot, ...]:
        """Return the newest runs, newest first."""
        return DisplayableTuple(
            self._services.tuning.list_snapshots(check_namespace(namespace), check_limit(limit))
        )

    def page(
        self, namespace: str | Iterable[str], *, before: int | None = None, limit: int = 100
    ) -> TuningSnapshotPage:
        """Return a page of the runs, newest first.

        Args:
            namespace: Namespace of the runs.
            before: ``next_before`` of the previous page. Default: start with the newest run.
            limit: Maximum number of runs per page.
        """
        check_limit(limit)
        found = self._services.tuning.list_snapshot_page(
            check_namespace(namespace), before=before, limit=limit + 1
        )
        return TuningSnapshotPage(
            snapshots=tuple(stored.snapshot for stored in found[:limit]),
            next_before=found[limit - 1].key if len(found) > limit else None,
        )

    def _run(
        self, namespace: NamespacePath, name: str | None, lease: Lease, pending: Savings
    ) -> tuple[TuningSnapshot | None, bool]:
        services, state, start = (
            self._services,
            self._services.load_tuning_state(namespace),
            self._services.now(),
        )
        services.get_knowledge(namespace).decay()
        sessions = self._find_sessions(namespace, name, state)
        revert_reason = self._find_revert_reason(state, sessions)
        current = (
            state.parameters
            if revert_reason is None or state.previous_parameters is None
            else state.previous_parameters
        )
        totals = _RunTotals(pending)
        for session in sessions:
            # Acquiring the lease again renews it: a long run must not lose it to another process.
            if self._background.is_stop_requested or not lease.acquire():
                return None, False
            with suppress(SessionNotFoundError):  # deleted in the meantime
                totals.add(session.tidy_with(current))
                if services.config.optimizer.learns:
                    session.learn()
        available = services.config.budget.available
        usage = totals.fullest_before / available
        parameters, reason = current, "nothing changed"
        if revert_reason is not None:
            reason = f"reverted: {revert_reason}"
        elif totals.session_count:
            parameters, reason = adapt_parameters(current, usage, totals.savings_ratio)
        snapshot = totals.build_snapshot(
            services.now(), available, parameters, reason, is_reverted=revert_reason is not None
        )
        # Without a session there is nothing to save; the namespace may not even exist, and save() would create it.
        if not totals.session_count:
            return snapshot, False
        after = TuningState(
            parameters=parameters,
            previous_parameters=current if parameters != current else None,
            last_full_run_at=start if name is None else state.last_full_run_at,
            runs=state.runs + 1,
            tokens_saved=state.tokens_saved + snapshot.tokens_saved,
        )
        keep, lease_of_run = services.config.optimizer.snapshots, (lease.name, lease.holder)
        is_saved = services.tuning.save(namespace, after, snapshot, keep=keep, lease=lease_of_run)
        return snapshot if is_saved else None, is_saved

    def _find_sessions(self, namespace: NamespacePath, name: str | None, state: TuningState) -> list[Session]:
        store = self._services.short_term.sessions
        if name is not None:
            info = store.get(namespace, name)
            return [] if info is None else [Session(self._services, info)]
        # A last run in the future means that the clock was set back: then all sessions count as changed.
        since = (
            None
            if state.last_full_run_at is None or state.last_full_run_at > self._services.now()
            else state.last_full_run_at - CHANGED_SINCE_OVERLAP
        )
        found = store.list_changed(namespace, since=since, limit=MAX_LIMIT)
        # If nothing changed, one session is enough to judge the last change of the parameters.
        found = found or store.list_changed(namespace, since=None, limit=1)
        return [Session(self._services, info) for info in found]

    def _find_revert_reason(self, state: TuningState, sessions: list[Session]) -> str | None:
        # Both sets of parameters are simulated on the same session in its current state, so growth or shrinkage for
        # other reasons does not count for or against the change.
        if state.previous_parameters is None or not sessions:
            return None
        view = max(
            (self._services.views.get(session.key) for session in sessions[:MAX_TRIAL_SESSIONS]),
            key=lambda view: sum(item.message.token_count for item in view.items),
        )
        current, previous = (
            self._simulate_outcome(view, parameters)
            for parameters in (state.parameters, state.previous_parameters)
        )
        return explain_regression(current, previous, state.parameters.target_usage)

    def _simulate_outcome(self, view: StoredView, parameters: TuningParameters) -> TuningOutcome:
        services, now, items, tokens = self._services, self._services.now(), list(view.items), 0
        # Two rounds: a message that is compressed in one run can be dropped in the next.
        for _ in range(2):
            planner = services.get_planner(replace(view, items=tuple(items)), parameters)
            draft, hidden = planner.draft_tidying(now)
            items = draft.items[hidden:]
            session_view = SessionView.from_items(items, planner.window)
            load = SessionLoad(session_view, services.counter)
            # The summary of the hidden messages is not written, only its size is estimated.
            tokens = load.tokens + (
                planner.target.compute_summary_tokens(load.window_tokens) if hidden else 0
            )
        visible = [message for message in session_view.visible_messages if message is not None]
        facts = sum(bool(services.analyzer.key_facts(strip_fences(message.content))) for message in visible)
        return TuningOutcome(tokens / services.config.budget.available, facts)
