"""Invalid input is refused by name, unusual input is answered, and nothing crashes."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    EngineClosedError,
    EngineConfig,
    InvalidConfigError,
    InvalidInputError,
    MemoryEngine,
    MessageDraft,
    RecallConfig,
    RecallFilters,
    Strategy,
)
from langmem_tiers.testing import HashEmbedder
from langmem_tiers.testing.threads import run_in_threads
from tests.waiting import wait_until

PATIENT = EngineConfig(busy_timeout_seconds=3600)
"""A call that waits for another writer hangs until the time limit of its test."""
never_waits = pytest.mark.timeout(120)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from langmem_tiers import Namespace


@pytest.fixture
def where(engine: MemoryEngine, tenant: str) -> Namespace:
    """Two messages, on each database."""
    engine.session(tenant, "s").add_many(
        [MessageDraft("user", "the red boat"), MessageDraft("user", "at noon")]
    )
    return engine.namespace(tenant)


@pytest.fixture
def small() -> Iterator[Namespace]:
    """Two messages in memory."""
    with MemoryEngine(embedder=HashEmbedder()) as engine:
        engine.session("a", "s").add_many(
            [MessageDraft("user", "the red boat"), MessageDraft("user", "at noon")]
        )
        yield engine.namespace("a")


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u3000"])
def test_an_empty_query_is_refused_unless_the_strategy_ignores_it(small: Namespace, query: str) -> None:
    for strategy in Strategy:
        if strategy in {Strategy.RECENCY, Strategy.IMPORTANCE}:
            assert len(small.recall(query, strategy=strategy)) == 2
        else:
            with pytest.raises(InvalidInputError, match=strategy.value):
                small.recall(query, strategy=strategy)
    with pytest.raises(InvalidInputError, match="must not be empty"):
        small.build_context(query)
    assert small.search(query) == ()


@pytest.mark.parametrize("query", [None, 3, b"boat", ["boat"], True])
def test_a_query_that_is_not_a_string_is_refused_with_its_type(small: Namespace, query: Any) -> None:
    kind = type(query).__name__
    for ask in (small.recall, small.search, small.build_context):
        with pytest.raises(InvalidInputError, match=kind):
            ask(query)


STRANGE = [
    '"', "'", "''", '"red', "red*", "red AND boat", "NOT red", "red OR", "NEAR(red boat, 2)", "content:red",
    "^red", "red & boat", "red | !boat", "red <-> boat", "(((", ")", "red:*", "\\", "%", "_", ";", "--", "$1",
    "'; DROP TABLE lmt_messages; --", "red\0boat", "\0", "red \ud800 boat", "\udfff", "\ufeff", "\u202ered",
    "?", "!!!", "…", "a", "the", "and or not", "👩‍👩‍👧 red", "e\u0301" * 50, "١٢٣", "99999-99-99", "31 February 0000",
    "on 7 May 99999", "last last week", "in 999999999999 years", "red " * 3000, "x" * 50_000, "{}", "{0}", ":name",
]  # fmt: skip


def test_operators_quotes_and_broken_text_are_only_text(where: Namespace) -> None:
    for query in STRANGE:
        assert len(where.recall(query)) == 2, query
        for hit in where.search(query):
            assert hit.score > 0, query
        for strategy in ("similarity", "tf_idf", "hybrid"):
            assert len(where.recall(query, strategy=strategy)) == 2, query
        assert where.build_context(query).token_count >= 0, query
    for query in ('"red"', "red*", "NOT red", "content:red", "red\0boat", "red & !boat"):
        assert where.search(query)[0].entry.content == "the red boat", query


def test_broken_text_is_found_and_returned_unchanged(where: Namespace) -> None:
    said = "a zebra \0 and \ud800 half a sign"
    where.session("s").add("user", said)
    for query in ("zebra", "zebra \ud800", "half\0sign"):
        assert where.search(query)[0].entry.content == said
    assert where.recall("zebra")[0].entry.content == said
    assert "zebra" in where.build_context("zebra").messages[0].content


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "unit", ["boat ", "x", "北", "7 May 2023 ", "last week ", "'\"", "\u0301", "?? ", "1.", "a-b_c/"]
)
@pytest.mark.timeout(120)  # quadratic work on a megabyte would take hours
def test_a_query_of_a_megabyte_is_answered(small: Namespace, unit: str) -> None:
    query = unit * (2**20 // len(unit))
    assert len(small.recall(query)) == 2


def test_a_message_of_a_megabyte_is_found_by_its_words(small: Namespace) -> None:
    small.session("s").add("user", "zebra " + "the long way home " * 60_000)
    assert small.search("zebra")[0].entry.content.startswith("zebra")
    assert small.recall("zebra")[0].entry.content.startswith("zebra")


@pytest.mark.parametrize("limit", [0, -1, True, 101, 1.0, "5", float("nan"), 10**30])
def test_an_invalid_limit_is_refused_with_its_value(small: Namespace, limit: Any) -> None:
    with pytest.raises(InvalidInputError, match="from 1 to 100") as caught:
        small.recall("boat", limit=limit)
    assert repr(limit) in str(caught.value)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None])
def test_a_search_refuses_such_limits_too(small: Namespace, limit: Any) -> None:
    with pytest.raises(InvalidInputError, match="limit") as caught:
        small.search("boat", limit=limit)
    assert repr(limit) in str(caught.value)


@pytest.mark.parametrize("strategy", ["bm25", "", "BEST", 3, ["best"], {}])
def test_an_unknown_strategy_is_refused_with_the_known_ones(small: Namespace, strategy: Any) -> None:
    with pytest.raises(InvalidInputError, match="use one of best, second_look, words, recency") as caught:
        small.recall("boat", strategy=strategy)
    assert repr(strategy) in str(caught.value)


@pytest.mark.parametrize("filters", [{"roles": {"user"}}, "user", 3, RecallFilters])
def test_filters_of_another_type_are_refused(small: Namespace, filters: Any) -> None:
    for ask in (small.recall, small.build_context):
        with pytest.raises(InvalidInputError, match="filters must be RecallFilters"):
            ask("boat", filters=filters)


@pytest.mark.parametrize("now", [datetime(2025, 1, 1), "2025-01-01", 0, datetime(2025, 1, 1).date()])
def test_a_time_without_a_zone_is_refused(small: Namespace, now: Any) -> None:
    for ask in (small.recall, small.build_context):
        with pytest.raises(InvalidInputError, match="time") as caught:
            ask("boat last week", now=now)
        assert repr(now) in str(caught.value)


@pytest.mark.parametrize("now", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_minimum_and_maximum_datetime_are_accepted(small: Namespace, now: datetime) -> None:
    for query in ("boat last week", "boat in three weeks", "tomorrow", "last year", "boat 10 years ago"):
        for strategy in Strategy:
            assert small.recall(query, now=now, strategy=strategy) is not None


@pytest.mark.parametrize(
    "settings",
    [
        {"limit": 0},
        {"limit": 101},
        {"max_limit": 0},
        {"relevance_threshold": 2},
        {"index_megabytes": 0},
        {"hybrid": 1},
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(settings))):
        RecallConfig(**settings)


@pytest.mark.parametrize("embedder", ["online", 3, HashEmbedder.embed_query, object()])
def test_an_invalid_embedder_is_refused(embedder: Any) -> None:
    with pytest.raises(InvalidConfigError, match="embedder must have"):
        MemoryEngine(embedder=embedder)


def test_an_unknown_namespace_is_empty_and_not_created(where: Namespace, engine: MemoryEngine) -> None:
    nobody = engine.namespace(*where.path, "nobody")
    assert len(nobody.recall("boat")) == 0
    assert nobody.search("boat") == ()
    assert nobody.build_context("boat").messages == ()
    assert nobody.embed() == 0
    assert engine.namespaces(where.path) == (where.path,)


def test_a_closed_engine_refuses_recall(where: Namespace, engine: MemoryEngine) -> None:
    where.recall("boat")
    engine.close()
    for ask in (where.recall, where.search, where.build_context):
        with pytest.raises(EngineClosedError):
            ask("boat")


def test_more_namespaces_than_the_cache_holds_are_all_recalled() -> None:
    config = EngineConfig(recall=RecallConfig(index_megabytes=1))
    with MemoryEngine(config=config, embedder=HashEmbedder(512)) as engine:
        for tenant in "abcd":
            engine.session(tenant, "s").add_many(
                MessageDraft("user", f"boat {tenant} {n}") for n in range(250)
            )
        for _ in range(2):
            for tenant in "abcd":
                assert (
                    engine.namespace(tenant).recall(f"boat {tenant} 7")[0].entry.content == f"boat {tenant} 7"
                )
        assert len(engine._services.retriever._indexes) < 4


def test_recalls_during_concurrent_writes_and_erasures_never_fail(engine: MemoryEngine, tenant: str) -> None:
    where, numbers, lock = engine.namespace(tenant), iter(range(1000)), threading.Lock()

    def work() -> None:
        for _ in range(4):
            with lock:
                number = next(numbers)
            session = where.session(f"s{number}")
            session.add_many(MessageDraft("user", f"boat {number} {n}") for n in range(5))
            assert all("boat" in hit.entry.content for hit in where.recall("boat"))
            if number % 2:
                session.delete()

    run_in_threads(4, work)
    sessions = {hit.session for hit in where.recall("boat", limit=100)}
    assert sessions == {f"s{number}" for number in range(0, 16, 2)}


@never_waits
def test_a_recall_does_not_wait_for_a_writer_and_stores_its_vectors_later(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=HashEmbedder(), config=PATIENT) as engine:
        where = engine.namespace("a")
        where.session("s").add("user", "the red boat")
        where.recall("green house")
        where.session("s").add("user", "the green house")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        found = where.recall("green house", strategy="similarity")
        assert where.build_context("green house").messages
        assert found[0].entry.content == "the green house"
        assert "not stored yet" in found.problems[0]
        other.execute("ROLLBACK")
        wait_until(lambda: not where.recall("boat").problems, "the vectors are stored")
        assert other.execute("SELECT count(*) FROM lmt_vectors").fetchone() == (2,)
        other.close()


@never_waits
def test_a_new_query_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=HashEmbedder(), config=PATIENT) as engine:
        where = engine.namespace("a")
        where.session("s").add("user", "the red boat")
        where.recall("boat")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert all(where.recall(f"red boat {n}").problems == () for n in range(40))
        other.execute("ROLLBACK")
    kept = other.execute("SELECT count(*) FROM lmt_embedding_cache").fetchone()
    other.close()
    assert kept == (41,)


@never_waits
def test_a_first_recall_during_a_write_uses_words(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=HashEmbedder(), config=PATIENT) as engine:
        where = engine.namespace("a")
        where.session("s").add("user", "the red boat")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        found = where.recall("red boat")
        assert (found[0].entry.content, found.embedder, len(found.problems)) == ("the red boat", None, 1)
        other.execute("ROLLBACK")
        other.close()
        assert where.recall("red boat").problems == ()


@never_waits
def test_vectors_that_could_not_be_stored_are_stored_when_the_engine_closes(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with MemoryEngine(path, embedder=HashEmbedder(), config=PATIENT) as engine:
        where = engine.namespace("a")
        where.session("s").add("user", "the red boat")
        where.recall("green house")
        where.session("s").add("user", "the green house")
        other.execute("BEGIN IMMEDIATE")
        where.recall("green house")
        other.execute("ROLLBACK")
    assert other.execute("SELECT count(*) FROM lmt_vectors").fetchone() == (2,)
    other.close()


@never_waits
@pytest.mark.backend
def test_a_recall_on_postgresql_does_not_wait_for_a_locked_row(
    new_postgres_database: Callable[[], str], tenant: str
) -> None:
    import psycopg

    url = new_postgres_database()
    with MemoryEngine(url, embedder=HashEmbedder(), config=PATIENT) as engine, psycopg.connect(url) as other:
        where = engine.namespace(tenant)
        where.session("s").add("user", "the red boat")
        where.recall("green house")
        where.session("s").add("user", "the green house")
        other.execute("SELECT * FROM lmt_namespaces FOR UPDATE")
        found = where.recall("green house")
        assert found[0].entry.content == "the green house"
        assert "not stored yet" in found.problems[0]
        other.rollback()
        wait_until(lambda: not where.recall("green house").problems, "the vectors are stored")
        best = where.recall("green house", strategy="similarity")
        assert best[0].entry.content == "the green house"


HOSTILE = [
    "a",
    "a/b",
    "a%",
    "%",
    "a_",
    "A",
    "a'; DROP TABLE lmt_messages;--",
    "a\0",
    "a\ud800",
    " a",
    "ä",
    "a*",
]


def test_namespaces_with_hostile_names_are_isolated(engine: MemoryEngine, tenant: str) -> None:
    paths = [(tenant, name) for name in HOSTILE] + [(tenant,), (tenant, "a", "b")]
    for path in paths:
        engine.session(path, "s").add("user", f"the secret is {path!r}")
    for path in paths:
        for strategy in ("best", "words", "recency"):
            found = engine.namespace(path).recall("the secret", strategy=strategy)
            assert [hit.entry.content for hit in found] == [f"the secret is {path!r}"]
    assert engine.namespace(tenant, "nobody").recall("the secret").hits == ()


@pytest.mark.parametrize("budget", [100, "100", {"tokens": 1}])
def test_a_budget_of_another_type_is_refused(small: Namespace, budget: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"TokenBudget.of"):
        small.build_context("red boat", budget=budget)
