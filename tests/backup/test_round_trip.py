"""A restored memory equals the one in the backup, on any database."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.backup.tables import (
    EXCLUDED_TABLES,
    REBUILT_COLUMNS,
    UNCONSTRAINED_KEYS,
    get_backup_tables,
)
from langmem_tiers.storage.column_types import TextVector
from langmem_tiers.text.tokenize import extract_terms
from tests.backends import POSTGRES
from tests.backup.sample_memory import fill, open_small_engine, read_records
from tests.hypothesis_settings import examples
from tests.properties.test_round_trip import any_json, any_text, drafts, hostile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langmem_tiers.backup import BackupProgress
    from tests.backup.conftest import NewUrl
    from tests.shared_servers import PostgresDatabases

SAME = pytest.param("sqlite", "sqlite", id="sqlite-to-sqlite")
MOVES = [
    pytest.param(before, after, id=f"{before}-to-{after}", marks=pytest.mark.backend)
    for before, after in (("sqlite", "postgresql"), ("postgresql", "sqlite"))
]
SERVERS = pytest.param("postgresql", "postgresql", id="postgresql-to-postgresql", marks=pytest.mark.backend)
SHADOWS = ("_config", "_content", "_data", "_docsize", "_idx", "_instances", "_terms")


def read_contents(engine: MemoryEngine, *labels: str) -> dict[str, Any]:
    """What the verbs of an engine tell of a namespace."""
    namespace = engine.namespace(*labels)
    monday = namespace.session("monday/%\0")
    return {
        # Databases add up a cosine in another order: its last digits differ.
        "recall": {
            hit.entry.content: {name: round(score, 5) for name, score in hit.signals.items()}
            for hit in namespace.recall("tuna for my cat Tom").hits
        },
        "search": [(hit.entry.content, round(hit.score, 9)) for hit in namespace.search("walrus rex")],
        "known": engine.services.knowledge.search(
            namespace.path, extract_terms("emacs"), category=None, limit=5
        ),
        "history": namespace.knowledge.history("preference", "editor"),
        "items": [(hit.item.value, round(hit.score or 0, 6)) for hit in engine.items.search(labels, "sail")],
        "view": monday.view(),
        "record": tuple(monday.messages()),
        "listed": monday.transcript.messages(),
        "entries": monday.entries(),
        "chunks": monday.chunks(),
        "facts": namespace.facts.page(),
        "long": [(hit.entry.content, hit.found_by) for hit in namespace.recall("which port?").hits],
        "tuning": engine.services.tuning.load(namespace.path),
    }


@pytest.mark.parametrize(("before", "after"), [SAME, *MOVES, SERVERS])
def test_a_restored_memory_is_equal(before: str, after: str, new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url(before)) as source, open_small_engine(new_url(after)) as target:
        fill(source, "acme", "alice")
        fill(source, "acme/%")
        source.namespace("gone").session("s").add("user", "a hole between keys")
        source.namespace("gone").delete()
        fill(source, "bob")
        report = source.backup(tmp_path / "b.gz")
        restored = target.restore(tmp_path / "b.gz")
        assert restored.counts == report.counts
        assert all(report.counts.values()), "fill() leaves a kind out: put something of it in there"
        assert restored.vectors_left_out == 0
        assert read_records(target, tmp_path / "again.gz") == read_records(source, tmp_path / "b.gz")
        for labels in (("acme", "alice"), ("acme/%",), ("bob",)):
            assert read_contents(target, *labels) == read_contents(source, *labels)
            assert target.namespace(*labels).embed() == 0  # the vectors came along


@pytest.mark.smoke
@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_moved_memory_is_equal_and_usable(before: str, after: str, new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url(before)) as source, open_small_engine(new_url(after), seed=1) as target:
        fill(source, "acme", "alice")
        there = read_contents(source, "acme", "alice")
        source.move_to(target)
        assert read_contents(target, "acme", "alice") == there == read_contents(source, "acme", "alice")
        session = target.session(("acme", "alice"), "monday/%\0")
        session.add("user", "The new walrus is called Olga.")
        session.compress(session.latest(1)[0].id, "Anew.")
        fill(target, "somebody", "else")  # no key is given twice
        hits = target.namespace("acme", "alice").search("Olga")
        assert [hit.entry.content for hit in hits] == ["The new walrus is called Olga."]


def test_a_snapshot_reports_its_progress_and_opens_with_all_content(tmp_path: Path) -> None:
    told: list[BackupProgress] = []
    with MemoryEngine(tmp_path / "memory.db", embedder=None) as engine:
        session = engine.session("acme", "s")
        session.add_many(MessageDraft("user", "walrus", payload="x" * 1_000_000) for _ in range(5))
        report = engine.snapshot(tmp_path / "copy.db", progress=told.append)
        session.add("user", "later")
    with closing(sqlite3.connect(report.path)) as copy:
        (pages,) = copy.execute("PRAGMA page_count").fetchone()
    done = [progress.done for progress in told]
    assert done == sorted(set(done))
    assert 0 < done[0] < done[-1] == pages
    assert {(progress.stage, progress.total) for progress in told} == {("writing", pages)}
    assert report.size_bytes == (tmp_path / "copy.db").stat().st_size
    with MemoryEngine(tmp_path / "copy.db", embedder=None) as copied:
        assert copied.session("acme", "s").count() == 5


def test_a_snapshot_stopped_by_its_progress_leaves_no_file(tmp_path: Path) -> None:
    def stop(progress: BackupProgress) -> None:
        raise KeyboardInterrupt

    with MemoryEngine(tmp_path / "memory.db", embedder=None) as engine:
        engine.session("acme", "s").add("user", "walrus")
        with pytest.raises(KeyboardInterrupt):
            engine.snapshot(tmp_path / "copy.db", progress=stop)
        assert not list(tmp_path.glob("*copy*"))


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES])
def test_every_table_is_in_a_backup_or_excluded_for_a_reason(backend: str, new_url: NewUrl) -> None:
    with open_small_engine(new_url(backend)) as engine, engine._database.read() as connection:
        there = {
            name
            for name in inspect(connection).get_table_names()
            if name.startswith("lmt_") and not name.endswith(SHADOWS)
        }
        if backend == "postgresql":  # a column that no table says anything of would be lost
            rows = connection.execute(
                text(
                    "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'lmt%'"
                )
            ).all()
            columns = {
                (kept.table.name, c.name) for kept in get_backup_tables().values() for c in kept.table.c
            }
            columns |= {(table.name, c.name) for table in EXCLUDED_TABLES for c in table.c}
            assert {(*row,) for row in rows} - columns <= {
                ("lmt_messages", "written_by"),
                ("lmt_vectors", "embedding"),
            }
    assert there == {f"lmt_{kind}" for kind in get_backup_tables()} | {
        table.name for table in EXCLUDED_TABLES
    }


def test_every_key_column_is_declared_and_every_tsvector_rebuilt() -> None:
    for kept in get_backup_tables().values():
        for column in kept.table.c:
            if column.name == "pk" or column.name.endswith("_pk"):
                assert column.name in kept.key_kinds, f"{column} names a row: say of which table"
                assert column.foreign_keys or column.name == "pk" or column in UNCONSTRAINED_KEYS
            variants = column.type._variant_mapping.values()
            if any(isinstance(variant, TextVector) for variant in variants):
                assert column in REBUILT_COLUMNS, f"{column} is written differently on each database"


@pytest.fixture(scope="module")
def engines(
    tmp_path_factory: pytest.TempPathFactory, postgres_databases: PostgresDatabases
) -> Iterator[dict[str, tuple[MemoryEngine, MemoryEngine]]]:
    folder = tmp_path_factory.mktemp("engines")
    made = {
        "sqlite": [open_small_engine(f"sqlite:///{folder / name}") for name in ("a.db", "b.db")],
        "postgresql": [open_small_engine(postgres_databases.create()) for _ in range(2)],
    }
    yield {backend: (pair[0], pair[1]) for backend, pair in made.items()}
    for pair in made.values():
        for engine in pair:
            engine.close()


places = st.lists(hostile, max_size=2).map(tuple)
actions = st.one_of(
    st.tuples(st.just("say"), places, hostile, st.lists(drafts, min_size=1, max_size=3)),
    st.tuples(st.just("know"), places, hostile, any_text.filter(str.strip)),
    st.tuples(st.just("keep"), places, hostile, st.dictionaries(any_text, any_json, max_size=2)),
    st.tuples(st.just("compress"), places, hostile, any_text.filter(str.strip)),
    st.tuples(st.just("delete"), places, hostile, st.none()),
)


@pytest.mark.parametrize(("before", "after"), [SAME, *MOVES])
@examples(10)
@given(st.lists(actions, max_size=8))
def test_any_restored_memory_is_equal(
    engines: dict[str, tuple[MemoryEngine, MemoryEngine]],
    tmp_path_factory: pytest.TempPathFactory,
    before: str,
    after: str,
    done: list[tuple[str, tuple[str, ...], str, Any]],
) -> None:
    source, target = engines[before][0], engines[after][1]
    folder, root = tmp_path_factory.mktemp("any"), uuid.uuid4().hex
    for verb, labels, name, what in done:
        act(source, verb, (root, *labels), name, what)
    written = read_records(source, folder / "b.gz", namespace=root, prefix=True)
    report = target.restore(folder / "b.gz")
    assert sum(report.counts.values()) == len(written)
    assert read_records(target, folder / "again.gz", namespace=root, prefix=True) == written
    for path in source.namespaces(root):
        for info in source.namespace(*path).sessions().sessions:
            here, there = source.session(path, info.name), target.session(path, info.name)
            assert tuple(there.messages()) == tuple(here.messages())
            assert there.view() == here.view()


def act(engine: MemoryEngine, verb: str, labels: tuple[str, ...], name: str, what: Any) -> None:
    if verb == "say":
        engine.session(labels, name).add_many(what)
    elif verb == "know":
        engine.namespace(*labels).knowledge.store("preference", name, what)
    elif verb == "keep":
        engine.items.put(labels, name, what)
    elif verb == "compress":
        session = engine.session(labels, name)
        if session.count() > 1:
            session.compress(session.latest(1)[0].id, what)
    else:
        engine.namespace(*labels).delete()
