"""The file of a backup: JSON lines, compressed. A header, one line per record, and a trailer that seals them.

::

    {"format":"langmem-tiers backup","version":1,"schema":9,"created_at":"2025-01-15T10:30:00.000000Z",...}
    {"kind":"namespaces","row":{"pk":1,"path":"acme/alice",...}}
    {"kind":"end","counts":{"namespaces":1,...},"sha256":"..."}

The checksum is over every byte of every line before the trailer.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import secrets
import zlib
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from langmem_tiers.backup.models import BACKUP_FORMAT, BACKUP_VERSION, BackupInfo, BackupScope
from langmem_tiers.backup.tables import get_backup_tables
from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.errors import (
    BackupFileError,
    DamagedBackupError,
    NewerBackupError,
    NotABackupError,
)
from langmem_tiers.storage.file_io import sync_folder
from langmem_tiers.storage.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from langmem_tiers.backup.reader import Record

_COMPRESSION_LEVEL = 6
_MAX_HEADER_BYTES, _MAX_LINE_BYTES = 2**20, 2**30
_END_KIND = "end"


def write_records(file: IO[bytes], info: BackupInfo, records: Iterable[Record]) -> str:
    """Write header, records and trailer; the checksum of the records."""
    whole, counts = hashlib.sha256(), dict.fromkeys(info.counts, 0)
    only_records = hashlib.sha256()
    with gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, file, mtime=0) as packed:
        head = _encode_line(_build_header(info), ascii_only=True)
        whole.update(head)
        packed.write(head)
        for kind, values in records:
            line = _encode_line({"kind": kind, "row": values})
            whole.update(line)
            only_records.update(line)
            packed.write(line)
            counts[kind] += 1
        packed.write(_encode_line({"kind": _END_KIND, "counts": counts, "sha256": whole.hexdigest()}))
    return only_records.hexdigest()


class BackupReader:
    """Reads a backup and believes nothing: what it gave is sound once it has come to its end without an error.

    Args:
        path: The file.
        file: The same, opened.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._hash = hashlib.sha256()
        self.checksum = ""
        """The checksum, once it has come to its end."""
        first = self._next_line(begins=True)
        self._hash.update(first)
        self.info = self._read_header(first)

    def read_records(self) -> Iterator[Record]:
        """The records; an error instead of the end if anything is not as it was written."""
        counts = dict.fromkeys(self.info.counts, 0)
        while True:
            line = self._next_line()
            values = self._parse_line(line)
            kind = values.pop("kind", None)
            if kind == _END_KIND:
                break
            row = values.get("row")
            if (
                not isinstance(kind, str)
                or kind not in counts
                or not isinstance(row, dict)
                or len(values) > 1
            ):
                raise self._build_damaged_error("one of its lines is no record")
            self._hash.update(line)
            counts[kind] += 1
            yield kind, row
        if values != {"counts": counts, "sha256": self._hash.hexdigest()}:
            raise self._build_damaged_error("its checksum or its counts are not those of its records")
        if counts != self.info.counts:
            raise self._build_damaged_error("it holds other records than its header says")
        if self._read(1):
            raise self._build_damaged_error("something follows its end")
        self.checksum = self._hash.hexdigest()

    def _next_line(self, *, begins: bool = False) -> bytes:
        line = self._read_line(begins=begins)
        if not line.endswith(b"\n"):
            if begins:
                raise self._build_not_a_backup_error()
            raise self._build_damaged_error(
                "it was cut off" if len(line) < _MAX_LINE_BYTES else "one of its lines has no end"
            )
        return line

    def _read_line(self, *, begins: bool = False) -> bytes:
        try:
            return self._file.readline(_MAX_HEADER_BYTES if begins else _MAX_LINE_BYTES)
        except gzip.BadGzipFile:
            raise (
                self._build_not_a_backup_error() if begins else self._build_damaged_error("it was altered")
            ) from None
        except EOFError:
            raise self._build_damaged_error("it was cut off") from None
        except zlib.error:
            raise self._build_damaged_error("it was altered") from None

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise self._build_damaged_error("its end was cut off or altered") from None

    def _parse_line(self, line: bytes) -> dict[str, Any]:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise self._build_damaged_error("one of its lines is no JSON") from None
        if not isinstance(values, dict):
            raise self._build_damaged_error("one of its lines is no record")
        return values

    def _read_header(self, line: bytes) -> BackupInfo:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            raise self._build_not_a_backup_error() from None
        if not isinstance(told, dict) or told.get("format") != BACKUP_FORMAT:
            raise self._build_not_a_backup_error()
        self._refuse_newer("format", told.get("version"), BACKUP_VERSION)
        self._refuse_newer("schema", told.get("schema"), SCHEMA_VERSION)
        try:
            info = _parse_info(told)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._build_damaged_error("its header is not as it was written") from None
        if (info.counts.keys() | info.spans.keys()) - get_backup_tables().keys():
            raise self._build_damaged_error("its header names kinds of records that there are not")
        return info

    def _refuse_newer(self, what: str, found: object, known: int) -> None:
        if type(found) is not int or found < 1:
            raise self._build_damaged_error("its header is not as it was written")
        if found > known:
            raise NewerBackupError(
                f"{str(self._path)!r} has the {what} version {found}, this release knows up to {known}: "
                "upgrade with pip install -U langmem-tiers; nothing was restored"
            )

    def _build_not_a_backup_error(self) -> NotABackupError:
        return NotABackupError(
            f"{str(self._path)!r} is no backup of langmem-tiers: name a file that engine.backup() wrote; "
            "nothing was restored"
        )

    def _build_damaged_error(self, what: str) -> DamagedBackupError:
        return DamagedBackupError(
            f"the backup {str(self._path)!r} is damaged, {what}: take another one; nothing was restored"
        )


