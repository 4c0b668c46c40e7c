"""A project's memory as one object: the design's usage, its settings, its four files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    BudgetExceededError,
    CharCounter,
    EngineClosedError,
    InvalidConfigError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    RecallFilters,
    StorageFullError,
)
from langmem_tiers.common import EntryState
from langmem_tiers.long_term.models import EntryDraft
from langmem_tiers.projects.memory_system import MemorySystem
from langmem_tiers.projects.models import ConversationStatus, MemorySystemConfig
from langmem_tiers.testing import FrozenClock, ScriptedLLM, seeded_ids
from langmem_tiers.text import count_messages
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from langmem_tiers.projects.models import Conversation

FILES = (
    "long-term-memory.json",
    "episodic-memory.json",
    "conversations.json",
    "conversation-chunks.json",
)
DECIDED = "We decided to use PostgreSQL."


@pytest.fixture
def open_system(tmp_path: Path, clock: FrozenClock) -> Iterator[Callable[..., MemorySystem]]:
    """Opens memory of the same folder, again if asked to."""
    systems: list[MemorySystem] = []

    def open_one(**settings: Any) -> MemorySystem:
        words: dict[str, Any] = {"memory_dir": tmp_path / "memory", "clock": clock, "embedder": None}
        words |= settings
        systems.append(MemorySystem(**words))
        return systems[-1]

    yield open_one
    for system in systems:
        system.engine.close()


@pytest.fixture
def memory(open_system: Callable[..., MemorySystem]) -> MemorySystem:
    return open_system(ids=seeded_ids())


def read(memory: MemorySystem, name: str) -> list[dict[str, Any]]:
    found = json.loads((memory.folder / name).read_text("utf-8"))
    assert isinstance(found, list)
    return found


def at_hand(memory: MemorySystem) -> Conversation | None:
    return memory.conversation


def test_the_usage_example_of_the_design_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    # Initialize
    memory = MemorySystem(
        memory_dir="./.project-memory",
        project_name="My Project",
        max_context_tokens=128000,
        chunk_size=10,
        max_recent_messages=20,
    )

    # Conversation flow
    memory.start_conversation()
    memory.add_message("user", "What database should we use?")
    memory.add_message("assistant", "I recommend PostgreSQL for this use case.")
    memory.add_message("user", "We decided to use PostgreSQL.")

    # Build context for next LLM call
    context = memory.build_context("What was our database decision?")
    print(context.allocation.total_tokens)  # noqa: T201 - as in the design
    print(context.retrieval_results)  # noqa: T201 - as in the design

    # Search memories
    results = memory.search("PostgreSQL database")

    # End and persist
    memory.end_conversation("Database selection complete")
    memory.flush()

    assert capsys.readouterr().out.startswith(f"{context.allocation.total_tokens}\n")
    assert context.allocation.total_tokens == count_messages(CharCounter(), context.messages) > 0
    assert DECIDED in [hit.entry.content for hit in results]
    assert DECIDED in [hit.entry.content for hit in context.retrieval_results]
    assert [message.content for message in context.messages][-1] == DECIDED
    assert context.warnings == ()
    folder = tmp_path / ".project-memory"
    assert {path.name for path in folder.glob("*.json")} == set(FILES)
    memory.close()
    assert memory.engine.is_closed


def test_every_setting_has_the_default_of_the_design() -> None:
    config = MemorySystemConfig()
    assert {field.name: getattr(config, field.name) for field in fields(config)} == {
        "memory_dir": ".project-memory",
        "project_name": "Project",
        "max_context_tokens": 128_000,
        "working_memory_tokens": 8_000,
        "system_prompt_tokens": 2_000,
        "chunk_size": 10,
        "max_recent_messages": 20,
        "short_term_retention_turns": 50,
        "consolidation_threshold_days": 30,
        "max_episodic_memories": 100,
        "retrieval_top_k": 10,
        "relevance_threshold": 0.3,
        "recency_weight": 0.3,
        "importance_weight": 0.4,
    }


def test_settings_are_accepted_by_keyword_config_or_both(open_system: Callable[..., MemorySystem]) -> None:
    config = MemorySystemConfig(chunk_size=5, retrieval_top_k=3)
    memory = open_system(config=config, retrieval_top_k=4)
    assert (memory.config.chunk_size, memory.config.retrieval_top_k) == (5, 4)
    assert config.retrieval_top_k == 3


def test_settings_are_passed_to_their_components(open_system: Callable[..., MemorySystem]) -> None:
    memory = open_system(
        chunk_size=4,
        max_recent_messages=6,
        consolidation_threshold_days=7,
        max_episodic_memories=9,
        recency_weight=0.5,
        importance_weight=0.0,
        project_name="Tea",
    )
    learning = memory.engine.config.learning
    assert (learning.chunk_messages, learning.recent_messages) == (4, 6)
    assert (learning.archive_after_days, learning.max_episodes) == (7, 9)
    weights = memory.engine.config.recall.tf_idf
    assert (weights.recency, weights.importance) == (0.5, 0.0)
    assert memory.project.path == ("Tea",)


@pytest.mark.parametrize("name", ["chunksize", "chunkSize", "top_k"])
def test_an_unknown_setting_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"unknown setting '{name}': use one of chunk_size, "):
        MemorySystem(memory_dir=tmp_path / "memory", **{name: 3})  # type: ignore[arg-type] # refused
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_context_tokens", 0),
        ("max_context_tokens", "many"),
        ("working_memory_tokens", -1),
        ("system_prompt_tokens", -5),
        ("chunk_size", 0),
        ("chunk_size", 2.5),
        ("max_recent_messages", 0),
        ("short_term_retention_turns", -1),
        ("consolidation_threshold_days", 0),
        ("max_episodic_memories", 0),
        ("retrieval_top_k", 0),
        ("retrieval_top_k", True),
        ("relevance_threshold", 1.1),
        ("recency_weight", -0.1),
        ("importance_weight", "high"),
        # more than the engine takes
        ("chunk_size", 5_000_000),
        ("max_recent_messages", 5_000_000),
        ("max_episodic_memories", 5_000_000),
        ("consolidation_threshold_days", 100_001),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_setting(tmp_path: Path, name: str, value: Any) -> None:
    settings: dict[str, Any] = {"memory_dir": tmp_path / "memory", name: value}
    with pytest.raises(InvalidConfigError, match=rf"^{name} must .*{value!r}"):
        MemorySystem(**settings)


def test_a_project_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidNameError, match="a project_name must not be empty, got ''"):
        MemorySystem(memory_dir=tmp_path, project_name="")
    with pytest.raises(InvalidConfigError, match="config must be a MemorySystemConfig, got dict"):
        MemorySystem({"chunk_size": 3})  # type: ignore[arg-type] # refused


@pytest.mark.parametrize("name", ["v2.0 of a/b", "Projekt „Öl“", "100%", "a" * 300, "\0"])
def test_a_project_can_have_any_name(open_system: Callable[..., MemorySystem], name: str) -> None:
    memory = open_system(project_name=name)
    conversation = memory.start_conversation()
    memory.add_message("user", DECIDED)
    assert conversation.project_id == name
    memory.flush()
    assert read(memory, "conversations.json")[0]["projectId"] == name


def test_every_allowed_top_k_can_be_used(open_system: Callable[..., MemorySystem]) -> None:
    memory = open_system(retrieval_top_k=150)
    memory.start_conversation()
    memory.add_message("user", DECIDED)
    assert [hit.entry.content for hit in memory.search("PostgreSQL")][:1] == [DECIDED]
    assert memory.build_context("PostgreSQL?").retrieval_results


def test_at_most_top_k_memories_above_the_threshold_are_found(
    open_system: Callable[..., MemorySystem],
) -> None:
    memory = open_system(retrieval_top_k=3)
    drafts = [EntryDraft(content=f"Shelf {n} holds jar number {n} of green tea.") for n in range(8)]
    memory.project.long_term.store_many(drafts, compared=True)
    found = memory.search("green tea jar")
    assert len(found) == 3
    assert all(hit.score >= 0.3 for hit in found)
    assert len(memory.search("green tea jar", limit=5)) == 5
    strict = open_system(relevance_threshold=1.0)
    assert strict.search("green tea jar") == ()


def test_a_conversation_is_active_paused_and_ended(memory: MemorySystem, clock: FrozenClock) -> None:
    assert at_hand(memory) is None
    started = memory.start_conversation("monday")
    assert (started.id, started.project_id, started.status) == (
        "monday",
        "Project",
        ConversationStatus.ACTIVE,
    )
    assert (started.started_at, started.ended_at, started.total_turns) == (clock.now(), None, 0)
    memory.add_message("user", "Hello.")
    assert at_hand(memory) == replace(started, total_turns=1)
    paused = memory.pause_conversation()
    assert (paused.status, paused.ended_at) == (ConversationStatus.PAUSED, None)
    assert at_hand(memory) is None
    clock.advance(hours=3)
    again = memory.start_conversation("monday")
    assert (again.status, again.started_at, again.total_turns) == (
        ConversationStatus.ACTIVE,
        started.started_at,
        1,
    )
    memory.add_message("user", "I am back.")
    assert [message.content for message in memory.build_context().messages] == ["Hello.", "I am back."]
    ended = memory.end_conversation("All said")
    assert (ended.status, ended.outcome, ended.ended_at) == (
        ConversationStatus.ENDED,
        "All said",
        clock.now(),
    )
    assert ended.total_turns == 2
    assert memory.conversations() == (ended,)


def test_an_ended_conversation_cannot_be_continued(memory: MemorySystem) -> None:
    memory.start_conversation("monday")
    memory.add_message("user", "Hello.")
    memory.end_conversation()
    with pytest.raises(
        InvalidInputError, match="the conversation 'monday' was ended on 2025-01-15: start another"
    ):
        memory.start_conversation("monday")
    assert memory.conversation is None
    assert memory.conversations()[0].status is ConversationStatus.ENDED


def test_a_conversation_ended_elsewhere_cannot_be_continued(
    open_system: Callable[..., MemorySystem],
) -> None:
    ours, theirs = open_system(), open_system()
    ours.start_conversation("monday")
    ours.add_message("user", "Hello.")
    theirs.start_conversation("monday")
    theirs.end_conversation("Over")
    with pytest.raises(InvalidInputError, match="'monday' was ended"):
        ours.add_message("user", "Am I too late?")


def test_without_a_conversation_the_error_gives_advice(memory: MemorySystem) -> None:
    for ask in (
        lambda: memory.add_message("user", "Hello."),
        memory.build_context,
        memory.pause_conversation,
        memory.end_conversation,
        memory.get_narrative_arc,
    ):
        with pytest.raises(InvalidInputError, match=r"no active conversation: call start_conversation\(\)"):
            ask()
    assert memory.search("anything") == ()
    assert memory.conversations() == ()


def test_invalid_messages_are_refused_and_nothing_is_stored(memory: MemorySystem) -> None:
    memory.start_conversation("monday")
    with pytest.raises(InvalidInputError, match="'robot'"):
        memory.add_message("robot", "Hello.")
    assert memory.conversations()[0].total_turns == 0
    with pytest.raises(NotFoundError, match="'tuesday'"):
        memory.get_narrative_arc("tuesday")
    with pytest.raises(InvalidNameError, match="conversation id must not be empty"):
        memory.start_conversation("")


def test_a_second_system_on_the_same_folder_sees_the_messages_of_the_first(
    open_system: Callable[..., MemorySystem],
) -> None:
    first = open_system()
    first.start_conversation("monday")
    first.add_message("user", DECIDED)
    second = open_system()  # while the first is open, and has not flushed
    assert DECIDED in [hit.entry.content for hit in second.search("PostgreSQL")]
    assert [conversation.id for conversation in second.conversations()] == ["monday"]
    first.end_conversation("Chosen")
    first.close()
    assert second.conversations()[0].status is ConversationStatus.ENDED
    third = open_system()
    third.start_conversation("tuesday")
    context = third.build_context("Which database did we decide on?")
    assert DECIDED in [hit.entry.content for hit in context.retrieval_results]
    assert DECIDED in context.messages[0].content


def test_projects_in_one_folder_are_isolated(open_system: Callable[..., MemorySystem]) -> None:
    one, other = open_system(project_name="one"), open_system(project_name="other")
    one.start_conversation("monday")
    one.add_message("user", DECIDED)
    assert other.search("PostgreSQL") == ()
    assert other.conversations() == ()


# The fields of the interfaces of the design; those with a question mark may be null.
METADATA = {"source", "importance", "accessCount", "lastAccessedAt", "decayFactor", "tokens"}
LONG_TERM = {
    "id",
    "type",
    "content",
    "category",
    "tags",
    "relationships",
    "validFrom",
    "validUntil",
    "metadata",
}
EPISODIC = {
    "id",
    "type",
    "title",
    "summary",
    "context",
    "participants",
    "outcome",
    "emotionalValence",
    "significance",
    "linkedMemories",
    "conversationRef",
    "metadata",
}
CONVERSATION = {
    "id",
    "projectId",
    "startedAt",
    "endedAt",
    "status",
    "totalTurns",
    "chunks",
    "recentMessages",
    "activeFacts",
    "milestones",
}
CHUNK = {
    "id",
    "conversationId",
    "chunkNumber",
    "messages",
    "summary",
    "keyTopics",
    "tokenCount",
    "createdAt",
}


def play_conversation(memory: MemorySystem, clock: FrozenClock) -> None:
    memory.start_conversation("monday")
    memory.add_message("user", "What database should we use?")
    memory.add_message("user", DECIDED)
    for number in range(25):
        clock.advance(minutes=1)
        memory.add_message("assistant", f"Noted, line {number}.")
    one, other = (
        memory.project.long_term.store(text).entry for text in ("The kettle is blue.", "Otters swim.")
    )
    assert one is not None
    assert other is not None
    memory.project.long_term.relate(one.id, other.id, "depends_on", strength=0.5)


def test_flush_writes_the_long_term_file_of_the_design(memory: MemorySystem, clock: FrozenClock) -> None:
    play_conversation(memory, clock)
    assert {path.name for path in memory.flush()} == set(FILES)
    entries = read(memory, "long-term-memory.json")
    assert len(entries) == 3
    for entry in entries:
        assert set(entry) >= LONG_TERM
        assert set(entry["metadata"]) >= METADATA
        assert 0 <= entry["metadata"]["decayFactor"] <= 1
        assert datetime.fromisoformat(entry["validFrom"]).tzinfo == UTC
    by_content = {entry["content"]: entry for entry in entries}
    decided = by_content[DECIDED]
    assert (decided["type"], decided["validUntil"]) == ("decision", None)
    assert decided["metadata"]["importance"] == 0.7
    assert decided["metadata"]["source"].startswith("message ")
    assert decided["metadata"]["conversationId"] == "monday"
    assert decided["metadata"]["tokens"] == CharCounter().count(DECIDED)
    assert decided["tags"] == sorted(decided["tags"])
    (relation,) = by_content["The kettle is blue."]["relationships"]
    assert set(relation) == {"targetId", "type", "strength", "createdAt"}
    assert (relation["targetId"], relation["type"], relation["strength"]) == (
        by_content["Otters swim."]["id"],
        "depends_on",
        0.5,
    )
    assert by_content["Otters swim."]["relationships"] == []


def test_flush_writes_the_episodic_file_of_the_design(memory: MemorySystem, clock: FrozenClock) -> None:
    play_conversation(memory, clock)
    memory.flush()
    (episode,) = read(memory, "episodic-memory.json")
    assert set(episode) >= EPISODIC
    assert (episode["type"], episode["episodeType"]) == ("episode", "decision_made")
    assert set(episode["metadata"]) >= METADATA - {"source"}
    (decided,) = (entry for entry in read(memory, "long-term-memory.json") if entry["content"] == DECIDED)
    assert episode["linkedMemories"] == [decided["id"]]
    reference = episode["conversationRef"]
    assert reference["conversationId"] == "monday"
    assert reference["turnRange"]["end"] == 2
    assert -1 <= episode["emotionalValence"] <= 1
    assert 0 <= episode["significance"] <= 1


def test_the_metadata_of_an_episode_has_its_source_too(memory: MemorySystem, clock: FrozenClock) -> None:
    play_conversation(memory, clock)
    memory.flush()
    (episode,) = read(memory, "episodic-memory.json")
    assert set(episode["metadata"]) >= METADATA


def test_flush_writes_conversations_and_chunks_of_the_design(
    memory: MemorySystem, clock: FrozenClock
) -> None:
    play_conversation(memory, clock)
    memory.flush()
    (conversation,) = read(memory, "conversations.json")
    (chunk,) = read(memory, "conversation-chunks.json")
    assert set(conversation) >= CONVERSATION
    assert (conversation["id"], conversation["projectId"]) == ("monday", "Project")
    assert (conversation["status"], conversation["endedAt"]) == ("active", None)
    assert conversation["totalTurns"] == 27
    assert conversation["chunks"] == [chunk["id"]]
    assert len(conversation["recentMessages"]) == 17
    assert conversation["recentMessages"][-1]["content"] == "Noted, line 24."
    for entry in conversation["recentMessages"]:
        assert set(entry) >= {"id", "role", "content", "timestamp"}
    contents = {entry["id"]: entry["content"] for entry in read(memory, "long-term-memory.json")}
    assert [contents[name] for name in conversation["activeFacts"]] == [DECIDED]
    assert conversation["milestones"] == [episode["id"] for episode in read(memory, "episodic-memory.json")]
    assert set(chunk) >= CHUNK
    assert (chunk["conversationId"], chunk["chunkNumber"], len(chunk["messages"])) == ("monday", 1, 10)
    assert chunk["messages"][1]["content"] == DECIDED
    assert isinstance(chunk["keyTopics"], list)
    assert chunk["tokenCount"] == CharCounter().count(chunk["summary"])
    memory.end_conversation("Chosen")
    memory.flush()
    (conversation,) = read(memory, "conversations.json")
    assert (conversation["status"], conversation["outcome"]) == ("ended", "Chosen")
    assert conversation["endedAt"] == clock.now().isoformat()
    assert conversation["recentMessages"] == []
    assert len(read(memory, "conversation-chunks.json")) == 3
    assert len(read(memory, "episodic-memory.json")) == 2


def test_archived_entries_are_in_the_file_with_their_state(memory: MemorySystem, clock: FrozenClock) -> None:
    memory.start_conversation()
    memory.project.long_term.store("Otters swim.", importance=0.1)
    clock.advance(days=31)
    report = memory.consolidate()
    assert (report.memories_archived, report.is_complete) == (1, True)
    memory.flush()
    (entry,) = read(memory, "long-term-memory.json")
    assert entry["state"] == EntryState.ARCHIVED.value
    assert memory.search("otters") == ()


ODD = [
    "🦜 日本語 ü",
    "nul \0 and \x1f",
    'quotes " and \\ backslash',
    "line\u2028separator",
    "lone \ud800 surrogate",
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ODD)
def test_the_files_are_valid_utf8_for_any_text(memory: MemorySystem, text: str) -> None:
    memory.start_conversation("monday")
    memory.add_message("user", f"We decided to say {text} to everybody in Oslo.")
    memory.end_conversation(f"Said {text}")
    for path in memory.flush():
        raw = path.read_bytes()
        raw.decode("utf-8")  # strictly
        assert raw.endswith(b"]\n")
        assert b"\\u00fc" not in raw  # people can read it
    (chunk,) = read(memory, "conversation-chunks.json")
    assert chunk["messages"][0]["content"] == f"We decided to say {text} to everybody in Oslo."
    assert text in read(memory, "conversations.json")[0]["outcome"]


def stamps(memory: MemorySystem) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in memory.folder.glob("*.json")}


def test_flush_writes_no_file_without_changes(memory: MemorySystem) -> None:
    assert memory.flush() == ()
    assert stamps(memory) == {}
    memory.start_conversation("monday")
    memory.add_message("user", DECIDED)
    assert len(memory.flush()) == 4
    before = stamps(memory)
    assert memory.flush() == ()
    memory.close()
    assert stamps(memory) == before


def test_each_change_is_written(open_system: Callable[..., MemorySystem]) -> None:
    memory = open_system()
    changes: list[Callable[[], object]] = [
        lambda: memory.start_conversation("monday"),
        lambda: memory.add_message("user", DECIDED),
        memory.pause_conversation,
        lambda: memory.start_conversation("monday"),
        lambda: memory.end_conversation("Chosen"),
        memory.consolidate,
    ]
    for change in changes:
        change()
        assert len(memory.flush()) == 4
    memory.start_conversation("tuesday")
    memory.close()  # closing flushes
    assert [conversation["id"] for conversation in read(memory, "conversations.json")] == [
        "monday",
        "tuesday",
    ]


@pytest.mark.soak
def test_messages_from_before_a_crash_are_written_by_the_next_flush(
    open_system: Callable[..., MemorySystem],
) -> None:
    first = open_system()
    first.start_conversation("monday")
    first.add_message("user", DECIDED)
    first.engine.close()  # it never came to its flush
    second = open_system()
    second.flush()
    assert (second.folder / "long-term-memory.json").exists()
    assert [entry["content"] for entry in read(second, "long-term-memory.json")] == [DECIDED]


def test_entries_stored_directly_in_the_project_are_written_too(memory: MemorySystem) -> None:
    memory.start_conversation("monday")
    memory.flush()
    memory.project.long_term.store("The kettle is blue.")
    memory.flush()
    assert [entry["content"] for entry in read(memory, "long-term-memory.json")] == ["The kettle is blue."]


def test_a_full_disk_while_flushing_keeps_the_last_good_files(
    memory: MemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.start_conversation("monday")
    memory.add_message("user", DECIDED)
    memory.flush()
    before = {name: (memory.folder / name).read_bytes() for name in FILES}
    memory.add_message("user", "Our goal is to open the Lisbon office in March.")
    real = os.write

    def full(handle: int, data: Any) -> int:
        if stat.S_ISREG(os.fstat(handle).st_mode) and len(data) > 10:
            raise OSError(28, os.strerror(28))
        return real(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StorageFullError, match="could not be written .*the last version is intact"):
            memory.flush()
    assert {name: (memory.folder / name).read_bytes() for name in FILES} == before
    assert not list(memory.folder.glob(".*.tmp"))
    assert len(memory.flush()) == 4  # it is still to be written
    assert len(read(memory, "long-term-memory.json")) == 2


FULL = """
import resource, signal, sys
from langmem_tiers.errors import StorageFullError
from langmem_tiers.projects.memory_system import MemorySystem

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
memory = MemorySystem(memory_dir=sys.argv[1], embedder=None)
memory.start_conversation("monday")
memory.flush()
for number in range(12):
    memory.add_message("user", f"Line {number}: " + "tea " * 1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
try:
    memory.flush()
except StorageFullError as error:
    print("full", error)
"""


@pytest.mark.soak
def test_files_on_a_full_disk_stay_complete(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.stdout.startswith("full "), done.stderr
    assert not list(folder.glob(".*.tmp"))
    for name in FILES:
        assert isinstance(json.loads((folder / name).read_text("utf-8")), list)
    with MemorySystem(memory_dir=folder, embedder=None) as memory:  # nothing is lost but the copy
        (conversation,) = memory.conversations()
        assert conversation.total_turns == 12
        memory.start_conversation("monday")
        memory.flush()
        assert read(memory, "conversations.json")[0]["totalTurns"] == 12


def test_search_accepts_a_past_time(memory: MemorySystem, clock: FrozenClock) -> None:
    memory.start_conversation()
    before = clock.now()
    clock.advance(days=1)
    memory.add_message("user", "We decided to use MySQL for the billing database.")
    then = clock.now()
    clock.advance(days=10)
    memory.add_message("user", "We decided to use PostgreSQL for the billing database instead of MySQL.")

    def found(moment: datetime | None) -> list[str]:
        filters = RecallFilters(valid_at=moment, episodic=False, chunks=False)
        return [hit.entry.content for hit in memory.search("billing database", filters=filters)]

    assert found(None) == ["We decided to use PostgreSQL for the billing database instead of MySQL."]
    assert found(then) == ["We decided to use MySQL for the billing database."]
    assert found(before) == []


def test_each_hit_has_its_five_signals(memory: MemorySystem) -> None:
    memory.start_conversation()
    memory.add_message("user", DECIDED)
    (hit, *_) = memory.search("PostgreSQL", filters=RecallFilters(episodic=False))
    assert set(hit.signals) == {"semantic", "keyword", "recency", "importance", "access"}
    assert hit.score == pytest.approx(sum(hit.signals.values()))
    # recency 0.3 and importance 0.4 of 0.4 + 0.3 + 0.3 + 0.4 + 0
    assert hit.signals["recency"] == pytest.approx(0.3 / 1.4)
    assert hit.signals["importance"] == pytest.approx(0.4 / 1.4 * 0.7)


def test_a_conversation_has_a_narrative_arc(memory: MemorySystem) -> None:
    memory.start_conversation("monday")
    memory.add_message("user", DECIDED)
    for number in range(10):
        memory.add_message("assistant", f"Line {number}.")
    arc = memory.get_narrative_arc()
    assert (arc.session, arc.turns) == ("monday", 11)
    assert [episode.kind.value for episode in arc.beginning] == ["decision_made"]
    assert arc.key_moments == arc.beginning
    memory.end_conversation("Database selection complete")
    ended = memory.get_narrative_arc("monday")
    (last,) = ended.end
    assert (last.kind.value, last.outcome, last.first_turn) == (
        "task_completed",
        "Database selection complete",
        11,
    )


@pytest.mark.soak
def test_an_ended_conversation_is_all_chunks(memory: MemorySystem) -> None:
    memory.start_conversation("monday")
    for number in range(250):
        memory.add_message("user", f"Line {number}.")
    session = memory.project.find_session("monday")
    assert session is not None
    assert len(session.chunks()) == 23
    memory.end_conversation()
    assert len(session.chunks()) == 25
    assert sum(chunk.message_count for chunk in session.chunks()) == 250


@pytest.mark.soak
def test_chunks_of_the_last_turns_are_in_every_context(open_system: Callable[..., MemorySystem]) -> None:
    memory = open_system(short_term_retention_turns=30)
    memory.start_conversation()
    for number in range(60):
        memory.add_message("user", f"Line {number}.")
    context = memory.build_context("something else")
    ids = [item.id for item in context.allocation.items if item.kind == "chunk"]
    session = memory._require_session()
    recent = [chunk for chunk in session.chunks() if chunk.last_turn > 30]
    assert sorted(ids) == sorted(chunk.id for chunk in recent)
    assert len(recent) == 1
    assert open_system(short_term_retention_turns=0).config.short_term_retention_turns == 0


def test_a_context_uses_the_newest_user_message_as_the_default_query(memory: MemorySystem) -> None:
    memory.project.long_term.store("The zeppelin landed in Oslo.")
    memory.start_conversation()
    assert memory.build_context().messages == ()
    memory.add_message("user", "Where did the zeppelin land?")
    memory.add_message("assistant", "Let me think.")
    context = memory.build_context(system_prompt="You help.")
    assert [hit.entry.content for hit in context.retrieval_results] == ["The zeppelin landed in Oslo."]
    assert context.messages[0].content == "You help."
    assert memory.build_context("  ").retrieval_results == ()


def test_the_newest_message_is_in_the_context_whatever_the_sizes(
    open_system: Callable[..., MemorySystem],
) -> None:
    memory = open_system(chunk_size=10, max_recent_messages=5)
    memory.start_conversation()
    for number in range(30):
        memory.add_message("user", f"Line {number}.")
        assert memory.build_context().messages[-1].content == f"Line {number}."


def test_a_context_respects_its_budget(open_system: Callable[..., MemorySystem]) -> None:
    memory = open_system(max_context_tokens=600, working_memory_tokens=100, system_prompt_tokens=50)
    memory.start_conversation()
    for number in range(40):
        memory.add_message("user", f"We decided to put jar {number} on shelf {number * 7} in the kitchen.")
    context = memory.build_context("Which jar is on which shelf?", system_prompt="You help.")
    assert context.allocation.total_tokens <= 500
    assert any("recent messages did not fit" in warning for warning in context.warnings)
    memory.add_message("user", "x" * 4000)
    with pytest.raises(BudgetExceededError):
        memory.build_context()


def test_a_token_is_about_four_characters(memory: MemorySystem) -> None:
    memory.start_conversation()
    message = memory.add_message("user", "x" * 400)
    assert (message.token_count, message.token_counter) == (100, CharCounter.name)
    assert memory.add_message("user", "x" * 401).token_count == 101
    assert isinstance(memory.engine.counter, CharCounter)


def test_a_given_model_is_called_only_for_summaries(
    open_system: Callable[..., MemorySystem],
) -> None:
    model = ScriptedLLM(["They spoke of tea at length."])
    memory = open_system(model=model)
    memory.start_conversation()
    for number in range(21):
        memory.add_message("user", f"We decided to drink tea number {number}.")
    (chunk,) = memory._require_session().chunks()
    assert chunk.summary.startswith("They spoke of tea at length.")
    assert len(model.prompts) == 1


def test_a_closed_system_refuses_calls(memory: MemorySystem) -> None:
    memory.start_conversation()
    memory.close()
    memory.close()
    with pytest.raises(EngineClosedError):
        memory.search("anything")


def test_a_folder_that_cannot_be_created_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="could not be made"):
        MemorySystem(memory_dir=tmp_path / "file" / "memory")
