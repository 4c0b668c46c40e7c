"""Entries synced from a pool are backed up with their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import InvalidInputError, MemoryEngine
from langmem_tiers.backup.models import BackupScope
from langmem_tiers.backup.tables import belongs_to_namespace, build_scope_condition, get_backup_tables
from tests.backends import POSTGRES
from tests.backup.sample_memory import open_small_engine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backup.conftest import NewUrl

GIVER, READER = ("acme", "giver"), ("acme", "reader")
LAMP = "The lamp of the harbour is green."


def share(engine: MemoryEngine) -> None:
    pool = engine.pools.create("docs", members=[GIVER, READER])
    pool.contribute(GIVER, LAMP)
    assert len(pool.sync_to(READER).copied) == 1


def list_contents(engine: MemoryEngine, *labels: str) -> list[str]:
    return [entry.content for entry in engine.namespace(*labels).long_term]


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES])
@pytest.mark.parametrize("way", ["moved", "restored"])
def test_a_synced_copy_is_recognized_in_its_current_namespace(
    backend: str, way: str, new_url: NewUrl, tmp_path: Path
) -> None:
    with (
        open_small_engine(new_url("sqlite")) as source,
        open_small_engine(new_url(backend), seed=1) as target,
    ):
        share(source)
        if way == "moved":
            source.move_to(target, namespace=READER)
        else:
            source.backup(tmp_path / "b.gz", namespace=READER)
            target.restore(tmp_path / "b.gz")
        (copy,) = target.namespace(READER).long_term
        other = target.pools.create("others", members=[READER])
        with pytest.raises(InvalidInputError, match="synced"):
            other.contribute(READER, copy)
        assert target.forget(namespace=GIVER, scrub=False).elsewhere == {"pool copies": 1}
        assert list_contents(target, *READER) == []


def test_a_contributor_is_renamed_to_its_restored_namespace(new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url("sqlite")) as engine:
        share(engine)
        engine.backup(tmp_path / "b.gz", namespace="acme", prefix=True)
        engine.restore(tmp_path / "b.gz", into="copy")
        engine.forget(namespace=("copy", "giver"), scrub=False)
        assert (list_contents(engine, *READER), list_contents(engine, "copy", "reader")) == ([LAMP], [])
        engine.forget(namespace=GIVER, scrub=False)
        assert list_contents(engine, *READER) == []


def test_every_namespace_table_has_a_scope_condition() -> None:
    for kept in get_backup_tables().values():
        if belongs_to_namespace(kept.table):
            assert str(build_scope_condition(kept.table, BackupScope(("acme",)))) != "true", kept.kind
