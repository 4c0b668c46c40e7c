"""A damaged backup file is refused completely."""

from __future__ import annotations

import gzip
import hashlib
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_tiers import (
    BackupError,
    BackupFileError,
    DamagedBackupError,
    MemoryEngine,
    NewerBackupError,
    NotABackupError,
)
from tests.backup.sample_memory import fill, open_small_engine, read_lines, read_records
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HEADER_BYTES = 10  # of gzip: time, level and system say nothing about what is in the file


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("sound") / "b.gz"
    with open_small_engine("sqlite://") as engine:
        fill(engine, "acme")
        engine.backup(path)
    return path


@pytest.fixture(scope="module")
def target() -> Iterator[MemoryEngine]:
    with open_small_engine("sqlite://") as engine:
        yield engine


def refused(
    engine: MemoryEngine, path: Path, kind: type[BackupError] = BackupError, match: str = "nothing was"
) -> None:
    with pytest.raises(kind, match=match):
        engine.restore(path)
    assert engine.namespaces() == ()
    assert engine.items.namespaces() == ()


@examples(60)
@given(st.data())
def test_a_truncated_file_is_refused(
    sound: Path, target: MemoryEngine, tmp_path: Path, data: st.DataObject
) -> None:
    whole = sound.read_bytes()
    cut = tmp_path / "cut.gz"
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    refused(target, cut)


