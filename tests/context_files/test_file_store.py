"""Context files: damaged files are quarantined, failed saves change nothing, versions can be restored."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    InvalidInputError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)
from langmem_tiers.context_files.file_store import FileContextStore
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.store_models import ContextFilesConfig
from langmem_tiers.storage.file_io import hold_file_lock
from tests.context_files.test_context_data import FILE, HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = datetime(2024, 2, 23, 12, 0, tzinfo=UTC)
ID = "user:agent:123"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "context"


@pytest.fixture
def store(folder: Path) -> FileContextStore:
    return FileContextStore(folder)


@pytest.fixture
def main(folder: Path) -> Path:
    return folder / f"{ID}.json"


@pytest.fixture
def saved(store: FileContextStore) -> ContextData:
    """A context of two versions."""
    first = store.save(ContextData(session_id=ID).with_fact("first"), NOW).context
    return store.save(first.with_fact("second"), NOW).context


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".locks" not in path.parts
    }


def test_the_file_has_the_documented_path_and_is_readable(
    store: FileContextStore, saved: ContextData, main: Path, folder: Path
) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [".damaged", ".locks", ".versions", f"{ID}.json"]
    text = main.read_text()
    assert list(json.loads(text)) == list(FILE)
    assert '\n  "facts": [\n    "first",\n    "second"\n  ],\n' in text
    assert text.endswith("}\n")


def test_a_file_of_another_program_is_read_and_kept_as_a_version(
    store: FileContextStore, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "user:agent:timestamp.json").write_text(json.dumps(FILE))
    assert store.sessions() == ("user:agent:timestamp",)
    found = store.load("user:agent:timestamp")
    assert found is not None
    assert found.tool_stats.total_calls == 42
    assert store.save(found.with_tool_call("echo"), NOW).version == 2
    theirs = store.version("user:agent:timestamp", 1)
    assert theirs == found


def test_a_manual_edit_is_read_and_never_overwritten_silently(
    store: FileContextStore, saved: ContextData, main: Path
) -> None:
    main.write_text(main.read_text().replace("second", "by hand"))
    with pytest.raises(RuntimeError, match="changed by another writer"):
        store.save(saved.with_fact("third"), NOW)
    found = store.load(ID)
    assert found is not None
    assert found.facts == ("first", "by hand")
    assert store.save(found.with_fact("third"), NOW).version == 4
    edited = store.version(ID, 3)
    assert edited is not None
    assert edited.facts == ("first", "by hand")


@pytest.mark.parametrize("data", [data for data, _ in HOSTILE.values()], ids=HOSTILE)
def test_an_unreadable_file_is_quarantined_and_the_same_version_restored(
    store: FileContextStore,
    saved: ContextData,
    main: Path,
    folder: Path,
    data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    main.write_bytes(data)
    found = store.load(ID)
    assert found == saved  # not even the last save is lost
    assert found.recovery is not None
    assert found.recovery.restored_version == 2
    assert (folder / ".damaged" / f"{ID}.1.json").read_bytes() == data
    assert found.recovery.set_aside == str(folder / ".damaged" / f"{ID}.1.json")
    assert "replaced by version" in caplog.text
    main.write_bytes(data)
    store.load(ID)
    assert (folder / ".damaged" / f"{ID}.2.json").read_bytes() == data
    assert store.save(saved, NOW).version == 3


def test_damaged_versions_are_skipped(
    store: FileContextStore, saved: ContextData, main: Path, folder: Path
) -> None:
    main.write_bytes(b"")
    (folder / ".versions" / ID / "00000002.json").write_bytes(b"{")
    found = store.load(ID)
    assert found is not None
    assert found.facts == ("first",)
    assert found.recovery is not None
    assert found.recovery.restored_version == 1


def test_without_a_good_version_the_error_names_the_quarantined_file(
    store: FileContextStore, folder: Path, main: Path
) -> None:
    folder.mkdir(parents=True)
    main.write_bytes(b"{")
    with pytest.raises(
        StorageCorruptError,
        match=r"\.damaged/user:agent:123\.1\.json.*load again to start with an empty context",
    ):
        store.load(ID)
    assert (folder / ".damaged" / f"{ID}.1.json").read_bytes() == b"{"
    assert store.load(ID) is None
    assert store.save(ContextData(session_id=ID), NOW).version == 1


def test_a_file_larger_than_allowed_is_not_read(folder: Path, main: Path) -> None:
    store = FileContextStore(folder, ContextFilesConfig(max_bytes=2000))
    store.save(ContextData(session_id=ID), NOW)
    with main.open("wb") as file:
        file.truncate(10**10)  # it takes no room on the disk
    found = store.load(ID)
    assert found is not None
    assert found.recovery is not None
    assert "10000000000 bytes" in found.recovery.reason


@pytest.mark.parametrize("kind", ["link out of the folder", "link to nowhere", "folder", "pipe"])
def test_folders_pipes_and_links_are_quarantined_and_never_followed(
    store: FileContextStore, saved: ContextData, main: Path, tmp_path: Path, folder: Path, kind: str
) -> None:
    outside = tmp_path / "secret.json"
    outside.write_text(json.dumps({"facts": ["secret"]}))
    main.unlink()
    if kind == "folder":
        main.mkdir()
    elif kind == "pipe":
        os.mkfifo(main)
    else:
        main.symlink_to(outside if "out" in kind else tmp_path / "nowhere")
    assert store.load(ID) == saved
    assert main.is_file()
    assert not main.is_symlink()
    assert json.loads(outside.read_text()) == {"facts": ["secret"]}
    store.save(saved, NOW)
    assert json.loads(outside.read_text()) == {"facts": ["secret"]}


def test_a_link_in_place_of_the_temporary_file_is_not_followed(
    store: FileContextStore, saved: ContextData, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "precious"
    outside.write_text("mine")
    (folder / f".{ID}.json.tmp").symlink_to(outside)
    store.save(saved.with_fact("third"), NOW)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("inner", [".versions", ".locks", ".damaged"])
def test_an_inner_folder_that_is_a_link_is_refused(
    store: FileContextStore, folder: Path, tmp_path: Path, inner: str
) -> None:
    folder.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (folder / inner).symlink_to(tmp_path / "outside")
    with pytest.raises(StorageUnavailableError, match="is a symbolic link.*replace it with a folder"):
        store.save(ContextData(session_id=ID), NOW)
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind", "advice"),
    [
        (errno.ENOSPC, StorageFullError, "free some space"),
        (errno.EDQUOT, StorageFullError, "free some space"),
        (errno.EROFS, StorageReadOnlyError, "check permissions"),
        (errno.EACCES, StorageReadOnlyError, "check permissions"),
        (errno.EIO, StorageUnavailableError, "its disk works"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "open", "replace"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_disk_error_while_saving_keeps_the_last_version_and_no_temporary_file(  # noqa: PLR0913 - a table
    store: FileContextStore,
    saved: ContextData,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    call: str,
    nth: int,
    number: int,
    kind: type[StorageError],
    advice: str,
) -> None:
    before = tree(folder)
    with monkeypatch.context() as patch:
        _fail(patch, call, nth, number)
        with pytest.raises(kind, match=advice):
            store.save(saved.with_fact("third"), NOW)
    after = tree(folder)
    assert {name: data for name, data in after.items() if name in before} == before
    assert not any(name.endswith(".tmp") for name in after)
    assert store.load(ID) == saved
    assert [version.number for version in store.versions(ID)] == [2, 1]
    assert store.save(saved.with_fact("third"), NOW).version == 3


def _fail(patch: pytest.MonkeyPatch, call: str, nth: int, number: int) -> None:
    seen = 0

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            is_written = call != "open" or bool(args[1] & os.O_EXCL)  # files that are read are not meant
            seen += is_written
            if is_written and seen == nth:
                raise OSError(number, os.strerror(number))
            return real(*args, **kwargs)

        return run

    if call == "replace":
        from pathlib import Path as RealPath

        patch.setattr(RealPath, "replace", failing(RealPath.replace))
    else:
        patch.setattr(os, call, failing(getattr(os, call)))


SAVE_INTO_A_LIMIT = """
import resource, signal, sys
from datetime import UTC, datetime
from langmem_tiers import StorageFullError
from langmem_tiers.context_files.file_store import FileContextStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = FileContextStore(sys.argv[1])
context = store.load("user:agent:123")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    store.save(context.with_fact("x" * 30_000), datetime(2025, 1, 1, tzinfo=UTC))
except StorageFullError as error:
    sys.exit(7 if "free some space" in str(error) else 8)
