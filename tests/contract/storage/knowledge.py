"""Contract of ``KnowledgeRepository``."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.knowledge.models import Knowledge, KnowledgeUpdate, PastKnowledge
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import ANY_TEXT, HOSTILE_NAMES, NOW, Stores
from tests.contract.storage.knowledge_search import (
    KnowledgeSearchConformance,
    found,
    known,
    put,
    put_after,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.knowledge.repository import KnowledgeRepository

THREADS = 8


def past(item: Knowledge, days: int = 1) -> PastKnowledge:
    """The same as it no longer holds after so many days."""
    return PastKnowledge(
        category=item.category,
        key=item.key,
        value=item.value,
        confidence=item.confidence,
        valid_from=item.created_at,
        valid_until=item.created_at + timedelta(days=days),
        reason="superseded",
        source=item.source,
    )


def keys(items: Sequence[Knowledge]) -> list[str]:
    """The keys, for comparing."""
    return [item.key for item in items]


class KnowledgeRepositoryConformance(KnowledgeSearchConformance):
    """What ``KnowledgeRepository`` must do."""

    @pytest.mark.parametrize("text", [ANY_TEXT, "\0", "\udfff", "base64:AA==", "base64:\0", " \n"])
    def test_all_fields_come_back_equal(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath, text: str
    ) -> None:
        given = Knowledge(
            category=text,
            key=text,
            value=text,
            confidence=0.123456789,
            created_at=datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
            updated_at=NOW + timedelta(microseconds=1),
            fresh_at=NOW + timedelta(microseconds=2),
            last_used_at=NOW + timedelta(microseconds=3),
            use_count=2**40,
            store_count=7,
            source="session 12 é 😀",
        )
        put(knowledge, namespace, given)
        assert knowledge.get(namespace, text, text) == given
        assert knowledge.list_page(namespace, text, after=None, limit=9) == (given,)
        assert knowledge.list_stale(namespace, before=NOW + timedelta(days=1), below=0.1, limit=9) == (given,)

    def test_any_source_comes_back_equal(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        given = replace(known(), source=ANY_TEXT)
        put(knowledge, namespace, given)
        assert knowledge.get(namespace, "domain", "key") == given

    def test_unknown_knowledge_is_not_returned(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("other"))
        assert knowledge.get(namespace, "domain", "key") is None
        assert knowledge.list_history(namespace, "domain", "key") == ()
        assert knowledge.list_page((*namespace, "x"), None, after=None, limit=9) == ()

    def test_tenants_are_isolated(self, knowledge: KnowledgeRepository, namespace: NamespacePath) -> None:
        for name in HOSTILE_NAMES:
            item = known(value=f"walrus of {name!r}")
            put_after(knowledge, (*namespace, name), item, past(item))
        for name in HOSTILE_NAMES:
            own, item = (*namespace, name), known(value=f"walrus of {name!r}")
            assert knowledge.get(own, "domain", "key") == item
            assert knowledge.list_page(own, None, after=None, limit=9) == (item,)
            assert knowledge.list_stale(own, before=NOW, below=0.1, limit=9) == (item,)
            assert knowledge.list_history(own, "domain", "key") == (past(item),)
            hits = knowledge.search(own, ["walrus"], category=None, limit=99)
            assert [hit.knowledge for hit in hits] == [item]

    def test_categories_and_keys_match_exactly(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        names = [(name, name) for name in HOSTILE_NAMES]
        names += [("a", "bc"), ("ab", "c"), ("a/b", "c"), ("a", "b/c")]
        items = [known(key, repr((category, key)), category=category) for category, key in names]
        put(knowledge, namespace, *items)
        assert [knowledge.get(namespace, *name) for name in names] == items
        of_a = {item.key for item in items if item.category == "a"}
        assert set(keys(knowledge.list_page(namespace, "a", after=None, limit=99))) == of_a

    def test_a_key_stored_concurrently_exists_once(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        start = threading.Barrier(THREADS)
        counts: list[int] = []

        def decide(old: Knowledge | None) -> KnowledgeUpdate:
            return KnowledgeUpdate(known() if old is None else replace(old, store_count=old.store_count + 1))

        def store() -> None:
            start.wait()
            (kept,) = knowledge.update(namespace, [("domain", "key")], decide, NOW)
            assert kept.knowledge is not None
            counts.append(kept.knowledge.store_count)

        run_in_threads(THREADS, store)
        assert sorted(counts) == list(range(1, THREADS + 1))
        (only,) = knowledge.list_page(namespace, None, after=None, limit=99)
        assert only.store_count == THREADS

    def test_many_names_are_updated_in_one_call(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        old = [known(f"{n}") for n in range(3)]
        put(knowledge, namespace, *old)
        results = {
            "0": KnowledgeUpdate(known("0", "zero"), past(old[0])),
            "1": KnowledgeUpdate(None, past(old[1])),
        }
        results |= {"2": KnowledgeUpdate(old[2])}
        asked: list[Knowledge | None] = []

        def decide(item: Knowledge | None) -> KnowledgeUpdate:
            asked.append(item)
            return KnowledgeUpdate(known("new")) if item is None else results[item.key]

        names = [("domain", key) for key in ("2", "new", "1", "0")]
        kept = knowledge.update(namespace, names, decide, NOW)
        assert kept == (results["2"], KnowledgeUpdate(known("new")), results["1"], results["0"])
        assert asked == [old[2], None, old[1], old[0]]
        now = knowledge.list_page(namespace, None, after=None, limit=9)
        assert now == (known("0", "zero"), old[2], known("new"))
        assert knowledge.list_history(namespace, "domain", "0") == (past(old[0]),)
        assert knowledge.list_history(namespace, "domain", "1") == (past(old[1]),)

    def test_more_names_than_sql_parameters_are_updated_in_one_call(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("0"))
        names = [("domain", f"{n}") for n in range(40_000)]
        kept = knowledge.update(namespace, names, lambda _: KnowledgeUpdate(None), NOW)
        assert kept == (KnowledgeUpdate(None),) * len(names)
        assert knowledge.get(namespace, "domain", "0") is None

    def test_a_failing_update_function_changes_nothing(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        items = [known(f"{n}") for n in range(3)]
        put(knowledge, namespace, *items)

        def decide(old: Knowledge | None) -> KnowledgeUpdate:
            if old is None:
                raise RuntimeError("undecided")
            return KnowledgeUpdate(None if old.key == "0" else replace(old, value="changed"), past(old))

        names = [("domain", key) for key in ("0", "1", "2", "new")]
        with pytest.raises(RuntimeError, match="undecided"):
            knowledge.update(namespace, names, decide, NOW)
        assert knowledge.list_page(namespace, None, after=None, limit=9) == tuple(items)
        assert [knowledge.list_history(namespace, *name) for name in names] == [()] * 4
        assert found(knowledge, namespace, "changed") == []

    def test_deleting_unknown_knowledge_changes_nothing(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        assert knowledge.update(namespace, [("domain", "key")], KnowledgeUpdate, NOW) == (
            KnowledgeUpdate(None),
        )
        assert knowledge.update(namespace, [], KnowledgeUpdate, NOW) == ()
        assert knowledge.list_page(namespace, None, after=None, limit=9) == ()

    def test_pages_are_sorted_by_category_and_key_and_complete(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        names = [(category, key) for category in ("a", "b", "c") for key in ("k", "l", "m", "n")]
        put(knowledge, namespace, *(known(key, category=category) for category, key in reversed(names)))
        seen: list[tuple[str, str]] = []
        while page := knowledge.list_page(namespace, None, after=seen[-1] if seen else None, limit=5):
            seen += [(item.category, item.key) for item in page]
        assert seen == names
        assert keys(knowledge.list_page(namespace, "b", after=("b", "l"), limit=9)) == ["m", "n"]
        assert keys(knowledge.list_page(namespace, "b", after=("b", "gone"), limit=1)) == ["k"]
        assert knowledge.list_page(namespace, None, after=names[-1], limit=9) == ()

    def test_pages_over_hostile_names_are_complete(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, *(known(name, category=name) for name in HOSTILE_NAMES))
        seen: list[str] = []
        while page := knowledge.list_page(namespace, None, after=(seen[-1],) * 2 if seen else None, limit=3):
            seen += keys(page)
        assert sorted(seen) == sorted(HOSTILE_NAMES)

    def test_stale_knowledge_is_listed_oldest_first(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, *(known(f"{days}", days=days) for days in (3, 1, 2, 0)))
        put(knowledge, (*namespace, "other"), known("other"))
        before = NOW + timedelta(days=2)
        assert keys(knowledge.list_stale(namespace, before=before, below=0.1, limit=9)) == ["0", "1", "2"]
        assert keys(knowledge.list_stale(namespace, before=before, below=0.1, limit=2)) == ["0", "1"]
        assert keys(
            knowledge.list_stale(namespace, before=before - timedelta(microseconds=1), below=0.1, limit=9)
        ) == ["0", "1"]

    def test_history_is_sorted_oldest_first_and_equal(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        values = [known(ANY_TEXT, text, category=ANY_TEXT) for text in ("b", ANY_TEXT, "a", "b")]
        for item in values:
            put_after(knowledge, namespace, item, past(item))
        assert knowledge.list_history(namespace, ANY_TEXT, ANY_TEXT) == tuple(past(item) for item in values)

    def test_past_knowledge_is_found_from_its_start_until_before_its_end(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        old = known("b", "old", category=ANY_TEXT)
        put_after(knowledge, namespace, known("b", "new", category=ANY_TEXT), past(old))
        put_after(knowledge, namespace, known("a", "new"), past(known("a", "old"), days=2))
        put_after(knowledge, ("other", *namespace), known("c", "new"), past(known("c", "old")))
        start = old.created_at
        moment, day = timedelta(microseconds=1), timedelta(days=1)

        def at(when: datetime, limit: int = 9) -> list[tuple[str, str]]:
            return [(item.key, item.value) for item in knowledge.list_past_at(namespace, when, limit=limit)]

        assert at(start - moment) == []
        assert at(start) == at(start + day - moment) == [("a", "old"), ("b", "old")]
        assert at(start, limit=1) == [("a", "old")]
        assert at(start + day) == [("a", "old")]
        assert at(start + 2 * day) == []

    def test_knowledge_survives_deleted_sessions(
        self, stores: Stores, knowledge: KnowledgeRepository, namespace: NamespacePath, key: int
    ) -> None:
        put(knowledge, namespace, known())
        stores.sessions.delete(key)
        assert knowledge.get(namespace, "domain", "key") == known()

    @pytest.mark.parametrize("has_session", [True, False])
    def test_a_deleted_namespace_keeps_no_data(
        self, stores: Stores, knowledge: KnowledgeRepository, namespace: NamespacePath, *, has_session: bool
    ) -> None:
        child = (*namespace, "child")
        for path in (namespace, child):
            put_after(knowledge, path, known("walrus"), past(known("walrus")))
        if has_session:
            stores.sessions.get_or_create(namespace, "session", NOW)
        stores.sessions.delete_namespace(namespace)
        put(knowledge, namespace, known("another"))
        assert keys(knowledge.list_page(namespace, None, after=None, limit=9)) == ["another"]
        assert knowledge.list_history(namespace, "domain", "walrus") == ()
        assert found(knowledge, namespace, "walrus") == []
        assert found(knowledge, child, "walrus") == ["walrus"]
        assert len(knowledge.list_history(child, "domain", "walrus")) == 1
