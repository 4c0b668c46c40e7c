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


def imports_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


BELOW_THE_COMMAND_LINE = [path for path in SOURCES if "cli" not in path.parts and path != CLOCK]


@pytest.mark.parametrize("path", BELOW_THE_COMMAND_LINE, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_clock_reads_the_clock(path: Path) -> None:
    read = {name for owner, name in attributes(path) if owner in {"time", "datetime", "date"}}
    assert not read & READS_THE_CLOCK


def test_below_the_command_line_only_the_vocabulary_reads_the_environment() -> None:
    readers = {
        path.name
        for path in BELOW_THE_COMMAND_LINE
        if any(owner == "os" and name in READS_THE_ENVIRONMENT for owner, name in attributes(path))
    }
    assert readers == {"vocabulary.py"}


def test_every_error_is_used_somewhere() -> None:
    used = {
        node.id
        for path in SOURCES
        if path.name not in {"errors.py", "__init__.py"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name)
    }
    roots = {"NotFoundError"}  # for those who catch, not for us
    assert set(errors.__all__) - roots - used == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_inside_imports_the_package_root(path: Path) -> None:
    assert "langmem_tiers" not in imports_of(path)
