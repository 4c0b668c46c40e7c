"""What every ``KnowledgeStore`` must find."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.core.knowledge import Kept, Knowledge
from langmem_tiers.testing.conformance.base import ANY_TEXT, NOW, StoreConformance

if TYPE_CHECKING:
    from langmem_tiers.core.knowledge import PastKnowledge
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.ports import KnowledgeStore


def known(key: str = "key", value: str = "value", *, category: str = "domain", days: int = 0) -> Knowledge:
    """Something known, so many days after the start."""
    at = NOW + timedelta(days=days)
    return Knowledge(
        category=category,
        key=key,
        value=value,
        confidence=0.5,
        created_at=at,
        updated_at=at,
        fresh_at=at,
    )


def put(store: KnowledgeStore, namespace: NamespacePath, *items: Knowledge) -> None:
    """Store them as they are."""
    for item in items:
        put_after(store, namespace, item, None)


def put_after(
    store: KnowledgeStore, namespace: NamespacePath, item: Knowledge, former: PastKnowledge | None
) -> None:
    """Store it in place of what held before."""
    store.change(namespace, [(item.category, item.key)], lambda _: Kept(item, former), NOW)


def found(
    store: KnowledgeStore,
    namespace: NamespacePath,
    *words: str,
    category: str | None = None,
    limit: int = 10,
) -> list[str]:
    """The keys that a search finds, best first."""
    return [hit.knowledge.key for hit in store.search(namespace, words, category=category, limit=limit)]


class KnowledgeSearchConformance(StoreConformance):
    """The part of the suite for a ``KnowledgeStore`` that searches."""

    def test_search_finds_words_of_key_and_value_in_any_form(
        self, knowledge: KnowledgeStore, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("cookie banner", "Click it before navigation"), known("rest", "none"))
        assert found(knowledge, namespace, "cookies") == ["cookie banner"]
        assert found(knowledge, namespace, "clicked", "unheard") == ["cookie banner"]
        assert found(knowledge, namespace, "unheard") == []
        assert found(knowledge, (*namespace, "x"), "cookies") == []

    @pytest.mark.parametrize("word", ["example", "checkout", "page", "submit", "alice", "100", "app"])
    def test_search_finds_the_words_inside_addresses_names_and_paths(
        self, knowledge: KnowledgeStore, namespace: NamespacePath, word: str
    ) -> None:
        text = "www.example.com/checkout #page-title form_submit alice@mail.org 100% src/app.py"
        put(knowledge, namespace, known("k", text), known(text, "v"), known("rest"))
        assert sorted(found(knowledge, namespace, word)) == ["k", text]

    def test_search_reads_a_key_as_it_was_given(
        self, knowledge: KnowledgeStore, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("100%cotton"), known("null\0walrus"), known("rest"))
        assert found(knowledge, namespace, "cotton") == ["100%cotton"]
        assert found(knowledge, namespace, "walrus") == ["null\0walrus"]
        assert found(knowledge, namespace, "25", "25cotton", "00walrus") == []

    def test_search_ranks_more_words_higher_and_keeps_to_limit_and_category(
        self, knowledge: KnowledgeStore, namespace: NamespacePath
    ) -> None:
        put(
            knowledge,
            namespace,
            known("one", "a queue of people, and they talked about boats and the weather"),
            known("both", "the queue holds ten boats: a queue of boats"),
            known("none", "something else"),
            known("other", "one queue", category="error_pattern"),
        )
        assert found(knowledge, namespace, "queue", "boat", category="domain") == ["both", "one"]
        assert found(knowledge, namespace, "queue", "boat", category="domain", limit=1) == ["both"]
        assert sorted(found(knowledge, namespace, "queue")) == ["both", "one", "other"]
        assert found(knowledge, namespace, "queue", category="error_pattern") == ["other"]
        assert found(knowledge, namespace, "queue", category="user_preference") == []

    def test_search_does_not_find_what_no_longer_holds(
        self, knowledge: KnowledgeStore, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("shape", "round walrus"))
        put(knowledge, namespace, known("shape", "square narwhal"))
        assert found(knowledge, namespace, "walrus") == []
        assert found(knowledge, namespace, "narwhal") == ["shape"]
        knowledge.change(namespace, [("domain", "shape")], lambda _: Kept(None), NOW)
        assert found(knowledge, namespace, "narwhal", "shape") == []

    def test_search_takes_operators_and_any_text_as_words(
        self, knowledge: KnowledgeStore, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("text", f"a walrus {ANY_TEXT}"))
        for word in ('"', "*", "NEAR", "AND", "-", ":", "(", "value:walrus", "'", "\\", "a & b", "|", "!x"):
            found(knowledge, namespace, word)
        assert found(knowledge, namespace, "walrus", '"') == ["text"]
