"""The code in the README and the documents runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from langmem_tiers import MemoryEngine, StorageUnavailableError
from langmem_tiers.cli.app import app

ROOT = Path(__file__).parent.parent
PACKAGES = [path.parent.name for path in (ROOT / "langmem_tiers").glob("*/__init__.py")]
README = (ROOT / "README.md").read_text()
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
SNIPPETS = {
    f"{document} {number}": snippet
    for document in DOCUMENTS
    for number, snippet in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL), 1
    )
}
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined] # a group of commands


# Chains that LangChain itself calls old are shown all the same: people have them. LlamaIndex's agents use what pydantic
# calls old.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
@pytest.mark.parametrize("name", SNIPPETS)
def test_each_snippet_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A dataclass in a snippet cannot read annotations that this file's __future__ import would make strings.
    exec(compile(SNIPPETS[name], name, "exec", dont_inherit=True), {"__name__": "readme"})  # noqa: S102 - that is the point


def test_the_quick_start_prints_the_stored_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in (1, 2):
        exec(compile(SNIPPETS["README.md 1"], "README.md", "exec"), {})  # noqa: S102 - that is the point
        assert capsys.readouterr().out == f"{run} We chose PostgreSQL for the bookings.\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("part", ["TieredMemoryMiddleware", "TieredMemory.from_defaults"])
def test_the_agents_answer_with_facts_of_another_conversation(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = next(name for name, text in SNIPPETS.items() if name.startswith("README") and part in text)
    for _ in range(2):
        exec(compile(SNIPPETS[name], name, "exec"), {"__name__": "readme"})  # noqa: S102 - as above
        assert "9:40 from platform 3" in capsys.readouterr().out


def test_the_example_adapter_recalls_and_retries_failed_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "adapter"}
    source = SNIPPETS["docs/adapters.md 1"]
    exec(compile(source, "adapters.md", "exec", dont_inherit=True), names)  # noqa: S102 - that is the point
    assert capsys.readouterr().out.startswith("My train to Malmö leaves from platform 3.\n")

    with MemoryEngine() as engine:
        history, session = (
            names["TieredHistory"](engine, "monday"),
            engine.session(("chat", "monday"), "monday"),
        )
        extra = {"mood": "curious", "pages": [1, 2]}
        history.save([names["Line"]("note", "A zoo.", extra, "first")])
        with monkeypatch.context() as patch:
            patch.setattr(type(session), "add_many", _refuse)
            assert names["run_turn"](names["model"], history, "Is it a zoo?") == "A zoo."
        assert [message.content for message in session.messages()] == ["A zoo."]
        history.save([])
        assert [message.content for message in session.messages()] == ["A zoo.", "Is it a zoo?", "A zoo."]
        assert names["to_line"](next(session.messages())) == names["Line"]("note", "A zoo.", extra, "first")


def _refuse(*_: object) -> None:
    raise StorageUnavailableError("the database is away")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_in_the_readme_and_has_help(command: str) -> None:
    assert f"langmem-tiers {command}" in README
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


@pytest.mark.parametrize("document", [*DOCUMENTS, "ARCHITECTURE.md", "CHANGELOG.md"])
def test_each_link_has_a_target(document: str) -> None:
    broken = []
    for target, anchor in LINK.findall((ROOT / document).read_text()):
        if "://" in target:
            continue
        path = (ROOT / document).parent / target if target else ROOT / document
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def _anchors(path: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, "ARCHITECTURE.md", "CHANGELOG.md"])
def test_each_path_that_a_document_names_exists(document: str) -> None:
    folders = "|".join(["benchmarks", "docs", "integrations", "langmem_tiers", "tests", *PACKAGES])
    named = re.findall(rf"`((?:{folders})/[\w./]*)`", (ROOT / document).read_text())
    assert [name for name in named if not _exists(name)] == []


def _exists(name: str) -> bool:
    places = (ROOT / name, ROOT / "langmem_tiers" / name, ROOT / "langmem_tiers" / f"{name}.py")
    return any(place.exists() for place in places)


def test_the_continuous_check_runs_the_readmes_test_command() -> None:
    assert "$ make test" in README
    assert "\nmake test" in (ROOT / ".ci" / "run").read_text()
