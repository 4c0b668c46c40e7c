"""Context store that keeps each context in a readable JSON file.

Layout of the folder::

    SESSION.json              the current context
    .versions/SESSION/N.json  the newest versions, including the current one
    .damaged/SESSION.N.json   damaged contexts that were set aside
    .locks/SESSION.lock       lock for writers; contains the session id if the file name does not

SESSION is the session id, mapped to a name that is valid on every file system. Lowercase letters, digits and
``- _ . :`` are unchanged, except for ``:`` on Windows, so common ids remain readable. All other characters, including
uppercase letters, are percent-encoded as UTF-8. Two ids therefore never share a file on a file system that ignores case
or accents, and no id leads out of the folder. An id that is too long for a file name is cut and followed by ``~`` and a
hash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import check_name
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
    hold_file_lock,
    make_folder,
    read_whole_file,
    replace_file,
    sync_folder,
    translate_file_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.context_files.models import ContextData


MAX_STEM_CHARACTERS = 180
"""Maximum length of a name without its suffix. File systems allow 255 bytes including all suffixes."""
_LONG_STEM_CHARACTERS = 120
_SAFE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_." + (":" if os.name == "posix" else ""))
# Windows opens a device for such a name, with any suffix.
_WINDOWS_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|\Z)")
_ESCAPED = re.compile("%([0-9A-F]{2})")
# An escape sequence that was cut at the end of a shortened name.
_HALF_ESCAPE = re.compile("%.?\\Z")


def to_file_stem(session_id: str) -> str:
    """Return the file name of a session without ``.json``."""
    stem = "".join(
        character if character in _SAFE_CHARACTERS else _escape(character)
        for character in check_name(session_id, "session id")
    )
    # Escape the first character of hidden files, of "..", and of Windows device names.
    if stem[0] == "." or _WINDOWS_DEVICE.match(stem):
        stem = _escape(stem[0]) + stem[1:]
    return stem if len(stem) <= MAX_STEM_CHARACTERS else _shorten_stem(stem, session_id)


def is_shortened_stem(stem: str) -> bool:
    """Return True if the name contains only the beginning of the id."""
    return "~" in stem


def parse_file_stem(stem: str) -> str | None:
    """Return the session id for a file name, or None if the name is shortened or not one of ours."""
    try:
        data = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stem).encode("latin-1")
        session_id = data.decode("utf-8", "surrogatepass")
        # Accept only the name that to_file_stem() would produce; otherwise two files could have the same id.
        return session_id if to_file_stem(session_id) == stem else None
    except ValueError:
        # Characters outside Latin-1, bytes that are not UTF-8, or an invalid session id.
        return None


def _escape(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _shorten_stem(stem: str, session_id: str) -> str:
    digest = hashlib.blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
    return f"{_HALF_ESCAPE.sub('', stem[:_LONG_STEM_CHARACTERS])}~{digest}"


_VERSION_DIGITS = 8


class SessionFiles:
    """Files of a session. Callers must hold the lock to change them.

    Args:
        folder: Folder of all sessions.
        session_id: The session.
        max_bytes: Maximum size of a file that is read.
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
        """Create the folders that a save needs."""
        make_folder(self._folder)
        for inner in (
            self.lock.parent,
            self._versions_folder.parent,
            self._versions_folder,
            self._damaged_folder,
        ):
            # Following a link would let anyone who can write to the folder redirect our writes.
            if inner.is_symlink():
                raise StorageUnavailableError(
                    f"{str(inner)!r} is a symbolic link and may lead out of the folder: replace it with a folder"
                )
            make_folder(inner)

    def write_session_id(self) -> None:
        """Write the full session id into the lock file if the file name is shortened."""
        if is_shortened_stem(self._stem) and not self.lock.stat().st_size:
            self.lock.write_bytes(self.session_id.encode("utf-8", "surrogatepass"))

    def read_main(self) -> bytes | None:
        """Return the bytes of the current context, or None if there is none."""
        return read_whole_file(self.main, self._max_bytes)

    def read_version(self, number: int) -> bytes | None:
        """Return the bytes of a version, or None if it is missing or cannot be read."""
        with suppress(DamagedFileError):
            return read_whole_file(self._get_version_path(number), self._max_bytes)
        return None

    def parse(self, data: bytes) -> ContextData:
        """Parse the context in a file.

        Raises:
            DamagedFileError: The bytes are not a valid context of this session.
        """
        try:
            return context_from_bytes(data, self.session_id)
        except InvalidInputError as error:
            raise DamagedFileError(str(error)) from None

    def list_version_numbers(self) -> list[int]:
        """Return the numbers of all versions, newest first."""
        if self._versions_folder.is_symlink() or not self._versions_folder.is_dir():
            return []
        found = (path.stem for path in self._versions_folder.iterdir() if path.suffix == ".json")
        return sorted((int(stem) for stem in found if stem.isdecimal() and stem.isascii()), reverse=True)

    def find_current_version(self, data: bytes | None) -> int | None:
        """Return the number of the version whose bytes are ``data``, the current context.

        Returns None if the current context is not a version: nothing was saved yet, or the file was edited by hand.
        """
        # A save writes the version first and then the current context. If it is interrupted in between, the current
        # context is the second newest version, so two versions are compared.
        newest = self.list_version_numbers()[:2]
        return next(
            (number for number in newest if data is not None and self.read_version(number) == data), None
        )

    def get_saved_at(self, number: int) -> float:
        """Return the time at which a version was saved, in seconds since 1970."""
        return self._get_version_path(number).stat().st_mtime

    def write_version(self, number: int, data: bytes, now: datetime) -> None:
        """Write a version; its modification time is the time of the save."""
        replace_file(self._get_version_path(number), data, modified_seconds=now.timestamp())

    def write_main(self, data: bytes) -> None:
        """Replace the current context."""
        replace_file(self.main, data)

    def find_last_good(self) -> tuple[int, bytes, ContextData] | None:
        """Return number, bytes and context of the newest readable version, or None."""
        for number in self.list_version_numbers():
            data = self.read_version(number)
            with suppress(DamagedFileError):
                if data is not None:
                    return number, data, self.parse(data)
        return None

    def quarantine_main(self, instead: bytes | None) -> Path:
        """Move the current context to the damaged files, replace it with ``instead``; return the new path.

        If the file system supports hard links, a current context exists at every moment: readers do not hold the
        lock and would otherwise take the session for new.
        """
        quarantine_path = next(
            path
            for number in count(1)
            if not (path := self._damaged_folder / f"{self._stem}.{number}.json").exists()
            and not path.is_symlink()
        )
        if instead is None or not _try_link(self.main, quarantine_path):
            self.main.rename(quarantine_path)
        if instead is not None:
            self.write_main(instead)
        sync_folder(self._damaged_folder)
        sync_folder(self._folder)
        return quarantine_path

    def prune_versions(self, keep: int) -> None:
        """Delete all but the newest ``keep`` versions."""
        for number in self.list_version_numbers()[keep:]:
            self._get_version_path(number).unlink(missing_ok=True)

    def delete(self) -> tuple[bool, int]:
        """Delete context, versions and lock; return whether a context existed, and the number of versions."""
        # A dangling link does not "exist", but must be deleted too.
        was_there, numbers = self.main.is_symlink() or self.main.exists(), self.list_version_numbers()
        # Delete the current context first, and durably. After a crash, the session is either unchanged or deleted,
        # and remaining versions cannot be mistaken for it.
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
    # Fails for folders and on file systems without hard links; the caller then renames. Symbolic links are renamed
    # too, because hardlink_to() may follow them.
    with suppress(OSError):
        if not path.is_symlink():
            other.hardlink_to(path)
            return True
    return False


