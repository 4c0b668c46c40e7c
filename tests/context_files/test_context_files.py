"""Context files as they are used."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import InvalidConfigError, InvalidInputError, MemoryEngine, NotFoundError
from langmem_tiers.config import EngineConfig, SummaryStrategy
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.service import ContextFiles
from langmem_tiers.context_files.store_models import CompactionConfig, ContextFilesConfig
from langmem_tiers.errors import ContextConflictError
from langmem_tiers.storage.database import Database
from langmem_tiers.testing import FrozenClock, ScriptedLLM
from tests.backends import POSTGRES, SQLITE_FILE
from tests.context_tables import create_context_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ID = "user:agent:123"


@pytest.fixture(params=["files", SQLITE_FILE, POSTGRES])
def files(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock, tenant: str
) -> Iterator[ContextFiles]:
    where = str(tmp_path / "data" / "context")
    if request.param != "files":
        where = (
            f"sqlite:///{tmp_path / 'memory.db'}"
            if request.param == "sqlite-file"
            else str(request.getfixturevalue("shared_postgres"))
        )
        database = Database(where, EngineConfig())
        create_context_tables(database)
        database.close()
    with ContextFiles(where, clock=clock, namespace=tenant) as opened:
        yield opened


def test_the_usage_example_of_the_design_works(files: ContextFiles, clock: FrozenClock) -> None:
    files.initialize()
    context = files.load(ID)
    assert context == ContextData(session_id=ID)
    context = (
        context.with_message("user", "Hello", at=clock.now(), token_count=1)
        .with_fact("User speaks English")
        .with_tool_call("echo")
    )
    report = files.compact(context)
    assert not report.is_compacted
    saved = files.save(report.context)
    assert saved.version == 1
    assert files.load(ID) == context
    assert files.sessions() == (ID,)
    assert files.delete(ID).was_there
    assert files.sessions() == ()
    assert files.load(ID) == ContextData(session_id=ID)


def test_a_long_conversation_is_compacted_saved_and_continued(
    files: ContextFiles, clock: FrozenClock
) -> None:
    for number in range(120):
        clock.advance(minutes=1)

        def turn(context: ContextData, number: int = number) -> ContextData:
            said = context.with_message("user", f"Message {number}", at=clock.now())
            return files.compact(said).context

        files.update(ID, turn)
    found = files.load(ID)
    assert 30 <= len(found.recent_history) <= 50
    assert found.recent_history[-1].content == "Message 119"
    for number in range(120 - len(found.recent_history)):
        assert f"- user: Message {number}\n" in found.long_term_summary + "\n"
    assert len(files.versions(ID)) == 10


def test_versions_can_be_listed_compared_and_restored(files: ContextFiles, clock: FrozenClock) -> None:
    context = files.load(ID)
    for fact in ("a", "b", "c"):
        clock.advance(hours=1)
        context = files.save(context.with_fact(fact)).context
    assert [version.number for version in files.versions(ID)] == [3, 2, 1]
    diff = files.diff(ID, 1, 3)
    assert diff.facts_added == ("b", "c")
    assert diff.changed == ("facts",)
    report = files.restore(ID, 1)
    assert report.version == 4
    assert files.load(ID).facts == ("a",)
    assert files.version(ID, 3).facts == ("a", "b", "c")
    with pytest.raises(NotFoundError, match=r"no version 9: use an available one \(4, 3, 2, 1\)"):
        files.version(ID, 9)


def test_saving_an_outdated_context_is_refused_unless_resolved(files: ContextFiles) -> None:
    ours = theirs = files.save(files.load(ID).with_fact("base")).context
    files.save(theirs.with_fact("theirs").with_tool_call("echo"))
    ours = ours.with_fact("ours").with_tool_call("echo")
    with pytest.raises(
        ContextConflictError, match=r"'user:agent:123' was changed by another writer.*nothing was written"
    ):
        files.save(ours)
    merged = files.save(ours, on_conflict="merge")
    assert merged.is_merged
    assert files.load(ID).facts == ("base", "theirs", "ours")
    assert files.load(ID).tool_stats.total_calls == 2
    files.save(ours, on_conflict="overwrite")
    assert files.load(ID).facts == ("base", "ours")
    assert not files.save(files.load(ID), on_conflict="merge").is_merged
    with pytest.raises(
        InvalidInputError, match="unknown on_conflict 'ask': use one of refuse, merge, overwrite"
    ):
        files.save(ours, on_conflict="ask")  # type: ignore[arg-type] # refused


def test_facts_are_extracted_and_found(files: ContextFiles) -> None:
    context = files.load(ID).with_message("user", "We decided to use PostgreSQL on port 5433.", at=0)
    report = files.extract_facts(context)
    assert report.added == ("We decided to use PostgreSQL on port 5433.",)
    assert files.find_facts(report.context, "which port?").hits[0].fact == report.added[0]


def test_a_given_model_writes_summaries(tmp_path: Path, clock: FrozenClock) -> None:
    config = ContextFilesConfig(compaction=CompactionConfig(max_history=4, keep_history=2))
    model = ScriptedLLM(["They counted.", RuntimeError("down")])
    files = ContextFiles(tmp_path, config=config, model=model, clock=clock)
    context = files.load(ID)
    for number in range(5):
        context = context.with_message("user", f"number {number}", at=clock.now())
    report = files.compact(context)
    assert report.strategy is SummaryStrategy.HIERARCHICAL
    assert "They counted." in report.context.long_term_summary
    failed = files.compact(context)
    assert failed.strategy is SummaryStrategy.EXTRACTIVE
    assert failed.problems == ("the model raised RuntimeError",)
    assert failed.context.long_term_summary == (
        "Previous conversation summary:\n- user: number 0\n- user: number 1\n- user: number 2"
    )


def test_no_file_is_created_before_the_first_save(tmp_path: Path) -> None:
    files = ContextFiles(tmp_path / "later")
    files.load(ID)
    assert files.sessions() == ()
    assert files.versions(ID) == ()
    assert list(tmp_path.iterdir()) == []
    files.initialize()
    assert (tmp_path / "later").is_dir()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"config": {}}, "config must be a ContextFilesConfig, got dict"),
        ({"model": object()}, "model must have complete"),
        ({"embedder": 5}, "embedder must have"),
    ],
)
def test_invalid_components_are_refused(tmp_path: Path, part: Any, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        ContextFiles(tmp_path, **part)


def test_only_contexts_are_saved(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"got dict: use what load\(\) returned"):
        ContextFiles(tmp_path).save({"facts": []})  # type: ignore[arg-type] # refused


def test_contexts_of_a_database_are_deleted_with_their_namespace(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    database = Database(url, EngineConfig())
    create_context_tables(database)
    database.close()
    with ContextFiles(url, namespace="acme") as acme, ContextFiles(url, namespace="other") as other:
        acme.save(acme.load(ID))
        other.save(other.load(ID))
        with MemoryEngine(url) as engine:
            engine.namespace("acme").delete()
        assert acme.sessions() == ()
        assert other.sessions() == (ID,)


def test_times_of_versions_are_those_of_the_clock(files: ContextFiles, clock: FrozenClock) -> None:
    files.save(files.load(ID))
    assert files.versions(ID)[0].saved_at == clock.now() == datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