@contextmanager
def open_backup_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to read a backup from."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise _build_file_error(path, "read", error, "check its name and that you may read it") from error


@contextmanager
def create_backup_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A file beside the one that is meant, which takes its name when all went well and is gone otherwise."""
    if not overwrite and os.path.lexists(path):
        raise _build_exists_error(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        # Nobody else may read what people said.
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield beside
        _sync_file(beside)
        _move_into_place(beside, path, overwrite=overwrite)
        sync_folder(path.parent)
    except OSError as error:
        advice = "check that the folder is there, that you may write to it and that it has room"
        raise _build_file_error(path, "written", error, advice) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _build_file_error(path: Path, doing: str, error: OSError, advice: str) -> Exception:
    if type(error).__module__ != "builtins":  # ours already
        return error
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return BackupFileError(f"{str(path)!r} could not be {doing} ({reason}): {advice}; nothing was changed")


def _build_exists_error(path: Path) -> BackupFileError:
    return BackupFileError(f"{str(path)!r} is there already: use another name, or overwrite=True")


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _move_into_place(beside: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        beside.replace(path)
        return
    try:
        path.hardlink_to(beside)  # unlike a rename, it takes no name that somebody has
    except FileExistsError:
        raise _build_exists_error(path) from None
    except (OSError, NotImplementedError):  # a disk without links
        if os.path.lexists(path):
            raise _build_exists_error(path) from None
        beside.replace(path)


def _encode_line(values: dict[str, Any], *, ascii_only: bool = False) -> bytes:
    return json.dumps(values, ensure_ascii=ascii_only, separators=(",", ":")).encode() + b"\n"


def _build_header(info: BackupInfo) -> dict[str, Any]:
    namespace = info.scope.namespace
    return {
        "format": BACKUP_FORMAT,
        "version": BACKUP_VERSION,
        "schema": info.schema,
        "release": info.release,
        "created_at": info.created_at.astimezone(UTC).isoformat(),
        "namespace": None if namespace is None else list(namespace),
        "prefix": info.scope.prefix,
        "embedder": info.embedder,
        "dimension": info.dimension,
        "counter": info.counter,
        "counts": dict(info.counts),
        "spans": dict(info.spans),
    }


def _parse_info(told: dict[str, Any]) -> BackupInfo:
    namespace, dimension = _parse_optional_list(told["namespace"]), told["dimension"]
    if dimension is not None and (type(dimension) is not int or dimension < 1):
        raise TypeError("not the length of a vector")
    if type(told["prefix"]) is not bool:
        raise TypeError("not a truth value")
    return BackupInfo(
        schema=told["schema"],
        release=_parse_text(told["release"]),
        created_at=_parse_time(told["created_at"]),
        scope=BackupScope(None if namespace is None else check_namespace(namespace), told["prefix"]),
        embedder=None if told["embedder"] is None else _parse_text(told["embedder"]),
        dimension=dimension,
        counter=_parse_text(told["counter"]),
        counts=_parse_counts(told["counts"]),
        spans=_parse_counts(told["spans"]),
    )


def _parse_text(told: object) -> str:
    if not isinstance(told, str):
        raise TypeError("not a text")
    return told


def _parse_optional_list(told: object) -> list[Any] | None:
    if told is not None and not isinstance(told, list):
        raise TypeError("not a list")
    return told


def _parse_time(told: object) -> datetime:
    moment = datetime.fromisoformat(_parse_text(told))
    if moment.tzinfo is None:
        raise ValueError("a time of nowhere")
    return moment.astimezone(UTC)


def _parse_counts(told: object) -> dict[str, int]:
    if not isinstance(told, dict):
        raise TypeError("not a table")
    if any(type(number) is not int or number < 0 for number in told.values()):
        raise ValueError("not a number of records")
    return dict(told)
