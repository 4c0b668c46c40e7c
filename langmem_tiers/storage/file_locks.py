"""File locks that serialize writers among threads and processes; a lock is released when its process dies."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from langmem_tiers.errors import StorageBusyError

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
