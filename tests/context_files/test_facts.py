"""Extraction of facts from the history, and search for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import OfflineEmbedder
from langmem_tiers.context_files.facts import FactSearch, extract_facts
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.testing import FrozenClock, HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


def build_conversation(*texts: str, role: str = "user") -> ContextData:
    context = ContextData(session_id="s")
    for number, text in enumerate(texts):
        context = context.with_message(role, text, at=number)
    return context


def test_decisions_preferences_and_urls_become_facts_verbatim() -> None:
    context = build_conversation(
        "Good morning! I prefer short answers. How are you?",
        "We decided to use PostgreSQL for the bookings.",
        "The dashboards are at https://grafana.example/d/7 now. Nice weather today.",
        "Upgrade to version 3.12.1 please.",
    )
    report = extract_facts(context)
    assert report.added == (
        "I prefer short answers.",
        "We decided to use PostgreSQL for the bookings.",
        "The dashboards are at https://grafana.example/d/7 now.",
        "Upgrade to version 3.12.1 please.",
    )
    assert report.context.facts == report.added
    assert extract_facts(report.context).added == ()
    assert extract_facts(report.context).known == 4


def test_known_facts_are_not_added_again() -> None:
    context = build_conversation("I prefer short answers.", "i  prefer short answers").with_fact(
        "I prefer short answers"
    )
    report = extract_facts(context)
    assert report.added == ()
    assert report.known == 2


def test_facts_that_differ_in_a_number_or_a_negation_are_two() -> None:
    report = extract_facts(
        build_conversation(
            "We decided to use port 8080.",
            "We decided to use port 8081.",
            "We decided not to use port 8081.",
        )
    )
    assert len(report.added) == 3


def test_questions_secrets_tools_and_small_talk_yield_no_facts() -> None:
    context = build_conversation(
        "Have we decided to use https://example.org?",
        "The password is hunter2 at https://example.org/login.",
        "Thanks, that is great.",
    )
    assert extract_facts(context).added == ()
    assert extract_facts(build_conversation("See https://example.org/log", role="tool")).added == ()


def test_only_new_messages_are_searched_for_facts() -> None:
    context = build_conversation("I prefer tea.", "I prefer coffee.")
    assert extract_facts(context, since=0).added == ("I prefer coffee.",)


FACTS = (
    "Project uses Rust 1.75",
    "User prefers verbose output",
    "The database is PostgreSQL on port 5433",
    "The cat is called Tom",
)


@pytest.mark.parametrize(
    "embedder", [None, OfflineEmbedder(), HashEmbedder()], ids=["words", "offline", "hash"]
)
def test_facts_are_found_by_the_topic_of_a_text(embedder: OfflineEmbedder | HashEmbedder | None) -> None:
    search = FactSearch(embedder, FrozenClock())
    for question, fact in (
        ("Which port does the database have?", FACTS[2]),
        ("what is the cat called", FACTS[3]),
        ("rust version of the project", FACTS[0]),
    ):
        found = search.find(FACTS, question)
        assert found.hits[0].fact == fact
        assert found.problems == ()
        assert all(0 < hit.score <= 1 for hit in found.hits)
    assert len(search.find(FACTS, "the database of the project", limit=1).hits) == 1


def test_similarity_finds_facts_without_common_words() -> None:
    asked = "kitten"
    assert FactSearch(None, FrozenClock()).find(FACTS, asked).hits == ()
    assert FactSearch(OfflineEmbedder(), FrozenClock()).find(FACTS, asked).hits[0].fact == FACTS[3]


def test_a_failed_embedder_falls_back_to_words_and_is_reported() -> None:
    class Broken(HashEmbedder):
        def embed_query(self, text: str) -> NDArray[np.float32]:
            raise RuntimeError("down")

    found = FactSearch(Broken(), FrozenClock()).find(FACTS, "the cat")
    assert found.hits[0].fact == FACTS[3]
    assert found.problems


def test_a_search_without_facts_or_words_finds_nothing() -> None:
    search = FactSearch(OfflineEmbedder(), FrozenClock())
    assert search.find((), "x").hits == ()
    assert search.find(FACTS, "").hits == ()
    with pytest.raises(InvalidInputError, match="text must be a string"):
        search.find(FACTS, None)  # type: ignore[arg-type] # refused


def test_each_fact_is_embedded_once() -> None:
    asked: list[str] = []

    class Counting(HashEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
            asked.extend(texts)
            return super().embed_documents(texts)

    search = FactSearch(Counting(), FrozenClock())
    for _ in range(3):
        search.find(FACTS, "the cat")
    assert [asked.count(fact) for fact in FACTS] == [1] * len(FACTS)
