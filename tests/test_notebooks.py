"""Each notebook runs completely in a clean kernel, offline, and shows the described output."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.waiting import LIMIT_SECONDS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLACES = re.compile(r"/(?:home|root|tmp|work|Users|var|private)/|[A-Z]:\\\\")
LINK = re.compile(r"\]\(([^)#]+\.ipynb)\)")
SHOWN = {
    "1_quick_start": (
        2,
        ["3 messages on Monday", "backup time: 03:15", "Jonas does, every night", "remembered: False"],
    ),
    "2_context_budget": (3, ["399 messages", "[CONTEXT SUMMARY]", "facts did not fit"]),
    "3_tuning_retrieval": (3, ["'dia_id': 'D1:1'", "second_look", "held out"]),
    "4_optimizer": (2, ["usage is near its target", "600 messages in the record", "found again: Why does"]),
    "5_langchain_agent": (
        2,
        ["I don't know.     My dog is called Toby", "ben     My dog is called Wolf", "Day 3: we walked 6 km"],
    ),
    "6_llamaindex_chat_engine": (
        1,
        [
            "I don't know.   My dog is called Toby",
            "Noted. | My train leaves at 9:40.",
            "Day 3: we walked 6 km",
        ],
    ),
    "7_task_memory": (
        1,
        [
            "advice: None",
            "block   Blocked",
            "went on: True with 10 cycles",
            "in order: no loop",
            "back and forth: unchanged",
        ],
    ),
}
"""How many pictures each shows, and what it prints among other things."""


def by_name(path: Path) -> str:
    return path.stem


@pytest.mark.soak
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.smoke] if path.stem.startswith("1_") else [])
        for path in NOTEBOOKS
    ],
    ids=by_name,
)
def test_a_notebook_runs_and_shows_the_described_output(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = read(path)
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", folder)
        monkeypatch.setenv("TMPDIR", folder)  # what it writes is gone with it
        monkeypatch.delenv("MPLBACKEND", raising=False)
        here = Path(folder) / "n"  # as in the clone: with its data beside it
        shutil.copytree(FOLDER, here)
        # The network is off: the kernel is spoken to through sockets that are files, in a path that is short enough.
        limits = {"iopub_timeout": int(LIMIT_SECONDS), "startup_timeout": int(LIMIT_SECONDS)}
        manager = {"transport": "ipc", "ip": f"{folder}/kernel"}
        config = Config({"KernelManager": manager, "NotebookClient": limits})
        NotebookClient(notebook, config=config, kernel_name="python3", timeout=None).execute(cwd=str(here))
        made = {path.name for path in here.iterdir()} - {path.name for path in FOLDER.iterdir()}
    assert [text for cell in notebook.cells for text in errors(cell)] == []
    assert made == set()
    drawn, printed = SHOWN[path.stem]
    text = "\n".join(read_output(cell) for cell in notebook.cells)
    assert [words for words in printed if words not in text] == []
    assert sum(pictures(cell) for cell in notebook.cells) == drawn


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_a_notebook_contains_no_outputs_and_no_machine_details(path: Path) -> None:
    notebook = read(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert [cell.execution_count for cell in cells] == [None] * len(cells)
    assert [dict(cell.metadata) for cell in notebook.cells] == [{}] * len(notebook.cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert PLACES.findall(path.read_text(encoding="utf-8")) == []
    assert path.stat().st_size < 30_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_a_notebook_starts_with_its_purpose_and_ends_with_next_steps(path: Path) -> None:
    cells = read(path).cells
    first, last = cells[0], cells[-1]
    assert first.cell_type == last.cell_type == "markdown"
    assert re.match(r"# \S.*\n\n\S", first.source)
    assert "pip install 'langmem-tiers[" in first.source
    assert last.source.startswith("**Next:**")
    names = {path.name for path in NOTEBOOKS}
    linked = {name for cell in cells if cell.cell_type == "markdown" for name in LINK.findall(cell.source)}
    assert linked - names == set()


def test_the_readme_lists_each_notebook_once() -> None:
    assert NOTEBOOKS
    listed = [name.removeprefix("notebooks/") for name in LINK.findall(README)]
    assert listed == [path.name for path in NOTEBOOKS]
    assert set(SHOWN) == {path.stem for path in NOTEBOOKS}


def test_the_data_of_the_notebooks_has_the_benchmark_format() -> None:
    (sample,) = json.loads((FOLDER / "data" / "bakery.json").read_text(encoding="utf-8"))
    turns = [turn for part in sample["conversation"].values() if isinstance(part, list) for turn in part]
    ids = {turn["dia_id"] for turn in turns}
    assert len(ids) == len(turns) == 73
    assert all(set(question["evidence"]) <= ids for question in sample["qa"])


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call] # it has no types


def streams(cell: Any, name: str) -> str:
    return "".join(
        output.text
        for output in cell.get("outputs", ())
        if output.output_type == "stream" and output.name == name
    )


def read_output(cell: Any) -> str:
    """What a cell printed, and what its last line is, as text."""
    values = (output.data.get("text/plain", "") for output in cell.get("outputs", ()) if "data" in output)
    return "\n".join([streams(cell, "stdout"), *values])


def errors(cell: Any) -> list[str]:
    """What went wrong, and what was warned of."""
    raised = [output.ename for output in cell.get("outputs", ()) if output.output_type == "error"]
    warned = streams(cell, "stderr")
    return [*raised, *([warned] if warned else [])]


def pictures(cell: Any) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell.get("outputs", ()))