def compute_revision(data: bytes | None) -> str:
    """Return the revision of a stored context, or an empty string for None."""
    return "" if data is None else hashlib.blake2b(data, digest_size=16).hexdigest()


_log = logging.getLogger("langmem_tiers")


class FileContextStore:
    """`ContextStore` in a folder. The first save creates a missing folder.

    Args:
        folder: Path of the folder.
        config: Limits. Default: `ContextFilesConfig()`.
    """

    def __init__(self, folder: str | os.PathLike[str], config: ContextFilesConfig | None = None) -> None:
        self.folder = Path(folder)
        self._config = ContextFilesConfig() if config is None else config

    def initialize(self) -> None:
        """Create the folder if it does not exist."""
        with translate_file_errors(self.folder, "made"):
            make_folder(self.folder)

    def load(self, session_id: str) -> ContextData | None:
        """Return the context, or the newest readable version if the context is damaged."""
        files = self._get_files(session_id)
        with translate_file_errors(files.main, "read"):
            # Reading needs no lock, because files are replaced atomically. Only a repair does.
            try:
                data = files.read_main()
                return None if data is None else replace(files.parse(data), based_on=compute_revision(data))
            except DamagedFileError:
                with self._lock(files):
                    return self._load_or_repair(files)

    def save(self, context: ContextData, now: datetime, *, overwrite: bool = False) -> SaveReport:
        """Store the context as the next version."""
        data = to_checked_bytes(context, self._config.max_bytes)
        files = self._get_files(context.session_id)
        with translate_file_errors(files.main, "written"), self._lock(files):
            # Repair before comparing revisions: a damaged file has no revision that a context could be based on.
            current = self._load_or_repair(files, or_none=True)
            stored = files.read_main()
            if not overwrite and context.based_on != compute_revision(stored):
                raise build_conflict_error(context, "" if current is None else current.based_on)
            number = self._reserve_next_number(files, stored, now)
            # The version comes first: if the save is interrupted here, the current context is still intact, and
            # versions() leaves out the unfinished one.
            files.write_version(number, data, now)
            files.write_main(data)
            files.prune_versions(self._config.keep_versions)
        saved = replace(context, based_on=compute_revision(data), recovery=None)
        recovery = None if current is None else current.recovery
        return SaveReport(context=saved, version=number, size_bytes=len(data), recovery=recovery)

    def delete(self, session_id: str) -> ContextDeleteReport:
        """Delete the context with all its versions."""
        files = self._get_files(session_id)
        if not self.folder.is_dir():
            return ContextDeleteReport(was_there=False, versions=0)
        with translate_file_errors(files.main, "erased"), self._lock(files):
            was_there, versions = files.delete()
        return ContextDeleteReport(was_there=was_there, versions=versions)

    def sessions(self) -> tuple[str, ...]:
        """Return the sorted ids of all sessions that have a context; unrelated files are ignored."""
        with translate_file_errors(self.folder, "listed"):
            if not self.folder.is_dir():
                return ()
            found = (self._find_session_id(path) for path in self.folder.glob("*.json"))
            return tuple(sorted(session_id for session_id in found if session_id is not None))

    def versions(self, session_id: str) -> tuple[ContextVersion, ...]:
        """Return the stored versions, newest first."""
        files = self._get_files(session_id)
        with translate_file_errors(files.main, "read"):
            stored = None
            with suppress(DamagedFileError):
                stored = files.read_main()
            current = files.find_current_version(stored)
            return tuple(
                version
                for number in files.list_version_numbers()
                # A version after the current one belongs to an interrupted save.
                if current is None or number <= current
                if (version := _build_version(files, number, current)) is not None
            )

    def version(self, session_id: str, number: int) -> ContextData | None:
        """Return the context of a version, or None if the version is missing or damaged."""
        files = self._get_files(session_id)
        with translate_file_errors(files.main, "read"), suppress(DamagedFileError):
            data = files.read_version(number)
            return None if data is None else replace(files.parse(data), based_on=compute_revision(data))
        return None

    def close(self) -> None:
        """Do nothing; no files are kept open."""

    def _get_files(self, session_id: str) -> SessionFiles:
        return SessionFiles(self.folder, session_id, self._config.max_bytes)

    @contextmanager
    def _lock(self, files: SessionFiles) -> Iterator[None]:
        files.prepare()
        with hold_file_lock(files.lock, self._config.busy_timeout_seconds):
            # Another process may have deleted the session, with its folder of versions, before we got the lock.
            files.prepare()
            files.write_session_id()
            yield

    def _load_or_repair(self, files: SessionFiles, *, or_none: bool = False) -> ContextData | None:
        # Read again under the lock: another process may have repaired the context while we waited.
        try:
            data = files.read_main()
            return None if data is None else replace(files.parse(data), based_on=compute_revision(data))
        except DamagedFileError as error:
            reason = str(error)
        good = files.find_last_good()
        quarantine_path = files.quarantine_main(None if good is None else good[1])
        if good is None and or_none:
            _log.warning(
                "%r could not be read (%s): it was moved to %r",
                *(str(files.main), reason, str(quarantine_path)),
            )
            return None
        if good is None:
            raise StorageCorruptError(
                f"{str(files.main)!r} could not be read ({reason}) and no readable version exists: it was moved to "
                f"{str(quarantine_path)!r}; repair it and move it back, or load again to start with an empty context"
            )
        number, data, context = good
        _log.warning(
            "%r could not be read (%s): it was moved to %r and replaced by version %d",
            *(str(files.main), reason, str(quarantine_path), number),
        )
        recovery = Recovery(reason=reason, set_aside=str(quarantine_path), restored_version=number)
        return replace(context, based_on=compute_revision(data), recovery=recovery)

    def _reserve_next_number(self, files: SessionFiles, stored: bytes | None, now: datetime) -> int:
        numbers = files.list_version_numbers()
        current = files.find_current_version(stored)
        if current is None:
            current = numbers[0] if numbers else 0
            if stored is not None:
                # The current context was edited by hand or written by another program. Keep it as a version.
                current += 1
                files.write_version(current, stored, now)
        return current + 1

    def _find_session_id(self, path: Path) -> str | None:
        if not is_shortened_stem(path.stem):
            return parse_file_stem(path.stem)
        # The lock file contains the full id. If it was lost, read the id from the context.
        lock_path = self.folder / ".locks" / f"{path.stem}.lock"
        with suppress(OSError, ValueError, DamagedFileError, RecursionError):
            session_id: object = (read_whole_file(lock_path, self._config.max_bytes) or b"").decode(
                "utf-8", "surrogatepass"
            )
            if not session_id:
                content = json.loads(read_whole_file(path, self._config.max_bytes) or b"{}")
                session_id = content.get("session_id") if isinstance(content, dict) else None
            # The hash in the file name proves that the id belongs to this file.
            return (
                session_id if isinstance(session_id, str) and to_file_stem(session_id) == path.stem else None
            )
        return None


def _build_version(files: SessionFiles, number: int, current: int | None) -> ContextVersion | None:
    try:
        data, saved_at = files.read_version(number), files.get_saved_at(number)
    except FileNotFoundError:
        # Another process pruned the version after we listed it.
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
    """Serialize a context, or raise an error if it exceeds ``max_bytes``."""
    data = context_to_bytes(context)
    if len(data) > max_bytes:
        raise InvalidInputError(
            f"the context of {context.session_id!r} has {len(data)} bytes, at most {max_bytes} are allowed: "
            "compact() it, or raise ContextFilesConfig.max_bytes; nothing was written"
        )
    return data


def build_conflict_error(context: ContextData, stored: str) -> ContextConflictError:
    """Return the error for a save that is not based on the stored version."""
    event = "was changed by another writer" if stored else "was deleted"
    return ContextConflictError(
        f"session {context.session_id!r} {event} since this context was loaded: continue with the context that "
        'save() returned, load() it again, or call save(context, on_conflict="merge") or "overwrite"; '
        "nothing was written"
    )