@examples(60)
@given(st.data())
def test_a_file_that_was_altered_is_refused(
    sound: Path, target: MemoryEngine, tmp_path: Path, data: st.DataObject
) -> None:
    whole = bytearray(sound.read_bytes())
    place = data.draw(st.integers(HEADER_BYTES, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    altered = tmp_path / "altered.gz"
    altered.write_bytes(whole)
    refused(target, altered)


@examples(60)
@given(st.data())
def test_a_line_that_was_altered_is_refused(
    sound: Path, target: MemoryEngine, tmp_path: Path, data: st.DataObject
) -> None:
    lines = gzip.decompress(sound.read_bytes()).splitlines(keepends=True)
    number = data.draw(st.integers(1, len(lines) - 1))
    change = data.draw(st.sampled_from(["drop", "double", "alter", "swap"]))
    if change == "drop":
        del lines[number]
    elif change == "double":
        lines.insert(number, lines[number])
    elif change == "alter":
        lines[number] = lines[number].replace(b"1", b"2", 1).replace(b"a", b"b", 1)
    else:
        lines[number - 1], lines[number] = lines[number], lines[number - 1]
    altered = tmp_path / "altered.gz"
    altered.write_bytes(gzip.compress(b"".join(lines), 1))
    refused(target, altered)


def test_a_recompressed_file_is_restored(sound: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.gz"
    again.write_bytes(gzip.compress(gzip.decompress(sound.read_bytes()), 1))
    with open_small_engine("sqlite://") as engine:
        engine.restore(again)
        records = gzip.decompress(sound.read_bytes()).decode().splitlines(keepends=True)[1:-1]
        assert read_records(engine, tmp_path / "b.gz") == records


@pytest.mark.parametrize(
    "content",
    [b"", b"these are my notes", b"\x1f\x8b", gzip.compress(b"notes"), gzip.compress(b"[1]\n"), b"{}\n"],
    ids=["empty", "text", "two bytes", "packed text", "packed list", "plain JSON"],
)
def test_a_file_that_is_not_a_backup_is_named(target: MemoryEngine, tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "other.gz"
    other.write_bytes(content)
    refused(target, other, NotABackupError if len(content) != 2 else BackupError, r"other\.gz")


def test_missing_files_folders_and_existing_files_are_named(
    sound: Path, target: MemoryEngine, tmp_path: Path
) -> None:
    refused(target, tmp_path / "missing.gz", BackupFileError, r"missing\.gz.*No such file")
    refused(target, tmp_path, BackupFileError, "directory")
    with pytest.raises(BackupFileError, match=r"b\.gz.*exists already.*overwrite=True"):
        target.backup(sound)
    with pytest.raises(BackupFileError, match="check that the folder exists"):
        target.backup(tmp_path / "none" / "b.gz")
    with pytest.raises(BackupFileError, match="exists already"):
        target.snapshot(sound)


def test_a_backup_never_overwrites_the_database(tmp_path: Path) -> None:
    own = tmp_path / "m.db"
    with MemoryEngine(own) as engine:
        engine.session("a", "s").add("user", "before")
        (tmp_path / "link.db").symlink_to(own)
        for name in ("m.db", "m.db-wal", "link.db"):
            for write in (engine.backup, engine.snapshot):
                with pytest.raises(BackupFileError, match="is a file of the database itself"):
                    write(tmp_path / name, overwrite=True)
        engine.session("a", "s").add("user", "after")
    with MemoryEngine(own) as engine:
        assert engine.session("a", "s").count() == 2


def test_a_line_without_an_end_is_cheap(target: MemoryEngine, tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b" " * 50_000_000, 1))
    tracemalloc.start()
    try:
        refused(target, tmp_path / "bomb.gz", NotABackupError, "not a langmem-tiers backup")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def rewritten(sound: Path, path: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """A backup that somebody wrote who knows how."""
    lines = read_lines(sound)
    change(lines)
    written = [json.dumps(line).encode() + b"\n" for line in lines[:-1]]
    lines[-1]["sha256"] = hashlib.sha256(b"".join(written)).hexdigest()
    path.write_bytes(gzip.compress(b"".join([*written, json.dumps(lines[-1]).encode() + b"\n"]), 1))
    return path


def _row(lines: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    row: dict[str, Any] = next(line["row"] for line in lines if line.get("kind") == kind)
    return row


def _set(kind: str, name: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: _row(lines, kind).update({name: value})


@pytest.mark.parametrize(("name", "value"), [("version", 2), ("schema", 10_000)])
def test_a_backup_of_a_newer_release_is_refused(
    sound: Path, target: MemoryEngine, tmp_path: Path, name: str, value: int
) -> None:
    newer = rewritten(sound, tmp_path / "newer.gz", lambda lines: lines[0].update({name: value}))
    refused(target, newer, NewerBackupError, r"pip install -U langmem-tiers; nothing was restored")


@pytest.mark.parametrize(
    "change",
    [
        _set("messages", "content", 5),
        _set("messages", "created_at", "yesterday"),
        _set("messages", "created_at", "2025-01-15T10:30:00"),
        _set("messages", "position", value=True),
        _set("messages", "position", 2**70),
        _set("messages", "content", None),
        _set("messages", "session_pk", 10**6),
        _set("messages", "pk", 0),
        _set("messages", "more", 1),
        _set("vectors", "vector", "no base64!"),
        _set("vectors", "embedder_pk", None),
        lambda lines: _row(lines, "messages").pop("content"),
        lambda lines: lines[1].update({"more": 1}),
        lambda lines: lines[0]["spans"].update({"messages": 2**60}),
        lambda lines: lines[0]["counts"].update({"strangers": 0}),
        lambda lines: lines[0].update({"namespace": [1]}),
        lambda lines: lines[0].pop("spans"),
        lambda lines: lines[0].update({"version": "1"}),
    ],
)
def test_a_backup_with_impossible_values_is_refused(
    sound: Path, target: MemoryEngine, tmp_path: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    refused(target, rewritten(sound, tmp_path / "odd.gz", change), DamagedBackupError)


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", ["bob", "/pools/x", "%zz", "a//b", "", "/", "acme%2Fbob"])
def test_a_forged_backup_of_one_namespace_writes_to_no_other(tmp_path: Path, path: str) -> None:
    with open_small_engine("sqlite://") as engine, open_small_engine("sqlite://") as target:
        fill(engine, "acme")
        engine.backup(tmp_path / "b.gz", namespace="acme")
        forged = rewritten(tmp_path / "b.gz", tmp_path / "forged.gz", _set("namespaces", "path", path))
        for into in (None, "carol"):
            with pytest.raises(DamagedBackupError, match="a namespace outside of the backup's scope"):
                target.restore(forged, into=into)
        assert target.namespaces() == ()
        whole = ["b.gz", "odd.gz"]
        engine.backup(tmp_path / whole[0], overwrite=True)
        if path in ("", "/", "%zz", "a//b"):
            odd = rewritten(tmp_path / whole[0], tmp_path / whole[1], _set("namespaces", "path", path))
            refused(target, odd, DamagedBackupError)


def test_a_backup_of_one_namespace_adds_no_pool_members(tmp_path: Path) -> None:
    at = "2025-01-15T10:30:00.000000Z"
    pool = {"pk": 1, "id": "forged", "name": "team", "namespace_pk": 1, "created_at": at}
    rights = {"can_read": True, "can_write": True, "is_owner": True, "joined_at": at, "synced_revision": 0}
    forged = [
        {"kind": "pools", "row": pool},
        {"kind": "pool_members", "row": {"pool_pk": 1, "namespace": "victim", **rights}},
    ]

    def change(lines: list[dict[str, Any]]) -> None:
        order = list(lines[0]["counts"])
        lines[1:-1] = sorted(lines[1:-1] + forged, key=lambda line: order.index(line["kind"]))
        for end in (lines[0]["counts"], lines[-1]["counts"]):
            end |= {"pools": 1, "pool_members": 1}
        lines[0]["spans"]["pools"] = 1

    with open_small_engine("sqlite://") as engine, open_small_engine("sqlite://") as target:
        fill(engine, "acme")
        engine.backup(tmp_path / "b.gz", namespace="acme")
        target.session("victim", "s").add("user", "private")
        with pytest.raises(DamagedBackupError, match="not allowed in the backup of a namespace"):
            target.restore(rewritten(tmp_path / "b.gz", tmp_path / "forged.gz", change))
        assert target.namespaces() == (("victim",),)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
HEADER: dict[str, Any] = {
    **dict.fromkeys(("format", "release", "created_at", "counter"), str),
    **dict.fromkeys(("version", "schema"), int),
    "namespace": list | None,
    "prefix": bool,
    "embedder": str | None,
    "dimension": int | None,
    "counts": dict,
    "spans": dict,
}


@examples(60)
@given(name=st.sampled_from(sorted(HEADER)), value=json_values)
@example(name="counts", value=[])
@example(name="spans", value=None)
@example(name="created_at", value="0001-01-01T00:00:00+23:00")
@example(name="created_at", value="2025-01-15")
@example(name="namespace", value="acme")
@example(name="prefix", value=1)
@example(name="embedder", value={})
@example(name="dimension", value="8")
@example(name="spans", value={"strangers": 1})
def test_any_header_value_is_read_or_refused(sound: Path, tmp_path: Path, name: str, value: Any) -> None:
    odd = rewritten(sound, tmp_path / "odd.gz", lambda lines: lines[0].update({name: value}))
    with open_small_engine("sqlite://") as engine:
        try:
            engine.restore(odd)
        except (DamagedBackupError, NotABackupError, NewerBackupError):
            assert engine.namespaces() == engine.items.namespaces() == ()
            return
    assert isinstance(value, HEADER[name])


def test_a_backup_whose_rows_contradict_each_other_is_refused(
    sound: Path, target: MemoryEngine, tmp_path: Path
) -> None:
    def twice(lines: list[dict[str, Any]]) -> None:
        rows = [line["row"] for line in lines if line.get("kind") == "messages"]
        rows[1]["id"], rows[1]["session_pk"] = rows[0]["id"], rows[0]["session_pk"]

    refused(target, rewritten(sound, tmp_path / "odd.gz", twice), BackupError)


def test_a_backup_without_a_column_is_restored(sound: Path, tmp_path: Path) -> None:
    def without(lines: list[dict[str, Any]]) -> None:
        for line in lines[1:-1]:
            if line["kind"] == "sessions":
                del line["row"]["view_revision"]

    older = rewritten(sound, tmp_path / "older.gz", without)
    with open_small_engine("sqlite://") as engine:
        engine.restore(older)
        assert engine.namespace("acme").session("tuesday").count() == 1
