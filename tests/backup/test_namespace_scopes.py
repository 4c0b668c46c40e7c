"""Backup, restore and move of single namespaces and subtrees."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import (
    BackupError,
    ContextFiles,
    InvalidInputError,
    InvalidNameError,
    MemoryEngine,
    RestoreConflictError,
)
from langmem_tiers.backup import BackupScope
from langmem_tiers.common.namespaces import CONTEXT_FILES_LABEL
from tests.backends import POSTGRES
from tests.backup.sample_memory import fill, open_small_engine, read_lines, read_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.backup.conftest import NewUrl

pytestmark = pytest.mark.parametrize("backend", ["sqlite", POSTGRES])


def test_a_backup_of_one_namespace_contains_no_other(backend: str, new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url(backend)) as engine:
        for labels in (("acme",), ("acme", "below"), ("acme0",), ("Acme",), ("acme%",)):
            engine.session(labels, "s").add("user", f"said in {labels}")
            engine.items.put(labels, "k", {"in": list(labels)})
            engine.namespace(*labels).embed()
        engine.backup(tmp_path / "one.gz", namespace="acme")
        engine.backup(tmp_path / "below.gz", namespace="acme", prefix=True)
    one = [line for line in read_lines(tmp_path / "one.gz") if line.get("kind") != "end"]
    assert {line["row"]["path"] for line in one[1:] if "path" in line["row"]} == {"acme"}
    assert [line["row"]["content"] for line in one[1:] if line["kind"] == "messages"] == ["said in ('acme',)"]
    below = [line["row"]["path"] for line in read_lines(tmp_path / "below.gz")[1:-1] if "path" in line["row"]]
    assert sorted(below) == ["acme", "acme", "acme/below", "acme/below"]


def test_context_files_are_restored_with_their_namespace(
    backend: str, new_url: NewUrl, tmp_path: Path
) -> None:
    files = ContextFiles(tmp_path / "files")
    for name in ("u1", "u2"):
        at = datetime(2025, 3, 3, 9, tzinfo=UTC)
        context = files.load(name).with_message("user", f"Hello {name}", at=at)
        files.save(context.with_task("t", "Move the bookings", at=at).with_tool_call("file_write"))
    with open_small_engine(new_url(backend)) as engine, open_small_engine(new_url(backend)) as other:
        files.to_engine("u1", engine, ("acme", "alice"))
        files.to_engine("u2", engine, ("acme", "bob"))
        engine.backup(tmp_path / "b.gz", namespace=("acme", "alice"))
        other.restore(tmp_path / "b.gz", into="carol")
        assert other.items.namespaces() == ((CONTEXT_FILES_LABEL, "carol"),)
        with pytest.raises(RestoreConflictError):
            other.restore(tmp_path / "b.gz", into="carol")
        other.restore(tmp_path / "b.gz", into="carol", replace=True)
        back = files.from_engine("u1", other, "carol").context
        assert [task.description for task in back.active_tasks] == ["Move the bookings"]
        engine.backup(tmp_path / "all.gz", namespace="acme", prefix=True)
        other.restore(tmp_path / "all.gz")
        assert len(other.items.namespaces()) == 3


def test_a_namespace_is_restored_into_another_next_to_the_original(
    backend: str, new_url: NewUrl, tmp_path: Path
) -> None:
    with open_small_engine(new_url(backend)) as engine:
        fill(engine, "acme", "alice")
        fill(engine, "acme", "alice", "notes")
        before = read_records(engine, tmp_path / "b.gz", namespace=("acme", "alice"), prefix=True)
        report = engine.restore(tmp_path / "b.gz", into=("new/", "place"))
        assert report.scope == BackupScope(("new/", "place"), prefix=True)
        assert set(engine.namespaces()) == {
            ("acme", "alice"),
            ("acme", "alice", "notes"),
            ("new/", "place"),
            ("new/", "place", "notes"),
        }
        assert read_records(engine, tmp_path / "b.gz", namespace=("acme", "alice"), prefix=True) == before
        moved = read_records(engine, tmp_path / "moved.gz", namespace=("new/", "place"), prefix=True)
        assert [line.replace("new%2F/place", "acme/alice") for line in moved] == before
        for labels in (("acme", "alice"), ("new/", "place"), ("new/", "place", "notes")):
            hits = engine.namespace(*labels).recall("the cat").hits
            assert {hit.entry.namespace for hit in hits} == {labels}
            assert engine.items.search(labels, "boats")[0].item.value == {"likes": "sailing boats"}


def test_existing_data_is_erased_only_on_request(backend: str, new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url(backend)) as engine:
        fill(engine, "acme")
        fill(engine, "other")
        other = read_records(engine, tmp_path / "o.gz", namespace="other")
        then = read_records(engine, tmp_path / "b.gz", namespace="acme")
        late = engine.session("acme", "tuesday")
        late.add("user", "Something said after the backup about a zebra.")
        assert engine.namespace("acme").recall("zebra").hits
        now = read_records(engine, tmp_path / "now.gz", namespace="acme")
        with pytest.raises(RestoreConflictError, match="'acme' already contains .*replace=True"):
            engine.restore(tmp_path / "b.gz")
        assert read_records(engine, tmp_path / "again.gz", namespace="acme") == now
        assert engine.restore(tmp_path / "b.gz", replace=True).replaced
        assert read_records(engine, tmp_path / "again.gz", namespace="acme") == then
        assert read_records(engine, tmp_path / "again.gz", namespace="other") == other
        words = [hit.entry.content for hit in engine.namespace("acme").search("zebra tuna")]
        assert words
        assert not [word for word in words if "zebra" in word]


def test_another_engine_sees_that_a_namespace_was_replaced(
    backend: str, new_url: NewUrl, tmp_path: Path
) -> None:
    url = new_url(backend)
    with open_small_engine(url) as engine, open_small_engine(url, seed=1) as other:
        fill(engine, "acme")
        engine.backup(tmp_path / "b.gz")
        engine.session("acme", "tuesday").add("user", "Now a zebra came.")
        engine.items.put("acme", "k", {"likes": "zebras"})
        cached_session = other.session("acme", "tuesday")
        assert "zebra" in other.namespace("acme").recall("zebra").hits[0].entry.content
        assert "zebra" in cached_session.latest(1)[0].content
        assert other.items.search("acme", "boats zebras")[0].item.value == {"likes": "zebras"}
        engine.restore(tmp_path / "b.gz", replace=True)
        assert not [
            hit for hit in other.namespace("acme").recall("zebra").hits if "zebra" in hit.entry.content
        ]
        assert "zebra" not in other.session("acme", "tuesday").latest(1)[0].content
        assert other.items.search("acme", "boats zebras")[0].item.value == {"likes": "sailing boats"}


@pytest.mark.soak
def test_with_another_embedder_vectors_are_skipped_and_rebuilt(
    backend: str, new_url: NewUrl, tmp_path: Path
) -> None:
    with open_small_engine(new_url("sqlite")) as source:
        fill(source, "acme")
        counts = source.backup(tmp_path / "b.gz").counts
    with open_small_engine(new_url(backend), dimension=32) as engine:
        report = engine.restore(tmp_path / "b.gz")
        assert report.embedders_left_out == ("hash-16",)
        assert report.vectors_left_out == sum(
            counts[k] for k in ("vectors", "item_vectors", "memory_vectors")
        )
        assert not report.counts.keys() & {"vectors", "item_vectors", "memory_vectors", "embedders"}
        assert engine.namespace("acme").embed() == counts["vectors"]
        assert engine.namespace("acme").recall("tuna").hits[0].signals["meaning"] > 0


def test_without_an_embedder_all_vectors_are_kept(backend: str, new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url("sqlite")) as source:
        fill(source, "acme")
        before = read_records(source, tmp_path / "b.gz")
    with MemoryEngine(new_url(backend), embedder=None) as engine:
        assert engine.restore(tmp_path / "b.gz").vectors_left_out == 0
        assert read_records(engine, tmp_path / "again.gz") == before


def test_one_namespace_is_moved_into_a_memory_with_others(
    backend: str, new_url: NewUrl, tmp_path: Path
) -> None:
    with (
        open_small_engine(new_url("sqlite")) as source,
        open_small_engine(new_url(backend), seed=1) as target,
    ):
        fill(source, "acme")
        fill(target, "other")
        other = read_records(target, tmp_path / "o.gz", namespace="other")
        report = source.move_to(target, namespace="acme", into=("from", "afar"))
        assert "embedders" not in report.counts  # it was known already
        assert target.namespace("from", "afar").embed() == 0
        assert read_records(target, tmp_path / "o.gz", namespace="other") == other
        with pytest.raises(RestoreConflictError, match="the target already contains"):
            source.move_to(target)


def test_invalid_arguments_are_refused(backend: str, new_url: NewUrl, tmp_path: Path) -> None:
    with open_small_engine(new_url(backend)) as engine:
        engine.backup(tmp_path / "b.gz")
        with pytest.raises(InvalidInputError, match="whole memory cannot be restored into"):
            engine.restore(tmp_path / "b.gz", into="acme")
        with pytest.raises(InvalidInputError, match="prefix=True needs a namespace"):
            engine.backup(tmp_path / "c.gz", prefix=True)
        with pytest.raises(InvalidNameError):
            engine.backup(tmp_path / "c.gz", namespace="")
        with pytest.raises(InvalidInputError, match="must be a MemoryEngine, got str"):
            engine.move_to("sqlite://")  # type: ignore[arg-type]
        if backend == "postgresql":
            with pytest.raises(BackupError, match=r"use backup\(\)"):
                engine.snapshot(tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.glob("*.gz")) == ["b.gz"]
