"""Crash-safe reading and writing of whole files; operating system errors become storage errors."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from langmem_tiers.errors import (
    StorageBusyError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.001, 0.02  # between two attempts
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_LOCKED_ERRNOS = {errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK, errno.EDEADLK}

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def hold_file_lock(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock of a lock file during the block.

    Raises:
        StorageBusyError: The lock was not free within the time limit.
    """
    handle = _acquire(path, timeout_seconds)
    try:
        yield
    finally:
        # Closing alone is not enough: a child forked meanwhile shares the handle and would keep the lock.
        with suppress(OSError):
            _unlock(handle)
        os.close(handle)


def _acquire(path: Path, timeout_seconds: float) -> int:
    waited, pause = 0.0, _MIN_PAUSE_SECONDS
    while True:
        handle = os.open(path, _OPEN_FLAGS, 0o666)
        try:
            _lock(handle)
            if _is_current_file(handle, path):
                return handle
        except OSError as error:
            if error.errno not in _LOCKED_ERRNOS:
                os.close(handle)
                raise
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if waited >= timeout_seconds:
            raise StorageBusyError(
                f"{str(path)!r} was locked for more than {timeout_seconds:g} s: "
                "try again, or raise ContextFilesConfig.busy_timeout_seconds; nothing was written"
            )
        time.sleep(pause)
        waited, pause = waited + pause, min(pause * 2, _MAX_PAUSE_SECONDS)


def _is_current_file(handle: int, path: Path) -> bool:
    # Deleting a session removes its lock file while holding the lock. The handle then belongs to a removed
    # file, which the next process does not lock.
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}
# No links, so that nobody can redirect a read or write; no blocking, so that opening a pipe does not hang.
_READ_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)
_WRITE_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)
_READ_CHUNK_BYTES = 1 << 20


class DamagedFileError(Exception):
    """The file cannot have been written by this library. Never raised outside the package."""


@contextmanager
def translate_file_errors(path: Path, doing: str) -> Iterator[None]:
    """Convert operating system errors to storage errors."""
    try:
        yield
    except OSError as error:
        if type(error).__module__ != "builtins":  # an error of this library, which also subclasses OSError
            raise
        reason = f"{str(path)!r} could not be {doing} ({os.strerror(error.errno or 0)})"
        if error.errno in _DISK_FULL_ERRNOS:
            raise StorageFullError(
                f"{reason}: no space left, free some space and try again; the last version is intact"
            ) from error
        if error.errno in _READ_ONLY_ERRNOS:
            raise StorageReadOnlyError(
                f"{reason}: check permissions of the folder; the last version is intact"
            ) from error
        raise StorageUnavailableError(
            f"{reason}: check that the folder exists and that its disk works; the last version is intact"
        ) from error


def read_whole_file(path: Path, max_bytes: int) -> bytes | None:
    """Return the contents of a file, or None if it does not exist.

    Raises:
        DamagedFileError: The path is a link, a folder or a device, or the file is larger than ``max_bytes``.
    """
    try:
        handle = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO} or (error.errno == errno.EMLINK):
            raise DamagedFileError("it is a link or a device, not a regular file") from None
        raise
    try:
        found = os.fstat(handle)
        # Checked on the open handle, because the path could be exchanged between a check and the open.
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFileError("it is a folder or a device, not a regular file")
        if found.st_size > max_bytes:
            raise DamagedFileError(f"it has {found.st_size} bytes, more than the allowed {max_bytes}")
        pieces = []
        while piece := os.read(handle, _READ_CHUNK_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes, *, modified_seconds: float | None = None) -> None:
    """Replace a file atomically: readers, also after a crash, see either the old or the new contents.

    Only one writer per path is allowed at a time, because the temporary file always has the same name.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # left by a killed process, or a planted link
    try:
        handle = os.open(temporary, _WRITE_FLAGS, 0o666)
        try:
            _write_all(handle, data)
            _copy_mode(handle, path)
            if modified_seconds is not None and os.utime in os.supports_fd:
                os.utime(handle, (modified_seconds, modified_seconds))
            # Before the rename: otherwise a crash could leave the new name with incomplete contents.
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the directory entries of a folder to disk, so that new and renamed files survive a crash."""
    if os.name != "posix":  # Windows cannot open a folder, and writes directory entries at once
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a missing folder with its parents and flush the new names to disk."""
    if folder.is_symlink() or not folder.is_dir():
        if not folder.parent.is_dir():
            make_folder(folder.parent)
        if folder.is_symlink() and not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _write_all(handle: int, data: bytes) -> None:
    # os.write() may write only a part.
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _copy_mode(handle: int, path: Path) -> None:
    # Users who cannot read the old version must not be able to read the new one.
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and hasattr(os, "fchmod"):
            os.fchmod(handle, stat.S_IMODE(mode))
