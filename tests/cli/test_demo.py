from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from langmem_tiers import EngineConfig, MemoryEngine, Role, TokenBudget, __version__
from langmem_tiers.cli.app import app
from langmem_tiers.cli.story import chapters, questions

if TYPE_CHECKING:
    from pathlib import Path


def test_the_demo_plays_everything_and_keeps_it_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    result = CliRunner().invoke(app, ["demo", "--database", str(path)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    total = sum(len(chapter.messages) for chapter in chapters())
    assert f"{total}/{total}" in result.output
    for word in ("working", "long_term", "07-opening", "grafana.tidepool.example", "never deploy on Fridays"):
        assert word in result.output
    config = EngineConfig(budget=TokenBudget.of(2000))
    with MemoryEngine(f"sqlite:///{path}", config=config) as engine:
        for chapter in chapters():
            session = engine.session(("tidepool", "mara"), chapter.session)
            record = [message for message in session.messages() if not message.is_summary]
            assert [message.content for message in record] == [draft.content for draft in chapter.messages]
            assert session.build_context().token_count <= 2000 < session.info().token_count


def test_the_demo_does_not_touch_a_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    path.write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--database", str(path)])
    assert result.exit_code == 1
    assert "exists already" in " ".join(result.output.split())  # lines are wrapped
    assert path.read_text() == "mine"


def test_the_command_runs_as_a_module_too() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "langmem_tiers", "--version"], capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == f"langmem-tiers {__version__}"


def test_the_story_is_whole() -> None:
    told = [message for chapter in chapters() for message in chapter.messages]
    assert len(told) >= 300
    assert len(chapters()) == 7
    times = [message.created_at for message in told if message.created_at]
    assert times == sorted(times)
    assert len(times) == len(told)
    calls = [call.id for message in told for call in message.tool_calls]
    answers = [message.tool_call_id for message in told if message.role is Role.TOOL]
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(answer for answer in answers if answer)


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.search)
def test_each_question_has_its_evidence_within_reach_of_its_key_words(question: object) -> None:
    with MemoryEngine() as engine:
        tenant = engine.namespace("tidepool")
        for chapter in chapters():
            tenant.session(chapter.session).add_many(chapter.messages)
        found = {hit.entry.id for hit in tenant.search(question.search, limit=5)}  # type: ignore[attr-defined] # a Question
        assert found & set(question.evidence)  # type: ignore[attr-defined] # a Question
