"""Project rules that no linter checks."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("habits")  # the sources are parsed once
ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "langmem_tiers").rglob("*.py"))
CLOCK = ROOT / "langmem_tiers" / "common" / "clock.py"
READS_THE_CLOCK = {"now", "utcnow", "today", "time", "time_ns", "monotonic", "perf_counter"}
READS_THE_ENVIRONMENT = {"environ", "getenv"}


@dataclass(frozen=True)
class Module:
    """Facts about one source file. The syntax trees of all files together would take 250 MB."""

    attributes: frozenset[tuple[str, str]]
    """Each ``a.b`` as a pair."""
    names: frozenset[str]
    imports: frozenset[str]
    """Modules named in ``from ... import``."""
    needs: frozenset[str]
    """Modules of the package that an import of this one imports first."""


@functools.cache
def read(path: Path) -> Module:
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    return Module(
        attributes=frozenset(
            (node.value.id, node.attr)
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        ),
        names=frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
        imports=frozenset(node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module),
        needs=frozenset(find_needs(tree)),
    )


BELOW_THE_COMMAND_LINE = [path for path in SOURCES if "cli" not in path.parts and path != CLOCK]


def test_only_the_clock_module_reads_the_system_clock() -> None:
    clocks = {"time", "datetime", "date"}
    readers = {
        str(path.relative_to(ROOT))
        for path in BELOW_THE_COMMAND_LINE
        if any(owner in clocks and name in READS_THE_CLOCK for owner, name in read(path).attributes)
    }
    assert readers == set()


def test_tests_do_not_measure_time() -> None:
    allowed = {ROOT / "tests" / "waiting.py", *(ROOT / "tests" / "tools").glob("*.py")}
    stopwatches = {"monotonic", "perf_counter", "process_time", "thread_time"}
    readers = {
        str(path.relative_to(ROOT))
        for path in {*(ROOT / "tests").rglob("*.py")} - allowed
        if any(owner == "time" and name in stopwatches for owner, name in read(path).attributes)
    }
    assert readers == set()


def test_below_the_command_line_only_token_counting_reads_the_environment() -> None:
    readers = {
        path.name
        for path in BELOW_THE_COMMAND_LINE
        if any(owner == "os" and name in READS_THE_ENVIRONMENT for owner, name in read(path).attributes)
    }
    assert readers == {"token_counting.py"}


def test_every_error_is_used_somewhere() -> None:
    users = [path for path in SOURCES if path.name not in {"errors.py", "__init__.py"}]
    used = set[str]().union(*(read(path).names for path in users))
    roots = {"NotFoundError"}  # for those who catch, not for us
    assert set(errors.__all__) - roots - used == set()


def test_no_inner_module_imports_the_package_root() -> None:
    importers = {str(path.relative_to(ROOT)) for path in SOURCES if "langmem_tiers" in read(path).imports}
    assert importers == set()


def test_adapters_import_the_two_public_packages_only_also_for_type_checkers() -> None:
    # The import linter ignores imports for type checkers.
    public = re.compile(r"(?!langmem_tiers\.)|langmem_tiers\.integration_kit(\.|$)")
    adapters = [path for path in (ROOT / "integrations").rglob("*.py") if ".venv" not in path.parts]
    imported = {name for path in adapters for name in read(path).imports}
    assert "langmem_tiers.integration_kit" in imported
    assert [name for name in sorted(imported) if not public.match(name)] == []


def test_no_pattern_repeats_a_group_possessively() -> None:
    # Python 3.11.0 to 3.11.4 match such groups wrongly if they can backtrack; single characters are fine.
    group = re.compile(r"\(\?>|(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+")
    adapters = [path for path in (ROOT / "integrations").rglob("*.py") if ".venv" not in path.parts]
    assert [path.name for path in [*SOURCES, *adapters] if group.search(path.read_text())] == []


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES
}


def run_at_import(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module that its own import needs: none in functions, none for type checkers alone."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from run_at_import(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "orelse", "finalbody"):
                yield from run_at_import(getattr(node, part, []))


def find_needs(tree: ast.Module) -> set[str]:
    """Return the modules of the package that an import of this one imports first, and all relative names."""
    found: set[str] = set()
    relative: set[str] = set()
    for node in run_at_import(tree.body):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif node.level:
            relative.add("." * node.level + (node.module or ""))
        else:
            parts = {f"{node.module}.{name.name}" for name in node.names}
            found |= parts & MODULES.keys() or {str(node.module)}
    return found & MODULES.keys() | relative


def test_modules_have_no_import_cycles() -> None:
    needs = {name: read(path).needs for name, path in MODULES.items()}
    assert not [name for names in needs.values() for name in names if name.startswith(".")]
    assert sum(map(len, needs.values())) > len(MODULES)  # or nothing was read
    graphlib.TopologicalSorter(needs).prepare()  # names the circle, if there is one
