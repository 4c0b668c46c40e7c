"""Knowledge among the hits of recall, and in the contexts of a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import InvalidInputError, RecallFilters, Strategy, Tier, TokenBudget

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine, Namespace


@pytest.fixture
def where(engine: MemoryEngine, tenant: str) -> Namespace:
    """A namespace in which things were said and some are known."""
    namespace = engine.namespace(tenant)
    said = ("The red boat sails at noon.", "Dinner is at eight.", "We painted the kitchen.")
    for text in said:
        namespace.session("s").add("user", text)
    namespace.knowledge.store("domain", "mooring fee", "the red boat pays 400 crowns a month", confidence=0.9)
    namespace.knowledge.store("user_preference", "dinner", "no fish for dinner", confidence=0.4)
    return namespace


def test_knowledge_is_ranked_among_messages_with_reasons(where: Namespace) -> None:
    hits = where.recall("What is the mooring fee of the red boat?").hits
    assert hits[0].knowledge is not None
    assert hits[0].knowledge.key == "mooring fee"
    assert hits[0].message is None
    assert (hits[0].entry.tier, hits[0].entry.kind) == (Tier.KNOWLEDGE, "knowledge")
    assert hits[0].found_by == "knowledge"
    assert set(hits[0].signals) == {"knowledge", "confidence"}
    assert hits[0].score == pytest.approx(sum(hits[0].signals.values()))
    assert {hit.message.content for hit in hits if hit.message} >= {"The red boat sails at noon."}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_one_matching_word_does_not_rank_knowledge_before_messages(where: Namespace) -> None:
    hits = where.recall("When does the red boat sail from the harbour?", limit=3).hits
    assert hits[0].entry.content == "The red boat sails at noon."


@pytest.mark.parametrize(
    ("filters", "known"),
    [
        (RecallFilters(tiers={Tier.KNOWLEDGE}), ["mooring fee"]),
        (RecallFilters(kinds={"knowledge"}), ["mooring fee"]),
        (RecallFilters(categories={"domain"}), ["mooring fee"]),
        (RecallFilters(categories={"user_preference"}), []),
        (RecallFilters(tiers={Tier.SHORT_TERM}), []),
        (RecallFilters(kinds={"message"}), []),
        (RecallFilters(roles={"user"}), []),
        (RecallFilters(sessions={"s"}), []),
        (RecallFilters(tags={"boats"}), []),
        (RecallFilters(kinds={"knowledge"}, min_importance=0.95), []),
    ],
)
def test_filters_are_exact_for_knowledge(where: Namespace, filters: RecallFilters, known: list[str]) -> None:
    hits = where.recall("mooring fee of the red boat", filters=filters).hits
    assert [hit.knowledge.key for hit in hits if hit.knowledge] == known
    if {"knowledge"} in (filters.kinds, filters.tiers) or filters.categories or filters.tags:
        assert all(hit.message is None for hit in hits)


def test_new_knowledge_is_found_without_messages_after_a_recall_that_saw_none(
    engine: MemoryEngine, tenant: str
) -> None:
    namespace = engine.namespace(tenant)
    namespace.session("s").add("user", "The harbor opens at noon.")
    assert [hit.knowledge for hit in namespace.recall("harbor")] == [None]
    namespace.knowledge.store("domain", "harbor", "closed in winter")
    (hit,) = namespace.recall("harbor", filters=RecallFilters(messages=False))
    assert hit.entry.content == "harbor: closed in winter"


def test_several_categories_are_searched(where: Namespace) -> None:
    filters = RecallFilters(categories={"domain", "user_preference"})
    hits = where.recall("fee of the boat, and dinner?", filters=filters).hits
    assert {hit.knowledge.key for hit in hits if hit.knowledge} == {"mooring fee", "dinner"}


def test_tf_idf_returns_only_messages_unless_knowledge_is_requested(where: Namespace) -> None:
    plain = where.recall("mooring fee of the red boat", strategy=Strategy.TF_IDF)
    assert all(hit.message for hit in plain)
    asked = where.recall(
        "mooring fee", strategy=Strategy.TF_IDF, filters=RecallFilters(tiers={Tier.KNOWLEDGE})
    )
    assert [hit.knowledge.key for hit in asked if hit.knowledge] == ["mooring fee"]


def test_the_limit_applies_to_messages_and_knowledge_together(where: Namespace) -> None:
    assert len(where.recall("mooring fee of the red boat", limit=1)) == 1
    with pytest.raises(InvalidInputError, match="0"):
        where.recall("mooring fee", limit=0)


def test_recall_does_not_count_as_use_of_knowledge(where: Namespace) -> None:
    where.recall("mooring fee of the red boat")
    known = where.knowledge.get("domain", "mooring fee", use=False)
    assert known is not None
    assert (known.confidence, known.use_count) == (0.9, 0)


def test_a_context_of_a_namespace_includes_knowledge(where: Namespace) -> None:
    context = where.build_context("What is the mooring fee of the red boat?", budget=TokenBudget.of(400))
    (message,) = context.messages
    assert "mooring fee: the red boat pays 400 crowns a month (confidence 0.90)" in message.content
    assert message.content.count("400 crowns") == 1


def test_a_preference_is_included_with_knowledge_of_the_same_key(engine: MemoryEngine, tenant: str) -> None:
    known = engine.namespace(tenant).knowledge
    known.store("domain", "meals", "dinner is served at eight")
    known.store("user_preference", "meals", "no fish")
    session = engine.session(tenant, "s")
    session.add("user", "When is dinner served?")
    values = {hit.knowledge.value for hit in session.build_context().knowledge}
    assert values == {"dinner is served at eight", "no fish"}


def test_knowledge_of_another_namespace_is_never_included(engine: MemoryEngine, where: Namespace) -> None:
    other = engine.namespace(*where.path, "other")
    other.session("s").add("user", "A red boat.")
    assert all(hit.knowledge is None for hit in other.recall("mooring fee of the red boat"))
    assert "crowns" not in str(other.build_context("mooring fee of the red boat").messages)


def test_knowledge_that_does_not_fit_is_not_reported_as_summarized(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    for number in range(5):
        namespace.knowledge.store("domain", f"harbour rule {number}", "boats keep to the quay at night " * 9)
    for tokens in (90, 200, 400):
        context = namespace.build_context("harbour rule", budget=TokenBudget.of(tokens))
        assert "Summary of 0" not in str(context.messages)
        assert not any(reason.startswith("summarized") for reason in context.reasons.values())
