"""What the README shows runs, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from langmem_tiers.cli.app import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined] # a group of commands


# Chains that LangChain itself calls old are shown all the same: people have them. LlamaIndex's agents use what pydantic
# calls old.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.strip().split("\n")[-1][:40])
def test_each_snippet_runs(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 - that is the point


def test_the_quick_start_prints_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in (1, 2):
        exec(compile(SNIPPETS[0], "README.md", "exec"), {})  # noqa: S102 - that is the point
        assert capsys.readouterr().out == f"{run} We chose PostgreSQL for the bookings.\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_in_the_readme_and_has_help(command: str) -> None:
    assert f"langmem-tiers {command}" in README
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"])
def test_each_path_that_a_document_names_exists(document: str) -> None:
    folders = "tests|langmem_tiers|storage|benchmarks|core|scoring|compression|tiers|flows"
    named = re.findall(rf"`((?:{folders})/[\w./]*)`", (ROOT / document).read_text())
    assert [name for name in named if not _exists(name)] == []


def _exists(name: str) -> bool:
    places = (ROOT / name, ROOT / "langmem_tiers" / name, ROOT / "langmem_tiers" / f"{name}.py")
    return any(place.exists() for place in places)


def test_the_continuous_check_runs_the_readmes_test_command() -> None:
    assert "$ make test" in README
    assert "\nmake test" in (ROOT / ".ci" / "run").read_text()