"""


@pytest.mark.soak
def test_a_full_disk_keeps_the_last_version(
    store: FileContextStore, saved: ContextData, folder: Path
) -> None:
    before = tree(folder)
    child = subprocess.run(
        [sys.executable, "-c", SAVE_INTO_A_LIMIT, str(folder)], capture_output=True, text=True, check=False
    )
    assert child.returncode == 7, child.stderr
    assert tree(folder) == before
    assert store.load(ID) == saved


def test_a_partial_write_is_continued(
    store: FileContextStore, saved: ContextData, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data[:7])))
    report = store.save(saved.with_fact("third"), NOW)
    monkeypatch.undo()
    assert store.load(ID) == report.context


def test_a_file_with_a_temporary_read_error_is_not_moved(
    store: FileContextStore, saved: ContextData, main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = main.read_bytes()

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "read", broken)
    with pytest.raises(StorageUnavailableError, match="its disk works"):
        store.load(ID)
    monkeypatch.undo()
    assert main.read_bytes() == before


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnavailableError, match=r"file/inner.*check that the folder exists"):
        FileContextStore(tmp_path / "file" / "inner").save(ContextData(session_id=ID), NOW)
    assert FileContextStore(tmp_path / "missing").load(ID) is None
    assert FileContextStore(tmp_path / "missing").sessions() == ()
    assert not (tmp_path / "missing").exists()


def test_an_interrupted_save_between_its_two_files_is_not_listed(
    store: FileContextStore, saved: ContextData, folder: Path
) -> None:
    (folder / ".versions" / ID / "00000003.json").write_text('{"facts": ["never acknowledged"]}')
    assert [version.number for version in store.versions(ID)] == [2, 1]
    assert store.load(ID) == saved
    report = store.save(saved.with_fact("third"), NOW)
    assert report.version == 3
    assert store.version(ID, 3) == report.context


def test_waiting_too_long_for_the_lock_raises(folder: Path, saved: ContextData) -> None:
    store = FileContextStore(folder, ContextFilesConfig(busy_timeout_seconds=0.05))
    with hold_file_lock(folder / ".locks" / f"{ID}.lock", 1):
        assert store.load(ID) == saved  # reading goes on
        with pytest.raises(StorageBusyError, match="busy_timeout_seconds; nothing was written"):
            store.save(saved, NOW)
    store.save(saved, NOW)


def test_a_locked_session_does_not_block_other_sessions(
    store: FileContextStore, folder: Path, saved: ContextData
) -> None:
    with hold_file_lock(folder / ".locks" / f"{ID}.lock", 1):
        store.save(ContextData(session_id="another"), NOW)


def test_file_permissions_are_kept(store: FileContextStore, saved: ContextData, main: Path) -> None:
    main.chmod(0o600)
    store.save(saved, NOW)
    assert stat.S_IMODE(main.stat().st_mode) == 0o600


def test_deleting_keeps_only_quarantined_files(
    store: FileContextStore, saved: ContextData, main: Path, folder: Path
) -> None:
    main.write_bytes(b"{")
    store.load(ID)
    report = store.delete(ID)
    assert (report.was_there, report.versions) == (True, 2)
    assert [path for path in folder.rglob("*") if path.is_file()] == [folder / ".damaged" / f"{ID}.1.json"]


def test_foreign_files_are_ignored(store: FileContextStore, saved: ContextData, folder: Path) -> None:
    for name in ("README.md", "Notes.json", "x~y.json", ".hidden.json"):
        (folder / name).write_text("{}")
    assert store.sessions() == (ID,)


def test_a_long_id_is_listed_also_when_its_lock_was_lost(store: FileContextStore, folder: Path) -> None:
    long = "会话" * 100
    store.save(ContextData(session_id=long), NOW)
    assert store.sessions() == (long,)
    for lock in (folder / ".locks").iterdir():
        lock.unlink()
    assert store.sessions() == (long,)


def test_a_context_that_is_too_large_is_refused_by_its_size(folder: Path) -> None:
    store = FileContextStore(folder, ContextFilesConfig(max_bytes=1000))
    with pytest.raises(InvalidInputError, match=r"at most 1000 are allowed: compact\(\) it"):
        store.save(ContextData(session_id=ID, long_term_summary="x" * 1000), NOW)
    assert not folder.exists()
