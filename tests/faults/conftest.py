"""Fixtures that fault tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.cutting_proxy import CuttingProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def new_database(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], str]:
    """Creates an empty database of the backend that no other test uses, and returns its URL."""
    if backend == "postgresql":
        create: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return create
    return lambda: f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture
def proxy(new_postgres_database: Callable[[], str], tmp_path: Path) -> Iterator[CuttingProxy]:
    """The way to a PostgreSQL, to be cut."""
    with CuttingProxy(new_postgres_database(), tmp_path) as between:
        yield between
