"""Facts that are found in the history, and facts that are found again."""

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


def said(*texts: str, role: str = "user") -> ContextData:
    context = ContextData(session_id="s")
    for number, text in enumerate(texts):
        context = context.with_message(role, text, at=number)
    return context


def test_decisions_preferences_and_addresses_become_facts_as_they_were_said() -> None:
    context = said(
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


def test_what_the_context_says_already_is_not_said_again() -> None:
    context = said("I prefer short answers.", "i  prefer short answers").with_fact("I prefer short answers")
    report = extract_facts(context)
    assert report.added == ()
    assert report.known == 2


def test_facts_that_differ_in_a_number_or_a_negation_are_two() -> None:
    report = extract_facts(
        said(
            "We decided to use port 8080.",
            "We decided to use port 8081.",
            "We decided not to use port 8081.",
        )
    )
    assert len(report.added) == 3


def test_questions_secrets_tools_and_small_talk_are_no_facts() -> None:
    context = said(
        "Have we decided to use https://example.org?",
        "The password is hunter2 at https://example.org/login.",
        "Thanks, that is great.",
    )
    assert extract_facts(context).added == ()
    assert extract_facts(said("See https://example.org/log", role="tool")).added == ()


def test_only_what_is_new_is_looked_at() -> None:
    context = said("I prefer tea.", "I prefer coffee.")
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
def test_facts_are_found_by_what_a_text_is_about(embedder: OfflineEmbedder | HashEmbedder | None) -> None:
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


def test_meaning_finds_what_words_do_not() -> None:
    asked = "kitten"
    assert FactSearch(None, FrozenClock()).find(FACTS, asked).hits == ()
    assert FactSearch(OfflineEmbedder(), FrozenClock()).find(FACTS, asked).hits[0].fact == FACTS[3]


def test_where_the_embedder_fails_words_find_and_the_report_says_so() -> None:
    class Broken(HashEmbedder):
        def embed_query(self, text: str) -> NDArray[np.float32]:
            raise RuntimeError("down")

    found = FactSearch(Broken(), FrozenClock()).find(FACTS, "the cat")
    assert found.hits[0].fact == FACTS[3]
    assert found.problems


def test_no_facts_and_no_words_find_nothing() -> None:
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
