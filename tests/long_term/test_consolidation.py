"""Consolidation archives old and unimportant entries, with a frozen clock."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import EngineConfig, InvalidConfigError, MemoryEngine, MessageDraft
from langmem_tiers.common.entries import EntryState
from langmem_tiers.config import LearningConfig
from langmem_tiers.episodes.models import EpisodeDraft, EpisodeKind
from langmem_tiers.long_term import consolidation
from langmem_tiers.long_term.models import ConsolidationReport, EntryDraft
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.facts.learning_processes import (
    LEASE_SECONDS,
    STATEMENTS,
    TENANT,
    consolidate_together,
    consolidate_until,
    create_clock,
    run,
    run_together,
)

if TYPE_CHECKING:
    from pathlib import Path

    from langmem_tiers import Entry, Namespace

NOTHING = ConsolidationReport()


@pytest.fixture
def namespace(engine: MemoryEngine, tenant: str) -> Namespace:
    return engine.namespace(tenant)


def store(namespace: Namespace, content: str, **about: Any) -> Entry:
    entry = namespace.long_term.store(content, **about).entry
    assert entry is not None
    return entry


def store_many(namespace: Namespace, count: int, **about: Any) -> list[Entry]:
    drafts = [EntryDraft(content=f"Note {n} about shelf {n}.", **about) for n in range(count)]
    receipts = namespace.long_term.store_many(drafts, compared=True)
    return [receipt.entry for receipt in receipts if receipt.entry is not None]


def in_sight(namespace: Namespace) -> list[str]:
    return [entry.content for entry in namespace.long_term.entries(limit=1000)][::-1]


# importance x 0.5 ** (days / 30), computed by hand; below 0.3 and older than 30 days it is archived
@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("importance", "days", "is_archived"),
    [
        (0.5, 23, False),  # 0.294, and too young
        (0.1, 30, False),  # 0.05, and not older than 30 days
        (0.1, 30.01, True),
        (0.5, 45, True),  # 0.177
        (0.8, 40, False),  # 0.317
        (0.8, 42, False),  # 0.3031
        (0.8, 43, True),  # 0.2963
        (0.8, 45, True),  # 0.283
        (1.0, 52, False),  # 0.3008
        (1.0, 53, True),  # 0.2939
        (0.6, 30.01, True),  # 0.29993
        (0.61, 30.5, False),  # 0.3015
        (0.7, 36, False),  # 0.3047
        (0.7, 37, True),  # 0.2977
        (0.0, 29, False),
    ],
)
def test_old_and_unimportant_entries_are_archived(
    namespace: Namespace, clock: FrozenClock, importance: float, days: float, *, is_archived: bool
) -> None:
    entry = store(namespace, "The kettle is blue.", importance=importance)
    clock.advance(days=days)
    report = namespace.consolidate()
    assert report.memories_archived == int(is_archived)
    assert report.tokens_reclaimed == (entry.token_count if is_archived else 0)
    assert (report.is_complete, report.is_elsewhere) == (True, False)
    kept = namespace.long_term.get(entry.id)
    assert kept is not None
    assert (kept.state is EntryState.ARCHIVED) == is_archived
    assert in_sight(namespace) == ([] if is_archived else ["The kettle is blue."])


def test_kinds_have_the_importance_of_the_design(namespace: Namespace, clock: FrozenClock) -> None:
    store(namespace, "We want a blue kettle.", kind="goal")  # 0.8
    store(namespace, "Otters hold hands.", kind="fact")  # 0.5
    clock.advance(days=40)
    assert namespace.consolidate().memories_archived == 1
    assert in_sight(namespace) == ["We want a blue kettle."]
    clock.advance(days=5)
    assert namespace.consolidate().memories_archived == 1
    assert in_sight(namespace) == []


def test_used_entries_are_kept(namespace: Namespace, clock: FrozenClock) -> None:
    used = store(namespace, "The kettle is blue.")
    store(namespace, "Otters hold hands at night.")
    clock.advance(days=20)
    found = namespace.long_term.search("kettle", limit=1)
    assert [entry.id for entry in found] == [used.id]
    clock.advance(days=25)
    # 45 days old, 25 since its use: 0.5 * (0.561 + 0.1) = 0.331; the other 0.5 * 0.354 = 0.177
    assert namespace.consolidate().memories_archived == 1
    assert in_sight(namespace) == ["The kettle is blue."]
    clock.advance(days=5)
    # 30 since its use: 0.5 * (0.5 + 0.1) = 0.3, which is not less than 0.3
    assert namespace.consolidate().memories_archived == 0
    clock.advance(days=1)
    assert namespace.consolidate().memories_archived == 1


def test_five_uses_keep_a_goal_entry_permanently(namespace: Namespace, clock: FrozenClock) -> None:
    store(namespace, "We want a blue kettle.", kind="goal")
    for _ in range(5):
        namespace.recall("Which kettle do we want?")
    clock.advance(days=1000)  # 0.8 * (0 + 0.5) = 0.4
    assert namespace.consolidate().memories_archived == 0


def test_the_bounds_are_configurable() -> None:
    config = EngineConfig(
        learning=LearningConfig(archive_after_days=5, archive_below=0.45, half_life_days=10)
    )
    clock = FrozenClock()
    with MemoryEngine(config=config, clock=clock, ids=seeded_ids(), embedder=None) as engine:
        namespace = engine.namespace("t")
        store(namespace, "The kettle is blue.", importance=0.7)
        clock.advance(days=6)  # 0.7 * 0.66 = 0.462
        assert namespace.consolidate() == ConsolidationReport(looked_at=1)
        clock.advance(days=1)  # 0.7 * 0.616 = 0.431
        assert namespace.consolidate().memories_archived == 1


def test_the_report_adds_up(namespace: Namespace, clock: FrozenClock) -> None:
    weak = store_many(namespace, 7, importance=0.2)
    store_many_strong = [store(namespace, text, importance=1.0) for text in STATEMENTS[:3]]
    clock.advance(days=31)
    young = store(namespace, "Otters hold hands.", importance=0.0)
    report = namespace.consolidate()
    assert report.memories_archived == 7
    assert report.looked_at == 10
    assert report.memories_merged == 0
    assert report.tokens_reclaimed == sum(entry.token_count for entry in weak) > 0
    assert in_sight(namespace) == [*(entry.content for entry in store_many_strong), young.content]
    again = namespace.consolidate()
    assert again == ConsolidationReport(looked_at=3)


def test_an_empty_namespace_has_nothing_to_consolidate(engine: MemoryEngine, tenant: str) -> None:
    assert engine.namespace(tenant).consolidate() == NOTHING
    assert tenant not in [path[0] for path in engine.namespaces(tenant)]  # nothing was created
    engine.session(tenant, "s")
    assert engine.namespace(tenant).consolidate(max_batches=1) == NOTHING


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_an_invalid_number_of_batches_is_refused(wrong: Any) -> None:
    with (
        MemoryEngine(embedder=None) as engine,
        pytest.raises(InvalidConfigError, match=f"max_batches must be .* got {wrong}"),
    ):
        engine.namespace("t").consolidate(max_batches=wrong)


def test_other_namespaces_are_not_consolidated(engine: MemoryEngine, tenant: str, clock: FrozenClock) -> None:
    mine, below = engine.namespace(tenant), engine.namespace(tenant, "below")
    for namespace in (mine, below):
        store(namespace, "The kettle is blue.", importance=0.1)
    clock.advance(days=60)
    assert mine.consolidate().memories_archived == 1
    assert in_sight(below) == ["The kettle is blue."]


def moment(title: str, first: int, last: int, **about: Any) -> EpisodeDraft:
    words: dict[str, Any] = {"kind": EpisodeKind.DECISION_MADE, "significance": 0.5} | about
    return EpisodeDraft(title=title, summary=f"{title}.", first_turn=first, last_turn=last, **words)


def test_episodes_that_overlap_become_one(namespace: Namespace) -> None:
    for name in ("s", "other"):
        namespace.session(name).add_many([MessageDraft("user", f"Line {n}") for n in range(20)])
    entry = store(namespace, "The kettle is blue.")
    episodes = namespace.episodes
    one = episodes.record(
        "s", moment("The kettle broke", 1, 4, participants=("Ada",), context="before", valence=-0.5)
    )
    two = episodes.record(
        "s",
        moment("A fuse was found", 3, 6, significance=0.8, participants=("Bo", "Ada"), linked=(entry.id,)),
    )
    three = episodes.record("s", moment("Tea was served", 6, 7, outcome="Tea at four"))
    apart = episodes.record("s", moment("A bus came", 8, 9))
    elsewhere = episodes.record("other", moment("Elsewhere", 1, 9))
    report = namespace.consolidate()
    assert report.memories_merged == 2
    assert report.memories_archived == 0
    (merged,) = [episode for episode in episodes.page() if episode.id not in (apart.id, elsewhere.id)]
    assert {episode.id for episode in episodes.page()} == {merged.id, apart.id, elsewhere.id}
    assert merged.title == two.title
    assert (merged.first_turn, merged.last_turn, merged.significance) == (1, 7, 0.8)
    assert merged.summary == "The kettle broke. A fuse was found. Tea was served."
    assert (merged.participants, merged.linked) == (("Ada", "Bo"), (entry.id,))
    assert (merged.context, merged.outcome) == ("before", "Tea at four")
    before = one.token_count + two.token_count + three.token_count
    assert merged.token_count == namespace._services.counter.count(
        namespace._services.long_term.store.get(namespace.path, [merged.id])[merged.id].entry.content
    )
    assert report.tokens_reclaimed == max(0, before - merged.token_count)
    for gone in (one, two, three):
        kept = episodes.get(gone.id)
        assert kept is not None
        assert kept.is_archived
    assert namespace.consolidate() == ConsolidationReport(looked_at=0)  # a second time changes nothing more
    assert episodes.get(merged.id) == merged
    assert namespace.find_session("s") is not None
    assert merged.id in [episode.id for episode in episodes.arc("s").key_moments]


def test_episodes_over_the_cap_are_counted_as_archived() -> None:
    clock = FrozenClock()
    many, few = (EngineConfig(learning=LearningConfig(max_episodes=count)) for count in (10, 3))
    with MemoryEngine(config=many, clock=clock, embedder=None) as engine:
        namespace = engine.namespace("t")
        namespace.session("s")
        for turn in range(1, 6):
            namespace.episodes.record("s", moment(f"Moment {turn}", turn, turn, significance=turn / 10))
        parts = engine.services
        object.__setattr__(parts, "config", few)  # as if it had been opened with a smaller cap
        report = namespace.consolidate()
        assert report.memories_archived == 2
        assert report.tokens_reclaimed > 0
        assert [episode.title for episode in namespace.episodes.page()] == [
            "Moment 5",
            "Moment 4",
            "Moment 3",
        ]


def test_consolidation_continues_where_it_stopped(
    namespace: Namespace, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation, "CONSOLIDATION_BATCH_SIZE", 4)
    weak = store_many(namespace, 10, importance=0.1)
    clock.advance(days=31)
    one = namespace.consolidate(max_batches=1)
    assert (one.memories_archived, one.looked_at, one.is_complete) == (4, 4, False)
    assert in_sight(namespace) == [entry.content for entry in weak[4:]]
    two = namespace.consolidate(max_batches=1)
    assert (two.memories_archived, two.looked_at, two.is_complete) == (4, 4, False)
    three = namespace.consolidate(max_batches=1)
    assert (three.memories_archived, three.looked_at, three.is_complete) == (2, 2, True)
    assert in_sight(namespace) == []
    assert sum(report.tokens_reclaimed for report in (one, two, three)) == sum(
        entry.token_count for entry in weak
    )
    assert namespace.consolidate() == NOTHING


def test_a_completed_consolidation_restarts_from_the_beginning(
    namespace: Namespace, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation, "CONSOLIDATION_BATCH_SIZE", 2)
    store_many(namespace, 5, importance=0.61)
    clock.advance(days=30.5)  # 0.3015
    assert namespace.consolidate() == ConsolidationReport(looked_at=5)
    clock.advance(days=2)
    assert namespace.consolidate().memories_archived == 5


def test_consolidation_continues_after_a_kill(file_url: str) -> None:
    with MemoryEngine(file_url, clock=FrozenClock(), embedder=None) as engine:
        weak = store_many(engine.namespace(TENANT), 10, importance=0.1)
    assert run(consolidate_until, file_url, 31, 3) == -signal.SIGKILL
    clock = create_clock(31)
    with MemoryEngine(file_url, clock=clock, embedder=None) as engine:
        namespace = engine.namespace(TENANT)
        assert in_sight(namespace) == [entry.content for entry in weak[6:]]
        assert namespace.consolidate().is_elsewhere  # the dead one's turn is not over yet
        clock.advance(seconds=LEASE_SECONDS + 1)
        report = namespace.consolidate()
        assert (report.memories_archived, report.looked_at, report.is_complete) == (4, 4, True)
        assert in_sight(namespace) == []


def test_two_processes_archive_each_entry_once(file_url: str, tmp_path: Path) -> None:
    clock = FrozenClock()
    with MemoryEngine(file_url, clock=clock, embedder=None) as engine:
        store_many(engine.namespace(TENANT), 40, importance=0.1)
        reports = [tmp_path / "one", tmp_path / "two"]
        arguments: list[tuple[Any, ...]] = [(file_url, 31.0, str(report)) for report in reports]
        assert run_together(consolidate_together, arguments) == [0, 0]
        assert sum(int(report.read_text()) for report in reports) == 40
        assert len(in_sight(engine.namespace(TENANT))) == 40  # at a time before they were archived
        clock.advance(days=31)
        assert in_sight(engine.namespace(TENANT)) == []


def test_consolidation_skips_a_namespace_leased_by_another(
    engine: MemoryEngine, namespace: Namespace, clock: FrozenClock
) -> None:
    store(namespace, "The kettle is blue.", importance=0.1)
    clock.advance(days=31)
    theirs = engine.services.get_lease(f"consolidate:{namespace.path[0]}")
    assert theirs.acquire()
    assert namespace.consolidate() == ConsolidationReport(is_complete=False, is_elsewhere=True)
    assert in_sight(namespace) == ["The kettle is blue."]
    theirs.release()
    assert namespace.consolidate().memories_archived == 1


def test_archived_entries_are_not_recalled_until_restored_without_reindexing(
    engine: MemoryEngine, namespace: Namespace, clock: FrozenClock
) -> None:
    entry = store(namespace, "The zeppelin landed in Oslo.", importance=0.1)
    store(namespace, "Otters hold hands.", importance=1.0)
    question = "Where did the zeppelin land?"

    def recalled() -> list[str]:
        return [hit.entry.id for hit in namespace.recall(question)]

    def revision() -> int:
        return engine.services.long_term.store.get_revision(namespace.path)

    assert entry.id in recalled()
    # used once, 0.1 * (0.5 ** ... + 0.1) is far below 0.3 still
    clock.advance(days=31)
    before = revision()
    assert namespace.consolidate().memories_archived == 1
    assert entry.id not in recalled()
    assert entry.id not in [found.id for found in namespace.long_term.search("zeppelin Oslo")]
    assert entry.id not in [hit.entry.id for hit in namespace.recall(question, strategy="tf_idf")]
    assert namespace.long_term.restore(entry.id)
    assert entry.id in recalled()
    assert entry.id in [hit.entry.id for hit in namespace.recall(question, strategy="tf_idf")]
    assert revision() == before
    assert not namespace.long_term.restore(entry.id)
