"""Contract of ``BatchRepository``."""

from __future__ import annotations

import itertools
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.errors import MessageConflictError
from langmem_tiers.sessions.models import SessionBatch
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import (
    HOSTILE_NAMES,
    NOW,
    StoreConformance,
    Stores,
    contents,
    message,
)

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.batch_repository import BatchRepository


class BatchRepositoryConformance(StoreConformance):
    """What ``BatchRepository`` must do, with the other repositories on the same database."""

    @pytest.fixture
    def batches(self, stores: Stores) -> BatchRepository:
        """The store of batches."""
        assert stores.batches is not None, "hand in Stores(batches=...) to run this suite"
        return stores.batches

    def test_missing_sessions_are_created(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath
    ) -> None:
        done = batches.append_all(
            [
                SessionBatch(namespace, "a", [message("1"), message("2")]),
                SessionBatch((*namespace, "deeper"), "a", [message("3")]),
            ],
            NOW,
            new_ids=True,
        )
        assert [contents(result.stored) for result in done] == [["1", "2"], ["3"]]
        for path, result, expected in zip(
            (namespace, (*namespace, "deeper")), done, (["1", "2"], ["3"]), strict=True
        ):
            info = stores.sessions.get(path, "a")
            assert info is not None
            assert (info.key, info.revision, info.message_count) == (
                result.key,
                result.revision,
                len(expected),
            )
            assert info.token_count == 2 * len(expected)
            assert contents(stores.messages.list_latest(result.key, 9).messages) == expected

    def test_batches_append_to_the_end_of_the_record(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath, key: int
    ) -> None:
        later = NOW + timedelta(hours=1)
        stores.messages.append(key, [message("1")], NOW)
        (done,) = batches.append_all(
            [SessionBatch(namespace, "session", [message("2"), message("3")])], later
        )
        stores.messages.append(key, [message("4")], later)
        assert done.key == key
        assert contents(stores.messages.list_latest(key, 9).messages) == ["1", "2", "3", "4"]
        info = stores.sessions.get(namespace, "session")
        assert info is not None
        assert (info.message_count, info.token_count, info.updated_at) == (4, 8, later)
        assert info.revision == done.revision + 1

    @pytest.mark.parametrize("new_ids", [False, True])
    def test_known_ids_are_stored_once(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath, key: int, *, new_ids: bool
    ) -> None:
        known, new = message("1", id="a"), message("2", id="b")
        stores.messages.append(key, [known], NOW)
        given = [
            SessionBatch(namespace, "session", [known, new, new]),
            SessionBatch(namespace, "other", [known]),
        ]
        first, second = batches.append_all(given, NOW, new_ids=new_ids)
        assert (first.stored, first.duplicates) == ((new,), (known, new))
        assert (second.stored, second.duplicates) == ((known,), ())
        again = batches.append_all(given, NOW, new_ids=new_ids)
        assert [result.stored for result in again] == [(), ()]
        assert [result.revision for result in again] == [first.revision, second.revision]
        assert contents(stores.messages.list_latest(key, 9).messages) == ["1", "2"]

    @pytest.mark.parametrize("new_ids", [False, True])
    def test_one_conflict_rolls_back_all_batches(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath, key: int, *, new_ids: bool
    ) -> None:
        stores.messages.append(key, [message("1", id="a")], NOW)
        given = [
            SessionBatch(namespace, "new", [message("2")]),
            SessionBatch(namespace, "session", [message("3"), message("another", id="a")]),
        ]
        with pytest.raises(MessageConflictError, match="'a'"):
            batches.append_all(given, NOW, new_ids=new_ids)
        assert contents(stores.messages.list_latest(key, 9).messages) == ["1"]
        assert stores.sessions.get(namespace, "new") is None

    def test_empty_batches_change_nothing(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath, key: int
    ) -> None:
        assert batches.append_all([], NOW) == ()
        (done,) = batches.append_all([SessionBatch(namespace, "session", [])], NOW)
        assert (done.stored, done.duplicates, done.revision) == ((), (), stores.sessions.get_revision(key))

    def test_hostile_namespace_and_session_names_are_isolated(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath
    ) -> None:
        places = [((*namespace, label), name) for label in HOSTILE_NAMES for name in ("s", label)]
        places = list(dict.fromkeys(places))
        given = [SessionBatch(path, name, [message(repr((path, name)))]) for path, name in places]
        for _ in range(2):
            batches.append_all(given, NOW)
        for path, name in places:
            info = stores.sessions.get(path, name)
            assert info is not None
            assert contents(stores.messages.list_latest(info.key, 9).messages) == [repr((path, name))]

    def test_a_thousand_sessions_are_stored_in_one_call(
        self, batches: BatchRepository, namespace: NamespacePath
    ) -> None:
        given = [SessionBatch(namespace, f"{n}", [message(f"{n}")]) for n in range(1000)]
        assert all(len(result.stored) == 1 for result in batches.append_all(given, NOW, new_ids=True))
        assert all(len(result.duplicates) == 1 for result in batches.append_all(given, NOW, new_ids=True))

    def test_concurrent_batches_in_any_order_store_everything_without_deadlock(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath
    ) -> None:
        numbers = itertools.count()
        names = [f"s{n}" for n in range(6)]

        def write() -> None:
            mine = names if next(numbers) % 2 else names[::-1]
            for n in range(8):
                given = [SessionBatch(namespace, name, [_own(f"{n}")]) for name in mine]
                batches.append_all(given, NOW, new_ids=True)

        run_in_threads(4, write)
        for name in names:
            info = stores.sessions.get(namespace, name)
            assert info is not None
            assert info.message_count == len(stores.messages.list_latest(info.key, 99).messages) == 32

    def test_concurrent_erasure_and_batches_do_not_deadlock(
        self, stores: Stores, batches: BatchRepository, namespace: NamespacePath
    ) -> None:
        numbers = itertools.count()

        def work() -> None:
            if next(numbers) == 0:
                for _ in range(10):
                    stores.sessions.delete_namespace(namespace)
                return
            for _ in range(10):
                given = [SessionBatch(namespace, f"s{n}", [_own("x")]) for n in range(4)]
                assert all(result.stored for result in batches.append_all(given, NOW, new_ids=True))

        run_in_threads(3, work)


def _own(content: str) -> Message:
    return message(content, id=uuid.uuid4().hex)
