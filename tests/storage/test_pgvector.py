"""Preparing a database for vectors of a model, with a recorded connection instead of a server."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers.storage.search.pgvector import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator


class RecordedDatabase:
    """Answers what is prepared, and records the statements of each transaction."""

    def __init__(self, *, columns: int, has_index: bool) -> None:
        self._state = SimpleNamespace(version="0.8.0", columns=columns, has_index=has_index)
        self.written: list[str] = []

    @contextmanager
    def read(self) -> Iterator[Any]:
        yield SimpleNamespace(execute=self._answer)

    @contextmanager
    def write(self, _patience_seconds: float | None = None) -> Iterator[Any]:
        yield SimpleNamespace(execute=self._record)

    def _answer(self, *_: object) -> Any:
        return SimpleNamespace(one=lambda: self._state, scalar_one=lambda: self._state.version)

    def _record(self, statement: object, *_: object) -> Any:
        self.written.append(str(statement))
        return self._answer()


@pytest.mark.parametrize("columns", [0, 2])
def test_a_model_without_an_index_gets_one_of_its_own(columns: int) -> None:
    for model in (7, 8):
        database: Any = RecordedDatabase(columns=columns, has_index=False)
        assert prepare(database, model, dimension=3)
        assert database.written[-1].startswith(f"CREATE INDEX lmt_vectors_hnsw_{model} ")


def test_a_prepared_model_is_not_prepared_again() -> None:
    database: Any = RecordedDatabase(columns=2, has_index=True)
    assert prepare(database, 7, dimension=3)
    assert database.written == []
