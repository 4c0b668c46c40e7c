"""Databases to back up and to restore to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class NewUrl(Protocol):
    """Makes an empty database."""

    def __call__(self, backend: str) -> str: ...


@pytest.fixture
def new_url(tmp_path: Path, request: pytest.FixtureRequest) -> NewUrl:
    """An empty database of a kind."""
    made = 0

    def create(backend: str) -> str:
        nonlocal made
        if backend == "sqlite":
            made += 1
            return f"sqlite:///{tmp_path / f'memory-{made}.db'}"
        create_postgres: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return create_postgres()

    return create
