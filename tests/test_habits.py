"""House rules that no linter knows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from langmem_tiers.core import errors

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "langmem_tiers").rglob("*.py"))
CLOCK = ROOT / "langmem_tiers" / "core" / "clock.py"
READS_THE_CLOCK = {"now", "utcnow", "today", "time", "time_ns", "monotonic", "perf_counter"}
READS_THE_ENVIRONMENT = {"environ", "getenv"}


def attributes(path: Path) -> set[tuple[str, str]]:
    """Each ``a.b`` in the file."""
    tree = ast.parse(path.read_text())
    return {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_clock_reads_the_clock(path: Path) -> None:
    if path == CLOCK or "cli" in path.parts:
        return
    read = {(owner, name) for owner, name in attributes(path) if owner in {"time", "datetime", "date"}}
    assert not {name for _, name in read} & READS_THE_CLOCK


def test_only_the_vocabulary_reads_the_environment() -> None:
    readers = {
        path.name
        for path in SOURCES
        if any(owner == "os" and name in READS_THE_ENVIRONMENT for owner, name in attributes(path))
    }
    assert readers == {"vocabulary.py"}


def test_every_error_is_raised_somewhere() -> None:
    source = "\n".join(path.read_text() for path in SOURCES if path.name != "errors.py")
    roots = {"LangmemTiersError", "NotFoundError"}
    assert [name for name in errors.__all__ if name not in roots and name not in source] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_inside_imports_the_package_root(path: Path) -> None:
    if "cli" in path.parts:
        return
    tree = ast.parse(path.read_text())
    roots = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "langmem_tiers"
    ]
    assert roots == []
