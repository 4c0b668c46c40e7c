"""Each notebook runs from top to bottom and prints what it shows."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PLACES = re.compile(r"/(?:home|root|tmp|work|Users|var|private)/|[A-Z]:\\\\")
DECIMALS = re.compile(r"\d+\.\d+")


def by_name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_a_notebook_runs_and_prints_what_it_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, notebook = read(path), read(path)
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", folder)
        # The network is off: the kernel is spoken to through sockets that are files, in a path that is short enough.
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        NotebookClient(notebook, config=config, kernel_name="python3", timeout=120).execute(cwd=folder)
    assert [printed(cell) for cell in notebook.cells] == [printed(cell) for cell in shown.cells]
    assert [pictures(cell) for cell in notebook.cells] == [pictures(cell) for cell in shown.cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_a_notebook_tells_nothing_of_the_machine_it_ran_on(path: Path) -> None:
    assert PLACES.findall(path.read_text(encoding="utf-8")) == []
    assert set(read(path).metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_a_notebook_is_small_and_was_run_in_order(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert path.stat().st_size < 200_000


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call] # it has no types


def printed(cell: Any) -> str:
    """What a cell printed; the last digits of a score may differ between machines."""
    streams = (one for one in cell.get("outputs", ()) if one.output_type == "stream" and one.name == "stdout")
    return DECIMALS.sub("0.0", "".join(one.text for one in streams))


def pictures(cell: Any) -> int:
    return sum("image/png" in one.get("data", {}) for one in cell.get("outputs", ()))
