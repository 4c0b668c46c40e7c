"""File format of backups: JSON lines, compressed by gzip.

The first line is the header, followed by one line per record and a trailer with a checksum::

    {"format":"langmem-tiers backup","version":1,"schema":1,"created_at":"2025-01-15T10:30:00+00:00",...}
    {"kind":"namespaces","row":{"pk":1,"path":"acme/alice",...}}
    {"kind":"end","counts":{"namespaces":1,...},"sha256":"..."}

``counts`` contains the number of records of each kind. ``sha256`` is the checksum of all lines before the trailer,
including their line ends. A reader accepts a file only if the trailer matches and nothing follows it.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import os
import secrets
import zlib
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from sqlalchemy import Boolean, Float, Integer, LargeBinary

from langmem_tiers.backup.models import BACKUP_FORMAT, BACKUP_VERSION, BackupInfo, BackupScope
from langmem_tiers.backup.tables import ROOT_TABLES, get_backup_tables
from langmem_tiers.common.namespaces import build_namespace_key, check_namespace, parse_namespace_key
from langmem_tiers.errors import BackupFileError, DamagedBackupError, NewerBackupError, NotABackupError
from langmem_tiers.storage.column_types import UtcDateTime
from langmem_tiers.storage.file_io import sync_folder
from langmem_tiers.storage.schema import SCHEMA_VERSION, pool_members, pools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Column

    from langmem_tiers.backup.reader import Record
    from langmem_tiers.backup.tables import BackupTable


MAX_KEYS_PER_KIND = 2**48
"""Upper limit for the keys of a kind, above those of any real database."""
_POOL_TABLES = (pools, pool_members)
"""Pools are shared by namespaces, so only a backup of the whole memory contains them."""
_INT64_LIMIT = 2**63


def encode_value(column: Column[Any], value: Any) -> Any:  # noqa: ANN401 - any column's
    """Convert the value of a column to JSON."""
    if value is None:
        return None
    if isinstance(column.type, UtcDateTime):
        moment: datetime = value
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(column.type, LargeBinary):
        return base64.b64encode(value).decode("ascii")
    return value


def parse_record(kept: BackupTable, values: Mapping[str, Any], info: BackupInfo) -> dict[str, Any]:
    """Validate a record and convert its values to those of the columns. Keys remain those of the backup.

    Args:
        kept: Table of the record.
        values: The record from the file.
        info: Header of the backup.

    Raises:
        DamagedBackupError: The record does not fit the table, or belongs to a namespace outside of the backup's scope.
    """
    if info.scope.namespace is not None and kept.table in _POOL_TABLES:
        raise _build_damaged_error(kept, "a record that is not allowed in the backup of a namespace")
    known = {column.name for column in kept.columns}
    if unknown := values.keys() - known:
        raise _build_damaged_error(kept, f"an unknown column {min(unknown)!r}")
    found: dict[str, Any] = {}
    for column in kept.columns:
        if column.name not in values:
            # A backup of an earlier release lacks columns that were added since. The default of the column is used.
            if not column.nullable and column.server_default is None:
                raise _build_damaged_error(kept, f"no column {column.name!r}")
            continue
        value = values[column.name]
        if value is None:
            if not column.nullable:
                raise _build_damaged_error(kept, f"no value in the column {column.name!r}")
        elif column.name in kept.key_kinds:
            _check_key(kept, column, value, info.spans)
        else:
            value = _parse_value(kept, column, value)
        found[column.name] = value
    if kept.table in ROOT_TABLES:
        _check_path(kept, found["path"], info.scope)
    return found


def _check_path(backup_table: BackupTable, path: str, scope: BackupScope) -> None:
    # A checksum protects from damage, not from a forged file. Without this check, a forged backup of one namespace
    # could write to the namespace of somebody else.
    labels = parse_namespace_key(path)
    # The namespace of a pool begins with an empty label. All other labels must not be empty.
    is_pool = scope.namespace is None and len(labels) > 1 and not labels[0]
    is_complete = all(labels[1:] if is_pool else labels)
    # The second conversion rejects keys that are not in their normal form, such as "a//b".
    if build_namespace_key(labels) != path or not is_complete or not scope.contains(labels):
        raise _build_damaged_error(backup_table, "a namespace outside of the backup's scope")


def _check_key(backup_table: BackupTable, column: Column[Any], value: Any, spans: Mapping[str, int]) -> None:  # noqa: ANN401
    kind = backup_table.key_kinds[column.name]
    # Keys start at 1. In columns without a foreign key, 0 means no row.
    first = 0 if not column.primary_key and not column.foreign_keys else 1
    if type(value) is not int or not first <= value <= spans.get(kind, 0):
        raise _build_damaged_error(backup_table, f"an invalid key in {column.name!r}")


def _parse_value(backup_table: BackupTable, column: Column[Any], value: Any) -> Any:  # noqa: ANN401
    try:
        if isinstance(column.type, UtcDateTime):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return moment.astimezone(UTC)
        elif isinstance(column.type, LargeBinary):
            return base64.b64decode(value, validate=True)
        elif _has_column_type(column, value):
            return float(value) if isinstance(column.type, Float) else value
    except (TypeError, ValueError, OverflowError, binascii.Error):
        pass
    raise _build_damaged_error(backup_table, f"an invalid value in {column.name!r}")


# type() instead of isinstance(): True is an int for isinstance(), but not a valid integer in a backup.
def _has_column_type(column: Column[Any], value: object) -> bool:
    if isinstance(column.type, Boolean):
        return type(value) is bool
    if isinstance(column.type, Integer):
        return type(value) is int and -_INT64_LIMIT <= value < _INT64_LIMIT
    return type(value) in (int, float) if isinstance(column.type, Float) else isinstance(value, str)


def _build_damaged_error(backup_table: BackupTable, what: str) -> DamagedBackupError:
    return DamagedBackupError(
        f"a record of {backup_table.kind!r} has {what}: use another backup; nothing was restored"
    )


_COMPRESSION_LEVEL = 6
# Maximum length of a line, so that a large file without line ends does not fill the memory.
_MAX_HEADER_BYTES, _MAX_LINE_BYTES = 2**20, 2**30
_END_KIND = "end"


def write_records(file: IO[bytes], info: BackupInfo, records: Iterable[Record]) -> str:
    """Write header, records and trailer, and return the checksum of the records alone."""
    # The trailer's checksum covers the header. The returned one does not, because the header contains the time: equal
    # contents give equal checksums.
    file_hash, counts = hashlib.sha256(), dict.fromkeys(info.counts, 0)
    records_hash = hashlib.sha256()
    # The gzip header gets no file name and no time, so that the bytes depend on the content only.
    with gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, file, mtime=0) as compressed:
        header = _encode_line(_build_header(info), ascii_only=True)
        file_hash.update(header)
        compressed.write(header)
        for kind, values in records:
            line = _encode_line({"kind": kind, "row": values})
            file_hash.update(line)
            records_hash.update(line)
            compressed.write(line)
            counts[kind] += 1
        compressed.write(_encode_line({"kind": _END_KIND, "counts": counts, "sha256": file_hash.hexdigest()}))
    return records_hash.hexdigest()


class BackupReader:
    """Reads a backup from an untrusted file.

    The records are verified only after ``read_records()`` was exhausted without an error, because the checksum is at
    the end of the file.

    Args:
        path: The file, for error messages.
        file: The open file.

    Raises:
        BackupError: The file is not a backup, its header is damaged, or it was written by a newer release.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._hash = hashlib.sha256()
        self.checksum = ""
        """Checksum of the file, after all records were read."""
        header_line = self._next_line(is_header=True)
        self._hash.update(header_line)
        self.info = self._read_header(header_line)

    def read_records(self) -> Iterator[Record]:
        """Yield the records, and verify the checksum at the end.

        Raises:
            DamagedBackupError: The file was cut off or changed.
        """
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
                raise self._build_damaged_error("a line is not a record")
            self._hash.update(line)
            counts[kind] += 1
            yield kind, row
        if values != {"counts": counts, "sha256": self._hash.hexdigest()}:
            raise self._build_damaged_error("the checksum or the counts do not match the records")
        if counts != self.info.counts:
            raise self._build_damaged_error("the number of records differs from the header")
        # This read also makes gzip verify its own checksum, which follows the compressed data.
        if self._read(1):
            raise self._build_damaged_error("there is data after the last record")
        self.checksum = self._hash.hexdigest()

    def _next_line(self, *, is_header: bool = False) -> bytes:
        line = self._read_line(is_header=is_header)
        if not line.endswith(b"\n"):
            if is_header:
                raise self._build_not_a_backup_error()
            raise self._build_damaged_error(
                "it was cut off" if len(line) < _MAX_LINE_BYTES else "a line is too long"
            )
        return line

    def _read_line(self, *, is_header: bool = False) -> bytes:
        # A file that is not gzip at all is not a backup. After the first line, the same error means damage.
        try:
            return self._file.readline(_MAX_HEADER_BYTES if is_header else _MAX_LINE_BYTES)
        except gzip.BadGzipFile:
            raise (
                self._build_not_a_backup_error() if is_header else self._build_damaged_error("it was altered")
            ) from None
        except EOFError:
            raise self._build_damaged_error("it was cut off") from None
        except zlib.error:
            raise self._build_damaged_error("it was altered") from None

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise self._build_damaged_error("the end was cut off or altered") from None

    def _parse_line(self, line: bytes) -> dict[str, Any]:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise self._build_damaged_error("a line is not JSON") from None
        if not isinstance(values, dict):
            raise self._build_damaged_error("a line is not a record")
        return values

    def _read_header(self, line: bytes) -> BackupInfo:
        try:
            header = json.loads(line)
        except (ValueError, RecursionError):
            raise self._build_not_a_backup_error() from None
        if not isinstance(header, dict) or header.get("format") != BACKUP_FORMAT:
            raise self._build_not_a_backup_error()
        # Check the versions first: a newer release may have changed the rest of the header.
        self._refuse_newer("format", header.get("version"), BACKUP_VERSION)
        self._refuse_newer("schema", header.get("schema"), SCHEMA_VERSION)
        try:
            info = _parse_info(header)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._build_damaged_error("the header is invalid") from None
        if (info.counts.keys() | info.spans.keys()) - get_backup_tables().keys():
            raise self._build_damaged_error("the header contains unknown kinds of records")
        return info

    def _refuse_newer(self, what: str, found: object, known: int) -> None:
        if type(found) is not int or found < 1:
            raise self._build_damaged_error("the header is invalid")
        if found > known:
            raise NewerBackupError(
                f"{str(self._path)!r} has {what} version {found}, this release supports up to {known}: "
                "upgrade with pip install -U langmem-tiers; nothing was restored"
            )

    def _build_not_a_backup_error(self) -> NotABackupError:
        return NotABackupError(
            f"{str(self._path)!r} is not a langmem-tiers backup: pass a file that engine.backup() wrote; "
            "nothing was restored"
        )

    def _build_damaged_error(self, what: str) -> DamagedBackupError:
        return DamagedBackupError(
            f"backup {str(self._path)!r} is damaged ({what}): use another backup; nothing was restored"
        )


