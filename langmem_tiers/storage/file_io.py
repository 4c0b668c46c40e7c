"""Reading and writing whole files so that no crash leaves half of one, and faults become errors of our tree."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from langmem_tiers.errors import StorageFullError, StorageReadOnlyError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}
_READ_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)
_WRITE_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)
_READ_CHUNK_BYTES = 1 << 20


class DamagedFileError(Exception):
    """What stands there cannot be what we wrote. Never leaves the package."""


@contextmanager
def translate_file_errors(path: Path, doing: str) -> Iterator[None]:
    """Raise errors of our tree for what the operating system says."""
    try:
        yield
    except OSError as error:
        if type(error).__module__ != "builtins":  # ours already
            raise
        reason = f"{str(path)!r} could not be {doing} ({os.strerror(error.errno or 0)})"
        if error.errno in _DISK_FULL_ERRNOS:
            raise StorageFullError(
                f"{reason}: no room is left, free some space and try again; the last version is intact"
            ) from error
        if error.errno in _READ_ONLY_ERRNOS:
            raise StorageReadOnlyError(
                f"{reason}: check permissions of the folder; the last version is intact"
            ) from error
        raise StorageUnavailableError(
            f"{reason}: check that the folder exists and that its disk works; the last version is intact"
        ) from error


def read_whole_file(path: Path, max_bytes: int) -> bytes | None:
    """What a file holds; None if there is none.

    Raises:
        DamagedError: It is a link, a folder, a device, or larger than anything that we write.
    """
    try:
        handle = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO} or (error.errno == errno.EMLINK):
            raise DamagedFileError("it is a link or a device, and no file") from None
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFileError("it is a folder or a device, and no file")
        if found.st_size > max_bytes:
            raise DamagedFileError(
                f"it takes {found.st_size} bytes, more than the {max_bytes} that are allowed"
            )
        pieces = []
        while piece := os.read(handle, _READ_CHUNK_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes, *, modified_seconds: float | None = None) -> None:
    """Replace a file in one step: whoever reads, and whoever comes after a crash, sees the old one or the new.

    Only one may write a path at a time: the file beside it that is written first has always the same name.
    """
    beside = path.with_name(f".{path.name}.tmp")
    beside.unlink(missing_ok=True)  # of somebody who was killed, or a link that was put there
    try:
        handle = os.open(beside, _WRITE_FLAGS, 0o666)
        try:
            _write_all(handle, data)
            _copy_mode(handle, path)
            if modified_seconds is not None and os.utime in os.supports_fd:
                os.utime(handle, (modified_seconds, modified_seconds))
            os.fsync(handle)
        finally:
            os.close(handle)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    if os.name != "posix":  # elsewhere a folder cannot be opened, and names are written at once
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder that is not there, with those above it, and see that its name is on the disk."""
    if folder.is_symlink() or not folder.is_dir():
        if not folder.parent.is_dir():
            make_folder(folder.parent)
        if folder.is_symlink() and not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _copy_mode(handle: int, path: Path) -> None:
    # Who may not read a version may not read the next one either.
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and hasattr(os, "fchmod"):
            os.fchmod(handle, stat.S_IMODE(mode))
