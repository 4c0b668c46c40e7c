"""Values of columns as they stand in a backup, and back: checked, because a file may hold anything."""

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
_POOL_TABLES = (pools, pool_members)
"""They stand between namespaces, so only a backup of all of them has them."""
"""More rows of a kind than any database has."""
_INT64_LIMIT = 2**63


def encode_value(column: Column[Any], value: Any) -> Any:  # noqa: ANN401 - any column's
    """A value as JSON has it."""
    if value is None:
        return None
    if isinstance(column.type, UtcDateTime):
        moment: datetime = value
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(column.type, LargeBinary):
        return base64.b64encode(value).decode("ascii")
    return value


def parse_record(kept: BackupTable, values: Mapping[str, Any], info: BackupInfo) -> dict[str, Any]:
    """The columns of a record, with rows still named as in the backup.

    Raises:
        DamagedBackupError: It is none of this table, or of a namespace that the backup is not of.
    """
    if info.scope.namespace is not None and kept.table in _POOL_TABLES:
        raise _build_damaged_error(kept, "a record that no backup of a namespace has")
    known = {column.name for column in kept.columns}
    if unknown := values.keys() - known:
        raise _build_damaged_error(kept, f"the unknown column {min(unknown)!r}")
    found: dict[str, Any] = {}
    for column in kept.columns:
        if column.name not in values:  # of a backup that is older than the column
            if not column.nullable and column.server_default is None:
                raise _build_damaged_error(kept, f"no column {column.name!r}")
            continue
        value = values[column.name]
        if value is None:
            if not column.nullable:
                raise _build_damaged_error(kept, f"nothing in the column {column.name!r}")
        elif column.name in kept.key_kinds:
            _check_key(kept, column, value, info.spans)
        else:
            value = _parse_value(kept, column, value)
        found[column.name] = value
    if kept.table in ROOT_TABLES:
        _check_path(kept, found["path"], info.scope)
    return found


def _check_path(kept: BackupTable, path: str, scope: BackupScope) -> None:
    # The checksum keeps damage out, not whoever makes it anew: what is of somebody else would go there.
    labels = parse_namespace_key(path)
    is_pool = scope.namespace is None and len(labels) > 1 and not labels[0]  # its place has no name before it
    is_whole = all(labels[1:] if is_pool else labels)
    if build_namespace_key(labels) != path or not is_whole or not scope.contains(labels):
        raise _build_damaged_error(kept, "a namespace that the backup is not of")


def _check_key(kept: BackupTable, column: Column[Any], value: Any, spans: Mapping[str, int]) -> None:  # noqa: ANN401
    kind = kept.key_kinds[column.name]
    first = 0 if not column.primary_key and not column.foreign_keys else 1  # 0 names none
    if type(value) is not int or not first <= value <= spans.get(kind, 0):
        raise _build_damaged_error(kept, f"a name in {column.name!r} that nothing bears")


def _parse_value(kept: BackupTable, column: Column[Any], value: Any) -> Any:  # noqa: ANN401
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
    raise _build_damaged_error(kept, f"a value in {column.name!r} that cannot be there")


def _has_column_type(column: Column[Any], value: object) -> bool:
    if isinstance(column.type, Boolean):
        return type(value) is bool
    if isinstance(column.type, Integer):
        return type(value) is int and -_INT64_LIMIT <= value < _INT64_LIMIT
    return type(value) in (int, float) if isinstance(column.type, Float) else isinstance(value, str)


def _build_damaged_error(kept: BackupTable, what: str) -> DamagedBackupError:
    return DamagedBackupError(
        f"a record of {kept.kind!r} has {what}: take another backup; nothing was restored"
    )
