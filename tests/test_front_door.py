"""Importing the package provides every public name and has no side effects."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import langmem_tiers
from langmem_tiers import errors

FEATURES = [
    f"langmem_tiers.{path.parent.name}"
    for path in sorted(Path(langmem_tiers.__path__[0]).glob("*/__init__.py"))
    if "= lazy_exports(" in path.read_text()
]
PACKAGES = ["langmem_tiers", *FEATURES, "langmem_tiers_langchain", "langmem_tiers_llamaindex"]
LOOK = """
import json, os, sys
environment, folder = dict(os.environ), sorted(os.listdir())
import langmem_tiers
package_modules = sorted(sys.modules)
from langmem_tiers import MemoryEngine
print(json.dumps({
    "package_modules": package_modules,
    "engine_modules": sorted(sys.modules),
    "environment_changed": dict(os.environ) != environment,
    "files_made": sorted(set(os.listdir()) - set(folder)),
}))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    home: Path = tmp_path_factory.mktemp("home")
    child = subprocess.run(
        [sys.executable, "-c", LOOK],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env={
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONPATH": str(Path(langmem_tiers.__path__[0]).parent),
        },
    )
    seen: dict[str, list[str]] = json.loads(child.stdout)
    return seen


def test_importing_the_package_imports_almost_nothing(imported: dict[str, list[str]]) -> None:
    assert {name for name in imported["package_modules"] if name.startswith("langmem_tiers")} == {
        "langmem_tiers",
        "langmem_tiers.common",
        "langmem_tiers.common.lazy_exports",
        "langmem_tiers.errors",
        "langmem_tiers.version",
    }
    assert not {"sqlalchemy", "numpy"} & set(imported["package_modules"])
    assert "sqlalchemy" in imported["engine_modules"]


def test_import_has_no_effect_on_disk_or_environment(imported: dict[str, list[str]]) -> None:
    assert not imported["environment_changed"]
    assert imported["files_made"] == []


@pytest.mark.parametrize(
    "unwanted",
    [
        "langchain",
        "langchain_core",
        "langgraph",
        "llama_index",
        "matplotlib",
        "mcp",
        "numpy",
        "opentelemetry",
        "pandas",
        "prometheus_client",
        "psycopg",
        "pytest",
        "rich",
        "sqlalchemy.dialects.mssql",
        "sqlalchemy.dialects.mysql",
        "sqlalchemy.dialects.oracle",
        "sqlalchemy.dialects.postgresql",
        "sqlalchemy.orm",
        "tiktoken",
        "tqdm",
        "typer",
    ],
)
def test_the_engine_imports_only_what_it_needs(imported: dict[str, list[str]], unwanted: str) -> None:
    modules = imported["engine_modules"]
    assert [name for name in modules if name == unwanted or name.startswith(f"{unwanted}.")] == []


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(langmem_tiers)
    assert (result.failed, result.attempted) == (0, 2)


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_complete_and_equal_to_what_type_checkers_see(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__all__ == sorted(package.__all__, key=_by_kind_and_name)
    declared = _list_declared_names(Path(str(package.__file__)))
    assert sorted(declared) == sorted(package.__all__)
    for export, module in declared.items():
        assert getattr(package, export) is getattr(importlib.import_module(module), export)
        assert export in dir(package)


def _by_kind_and_name(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name.strip("_")[0].isupper() else 2, name)


def _list_declared_names(path: Path) -> dict[str, str]:
    """Return the modules of the names that a package imports from itself, also for type checkers alone."""
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if str(node.module).startswith("langmem_tiers")]
    names = {alias.name: str(node.module) for node in ours for alias in node.names}
    if path.parent.name != "integration_kit":
        del names["lazy_exports"]
    return names


def test_each_name_is_defined_in_one_module() -> None:
    homes = Counter(
        name
        for package in FEATURES
        if package != "langmem_tiers.integration_kit"
        for name in importlib.import_module(package).__all__
    )
    assert [name for name, count in homes.items() if count > 1] == []
    assert len(langmem_tiers.__all__) - len(errors.__all__) < 70


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wrong_name_raises_attribute_error(name: str) -> None:
    package = importlib.import_module(name)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Memorry'"):
        _ = package.Memorry
    with pytest.raises(ImportError, match=f"cannot import name 'Memorry' from '{name}'"):
        exec(f"from {name} import Memorry")  # noqa: S102 - the name of the package is ours


def test_every_error_is_exported_and_in_the_error_tree() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert {kind.__name__ for kind in kinds} == set(errors.__all__)
    for kind in kinds:
        assert issubclass(kind, errors.LangmemTiersError)
        assert getattr(langmem_tiers, kind.__name__) is kind
        assert kind.__name__ in (errors.__doc__ or "")


def test_every_module_can_be_imported_and_has_the_names_that_it_exports() -> None:
    names = [module.name for module in pkgutil.walk_packages(langmem_tiers.__path__, "langmem_tiers.")]
    for name in names:
        if not name.endswith("__main__"):
            module = importlib.import_module(name)
            exports = getattr(module, "__all__", [])
            assert [export for export in exports if not hasattr(module, export)] == []
            assert exports == sorted(exports, key=_by_kind_and_name)
    assert len(names) > 30


@pytest.mark.parametrize("name", ["langmem_tiers", "langmem_tiers_langchain", "langmem_tiers_llamaindex"])
def test_all_three_packages_are_typed(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__doc__
    assert (importlib.resources.files(name) / "py.typed").is_file()
