"""Conversion of column values to JSON and back, with validation of what comes from a file."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, Float, Integer, LargeBinary

from langmem_tiers.backup.tables import ROOT_TABLES
from langmem_tiers.common.namespaces import build_namespace_key, parse_namespace_key
from langmem_tiers.errors import DamagedBackupError
from langmem_tiers.storage.column_types import UtcDateTime
from langmem_tiers.storage.schema import pool_members, pools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Column

    from langmem_tiers.backup.models import BackupInfo, BackupScope
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