@contextmanager
def open_backup_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a backup file for reading. ``OSError`` becomes ``BackupFileError``."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise _build_file_error(path, "read", error, "check the path and the read permission") from error


@contextmanager
def create_backup_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary file in the same folder, which gets the final name on success and is deleted otherwise.

    Args:
        path: The final path.
        overwrite: True to replace an existing file.

    Raises:
        BackupFileError: The file exists already, or cannot be written.
    """
    if not overwrite and os.path.lexists(path):
        raise _build_exists_error(path)
    temporary_path = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        # Only the owner may read a backup: it contains conversations.
        os.close(os.open(temporary_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield temporary_path
        # The order makes the file durable: first its content, then its name, then the folder that contains the name.
        _sync_file(temporary_path)
        _move_into_place(temporary_path, path, overwrite=overwrite)
        sync_folder(path.parent)
    except OSError as error:
        advice = "check that the folder exists and is writable, and that the disk is not full"
        raise _build_file_error(path, "write", error, advice) from error
    finally:
        with suppress(OSError):
            temporary_path.unlink(missing_ok=True)


def _build_file_error(path: Path, action: str, error: OSError, advice: str) -> Exception:
    # An error of this package that derives from OSError is passed on as it is. System errors are builtins.
    if type(error).__module__ != "builtins":
        return error
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return BackupFileError(f"cannot {action} {str(path)!r} ({reason}): {advice}; nothing was changed")


def _build_exists_error(path: Path) -> BackupFileError:
    return BackupFileError(f"{str(path)!r} exists already: use another name, or overwrite=True")


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _move_into_place(temporary_path: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        temporary_path.replace(path)
        return
    try:
        # Unlike a rename, creating a link fails if the name exists: another process may have created it meanwhile.
        path.hardlink_to(temporary_path)
    except FileExistsError:
        raise _build_exists_error(path) from None
    except (OSError, NotImplementedError):
        # The file system does not support hard links. The check leaves a small gap for a race.
        if os.path.lexists(path):
            raise _build_exists_error(path) from None
        temporary_path.replace(path)


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


def _parse_info(header: dict[str, Any]) -> BackupInfo:
    namespace, dimension = _parse_optional_list(header["namespace"]), header["dimension"]
    if dimension is not None and (type(dimension) is not int or dimension < 1):
        raise TypeError("invalid dimension")
    if type(header["prefix"]) is not bool:
        raise TypeError("prefix is not a bool")
    return BackupInfo(
        schema=header["schema"],
        release=_parse_text(header["release"]),
        created_at=_parse_time(header["created_at"]),
        scope=BackupScope(None if namespace is None else check_namespace(namespace), header["prefix"]),
        embedder=None if header["embedder"] is None else _parse_text(header["embedder"]),
        dimension=dimension,
        counter=_parse_text(header["counter"]),
        counts=_parse_counts(header["counts"]),
        spans=_parse_counts(header["spans"]),
    )


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a str")
    return value


def _parse_optional_list(value: object) -> list[Any] | None:
    if value is not None and not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _parse_time(value: object) -> datetime:
    moment = datetime.fromisoformat(_parse_text(value))
    if moment.tzinfo is None:
        raise ValueError("datetime without time zone")
    return moment.astimezone(UTC)


def _parse_counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise TypeError("not a dict")
    if any(type(number) is not int or number < 0 for number in value.values()):
        raise ValueError("not a number of records")
    return dict(value)
