"""Embedders that fail, change or carry no information: recall falls back to words and reports it."""

from __future__ import annotations

import hashlib
import random
import threading
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sqlalchemy import delete, func, select, update

from langmem_tiers import EmbeddingConfig, EmbeddingError, EngineConfig, MemoryEngine, MessageDraft, Strategy
from langmem_tiers.recall.vector_repository import VectorRepository
from langmem_tiers.storage.schema import embedder_trust, embedders, embedding_cache, namespaces, vectors
from langmem_tiers.testing import FrozenClock, HashEmbedder, seeded_ids
from tests.backends import ON_FILE_AND_SERVER, POSTGRES
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from langmem_tiers import Namespace, Recall

SAID = ("the red boat", "sails at noon", "the green house", "stands by the sea")


class Spy(HashEmbedder):
    """Notes what it is asked, and answers as it is told to."""

    def __init__(self, identity: str = "spy", answer: Callable[[int], object] | None = None) -> None:
        super().__init__(16)
        self.identity = identity
        self.answer = answer
        self.queries: list[str] = []
        self.documents: list[str] = []

    @property
    def asked(self) -> int:
        return len(self.queries) + len(self.documents)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.documents += texts
        if self.answer is not None:
            return self.answer(len(texts))  # type: ignore[return-value]
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.queries.append(text)
        return HashEmbedder(self.dimension).embed_query(text)


class Sized:
    """An embedder of any size."""

    identity = "sized"

    def __init__(self, dimension: object) -> None:
        self.dimension = dimension

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), 4), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return np.ones(4, np.float32)


class Chance(HashEmbedder):
    """Vectors that have nothing to do with the text but are the same for the same text."""

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        seeds = (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts)
        rows = [np.random.default_rng(seed).normal(size=64) for seed in seeds]
        return np.array(rows, np.float32).reshape(-1, 64)


def raising(_: int) -> object:
    raise RuntimeError("no key sk-secret")


def exiting(_: int) -> object:
    raise SystemExit(3)


FAULTY = {
    "raises": (raising, "raised RuntimeError"),
    "exits": (exiting, "raised SystemExit"),
    "nan": (lambda n: np.full((n, 16), np.nan, np.float32), "spy"),
    "infinite": (lambda n: np.full((n, 16), np.inf, np.float32), "spy"),
    "other dimension": (lambda n: np.ones((n, 17), np.float32), "spy"),
    "too few": (lambda n: np.ones((n - 1, 16), np.float32), "spy"),
    "none": (lambda _: None, "spy"),
    "text": (lambda n: ["a"] * n, "spy"),
}


def add_texts(where: Namespace) -> None:
    where.session("s").add_many(MessageDraft("user", text) for text in SAID)


def vector_counts(engine: MemoryEngine, tenant: str = "a") -> dict[str, int]:
    query = (
        select(embedders.c.identity, func.count())
        .join(vectors, vectors.c.embedder_pk == embedders.c.pk)
        .join(namespaces, vectors.c.namespace_pk == namespaces.c.pk)
        .where(namespaces.c.path.contains(tenant))
        .group_by(embedders.c.identity)
    )
    with engine._database.read() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


