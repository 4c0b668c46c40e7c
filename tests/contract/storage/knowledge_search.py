"""Contract of the search of ``KnowledgeRepository``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.knowledge.models import Knowledge, KnowledgeUpdate
from langmem_tiers.text.tokenize import extract_terms
from tests.contract.storage.base import ANY_TEXT, NOW, StoreConformance

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.knowledge.models import PastKnowledge
    from langmem_tiers.knowledge.repository import KnowledgeRepository


def known(
    key: str = "key",
    value: str = "value",
    *,
    category: str = "domain",
    days: int = 0,
    confidence: float = 0.5,
) -> Knowledge:
    """Something known, so many days after the start."""
    at = NOW + timedelta(days=days)
    return Knowledge(
        category=category,
        key=key,
        value=value,
        confidence=confidence,
        created_at=at,
        updated_at=at,
        fresh_at=at,
    )


def put(store: KnowledgeRepository, namespace: NamespacePath, *items: Knowledge) -> None:
    """Store them as they are."""
    for item in items:
        put_after(store, namespace, item, None)


def put_after(
    store: KnowledgeRepository, namespace: NamespacePath, item: Knowledge, former: PastKnowledge | None
) -> None:
    """Store it in place of what held before."""
    store.update(namespace, [(item.category, item.key)], lambda _: KnowledgeUpdate(item, former), NOW)


def found(
    store: KnowledgeRepository,
    namespace: NamespacePath,
    *words: str,
    category: str | None = None,
    limit: int = 10,
) -> list[str]:
    """The keys that a search finds, best first."""
    terms = extract_terms(" ".join(words))
    return [hit.knowledge.key for hit in store.search(namespace, terms, category=category, limit=limit)]


class KnowledgeSearchConformance(StoreConformance):
    """The part of the suite for a ``KnowledgeRepository`` that searches."""

    def test_search_finds_words_of_key_and_value_in_any_form(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("cookie banner", "Click it before navigation"), known("rest", "none"))
        assert found(knowledge, namespace, "cookies") == ["cookie banner"]
        assert found(knowledge, namespace, "clicked", "unheard") == ["cookie banner"]
        assert found(knowledge, namespace, "unheard") == []
        assert found(knowledge, (*namespace, "x"), "cookies") == []

    @pytest.mark.parametrize("word", ["example", "checkout", "page", "submit", "alice", "100", "app"])
    def test_search_finds_the_words_inside_urls_names_and_paths(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath, word: str
    ) -> None:
        text = "www.example.com/checkout #page-title form_submit alice@mail.org 100% src/app.py"
        put(knowledge, namespace, known("k", text), known(text, "v"), known("rest"))
        assert sorted(found(knowledge, namespace, word)) == ["k", text]

    def test_search_reads_a_key_literally(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("100%cotton"), known("null\0walrus"), known("rest"))
        assert found(knowledge, namespace, "cotton") == ["100%cotton"]
        assert found(knowledge, namespace, "walrus") == ["null\0walrus"]
        assert found(knowledge, namespace, "25", "25cotton", "00walrus") == []

    def test_search_ranks_more_matches_higher_within_limit_and_category(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
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

    def test_search_does_not_find_replaced_or_deleted_values(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("shape", "round walrus"))
        put(knowledge, namespace, known("shape", "square narwhal"))
        assert found(knowledge, namespace, "walrus") == []
        assert found(knowledge, namespace, "narwhal") == ["shape"]
        knowledge.update(namespace, [("domain", "shape")], lambda _: KnowledgeUpdate(None), NOW)
        assert found(knowledge, namespace, "narwhal", "shape") == []

    def test_search_finds_nothing_without_terms_or_knowledge(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        assert found(knowledge, namespace, "walrus") == []
        put(knowledge, namespace, known("walrus"))
        assert found(knowledge, namespace) == []
        knowledge.update(namespace, [("domain", "walrus")], lambda _: KnowledgeUpdate(None), NOW)
        assert found(knowledge, namespace, "walrus") == []

    def test_search_finds_words_of_scripts_without_spaces(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("停车", "红色的船每月付四百克朗"), known("晚饭", "不吃鱼"))
        assert found(knowledge, namespace, "红色的船要付多少?") == ["停车"]
        assert found(knowledge, namespace, "晚飯") == ["晚饭"]

    def test_search_ranks_a_rare_word_above_a_common_one(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, *(known(f"{n}", "boat") for n in range(5)), known("rare", "walrus"))
        assert found(knowledge, namespace, "boat", "walrus")[0] == "rare"

    def test_search_breaks_ties_by_confidence(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        items = [
            known(f"walrus {n}", confidence=sure) for n, sure in ((3, 0.5), (1, 0.2), (4, 0.9), (2, 0.5))
        ]
        put(knowledge, namespace, *items)
        assert found(knowledge, namespace, "walrus") == ["walrus 4", "walrus 2", "walrus 3", "walrus 1"]
        assert found(knowledge, namespace, "walrus", limit=2) == ["walrus 4", "walrus 2"]

    def test_knowledge_of_other_namespaces_does_not_change_results_or_scores(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(
            knowledge,
            namespace,
            known("one", "a boat with a sail"),
            known("two", "boat boat, and a long talk about this and that and the weather"),
            known("three", "a walrus with a sail"),
        )
        terms = extract_terms("boat walrus sail")
        alone = knowledge.search(namespace, terms, category=None, limit=2)
        for other in ((*namespace, "other"), (*namespace[:-1], f"{namespace[-1]}0")):
            put(knowledge, other, *(known(f"{n}", "walrus walrus sail") for n in range(20)))
        assert knowledge.search(namespace, terms, category=None, limit=2) == alone

    def test_search_treats_operators_as_words(
        self, knowledge: KnowledgeRepository, namespace: NamespacePath
    ) -> None:
        put(knowledge, namespace, known("text", f"a walrus {ANY_TEXT}"))
        for word in ('"', "*", "NEAR", "AND", "-", ":", "(", "value:walrus", "'", "\\", "a & b", "|", "!x"):
            found(knowledge, namespace, word)
        assert found(knowledge, namespace, "walrus", '"') == ["text"]
