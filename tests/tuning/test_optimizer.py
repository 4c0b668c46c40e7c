"""The optimizer: loop, storage, thread and leases."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, OptimizerConfig, Tier, TokenBudget
from langmem_tiers.testing import FrozenClock, seeded_ids
from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers.tuning import TuningParameters
from langmem_tiers.tuning.models import TuningSnapshot, TuningState
from langmem_tiers.tuning.scheduler import BackgroundRunner, ChangedNamespaces
from tests.facts.learning_processes import optimize_often
from tests.faults.parallel_children import run_at_once
from tests.fork_server import fork_server
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langmem_tiers import Session
    from langmem_tiers.common.namespaces import NamespacePath

TALK = "We talked about the weather, the sea and the long way home, and nobody was in a hurry. "
SMALL = EngineConfig(budget=TokenBudget.of(4000))


@pytest.fixture
def small(url: str, clock: FrozenClock) -> Iterator[MemoryEngine]:
    with MemoryEngine(url, config=SMALL, clock=clock, ids=seeded_ids()) as engine:
        yield engine


def talk(session: Session, number: int, words: int = 1) -> None:
    session.add_many(MessageDraft("user", f"Remark {n}: {TALK * words}") for n in range(number))


def test_a_run_compresses_drops_promotes_adapts_and_records_a_snapshot(
    small: MemoryEngine, tenant: str, clock: FrozenClock
) -> None:
    session = small.session(tenant, "s")
    session.add("user", "ok")
    session.add("user", "The form is at https://example.com and its selector is #email.")
    first = small.optimizer.run(tenant)
    assert first is not None
    assert (first.entries_compressed, first.entries_dropped, first.entries_promoted) == (1, 0, 1)
    assert first.usage_before < 0.5
    assert first.parameters == TuningParameters(
        compression_trigger=0.725, full_message_window=31, min_relevance=0.275
    )
    assert first.created_at == clock.now()
    clock.advance(minutes=2)
    second = small.optimizer.run(tenant)
    assert second is not None
    assert second.entries_dropped == 1
    assert small.optimizer.history(tenant) == (second, first)
    assert small.optimizer.parameters(tenant) == second.parameters


def test_a_session_over_its_budget_is_reduced_to_its_target(small: MemoryEngine, tenant: str) -> None:
    session = small.session(tenant, "s")
    talk(session, 300)
    snapshot = small.optimizer.run(tenant)
    assert snapshot is not None
    assert snapshot.usage_before > 1
    assert snapshot.tokens_before > snapshot.tokens_after
    assert 0.5 <= snapshot.usage_after <= 0.65
    assert snapshot.parameters.full_message_window == 28
    assert "is over 75%" in snapshot.reason


def test_the_report_adds_up_over_all_runs(small: MemoryEngine, tenant: str, clock: FrozenClock) -> None:
    assert small.optimizer.report(tenant).as_dict()["totalOptimizations"] == 0
    session = small.session(tenant, "s")
    saved = 0
    for _ in range(3):
        talk(session, 100)
        clock.advance(minutes=2)
        snapshot = small.optimizer.run(tenant)
        assert snapshot is not None
        saved += snapshot.tokens_saved
    report = small.optimizer.report(tenant)
    assert (report.total_optimizations, report.total_tokens_saved) == (3, saved)
    assert report.average_savings == round(saved / 3)
    assert (
        report.as_dict()["currentParameters"]["compressionTrigger"] == report.parameters.compression_trigger
    )


def test_savings_of_contexts_between_two_runs_count(small: MemoryEngine, tenant: str) -> None:
    session = small.session(tenant, "s")
    talk(session, 200)
    session.build_context()
    snapshot = small.optimizer.run(tenant)
    assert snapshot is not None
    assert snapshot.tokens_saved > 2000
    again = small.optimizer.run(tenant)
    assert again is not None
    assert again.tokens_saved < 500


def test_a_single_session_can_be_optimized(small: MemoryEngine, tenant: str) -> None:
    for name in ("one", "other"):
        small.session(tenant, name).add("user", "ok")
    snapshot = small.optimizer.run(tenant, "one")
    assert snapshot is not None
    assert snapshot.entries_compressed == 1
    assert small.session(tenant, "other").entries()[0].state == "full"
    nowhere = small.optimizer.run(tenant, "nowhere")
    assert nowhere is not None
    assert nowhere.reason == "nothing changed"


@pytest.mark.parametrize(("seconds", "is_looked_at"), [(60, True), (61, False)])
def test_a_run_includes_sessions_changed_in_the_minute_before_the_last_run(
    small: MemoryEngine,
    tenant: str,
    clock: FrozenClock,
    seconds: int,
    is_looked_at: bool,  # noqa: FBT001 - a column of the table
) -> None:
    talk(small.session(tenant, "earlier"), 2)
    clock.advance(seconds=seconds)
    talk(small.session(tenant, "last"), 3)
    alone = {name: small.optimizer.run(tenant, name) for name in ("earlier", "last")}
    tokens = {name: snapshot.tokens_before for name, snapshot in alone.items() if snapshot is not None}
    first = small.optimizer.run(tenant)
    clock.advance(minutes=5)
    second = small.optimizer.run(tenant)
    assert first is not None
    assert second is not None
    assert first.tokens_before == tokens["earlier"] + tokens["last"]
    assert second.tokens_before == tokens["last"] + (tokens["earlier"] if is_looked_at else 0)


def test_a_namespace_without_sessions_changes_nothing(small: MemoryEngine, tenant: str) -> None:
    snapshot = small.optimizer.run(tenant)
    assert snapshot is not None
    assert snapshot.parameters == TuningParameters()


def test_only_the_latest_500_snapshots_are_kept(tenant: str, clock: FrozenClock) -> None:
    assert OptimizerConfig().snapshots == 500
    config = replace(SMALL, optimizer=OptimizerConfig(snapshots=5))
    with MemoryEngine(config=config, clock=clock) as engine:
        engine.session(tenant, "s").add("user", "Hello there, this is it.")
        runs = []
        for _ in range(8):
            clock.advance(minutes=2)
            runs.append(engine.optimizer.run(tenant))
        assert engine.optimizer.history(tenant) == tuple(reversed(runs[3:]))
        assert engine.optimizer.report(tenant).total_optimizations == 8


def test_learned_parameters_survive_a_restart(tmp_path: Path, clock: FrozenClock) -> None:
    url = tmp_path / "memory.db"
    with MemoryEngine(url, config=SMALL, clock=clock) as engine:
        talk(engine.session("a", "s"), 300)
        engine.optimizer.run("a")
        learned = engine.optimizer.parameters("a")
        assert learned != TuningParameters()
    with MemoryEngine(url, config=SMALL, clock=clock) as engine:
        assert engine.optimizer.parameters("a") == learned
        assert engine.optimizer.report("a").total_optimizations == 1
        assert engine.optimizer.parameters("b") == TuningParameters()


def test_the_learned_window_is_used_for_contexts(
    small: MemoryEngine, tenant: str, clock: FrozenClock
) -> None:
    session = small.session(tenant, "s")
    session.add_many(
        MessageDraft("user", f"Sure, remark {n} about the boats in the harbour.") for n in range(40)
    )
    clock.advance(days=3)
    session.apply(session.analyze())
    session.apply(session.analyze())
    assert len(session.build_context(recall=False).messages) == 30
    _learned(small, tenant, TuningParameters(full_message_window=12))
    assert len(session.build_context(recall=False).messages) == 12


def _learned(
    engine: MemoryEngine, tenant: str, parameters: TuningParameters, previous: TuningParameters | None = None
) -> None:
    moment = engine._services.now()
    snapshot = TuningSnapshot(
        created_at=moment - timedelta(minutes=2),
        tokens_before=0,
        tokens_after=0,
        entries_compressed=0,
        entries_dropped=0,
        entries_promoted=0,
        usage_before=0,
        usage_after=0,
        parameters=parameters,
    )
    state = TuningState(parameters=parameters, previous_parameters=previous, runs=1)
    engine._services.tuning.save((tenant,), state, snapshot, keep=500)


def test_a_change_that_loses_key_facts_unnecessarily_is_reverted(
    small: MemoryEngine, tenant: str, clock: FrozenClock
) -> None:
    session = small.session(tenant, "s")
    session.add_many(
        MessageDraft("user", f"The form number {n} is described at https://example.com/{n} for us.")
        for n in range(3)
    )
    talk(session, 12, words=9)  # the window: near the target by itself
    clock.advance(days=2)  # a URL stands at 0.5 now: below 0.6, above 0.3
    before, after = (
        TuningParameters(full_message_window=12),
        TuningParameters(full_message_window=12, min_relevance=0.6),
    )
    _learned(small, tenant, after, before)
    snapshot = small.optimizer.run(tenant)
    assert snapshot is not None
    assert snapshot.is_reverted
    assert snapshot.parameters == before == small.optimizer.parameters(tenant)
    assert snapshot.reason.startswith("reverted: 3 entries with key facts would be removed")
    following = small.optimizer.run(tenant)
    assert following is not None
    assert not following.is_reverted


def test_a_change_that_moves_usage_away_from_its_target_is_reverted(
    small: MemoryEngine, tenant: str, clock: FrozenClock
) -> None:
    session = small.session(tenant, "s")
    session.add_many(MessageDraft("user", f"Sure, remark {n}: {TALK * 2}") for n in range(60))
    clock.advance(days=2)  # 0.1: dropped as soon as they leave the window
    before, after = TuningParameters(full_message_window=40), TuningParameters(full_message_window=10)
    _learned(small, tenant, after, before)
    snapshot = small.optimizer.run(tenant)
    assert snapshot is not None
    assert snapshot.is_reverted
    assert snapshot.reason.startswith("reverted: usage would be ")
    assert snapshot.parameters == before


@pytest.mark.parametrize(("later", "is_reverted"), [(0, True), (2, True), (3, False)])
def test_a_change_is_tried_on_the_fullest_of_the_three_sessions_that_changed_last(
    small: MemoryEngine,
    tenant: str,
    clock: FrozenClock,
    later: int,
    is_reverted: bool,  # noqa: FBT001 - a column of the table
) -> None:
    talk(small.session(tenant, "before"), 2)
    clock.advance(days=2)
    small.session(tenant, "full").add_many(
        MessageDraft("user", f"Sure, remark {n}: {TALK * 2}", created_at=clock.now() - timedelta(days=2))
        for n in range(60)
    )
    for number in range(later):
        clock.advance(minutes=1)
        talk(small.session(tenant, f"later {number}"), 2)
    before, after = TuningParameters(full_message_window=40), TuningParameters(full_message_window=10)
    _learned(small, tenant, after, before)
    snapshot = small.optimizer.run(tenant)
    assert snapshot is not None
    assert snapshot.is_reverted is is_reverted


def test_a_harmless_change_is_kept(small: MemoryEngine, tenant: str) -> None:
    talk(small.session(tenant, "s"), 60)
    before, after = TuningParameters(), TuningParameters(min_relevance=0.35)
    _learned(small, tenant, after, before)
    snapshot = small.optimizer.run(tenant)
    assert snapshot is not None
    assert not snapshot.is_reverted


def test_two_runners_never_work_on_the_same_namespace(small: MemoryEngine, tenant: str) -> None:
    tuning, now = small._services.tuning, small._services.now()
    assert tuning.acquire_lease(f"optimizer:{tenant}", "somebody", now, now + timedelta(minutes=10))
    assert small.optimizer.run(tenant) is None
    assert small.optimizer.history(tenant) == ()
    tuning.release_lease(f"optimizer:{tenant}", "somebody")
    assert small.optimizer.run(tenant) is not None


def test_the_lease_of_a_dead_runner_expires(small: MemoryEngine, tenant: str, clock: FrozenClock) -> None:
    now = small._services.now()
    small._services.tuning.acquire_lease(f"optimizer:{tenant}", "dead", now, now + timedelta(minutes=10))
    clock.advance(minutes=9, seconds=59)
    assert small.optimizer.run(tenant) is None
    clock.advance(seconds=1)
    assert small.optimizer.run(tenant) is not None


def test_a_failed_run_releases_its_lease(
    small: MemoryEngine, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(small.session(tenant, "s"), 3)
    with monkeypatch.context() as patch:
        patch.setattr(type(small._services.tuning), "save", _raise)
        with pytest.raises(OSError, match="disk"):
            small.optimizer.run(tenant)
    assert small.optimizer.run(tenant) is not None


def _raise(*_: object, **__: object) -> None:
    raise OSError("disk")


def test_concurrent_runs_in_threads_are_serialized(small: MemoryEngine, tenant: str) -> None:
    talk(small.session(tenant, "s"), 100)
    done: list[object] = []
    run_in_threads(4, lambda: done.append(small.optimizer.run(tenant)))
    finished = [snapshot for snapshot in done if snapshot is not None]
    assert finished
    assert small.optimizer.report(tenant).total_optimizations == len(finished)


@pytest.mark.fault
@pytest.mark.smoke
def test_processes_share_one_optimizer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with MemoryEngine(url, config=SMALL) as engine:
        talk(engine.session("a", "s"), 200)
    counts = run_at_once(fork_server(), optimize_often, [(url, "a", SMALL)] * 3)
    with MemoryEngine(url, config=SMALL) as engine:
        assert engine.optimizer.report("a").total_optimizations == sum(counts) > 0
        assert len(engine.optimizer.history("a")) == sum(counts)


@pytest.fixture
def quick(file_url: str) -> Iterator[MemoryEngine]:
    """An engine whose background thread runs very often."""
    config = replace(SMALL, optimizer=OptimizerConfig(interval_seconds=0.02))
    with MemoryEngine(file_url, config=config) as engine:
        yield engine


def test_the_default_interval_is_two_minutes() -> None:
    assert OptimizerConfig().interval_seconds == 120


class Rounds(ChangedNamespaces):
    """Counts how often the background thread looks for changes."""

    def __init__(self, changes: ChangedNamespaces) -> None:
        self._all = changes
        self.count = 0

    def add(self, namespace: NamespacePath) -> None:
        self._all.add(namespace)

    def pop_all(self) -> list[NamespacePath]:
        self.count += 1
        return self._all.pop_all()


def test_the_background_thread_optimizes_changed_sessions(quick: MemoryEngine) -> None:
    quick.optimizer.start()
    quick.optimizer.start()
    assert sum(thread.name == "langmem-tiers-optimizer" for thread in threading.enumerate()) == 1
    session = quick.session("a", "s")
    session.add("user", "Look at https://example.com, its selector is #email.")
    wait_until(lambda: session.entries()[0].tier is Tier.LONG_TERM, "the message is promoted")
    rounds = quick.optimizer._background._changes = Rounds(quick.optimizer._background._changes)
    wait_until(lambda: rounds.count > 3, "the thread goes on")
    runs = quick.optimizer.report("a").total_optimizations
    wait_until(lambda: rounds.count > 13, "the thread goes on")
    assert quick.optimizer.report("a").total_optimizations == runs  # nothing changes, nothing is done
    assert quick.optimizer.stop()
    assert not quick.optimizer.is_running


def test_the_thread_survives_a_failed_run(quick: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(quick._services.tuning), "load", _raise)
        quick.optimizer.start()
        quick.session("a", "s").add("user", "ok")
        wait_until(lambda: quick.optimizer.failures >= 2, "two runs fail")
    wait_until(lambda: quick.optimizer.report("a").total_optimizations >= 1, "a run succeeds")


def test_closing_the_engine_ends_the_thread(file_url: str) -> None:
    config = replace(SMALL, optimizer=OptimizerConfig(interval_seconds=0.01))
    engine = MemoryEngine(file_url, config=config)
    engine.optimizer.start()
    for n in range(20):
        engine.session("a", "s").add("user", f"remark {n}")
    engine.close()
    assert not engine.optimizer.is_running
    assert engine.optimizer.failures == 0


def test_the_optimizer_can_be_restarted(quick: MemoryEngine) -> None:
    quick.optimizer.start()
    quick.optimizer.stop()
    quick.optimizer.start()
    quick.session("a", "s").add("user", "ok")
    wait_until(lambda: quick.optimizer.report("a").total_optimizations >= 1, "a run succeeds")


@pytest.mark.soak
def test_writers_and_the_background_thread_do_not_conflict(quick: MemoryEngine) -> None:
    quick.optimizer.start()
    sessions = [quick.session("a", f"s{n}") for n in range(4)]
    todo = iter(sessions)
    lock = threading.Lock()

    def write() -> None:
        with lock:
            session = next(todo)
        for n in range(60):
            session.add("user", f"Remark {n}: {TALK}")
            assert session.build_context().token_count <= 4000

    run_in_threads(4, write)
    quick.optimizer.stop()
    assert quick.optimizer.failures == 0
    for session in sessions:
        assert len([m for m in session.messages() if not m.is_summary]) == 60


def test_a_run_learns_from_messages_if_configured(tenant: str) -> None:
    for learns in (False, True):
        config = EngineConfig(optimizer=OptimizerConfig(learns=learns))
        with MemoryEngine(config=config, embedder=None) as engine:
            engine.session(tenant, "s").add("user", "We decided to use PostgreSQL as the database.")
            engine.optimizer.run(tenant)
            kinds = [entry.kind for entry in engine.namespace(tenant).long_term]
            assert kinds == (["decision"] if learns else [])


def test_a_stopped_thread_keeps_the_remaining_namespaces_for_the_next_start() -> None:
    changes, stop = ChangedNamespaces(), threading.Event()
    done: list[NamespacePath] = []

    def run(namespace: NamespacePath) -> bool:
        done.append(namespace)
        stop.set()
        return True

    for name in ("a", "b", "c"):
        changes.add((name,))
    BackgroundRunner(run, changes, 1.0).run_pending(stop)
    assert len(done) == 1
    assert sorted([*done, *changes.pop_all()]) == [("a",), ("b",), ("c",)]