@pytest.mark.parametrize("fault", FAULTY)
def test_an_embedder_with_invalid_output_is_reported_and_recall_uses_words(fault: str) -> None:
    answer, problem = FAULTY[fault]
    with MemoryEngine(embedder=Spy(answer=answer), clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        add_texts(where)
        found = where.recall("red boat")
        assert found[0].entry.content == "the red boat"
        assert found.embedder is None
        assert len(found.problems) == 1
        assert problem in found.problems[0]
        assert "sk-secret" not in found.problems[0]
        assert where.recall("red boat", strategy="similarity").hits == ()
        assert vector_counts(engine) == {}
        with pytest.raises(EmbeddingError):
            where.embed()


def test_the_words_strategy_ranks_the_same_as_without_an_embedder() -> None:
    answers = []
    for embedder in (None, Spy(answer=raising)):
        with MemoryEngine(embedder=embedder, clock=FrozenClock(), ids=seeded_ids()) as engine:
            add_texts(engine.namespace("a"))
            answers.append(engine.namespace("a").recall("red boat").hits)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("dimension", [0, -1, True, "4", None, 4.0])
def test_an_invalid_dimension_is_reported(dimension: object) -> None:
    with MemoryEngine(embedder=Sized(dimension)) as engine:  # type: ignore[arg-type]
        add_texts(engine.namespace("a"))
        found = engine.namespace("a").recall("red boat")
        assert found[0].entry.content == "the red boat"
        assert repr(dimension) in found.problems[0]


def test_an_embedder_that_hangs_costs_its_time_limit_once() -> None:
    until = threading.Event()
    spy = Spy(answer=lambda _: until.wait(LIMIT_SECONDS))
    config = EngineConfig(embedding=EmbeddingConfig(time_limit_seconds=1))
    with MemoryEngine(config=config, embedder=spy) as engine:
        where = engine.namespace("a")
        add_texts(where)
        problems = [where.recall("red boat").problems for _ in range(5)]
        assert "did not respond within 1 s" in problems[0][0]
        assert all(len(each) == 1 for each in problems)
        assert len(spy.documents) <= len(SAID)  # it was asked once at most
        until.set()


def test_a_failed_embedder_is_retried_after_a_pause(clock: FrozenClock) -> None:
    spy = Spy(answer=raising)
    with MemoryEngine(embedder=spy, clock=clock) as engine:
        where = engine.namespace("a")
        add_texts(where)
        where.recall("red boat")
        once = spy.asked
        clock.advance(seconds=29)
        assert "next attempt is in 1 s" in where.recall("red boat").problems[0]
        assert spy.asked == once
        spy.answer = None
        clock.advance(seconds=2)
        found = where.recall("red boat")
        assert (found.problems, found.embedder) == ((), "spy")
        assert vector_counts(engine) == {"spy": len(SAID)}


@pytest.mark.parametrize("kind", ["file", POSTGRES])
def test_a_changed_model_is_detected_and_its_vectors_are_never_mixed(
    kind: str, file_url: str, tenant: str, request: pytest.FixtureRequest
) -> None:
    url = file_url if kind == "file" else str(request.getfixturevalue("shared_postgres"))
    with MemoryEngine(url, embedder=Spy("old")) as engine:
        add_texts(engine.namespace(tenant))
        assert engine.namespace(tenant).recall("red boat").embedder == "old"
    new = Spy("new", answer=lambda n: -np.ones((n, 16), np.float32))
    with MemoryEngine(url, embedder=new) as engine:
        found = engine.namespace(tenant).recall("red boat", strategy="similarity")
        assert sorted(new.documents) == sorted(SAID)
        assert found.embedder == "new"
        assert len({round(hit.score, 5) for hit in found}) == 1  # all by the new one, which is blind
        assert vector_counts(engine, tenant) == {"old": 4, "new": 4}


@ON_FILE_AND_SERVER
def test_vectors_of_an_unused_model_are_erased_after_a_week(
    url: str, tenant: str, clock: FrozenClock
) -> None:
    old, new = Spy(f"old {tenant}"), Spy(f"new {tenant}")
    with (
        MemoryEngine(url, embedder=old, clock=clock) as before,
        MemoryEngine(url, embedder=new, clock=clock) as after,
    ):
        add_texts(before.namespace(tenant))
        for _ in range(10):  # both serve: neither undoes the other's work
            clock.advance(days=1)
            for engine in (before, after):
                assert engine.namespace(tenant).recall("red boat").problems == ()
        assert len(old.documents) == len(new.documents) == 4
        assert vector_counts(after, tenant) == {old.identity: 4, new.identity: 4}
        clock.advance(days=8)
        after.namespace(tenant).recall("red boat")
        wait_until(lambda: vector_counts(after, tenant) == {new.identity: 4}, "old vectors are erased")


@pytest.mark.parametrize("backend", ["postgresql"])
def test_missing_vectors_are_detected_and_rebuilt(url: str, tenant: str) -> None:
    spy = Spy(tenant)
    with MemoryEngine(url, embedder=spy) as engine:
        where = engine.namespace(tenant)
        add_texts(where)
        best = [hit.entry.content for hit in where.recall("red boat", strategy="similarity")]
        ours = select(embedders.c.pk).where(embedders.c.identity == tenant)
        with engine._database.write() as connection:
            connection.execute(delete(vectors).where(vectors.c.embedder_pk.in_(ours)))
        for strategy in ("similarity", "best"):
            found = where.recall("red boat", strategy=strategy)
            assert len(found) == 4
            if strategy == "similarity":
                assert "4 messages are missing" in found.problems[0]
        again = where.recall("red boat", strategy="similarity")
        assert ([hit.entry.content for hit in again], again.problems) == (best, ())
        assert len(spy.documents) == 8


def test_embed_returns_the_number_of_messages_and_then_0() -> None:
    spy = Spy()
    with MemoryEngine(embedder=spy) as engine, MemoryEngine(embedder=None) as without:
        where = engine.namespace("a")
        assert where.embed() == 0
        add_texts(where)
        add_texts(without.namespace("a"))
        assert (where.embed(), where.embed(), without.namespace("a").embed()) == (4, 0, 0)
        where.recall("red boat")
        assert len(spy.documents) == 4
        where.session("s").add("user", "one more")
        assert where.embed() == 1


def test_slow_embedding_continues_in_the_background() -> None:
    spy = Spy()
    config = EngineConfig(embedding=EmbeddingConfig(inline_seconds=1e-9, batch_size=7))
    with MemoryEngine(config=config, embedder=spy) as engine:
        where = engine.namespace("a")
        where.session("s").add_many(MessageDraft("user", f"boat number {n}") for n in range(50))
        first = where.recall("boat number 7")
        assert first[0].entry.content == "boat number 7"
        assert "not embedded yet" in first.problems[0]
        wait_until(lambda: not where.recall("boat").problems, "all messages are embedded")
        assert vector_counts(engine) == {"spy": 50}
        assert len(spy.documents) == 50
        assert where.embed() == 0


def test_a_query_is_embedded_once_a_day(clock: FrozenClock) -> None:
    spy = Spy()
    with MemoryEngine(embedder=spy, clock=clock) as engine:
        add_texts(engine.namespace("a"))
        for hours, times in ((0, 1), (23.9, 1), (0.2, 2), (1, 2)):
            clock.advance(hours=hours)
            engine.namespace("a").recall("red boat")
            assert len(spy.queries) == times


def test_vectors_of_one_engine_are_used_by_the_next(file_url: str, clock: FrozenClock) -> None:
    with MemoryEngine(file_url, embedder=Spy(), clock=clock) as engine:
        add_texts(engine.namespace("a"))
        first = engine.namespace("a").recall("red boat")
    second = Spy()
    with MemoryEngine(file_url, embedder=second, clock=clock) as engine:
        found = engine.namespace("a").recall("red boat")
        assert second.asked == 0
        clock.advance(hours=25)
        engine.namespace("a").recall("red boat")
        assert (second.queries, second.documents) == (["red boat"], [])
    assert [(hit.entry.id, hit.score) for hit in found] == [(hit.entry.id, hit.score) for hit in first]


@pytest.mark.soak
def test_the_cache_contains_only_queries_within_its_limit(file_url: str) -> None:
    config = EngineConfig(embedding=EmbeddingConfig(cache_entries=50))
    with MemoryEngine(file_url, embedder=Spy(), config=config, clock=(clock := FrozenClock())) as engine:
        where = engine.namespace("a")
        add_texts(where)
        for number in range(300):
            clock.advance(seconds=1)
            where.recall(f"boat {number}")
    with MemoryEngine(file_url, embedder=(second := Spy()), config=config, clock=clock) as engine:
        with engine._database.read() as connection:
            count = connection.execute(select(func.count()).select_from(embedding_cache)).scalar_one()
        assert 50 <= count <= 100  # those that were written together leave together
        for number in (*range(280, 300), *range(20)):
            engine.namespace("a").recall(f"boat {number}")
        assert second.queries == [f"boat {number}" for number in range(20)]


class Picky(Spy):
    """Refuses texts that hold a word, by raising or by a row of nothing."""

    def __init__(self, *, raises: bool = True) -> None:
        super().__init__()
        self.raises = raises

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed_documents(texts)
        for number, text in enumerate(texts):
            if "poison" in text and self.raises:
                raise ValueError("content filter")
            if "poison" in text:
                vectors[number] = np.nan
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        if "poison" in text:
            raise ValueError("content filter")
        return super().embed_query(text)


@pytest.mark.parametrize("raises", [True, False])
def test_one_refused_text_does_not_prevent_the_vectors_of_others(
    clock: FrozenClock,
    raises: bool,  # noqa: FBT001 - both cases
) -> None:
    spy = Picky(raises=raises)
    with MemoryEngine(embedder=spy, clock=clock) as engine:
        where = engine.namespace("a")
        texts = [f"boat {n}" for n in range(40)]
        where.session("s").add_many(MessageDraft("user", text) for text in [*texts, "poison", *SAID])
        found = where.recall("red boat")
        assert (found.embedder, found[0].entry.content) == ("spy", "the red boat")
        assert "rejects 1 of the messages" in found.problems[0]
        assert vector_counts(engine) == {"spy": 44}
        asked = len(spy.documents)
        where.session("s").add("user", "one more boat")
        assert len(where.recall("red boat").problems) == 1
        assert vector_counts(engine) == {"spy": 45}
        assert len(spy.documents) == asked + 1
        clock.advance(seconds=31)
        where.recall("red boat")
        assert spy.documents.count("poison") > 1
        assert where.embed() == 0


def test_a_single_refused_text_does_not_disable_existing_vectors() -> None:
    with MemoryEngine(embedder=Picky(), clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        add_texts(where)
        where.recall("red boat")
        where.session("s").add("user", "poison")
        for _ in range(2):
            found = where.recall("red boat", strategy="similarity")
            assert (found.embedder, found[0].entry.content) == ("spy", "the red boat")
            assert len(found.problems) == 1


def test_a_query_that_is_refused_is_answered_by_words_and_the_next_one_by_meaning() -> None:
    with MemoryEngine(embedder=Picky(), clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        add_texts(where)
        refused = where.recall("poison boat")
        assert (refused.embedder, refused[0].entry.content) == (None, "the red boat")
        assert "raised ValueError" in refused.problems[0]
        assert where.recall("red boat").embedder == "spy"


def test_existing_vectors_are_used_while_documents_fail() -> None:
    spy = Spy()
    with MemoryEngine(embedder=spy, clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        add_texts(where)
        where.recall("red boat")
        spy.answer = raising
        where.session("s").add("user", "one more")
        for _ in range(2):
            found = where.recall("red boat", strategy="similarity")
            assert found.embedder == "spy"
            assert found[0].entry.content == "the red boat"
            assert len(found.problems) == 1


class Gate(Spy):
    """Waits with documents until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_for = threading.Event()
        self.may_go_on = threading.Event()

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked_for.set()
        self.may_go_on.wait(LIMIT_SECONDS)
        return super().embed_documents(texts)


@pytest.mark.timeout(60)
def test_other_calls_do_not_wait_while_a_namespace_is_being_embedded() -> None:
    gate = Gate()
    config = EngineConfig(embedding=EmbeddingConfig(time_limit_seconds=3600))
    with MemoryEngine(embedder=gate, config=config) as engine:
        where = engine.namespace("a")
        add_texts(where)
        worker = threading.Thread(target=where.embed)
        worker.start()
        assert gate.asked_for.wait(LIMIT_SECONDS)
        assert where.search("red boat")[0].entry.content == "the red boat"
        found = where.recall("red boat")
        assert found[0].entry.content == "the red boat"
        assert "not embedded yet" in found.problems[0]
        gate.may_go_on.set()
        worker.join(LIMIT_SECONDS)
        assert where.embed() == 0
        assert sorted(set(gate.documents)) == sorted(gate.documents) == sorted(SAID)


class QuickGate(Spy):
    """A quick embedder. Its first answer comes when another recall has ended or waits for it."""

    is_quick = True

    def __init__(self, other: threading.Thread) -> None:
        super().__init__()
        self.other = other

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not self.documents:
            self.other.start()
            self.other.join(0.2)  # a recall that does not wait has ended by then
        return super().embed_documents(texts)


def test_a_recall_waits_for_a_running_batch_of_a_quick_embedder() -> None:
    answers: list[Recall] = []
    config = EngineConfig(embedding=EmbeddingConfig(inline_seconds=LIMIT_SECONDS))
    other = threading.Thread(target=lambda: answers.append(where.recall("red boat")))
    with MemoryEngine(embedder=(gate := QuickGate(other)), config=config, clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        add_texts(where)
        answers.append(where.recall("red boat"))
        other.join(LIMIT_SECONDS)
    assert [found.embedder for found in answers] == ["spy", "spy"]
    assert not [problem for found in answers for problem in found.problems if "not embedded yet" in problem]
    assert sorted(gate.documents) == sorted(SAID)  # each of them once


THINGS = "boat kettle violin garden bridge lantern orchard saddle compass anchor".split()


def conversation(where: Namespace) -> None:
    """Each session is about a few things, and what follows in it speaks of the same ones."""
    chance = random.Random(7)
    for number, thing in enumerate(THINGS):
        other = THINGS[(number + 3) % len(THINGS)]
        where.session(thing).add_many(
            MessageDraft("user" if n % 2 else "assistant", f"The {thing} near {other} {thing}s {word} today")
            for n in range(12)
            for word in [chance.choice("shines rests waits breaks turns rusts".split())]
        )


def test_an_uninformative_model_does_not_change_the_results() -> None:
    answers = []
    for embedder in (None, Chance(), HashEmbedder()):
        with MemoryEngine(embedder=embedder, clock=FrozenClock(), ids=seeded_ids()) as engine:
            where = engine.namespace("a")
            conversation(where)
            answers.append([where.recall(f"which {thing} breaks").hits for thing in THINGS])
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]  # one that knows words has


def ranking(where: Namespace) -> list[list[tuple[str, float]]]:
    """What is recalled for each of the things, with scores."""
    return [
        [(hit.entry.id, hit.score) for hit in where.recall(f"which {thing} breaks", limit=10)]
        for thing in THINGS
    ]


def test_engines_of_different_history_rank_the_same(
    url: str, config: EngineConfig, tenant: str, backend: str
) -> None:
    clock = FrozenClock()
    with MemoryEngine(url, config=config, clock=clock, embedder=HashEmbedder(24)) as along:
        where = along.namespace(tenant)
        for number, thing in enumerate(THINGS * 4):
            where.session(f"s{number}").add_many(
                MessageDraft("user", f"The {thing} of {number} near {THINGS[number % 7]} breaks {n}")
                for n in range(number % 9 + 1)
            )
            where.recall(f"which {thing} breaks")
        where.recall("which boat breaks")
        where.embed()  # on a server the last trial is made behind the recall, or here
        assert along._services.retriever._indexes[tenant,].vectors.sample_size == 128  # type: ignore[union-attr]
        if backend == "sqlite-memory":  # nobody else can look at it
            along._services.retriever.invalidate()
            fresh = ranking(where)
        else:
            with MemoryEngine(url, config=config, clock=clock, embedder=HashEmbedder(24)) as other:
                fresh = ranking(other.namespace(tenant))
        assert ranking(where) == fresh


def test_a_model_tried_by_one_process_is_not_tried_again_by_another(
    url: str, config: EngineConfig, tenant: str, backend: str
) -> None:
    if backend == "sqlite-memory":
        pytest.skip("nobody else can look at it")
    with MemoryEngine(url, config=config, embedder=HashEmbedder(24)) as first:
        conversation(first.namespace(tenant))
        first.namespace(tenant).recall("which boat breaks")
        cached_index = first._services.retriever._indexes[tenant,].tenant
        assert cached_index is not None
        database = first._database
        marked = (
            update(embedder_trust)
            .where(embedder_trust.c.namespace_pk == cached_index.key)
            .values(share=0.125)
        )

        def is_marked() -> bool:
            with database.write() as connection:
                return connection.execute(marked).rowcount == 1

        wait_until(is_marked, "the trial is stored")
        with MemoryEngine(url, config=config, embedder=HashEmbedder(24)) as second:
            second.namespace(tenant).recall("which boat breaks")
            assert second._services.retriever._indexes[tenant,].vectors.trust.share == 0.125  # type: ignore[union-attr]
            first.namespace(tenant).session(THINGS[0]).delete()
            second.namespace(tenant).recall("which boat breaks")
            assert second._services.retriever._indexes[tenant,].vectors.trust.share != 0.125  # type: ignore[union-attr]


def test_a_recall_on_postgresql_does_not_wait_for_another_trial(
    new_postgres_database: Callable[[], str], tenant: str
) -> None:
    with MemoryEngine(new_postgres_database(), embedder=HashEmbedder(24)) as engine:
        where, held = engine.namespace(tenant), engine._services.retriever._indexes
        where.session("first").add_many(
            MessageDraft("user", f"The {thing} breaks again today") for thing in THINGS * 4
        )
        where.recall("which boat breaks")
        vectors = held[tenant,].vectors
        assert vectors is not None
        (size, _, _), before = vectors.sample_extent or (0, 0, 0), vectors.trust
        conversation(where)
        with held[tenant,].lock:  # it is needed for a trial
            where.recall("which boat breaks")
            assert vectors.trust is before
            assert vectors.is_measurement_pending
        wait_until(
            lambda: vectors.sample_extent is not None and vectors.sample_extent[0] > size,
            "a new trial is made",
        )
        assert size > 0


def _is_embedded(where: Namespace) -> bool:
    return not where.recall("boat").problems


def test_a_model_is_not_tried_before_its_vectors_are_complete() -> None:
    config = EngineConfig(embedding=EmbeddingConfig(inline_seconds=1e-9, batch_size=7))
    with (
        MemoryEngine(config=config, embedder=HashEmbedder()) as slowly,
        MemoryEngine(embedder=HashEmbedder()) as at_once,
    ):
        trusts = []
        for engine in (slowly, at_once):
            where = engine.namespace("a")
            conversation(where)
            where.recall("boat")
            wait_until(partial(_is_embedded, where), "all messages are embedded")
            cached_index = engine._services.retriever._indexes["a",].vectors
            assert cached_index is not None
            trusts.append(cached_index.trust)
        assert trusts[0] == trusts[1]


def test_every_database_ranks_the_same(engine: MemoryEngine, tenant: str) -> None:
    with MemoryEngine(clock=FrozenClock(), ids=seeded_ids()) as plain:
        here, there = engine.namespace(tenant), plain.namespace(tenant)
        conversation(here)
        conversation(there)
        for strategy in Strategy:
            found, expected = (
                where.recall("which violin rusts", strategy=strategy) for where in (here, there)
            )
            assert [hit.entry.id for hit in found] == [hit.entry.id for hit in expected]
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-5)


def test_an_engine_lists_the_embedders_of_its_vectors(file_url: str) -> None:
    for dimension in (4, 8):
        with MemoryEngine(file_url, embedder=HashEmbedder(dimension)) as engine:
            add_texts(engine.namespace(f"by {dimension}"))
            before = engine.embedders()
            engine.namespace(f"by {dimension}").embed()
            assert set(engine.embedders()) - set(before) == {f"hash-{dimension}"}
        assert len(before) == (dimension == 8)


def test_many_new_vectors_are_indexed_in_the_background_until_the_engine_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    going_on: list[bool] = []

    def index(_: object, namespace: int, model: int, count: int, go_on: Callable[[], bool]) -> None:
        going_on.append(go_on())

    monkeypatch.setattr("langmem_tiers.recall.embedding_backfill._MAX_UNINDEXED_VECTORS", 1)
    monkeypatch.setattr(VectorRepository, "build_index", index)
    with MemoryEngine(embedder=HashEmbedder()) as engine:
        add_texts(engine.namespace("a"))
        engine.namespace("a").recall("red boat")
        wait_until(lambda: going_on, "the index is built")
    assert going_on[0]
