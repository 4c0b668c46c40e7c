"""Contexts in files that people can read."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from langmem_tiers.context_files.file_names import is_shortened_stem, parse_file_stem, to_file_stem
from langmem_tiers.context_files.models import Recovery
from langmem_tiers.context_files.serializer import context_from_bytes, context_to_bytes
from langmem_tiers.context_files.store_models import (
    ContextDeleteReport,
    ContextFilesConfig,
    ContextVersion,
    SaveReport,
)
from langmem_tiers.errors import (
    ContextConflictError,
    InvalidInputError,
    StorageCorruptError,
    StorageUnavailableError,
)
from langmem_tiers.storage.file_io import (
    DamagedFileError,
    make_folder,
    read_whole_file,
    replace_file,
    sync_folder,
    translate_file_errors,
)
from langmem_tiers.storage.file_locks import hold_file_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from langmem_tiers.context_files.models import ContextData


_VERSION_DIGITS = 8


class SessionFiles:
    """The files of one session. Whoever changes them holds the lock.

    Args:
        folder: Of all sessions.
        session_id: Whose.
        max_bytes: Of the largest file.
    """

    def __init__(self, folder: Path, session_id: str, max_bytes: int) -> None:
        self._folder = folder
        self._stem = to_file_stem(session_id)
        self._max_bytes = max_bytes
        self.session_id = session_id
        self.main = folder / f"{self._stem}.json"
        self.lock = folder / ".locks" / f"{self._stem}.lock"
        self._versions_folder = folder / ".versions" / self._stem
        self._damaged_folder = folder / ".damaged"

    def prepare(self) -> None:
        """Make the folders that a save needs."""
        make_folder(self._folder)
        for inner in (
            self.lock.parent,
            self._versions_folder.parent,
            self._versions_folder,
            self._damaged_folder,
        ):
            if inner.is_symlink():
                raise StorageUnavailableError(
                    f"{str(inner)!r} is a link, which may lead out of the folder: put a folder in its place"
                )
            make_folder(inner)

    def write_session_id(self) -> None:
        """Write the whole id into the lock, where the name of the file does not hold it."""
        if is_shortened_stem(self._stem) and not self.lock.stat().st_size:
            self.lock.write_bytes(self.session_id.encode("utf-8", "surrogatepass"))

    def read_main(self) -> bytes | None:
        """The context in force; None if there is none."""
        return read_whole_file(self.main, self._max_bytes)

    def read_version(self, number: int) -> bytes | None:
        """A version, as far as it can be read."""
        with suppress(DamagedFileError):
            return read_whole_file(self._get_version_path(number), self._max_bytes)
        return None

    def parse(self, data: bytes) -> ContextData:
        """The context of a file.

        Raises:
            DamagedError: It is none.
        """
        try:
            return context_from_bytes(data, self.session_id)
        except InvalidInputError as error:
            raise DamagedFileError(str(error)) from None

    def list_version_numbers(self) -> list[int]:
        """The versions there are, newest first."""
        if self._versions_folder.is_symlink() or not self._versions_folder.is_dir():
            return []
        found = (path.stem for path in self._versions_folder.iterdir() if path.suffix == ".json")
        return sorted((int(stem) for stem in found if stem.isdecimal() and stem.isascii()), reverse=True)

    def find_current_version(self, data: bytes | None) -> int | None:
        """The number of the context in force, which is the newest but for a save that was not finished.

        None if it is no version: nobody has saved yet, or somebody wrote the file by hand.
        """
        newest = self.list_version_numbers()[:2]
        return next(
            (number for number in newest if data is not None and self.read_version(number) == data), None
        )

    def get_saved_at(self, number: int) -> float:
        """When a version was saved, in seconds since 1970."""
        return self._get_version_path(number).stat().st_mtime

    def write_version(self, number: int, data: bytes, now: datetime) -> None:
        """Keep a version."""
        replace_file(self._get_version_path(number), data, modified_seconds=now.timestamp())

    def write_main(self, data: bytes) -> None:
        """Put a context into force."""
        replace_file(self.main, data)

    def find_last_good(self) -> tuple[int, bytes, ContextData] | None:
        """The newest version that can be read."""
        for number in self.list_version_numbers():
            data = self.read_version(number)
            with suppress(DamagedFileError):
                if data is not None:
                    return number, data, self.parse(data)
        return None

    def quarantine_main(self, instead: bytes | None) -> Path:
        """Move the context in force to what is damaged, and put another in its place, if there is one.

        Where the file system can do it, there is one in force at every moment.
        """
        aside = next(
            path
            for number in count(1)
            if not (path := self._damaged_folder / f"{self._stem}.{number}.json").exists()
            and not path.is_symlink()
        )
        if instead is None or not _try_link(self.main, aside):
            self.main.rename(aside)
        if instead is not None:
            self.write_main(instead)
        sync_folder(self._damaged_folder)
        sync_folder(self._folder)
        return aside

    def prune_versions(self, keep: int) -> None:
        """Leave the newest versions."""
        for number in self.list_version_numbers()[keep:]:
            self._get_version_path(number).unlink(missing_ok=True)

    def delete(self) -> tuple[bool, int]:
        """Erase context, versions and lock; whether there was a context, and how many versions."""
        was_there, numbers = self.main.is_symlink() or self.main.exists(), self.list_version_numbers()
        self.main.unlink(missing_ok=True)
        sync_folder(self._folder)
        if self._versions_folder.is_dir() and not self._versions_folder.is_symlink():
            for path in self._versions_folder.iterdir():
                path.unlink(missing_ok=True)
            self._versions_folder.rmdir()
        self.lock.unlink(missing_ok=True)
        return was_there, len(numbers)

    def _get_version_path(self, number: int) -> Path:
        return self._versions_folder / f"{number:0{_VERSION_DIGITS}d}.json"


def _try_link(path: Path, other: Path) -> bool:
    # A folder or a link is moved, not linked to, and some file systems know no second name of a file.
    with suppress(OSError):
        if not path.is_symlink():
            other.hardlink_to(path)
            return True
    return False


def compute_revision(data: bytes | None) -> str:
    """What a context with these bytes is based on; empty for none."""
    return "" if data is None else hashlib.blake2b(data, digest_size=16).hexdigest()


_log = logging.getLogger("langmem_tiers")


class FileContextStore:
    """Serves the ``ContextStore`` port in a folder; the folder is made by the first save.

    Args:
        folder: Where.
        config: Limits.
    """

    def __init__(self, folder: str | os.PathLike[str], config: ContextFilesConfig | None = None) -> None:
        self.folder = Path(folder)
        self._config = ContextFilesConfig() if config is None else config

    def initialize(self) -> None:
        """Make the folder, if it is not there."""
        with translate_file_errors(self.folder, "made"):
            make_folder(self.folder)

    def load(self, session_id: str) -> ContextData | None:
        """The context; the last good version, if it cannot be read."""
        files = self._get_files(session_id)
        with translate_file_errors(files.main, "read"):
            try:
                data = files.read_main()
                return None if data is None else replace(files.parse(data), based_on=compute_revision(data))
            except DamagedFileError:
                with self._lock(files):
                    return self._load_or_repair(files)

    def save(self, context: ContextData, now: datetime, *, overwrite: bool = False) -> SaveReport:
        """Keep the context as the next version."""
        data = to_checked_bytes(context, self._config.max_bytes)
        files = self._get_files(context.session_id)
        with translate_file_errors(files.main, "written"), self._lock(files):
            mended = self._load_or_repair(files, or_none=True)
            stored = files.read_main()
            if not overwrite and context.based_on != compute_revision(stored):
                raise build_conflict_error(context, "" if mended is None else mended.based_on)
            number = self._reserve_next_number(files, stored, now)
            files.write_version(number, data, now)
            files.write_main(data)
            files.prune_versions(self._config.keep_versions)
        kept = replace(context, based_on=compute_revision(data), recovery=None)
        recovery = None if mended is None else mended.recovery
        return SaveReport(context=kept, version=number, size_bytes=len(data), recovery=recovery)

    def delete(self, session_id: str) -> ContextDeleteReport:
        """Erase the context with all its versions."""
        files = self._get_files(session_id)
        if not self.folder.is_dir():
            return ContextDeleteReport(was_there=False, versions=0)
        with translate_file_errors(files.main, "erased"), self._lock(files):
            was_there, versions = files.delete()
        return ContextDeleteReport(was_there=was_there, versions=versions)

    def sessions(self) -> tuple[str, ...]:
        """The ids of all sessions that have a context; files with other names are left alone."""
        with translate_file_errors(self.folder, "listed"):
            if not self.folder.is_dir():
                return ()
            found = (self._find_session_id(path) for path in self.folder.glob("*.json"))
            return tuple(sorted(one for one in found if one is not None))

    def versions(self, session_id: str) -> tuple[ContextVersion, ...]:
        """The versions that are kept, newest first."""
        files = self._get_files(session_id)
        with translate_file_errors(files.main, "read"):
            stored = None
            with suppress(DamagedFileError):
                stored = files.read_main()
            current = files.find_current_version(stored)
            return tuple(
                version
                for number in files.list_version_numbers()
                if current is None or number <= current  # a later one was not finished
                if (version := _build_version(files, number, current)) is not None
            )

    def version(self, session_id: str, number: int) -> ContextData | None:
        """The context as it was in a version."""
        files = self._get_files(session_id)
        with translate_file_errors(files.main, "read"), suppress(DamagedFileError):
            data = files.read_version(number)
            return None if data is None else replace(files.parse(data), based_on=compute_revision(data))
        return None

    def close(self) -> None:
        """Nothing is held open."""

    def _get_files(self, session_id: str) -> SessionFiles:
        return SessionFiles(self.folder, session_id, self._config.max_bytes)

    @contextmanager
    def _lock(self, files: SessionFiles) -> Iterator[None]:
        files.prepare()
        with hold_file_lock(files.lock, self._config.busy_timeout_seconds):
            files.prepare()  # whoever deleted the session took folders along
            files.write_session_id()
            yield

    def _load_or_repair(self, files: SessionFiles, *, or_none: bool = False) -> ContextData | None:
        # Somebody else may have mended it while we waited for the lock.
        try:
            data = files.read_main()
            return None if data is None else replace(files.parse(data), based_on=compute_revision(data))
        except DamagedFileError as error:
            reason = str(error)
        good = files.find_last_good()
        aside = files.quarantine_main(None if good is None else good[1])
        if good is None and or_none:
            _log.warning("%r could not be read (%s): it is now %r", str(files.main), reason, str(aside))
            return None
        if good is None:
            raise StorageCorruptError(
                f"{str(files.main)!r} could not be read ({reason}) and no good version is kept: it was set aside as "
                f"{str(aside)!r}; mend it and put it back, or load again to begin anew"
            )
        number, data, context = good
        _log.warning(
            "%r could not be read (%s): it is now %r, and version %d took its place",
            *(str(files.main), reason, str(aside), number),
        )
        recovery = Recovery(reason=reason, set_aside=str(aside), restored_version=number)
        return replace(context, based_on=compute_revision(data), recovery=recovery)

    def _reserve_next_number(self, files: SessionFiles, stored: bytes | None, now: datetime) -> int:
        numbers = files.list_version_numbers()
        current = files.find_current_version(stored)
        if current is None:
            current = numbers[0] if numbers else 0
            if stored is not None:  # written by hand, or by another program: it stays as a version
                current += 1
                files.write_version(current, stored, now)
        return current + 1

    def _find_session_id(self, path: Path) -> str | None:
        if not is_shortened_stem(path.stem):
            return parse_file_stem(path.stem)
        noted = self.folder / ".locks" / f"{path.stem}.lock"
        with suppress(OSError, ValueError, DamagedFileError, RecursionError):
            known: object = (read_whole_file(noted, self._config.max_bytes) or b"").decode(
                "utf-8", "surrogatepass"
            )
            if not known:
                said = json.loads(read_whole_file(path, self._config.max_bytes) or b"{}")
                known = said.get("session_id") if isinstance(said, dict) else None
            return known if isinstance(known, str) and to_file_stem(known) == path.stem else None
        return None


def _build_version(files: SessionFiles, number: int, current: int | None) -> ContextVersion | None:
    try:
        data, saved_at = files.read_version(number), files.get_saved_at(number)
    except FileNotFoundError:  # pruned meanwhile
        return None
    if data is None:
        return None
    return ContextVersion(
        number=number,
        saved_at=datetime.fromtimestamp(saved_at, UTC),
        size_bytes=len(data),
        revision=compute_revision(data),
        is_current=number == current,
    )


def to_checked_bytes(context: ContextData, max_bytes: int) -> bytes:
    """The context as it is stored, or an error if that would be too large."""
    data = context_to_bytes(context)
    if len(data) > max_bytes:
        raise InvalidInputError(
            f"the context of {context.session_id!r} takes {len(data)} bytes, more than the {max_bytes} that are "
            "allowed: compact() it, or raise ContextFilesConfig.max_bytes; nothing was written"
        )
    return data


def build_conflict_error(context: ContextData, stored: str) -> ContextConflictError:
    """The error for a save that is based on another version than the stored one."""
    what = "was saved by somebody else" if stored else "was deleted"
    return ContextConflictError(
        f"session {context.session_id!r} {what} since this context was loaded: go on with the context that save() "
        'gave back, load() it again, or say save(context, on_conflict="merge") or "overwrite"; nothing was written'
    )
