"""Regressions between reads and writes: accesses, merged episodes, links, iteration during erasure."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine, MessageDraft, RecallFilters, Tier
from langmem_tiers.config import EngineConfig, LearningConfig
from langmem_tiers.episodes.models import EpisodeDraft, EpisodeKind
from langmem_tiers.long_term.models import EntryDraft
from langmem_tiers.long_term.records import Access, MemoryWrite
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from langmem_tiers import Namespace, Session

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
DAY = timedelta(days=1)
BOAT = "The red boat sails at noon."
USES = 250


@pytest.fixture
def session(engine: MemoryEngine, tenant: str) -> Session:
    found = engine.session(tenant, "s")
    found.add_many([MessageDraft("user", f"Line {n}") for n in range(1, 10)])
    return found


@pytest.fixture
def namespace(engine: MemoryEngine, tenant: str, session: Session) -> Namespace:
    return engine.namespace(tenant)


def moment(words: str, first: int, last: int, significance: float = 0.5) -> EpisodeDraft:
    return EpisodeDraft(
        kind=EpisodeKind.DECISION_MADE,
        title=words,
        summary=f"{words}.",
        first_turn=first,
        last_turn=last,
        significance=significance,
    )


def just_before(
    engine: MemoryEngine,
    monkeypatch: pytest.MonkeyPatch,
    is_meant: Callable[[MemoryWrite], bool],
    act: Callable[[], object],
) -> list[MemoryWrite]:
    """Act as somebody else does, once, between what was read and the first write that is meant; the writes."""
    store, seen = engine.services.long_term.store, list[MemoryWrite]()
    commit = store.commit

    def late(path: Any, write: MemoryWrite, now: datetime) -> bool:
        if is_meant(write):
            seen.append(write)
            if len(seen) == 1:
                act()
        return commit(path, write, now)

    monkeypatch.setattr(store, "commit", late)
    return seen


# Uses


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A database that somebody else is writing to."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=LIMIT_SECONDS)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def open_engine(path: Path, patience_seconds: float = 60.0) -> MemoryEngine:
    config = EngineConfig(busy_timeout_seconds=patience_seconds)
    return MemoryEngine(path, config=config, embedder=None, clock=FrozenClock(), ids=seeded_ids())


def used(engine: MemoryEngine) -> list[int]:
    return [entry.access_count for entry in engine.namespace("a").long_term.entries()]


def recall_often(engine: MemoryEngine) -> None:
    for _ in range(USES):
        assert engine.namespace("a").recall("red boat").hits


@pytest.mark.timeout(120)
def test_recall_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with open_engine(path, patience_seconds=3600) as engine:
        engine.namespace("a").long_term.store(BOAT)
        engine.namespace("a").recall("red boat")
        with locked(path):
            recall_often(engine)
    with open_engine(path) as engine:
        assert used(engine) == [USES + 1]


def test_accesses_that_could_not_be_written_are_written_by_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    with open_engine(path, patience_seconds=0.1) as engine:
        engine.namespace("a").long_term.store(BOAT)
        with locked(path), caplog.at_level(logging.WARNING, "langmem_tiers"):
            recall_often(engine)
            wait_until(lambda: caplog.text and used(engine) == [USES], "a warning is logged")
        assert "access counts of entries will be written later" in caplog.text
        assert used(engine) == [USES]
    with open_engine(path) as engine:
        assert used(engine) == [USES]


@pytest.mark.timeout(120)
def test_accesses_are_visible_while_they_are_being_written(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with open_engine(path, patience_seconds=3600) as engine:
        engine.namespace("a").long_term.store(BOAT)
        with locked(path):
            recall_often(engine)
            seen = used(engine)
        assert seen == [USES]


# Merged episodes


@pytest.mark.parametrize("forgotten", ["Chose tea", "Warmed the pot"])  # the one that is kept, and another
def test_an_episode_forgotten_during_consolidation_is_not_restored(
    engine: MemoryEngine, namespace: Namespace, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    drafts = [moment("Chose tea", 1, 3, 0.9), moment("Warmed the pot", 2, 5), moment("Cut the lemon", 3, 6)]
    ids = {draft.title: namespace.episodes.record("s", draft).id for draft in drafts}
    writes = just_before(
        engine,
        monkeypatch,
        lambda write: bool(write.archive),
        lambda: namespace.episodes.forget(ids[forgotten]),
    )
    assert namespace.consolidate().memories_merged == 1
    assert len(writes) == 2  # it looked again
    assert namespace.episodes.get(ids[forgotten]) is None
    (left,) = namespace.episodes.page()
    others = [draft.title for draft in drafts if draft.title != forgotten]
    assert all(title in left.summary for title in others)
    assert forgotten not in f"{left.title} {left.summary}"


def test_merging_counts_no_access_twice(engine: MemoryEngine, namespace: Namespace) -> None:
    for draft in (moment("Chose the tea", 1, 3), moment("Warmed the tea pot", 2, 5)):
        namespace.episodes.record("s", draft)
    only = RecallFilters(messages=False, tiers={Tier.EPISODIC})
    assert len(namespace.recall("tea", filters=only)) == 2
    namespace.episodes.merge()  # before they are written
    engine.services.long_term.access_counter.flush()
    (left,) = namespace.episodes.page()
    assert left.access_count <= 2


def test_consolidation_adds_up_the_accesses_of_merged_episodes(
    engine: MemoryEngine, namespace: Namespace
) -> None:
    for draft in (moment("Chose the tea", 1, 3), moment("Warmed the tea pot", 2, 5)):
        namespace.episodes.record("s", draft)
    only = RecallFilters(messages=False, tiers={Tier.EPISODIC})
    for _ in range(2):
        assert len(namespace.recall("tea", filters=only)) == 2
    assert namespace.consolidate().memories_merged == 1
    engine.services.long_term.access_counter.flush()
    (left,) = namespace.episodes.page()
    assert left.access_count == 4


# Links


def test_linking_neither_restores_an_archived_episode_nor_loses_its_accesses(
    engine: MemoryEngine, namespace: Namespace, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = namespace.long_term.store(BOAT).entry
    assert entry is not None
    episode = namespace.episodes.record("s", moment("Chose tea", 2, 3))
    store = engine.services.long_term.store
    key = store.get(namespace.path, [episode.id])[episode.id].key

    def archive_and_use() -> None:
        store.touch(namespace.path, {key: Access(3, NOW + DAY)})
        assert store.archive(namespace.path, [key], NOW + DAY)[0] == 1

    just_before(engine, monkeypatch, lambda write: bool(write.put), archive_and_use)
    namespace.episodes.link(session.key, {2: [entry.id]})
    found = namespace.episodes.get(episode.id)
    assert found is not None
    assert (found.is_archived, found.linked) == (True, (entry.id,))
    assert (found.access_count, found.last_access_at) == (3, NOW + DAY)


# As it was before


def texts_at(namespace: Namespace, tier: Tier, at: datetime) -> list[str]:
    filters = RecallFilters(messages=False, tiers={tier}, valid_at=at)
    return sorted(hit.entry.content for hit in namespace.recall("tea", filters=filters, limit=50))


def test_episodes_are_separate_at_a_time_before_their_merge(namespace: Namespace, clock: FrozenClock) -> None:
    namespace.episodes.record("s", moment("Chose green tea", 1, 3, 0.9))
    clock.advance(days=10)
    namespace.episodes.record("s", moment("Warmed the tea pot", 2, 5))
    clock.advance(days=10)
    assert namespace.consolidate().memories_merged == 1
    first, second = "Chose green tea.", "Warmed the tea pot."
    assert texts_at(namespace, Tier.EPISODIC, NOW + 5 * DAY) == [first]
    assert texts_at(namespace, Tier.EPISODIC, NOW + 15 * DAY) == [first, second]
    assert texts_at(namespace, Tier.EPISODIC, NOW + 20 * DAY) == [f"{first} {second}"]


def test_chunks_are_separate_at_a_time_before_their_merge(url: str, clock: FrozenClock, tenant: str) -> None:
    learning = LearningConfig(chunk_messages=2, recent_messages=2, max_chunks=2)
    config = EngineConfig(learning=learning)
    with MemoryEngine(url, config=config, embedder=None, clock=clock, ids=seeded_ids()) as engine:
        namespace = engine.namespace(tenant)
        session = namespace.session("s")
        kinds = ("green", "black", "white", "yellow")
        for kind in kinds:  # one chunk each ten days, of two messages
            session.add_many([MessageDraft("user", f"The {kind} tea is in tin {n}.") for n in range(2)])
            session.learn(whole=True)
            clock.advance(days=10)
        assert [chunk.merged for chunk in session.chunks()] == [3, 1]
        for count in range(1, 3):  # the third chunk is the first to make two into one
            then = texts_at(namespace, Tier.SHORT_TERM, NOW + (10 * count - 5) * DAY)
            assert len(then) == count
            for number, kind in enumerate(kinds):
                assert [kind in text for text in then].count(True) == (1 if number < count else 0)


# Iterating


def test_entries_can_be_forgotten_during_iteration(namespace: Namespace) -> None:
    drafts = [EntryDraft(content=f"Jar {n} holds tea.") for n in range(700)]
    namespace.long_term.store_many(drafts, compared=True)
    for number, entry in enumerate(namespace.long_term, start=1):
        if number % 20 == 0:  # the 500th is the last of the first page
            assert namespace.long_term.forget(entry.id)
    assert number == 700
    assert len(namespace.long_term.entries(limit=1000)) == 665


def test_episodes_can_be_forgotten_during_iteration(namespace: Namespace, session: Session) -> None:
    drafts = [moment(f"Chose tea {n}", 1, 1) for n in range(700)]
    namespace.episodes.save(session.key, namespace.episodes.build_episodes("s", drafts))
    for number, episode in enumerate(namespace.episodes, start=1):
        if number % 20 == 0:
            assert namespace.episodes.forget(episode.id)
    assert number == 700
    assert len(namespace.episodes.page(limit=1000)) == 665
