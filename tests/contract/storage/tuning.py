"""Contract of ``TuningRepository``."""

from __future__ import annotations

import threading
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.sessions.models import Savings
from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers.tuning.models import TuningParameters, TuningSnapshot, TuningState
from tests.contract.storage.base import HOSTILE_NAMES, NOW, StoreConformance, Stores

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.tuning.repository import TuningRepository

THREADS = 8
LATER = NOW + timedelta(minutes=10)
LEARNED = TuningParameters(
    compression_trigger=0.62, full_message_window=26, min_relevance=0.38, target_usage=0.6
)


def snapshot(number: int = 0, reason: str = "") -> TuningSnapshot:
    """A run that can be told from others."""
    return TuningSnapshot(
        created_at=NOW + timedelta(minutes=2 * number, microseconds=number),
        tokens_before=150_000 + number,
        tokens_after=120_000,
        entries_compressed=8,
        entries_dropped=3,
        entries_promoted=2,
        usage_before=0.123456789,
        usage_after=1 / 3,
        parameters=LEARNED,
        reason=reason,
        is_reverted=bool(number % 2),
    )


class TuningRepositoryConformance(StoreConformance):
    """What ``TuningRepository`` must do."""

    @pytest.fixture
    def lease(self, namespace: NamespacePath) -> str:
        """A lease that nobody else asks for."""
        return f"lease of {namespace[-1]}"

    def test_an_unknown_namespace_has_no_state_snapshots_or_savings(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        assert tuning.load(namespace) is None
        assert tuning.list_snapshots(namespace, 9) == ()
        assert tuning.take_savings(namespace) == Savings()

    @pytest.mark.parametrize(
        "state",
        [
            TuningState(parameters=TuningParameters()),
            TuningState(parameters=LEARNED, runs=45, tokens_saved=125_000),
            TuningState(
                parameters=LEARNED,
                previous_parameters=TuningParameters(),
                last_full_run_at=NOW + timedelta(microseconds=1),
                runs=1,
                tokens_saved=-7,
            ),
            TuningState(parameters=TuningParameters(min_relevance=1 / 3), runs=2**40, tokens_saved=2**50),
        ],
        ids=["first", "learned", "on trial", "large"],
    )
    def test_a_state_comes_back_equal(
        self, tuning: TuningRepository, namespace: NamespacePath, state: TuningState
    ) -> None:
        tuning.save(namespace, state, snapshot(), keep=9)
        assert tuning.load(namespace) == state

    def test_a_later_state_replaces_the_earlier_one_completely(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        on_trial = TuningState(
            parameters=LEARNED,
            previous_parameters=TuningParameters(),
            last_full_run_at=LATER,
            runs=1,
            tokens_saved=5,
        )
        settled = TuningState(parameters=TuningParameters(), runs=2, tokens_saved=9)
        for state in (on_trial, settled):
            tuning.save(namespace, state, snapshot(), keep=9)
        assert tuning.load(namespace) == settled

    def test_snapshots_are_listed_newest_first_and_equal(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        runs = [snapshot(n, f"run {n}: \0 \ud83d é 😀") for n in range(5)]
        for run in runs:
            tuning.save(namespace, TuningState(parameters=LEARNED), run, keep=9)
        assert tuning.list_snapshots(namespace, 9) == tuple(reversed(runs))
        assert tuning.list_snapshots(namespace, 2) == (runs[4], runs[3])

    def test_snapshots_are_paged(self, tuning: TuningRepository, namespace: NamespacePath) -> None:
        runs = [snapshot(n) for n in range(5)]
        for run in runs:
            tuning.save(namespace, TuningState(parameters=LEARNED), run, keep=9)
            tuning.save((*namespace, "other"), TuningState(parameters=LEARNED), snapshot(9), keep=9)
        found, before = list[TuningSnapshot](), None
        while page := tuning.list_snapshot_page(namespace, before=before, limit=2):
            assert len(page) <= 2
            found += [row.snapshot for row in page]
            before = page[-1].key
        assert found == runs[::-1]

    def test_the_newest_snapshots_of_each_namespace_are_kept(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        other, state = (*namespace, "other"), TuningState(parameters=LEARNED)
        for n in range(4):
            tuning.save(other, state, snapshot(n), keep=9)
        for n in range(7):
            tuning.save(namespace, state, snapshot(n), keep=3)
        assert tuning.list_snapshots(namespace, 99) == tuple(snapshot(n) for n in (6, 5, 4))
        assert tuning.list_snapshots(other, 99) == tuple(snapshot(n) for n in (3, 2, 1, 0))
        tuning.save(namespace, state, snapshot(7), keep=1)
        assert tuning.list_snapshots(namespace, 99) == (snapshot(7),)

    def test_tenants_are_isolated(self, tuning: TuningRepository, namespace: NamespacePath) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            own = (*namespace, name)
            tuning.save(own, TuningState(parameters=LEARNED, runs=number), snapshot(number), keep=1)
            tuning.add_savings(own, Savings(tokens=number), NOW)
        for number, name in enumerate(HOSTILE_NAMES):
            own = (*namespace, name)
            assert tuning.load(own) == TuningState(parameters=LEARNED, runs=number)
            assert tuning.list_snapshots(own, 99) == (snapshot(number),)
            assert tuning.take_savings(own) == Savings(tokens=number)
        assert tuning.load(namespace) is None

    def test_concurrent_saves_leave_one_consistent_state(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        start, numbers = threading.Barrier(THREADS), count(1)

        def save() -> None:
            number = next(numbers)
            state = TuningState(parameters=LEARNED, runs=number, tokens_saved=number)
            start.wait()
            tuning.save(namespace, state, snapshot(number), keep=99)

        run_in_threads(THREADS, save)
        state = tuning.load(namespace)
        assert state is not None
        assert state.runs == state.tokens_saved
        assert len(tuning.list_snapshots(namespace, 99)) == THREADS

    def test_savings_add_up_and_are_reset_when_taken(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        tuning.add_savings(namespace, Savings(tokens=100, compressed=1), NOW)
        tuning.add_savings(namespace, Savings(tokens=-30, dropped=2, promoted=3), NOW)
        assert tuning.take_savings(namespace) == Savings(tokens=70, compressed=1, dropped=2, promoted=3)
        assert tuning.take_savings(namespace) == Savings()

    def test_concurrent_savings_are_all_counted(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        start, one = threading.Barrier(THREADS), Savings(tokens=10, compressed=3, dropped=2, promoted=1)

        def save() -> None:
            start.wait()
            for _ in range(5):
                tuning.add_savings(namespace, one, NOW)

        run_in_threads(THREADS, save)
        total = 5 * THREADS
        assert tuning.take_savings(namespace) == Savings(
            tokens=10 * total, compressed=3 * total, dropped=2 * total, promoted=total
        )

    def test_savings_taken_and_added_concurrently_are_counted_once(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        start, taken = threading.Barrier(THREADS), list[Savings]()

        def add_and_take() -> None:
            start.wait()
            for _ in range(5):
                tuning.add_savings(namespace, Savings(tokens=1), NOW)
                taken.append(tuning.take_savings(namespace))

        run_in_threads(THREADS, add_and_take)
        taken.append(tuning.take_savings(namespace))
        assert sum(savings.tokens for savings in taken) == 5 * THREADS

    def test_a_state_and_savings_are_independent(
        self, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        tuning.add_savings(namespace, Savings(tokens=7), NOW)
        assert tuning.load(namespace) is None
        state = TuningState(parameters=LEARNED, previous_parameters=TuningParameters(), runs=3)
        tuning.save(namespace, state, snapshot(), keep=9)
        assert tuning.take_savings(namespace) == Savings(tokens=7)
        assert tuning.load(namespace) == state

    def test_a_deleted_namespace_keeps_no_data(
        self, stores: Stores, tuning: TuningRepository, namespace: NamespacePath
    ) -> None:
        child, state = (*namespace, "child"), TuningState(parameters=LEARNED, runs=1)
        for path in (namespace, child):
            tuning.save(path, state, snapshot(), keep=9)
            tuning.add_savings(path, Savings(tokens=7), NOW)
        stores.sessions.delete_namespace(namespace)
        stores.sessions.get_or_create(namespace, "anew", NOW)
        assert tuning.load(namespace) is None
        assert tuning.list_snapshots(namespace, 9) == ()
        assert tuning.take_savings(namespace) == Savings()
        assert tuning.load(child) == state
        assert tuning.list_snapshots(child, 9) == (snapshot(),)
        assert tuning.take_savings(child) == Savings(tokens=7)

    def test_a_lease_has_one_holder_that_can_renew_it(self, tuning: TuningRepository, lease: str) -> None:
        assert tuning.acquire_lease(lease, "ours", NOW, LATER)
        assert not tuning.acquire_lease(lease, "theirs", NOW, LATER)
        assert tuning.acquire_lease(lease, "ours", NOW, LATER + timedelta(minutes=1))
        assert not tuning.acquire_lease(lease, "theirs", LATER, LATER + timedelta(minutes=9))

    def test_an_expired_lease_can_be_acquired(self, tuning: TuningRepository, lease: str) -> None:
        tuning.acquire_lease(lease, "ours", NOW, LATER)
        almost = LATER - timedelta(microseconds=1)
        assert not tuning.acquire_lease(lease, "theirs", almost, LATER + timedelta(minutes=9))
        assert tuning.acquire_lease(lease, "theirs", LATER, LATER + timedelta(minutes=9))
        assert not tuning.acquire_lease(lease, "ours", LATER, LATER + timedelta(minutes=9))

    def test_a_released_lease_can_be_acquired(self, tuning: TuningRepository, lease: str) -> None:
        tuning.acquire_lease(lease, "ours", NOW, LATER)
        tuning.release_lease(lease, "ours")
        assert tuning.acquire_lease(lease, "theirs", NOW, LATER)

    def test_a_lease_is_released_only_by_its_holder(self, tuning: TuningRepository, lease: str) -> None:
        tuning.release_lease(lease, "theirs")
        tuning.acquire_lease(lease, "ours", NOW, LATER)
        tuning.release_lease(lease, "theirs")
        assert not tuning.acquire_lease(lease, "theirs", NOW, LATER)

    def test_leases_are_listed_by_name_prefix(self, tuning: TuningRepository, lease: str) -> None:
        for name in HOSTILE_NAMES:
            tuning.acquire_lease(f"{lease} {name}", "ours", NOW, LATER)
        tuning.acquire_lease(f"{lease}%", "ours", NOW, NOW)
        assert tuning.list_leases(f"{lease} ") == {f"{lease} {name}": LATER for name in HOSTILE_NAMES}
        assert tuning.list_leases(f"{lease}%") == {f"{lease}%": NOW}  # also those that ran out
        assert tuning.list_leases(f"{lease}_") == {}

    def test_lease_names_match_exactly(self, tuning: TuningRepository, lease: str) -> None:
        for name in HOSTILE_NAMES:
            assert tuning.acquire_lease(f"{lease} {name}", "ours", NOW, LATER)
        tuning.release_lease(f"{lease} a", "ours")
        free = [
            name for name in HOSTILE_NAMES if tuning.acquire_lease(f"{lease} {name}", "theirs", NOW, LATER)
        ]
        assert free == ["a"]

    @pytest.mark.parametrize("has_run_out", [False, True], ids=["new", "run out"])
    def test_only_one_of_several_competitors_acquires_a_lease(
        self, tuning: TuningRepository, lease: str, *, has_run_out: bool
    ) -> None:
        if has_run_out:
            tuning.acquire_lease(lease, "gone", NOW - timedelta(minutes=10), NOW)
        start, holders, won = threading.Barrier(THREADS), count(), list[str]()

        def compete() -> None:
            holder = f"holder {next(holders)}"
            start.wait()
            if tuning.acquire_lease(lease, holder, NOW, LATER):
                won.append(holder)

        run_in_threads(THREADS, compete)
        (winner,) = won
        assert tuning.acquire_lease(lease, winner, NOW, LATER)
