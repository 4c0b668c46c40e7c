"""The cached terms of a small namespace match the database."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.recall import namespace_index
from langmem_tiers.recall.namespace_index import LexicalCache

if TYPE_CHECKING:
    from pathlib import Path

    from langmem_tiers import Namespace, Recall

WORDS = st.lists(st.sampled_from(["boat", "house", "tea", "北京", "it's", "42"]), max_size=6)
ASKED = ["boat", "green house", "tea 北京", "the boat and the house", "nothing of it", "it's 42"]


@given(st.lists(WORDS), st.lists(WORDS))
def test_each_posting_of_a_term_is_returned_once(first: list[list[str]], more: list[list[str]]) -> None:
    held, texts = LexicalCache(), dict(enumerate([*first, *more], start=7))
    keys = list(texts)
    held.add(keys[: len(first)], texts)
    held.add(keys[len(first) :], texts)
    found = held.find_postings(["tea", "boat", "nowhere", "tea"])
    postings = {
        (found.terms[of], key): count
        for of, key, count in zip(
            found.term_numbers.tolist(), found.keys.tolist(), found.counts.tolist(), strict=True
        )
    }
    assert postings == {
        (term, key): times
        for key, text in texts.items()
        for term, times in Counter(text).items()
        if term in {"tea", "boat"}
    }
    assert held.message_count == len(texts)


def summarize_hits(found: Recall) -> list[tuple[str, float, dict[str, float]]]:
    return [(hit.entry.id, hit.score, dict(hit.signals)) for hit in found]


def talk(where: Namespace) -> None:
    for number in range(5):
        where.session(f"s{number}").add_many(
            MessageDraft("user", f"{text} {'boat ' * number}", id=f"{number}-{text}")
            for text in ("the green house", "tea in 北京, 42 cups", "it's a boat", "...", "nothing")
        )


def test_recall_from_the_cache_equals_recall_from_the_database(
    engine: MemoryEngine, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = engine.namespace(tenant)
    talk(where)
    cached = [summarize_hits(where.recall(text)) for text in ASKED]
    found = [summarize_hits(where.recall(text, strategy="words")) for text in ASKED]
    monkeypatch.setattr(namespace_index, "MAX_CACHED_TERMS", 0)
    engine._services.retriever.invalidate()  # as in a process that begins now
    assert [summarize_hits(where.recall(text)) for text in ASKED] == cached
    assert [summarize_hits(where.recall(text, strategy="words")) for text in ASKED] == found
    assert any(found)


def test_added_and_erased_messages_are_visible_immediately(engine: MemoryEngine, tenant: str) -> None:
    where = engine.namespace(tenant)
    talk(where)
    assert not where.search("zebra")
    where.session("s9").add("user", "a zebra")
    assert [hit.entry.content for hit in where.search("zebra")] == ["a zebra"]
    where.session("s9").delete()
    assert not where.search("zebra")
    where.session("s9").add("user", "no such animal")  # may get the number of the one that is gone
    assert not where.search("zebra")


@pytest.mark.soak
def test_messages_of_another_process_are_visible_immediately(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    program = (
        "import sys; from pathlib import Path; from langmem_tiers import MemoryEngine\n"
        "with MemoryEngine(Path(sys.argv[1])) as e: e.session('a', 's').add('user', 'a zebra')"
    )
    with MemoryEngine(path) as engine:
        where = engine.namespace("a")
        talk(where)
        assert not where.search("zebra")
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        assert [hit.entry.content for hit in where.search("zebra")] == ["a zebra"]


def test_a_namespace_above_the_cache_limit_is_searched_in_the_database(
    engine: MemoryEngine, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_index, "MAX_CACHED_TERMS", 60)
    where = engine.namespace(tenant)
    where.session("a").add("user", "a zebra")
    assert where.search("zebra")
    talk(where)
    where.session("a").add("user", "another zebra")
    assert len(where.search("zebra")) == 2
    where.session("s1").delete()
    assert len(where.search("zebra")) == 2
