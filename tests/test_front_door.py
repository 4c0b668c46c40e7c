"""Importing the package shows everything and does nothing."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
import types
from typing import TYPE_CHECKING

import pytest

import langmem_tiers
from langmem_tiers import errors

if TYPE_CHECKING:
    from pathlib import Path

LOOK = """
import json, os, sys
environment, folder = dict(os.environ), sorted(os.listdir())
import langmem_tiers
print(json.dumps({
    "modules": sorted(sys.modules),
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
        env={"HOME": str(home), "TMPDIR": str(home)},
    )
    seen: dict[str, list[str]] = json.loads(child.stdout)
    return seen


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
def test_import_leaves_out_what_it_does_not_need(imported: dict[str, list[str]], unwanted: str) -> None:
    assert [name for name in imported["modules"] if name == unwanted or name.startswith(f"{unwanted}.")] == []


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(langmem_tiers)
    assert (result.failed, result.attempted) == (0, 2)


def test_all_is_sorted_and_complete() -> None:
    public = [
        name
        for name, value in vars(langmem_tiers).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    ]
    assert langmem_tiers.__all__ == sorted(langmem_tiers.__all__, key=lambda name: (not name.isupper(), name))
    assert set(public) | {"__version__"} == set(langmem_tiers.__all__)


def test_every_error_is_at_the_door_and_in_the_tree() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert {kind.__name__ for kind in kinds} == set(errors.__all__)
    for kind in kinds:
        assert issubclass(kind, errors.LangmemTiersError)
        assert getattr(langmem_tiers, kind.__name__) is kind
        assert kind.__name__ in (errors.__doc__ or "")


def test_every_module_can_be_imported() -> None:
    names = [module.name for module in pkgutil.walk_packages(langmem_tiers.__path__, "langmem_tiers.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    assert len(names) > 30


@pytest.mark.parametrize("name", ["langmem_tiers", "langmem_tiers_langchain", "langmem_tiers_llamaindex"])
def test_all_three_packages_are_typed(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__doc__
    assert (importlib.resources.files(name) / "py.typed").is_file()
