"""Where the files of a session are: the context, its versions, its lock, and what was damaged.

::

    <folder>/<name>.json                     the context in force
    <folder>/.versions/<name>/00000007.json  a copy of each of the last versions
    <folder>/.damaged/<name>.1.json          what could not be read
    <folder>/.locks/<name>.lock              held by whoever saves
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from langmem_tiers.core.context_json import context_from_bytes
from langmem_tiers.core.errors import InvalidInputError, StorageUnavailableError
from langmem_tiers.storage.file_io import (
    DamagedError,
    make_folder,
    read_whole,
    sync_folder,
    write_whole,
)
from langmem_tiers.storage.file_names import file_stem, is_short_of_id

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from langmem_tiers.core.context_data import ContextData

_DIGITS = 8


class SessionFolder:
    """The files of one session. Whoever changes them holds the lock.

    Args:
        folder: Of all sessions.
        session_id: Whose.
        max_bytes: Of the largest file.
    """

    def __init__(self, folder: Path, session_id: str, max_bytes: int) -> None:
        self._folder = folder
        self._stem = file_stem(session_id)
        self._max_bytes = max_bytes
        self.session_id = session_id
        self.main = folder / f"{self._stem}.json"
        self.lock = folder / ".locks" / f"{self._stem}.lock"
        self._versions = folder / ".versions" / self._stem
        self._damaged = folder / ".damaged"

    def prepare(self) -> None:
        """Make the folders that a save needs."""
        make_folder(self._folder)
        for inner in (self.lock.parent, self._versions.parent, self._versions, self._damaged):
            if inner.is_symlink():
                raise StorageUnavailableError(
                    f"{str(inner)!r} is a link, which may lead out of the folder: put a folder in its place"
                )
            make_folder(inner)

    def note_id(self) -> None:
        """Write the whole id into the lock, where the name of the file does not hold it."""
        if is_short_of_id(self._stem) and not self.lock.stat().st_size:
            self.lock.write_bytes(self.session_id.encode("utf-8", "surrogatepass"))

    def read_main(self) -> bytes | None:
        """The context in force; None if there is none."""
        return read_whole(self.main, self._max_bytes)

    def read_version(self, number: int) -> bytes | None:
        """A version, as far as it can be read."""
        with suppress(DamagedError):
            return read_whole(self._path(number), self._max_bytes)
        return None

    def parse(self, data: bytes) -> ContextData:
        """The context of a file.

        Raises:
            DamagedError: It is none.
        """
        try:
            return context_from_bytes(data, self.session_id)
        except InvalidInputError as error:
            raise DamagedError(str(error)) from None

    def numbers(self) -> list[int]:
        """The versions there are, newest first."""
        if self._versions.is_symlink() or not self._versions.is_dir():
            return []
        found = (path.stem for path in self._versions.iterdir() if path.suffix == ".json")
        return sorted((int(stem) for stem in found if stem.isdecimal() and stem.isascii()), reverse=True)

    def current(self, data: bytes | None) -> int | None:
        """The number of the context in force, which is the newest but for a save that was not finished.

        None if it is no version: nobody has saved yet, or somebody wrote the file by hand.
        """
        newest = self.numbers()[:2]
        return next(
            (number for number in newest if data is not None and self.read_version(number) == data), None
        )

    def saved_at(self, number: int) -> float:
        """When a version was saved, in seconds since 1970."""
        return self._path(number).stat().st_mtime

    def put_version(self, number: int, data: bytes, now: datetime) -> None:
        """Keep a version."""
        write_whole(self._path(number), data, modified_seconds=now.timestamp())

    def put_main(self, data: bytes) -> None:
        """Put a context into force."""
        write_whole(self.main, data)

    def last_good(self) -> tuple[int, bytes, ContextData] | None:
        """The newest version that can be read."""
        for number in self.numbers():
            data = self.read_version(number)
            with suppress(DamagedError):
                if data is not None:
                    return number, data, self.parse(data)
        return None

    def set_aside(self, instead: bytes | None) -> Path:
        """Move the context in force to what is damaged, and put another in its place, if there is one.

        Where the file system can do it, there is one in force at every moment.
        """
        aside = next(
            path
            for number in count(1)
            if not (path := self._damaged / f"{self._stem}.{number}.json").exists() and not path.is_symlink()
        )
        if instead is None or not _link(self.main, aside):
            self.main.rename(aside)
        if instead is not None:
            self.put_main(instead)
        sync_folder(self._damaged)
        sync_folder(self._folder)
        return aside

    def prune(self, keep: int) -> None:
        """Leave the newest versions."""
        for number in self.numbers()[keep:]:
            self._path(number).unlink(missing_ok=True)

    def erase(self) -> tuple[bool, int]:
        """Erase context, versions and lock; whether there was a context, and how many versions."""
        was_there, numbers = self.main.is_symlink() or self.main.exists(), self.numbers()
        self.main.unlink(missing_ok=True)
        sync_folder(self._folder)
        if self._versions.is_dir() and not self._versions.is_symlink():
            for path in self._versions.iterdir():
                path.unlink(missing_ok=True)
            self._versions.rmdir()
        self.lock.unlink(missing_ok=True)
        return was_there, len(numbers)

    def _path(self, number: int) -> Path:
        return self._versions / f"{number:0{_DIGITS}d}.json"


def _link(path: Path, other: Path) -> bool:
    # A folder or a link is moved, not linked to, and some file systems know no second name of a file.
    with suppress(OSError):
        if not path.is_symlink():
            other.hardlink_to(path)
            return True
    return False


def revision_of(data: bytes | None) -> str:
    """What a context with these bytes is based on; empty for none."""
    return "" if data is None else hashlib.blake2b(data, digest_size=16).hexdigest()
