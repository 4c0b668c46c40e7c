"""Reads many values of items at little cost, for filters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, and_, bindparam, or_, select, text

from langmem_tiers.core.items import KeptValue, ScanMark
from langmem_tiers.core.names import namespace_key
from langmem_tiers.storage.columns import UtcDateTime
from langmem_tiers.storage.driver import DriverStatement
from langmem_tiers.storage.repeatable import repeatable
from langmem_tiers.storage.schema import item_namespaces, items
from langmem_tiers.storage.text import unpack_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import BindParameter, ColumnElement

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.storage.database import Database

LATEST_FIRST = (items.c.updated_at.desc(), items.c.pk.desc())
_END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)


def begins_with(prefix: NamespacePath) -> tuple[ColumnElement[bool], ...]:
    """The conditions on namespaces whose first labels are the prefix's."""
    return _between(**bounds(prefix)) if prefix else ()


def bounds(prefix: NamespacePath) -> dict[str, str]:
    """The stored form of a prefix, and what its children lie between."""
    key = namespace_key(prefix)
    # "0" follows "/" in every byte order: from the key to there lie the key, its children and
    # names that only begin like it.
    return {"self": key, "children": f"{key}/", "end": f"{key}0"} if prefix else {}


def bound_prefix(prefix: bool) -> tuple[ColumnElement[bool], ...]:  # noqa: FBT001 - whether there is one
    """As ``begins_with``, for a statement that takes ``bounds`` as its values."""
    bound = {name: bindparam(name, type_=Text()) for name in ("self", "children", "end")}
    return _between(**bound) if prefix else ()


def lives(now: datetime | BindParameter[datetime]) -> ColumnElement[bool]:
    """The condition on items that have not expired."""
    return or_(items.c.expires_at.is_(None), items.c.expires_at > now)


class ItemValues:
    """Statements that run on the driver itself: SQLAlchemy's part costs more than a small value.

    Args:
        database: Where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        value = select(items.c.pk, items.c.revision, items.c.value).where(
            lives(bindparam("now", type_=UtcDateTime))
        )
        among = (
            "lmt_items.pk IN (SELECT value FROM json_each(:keys))"
            if database.is_sqlite
            else "lmt_items.pk = ANY(CAST(:keys AS bigint[]))"
        )
        self._of = DriverStatement(value.where(text(among)), database.dialect)
        changed, at = items.c.updated_at, bindparam("at", type_=UtcDateTime)
        behind = or_(changed < at, and_(changed == at, items.c.pk < bindparam("last")))
        page = value.add_columns(changed).join(item_namespaces).where(behind).order_by(*LATEST_FIRST)
        page = page.limit(bindparam("most"))
        self._scans = {
            has_prefix: DriverStatement(page.where(*bound_prefix(has_prefix)), database.dialect)
            for has_prefix in (True, False)
        }

    @repeatable
    def of(self, keys: Sequence[int], now: datetime) -> Mapping[int, KeptValue]:
        """The values of those of some items that are still there."""
        some: Any = json.dumps(list(keys)) if self._database.is_sqlite else list(keys)
        with self._database.read_raw() as connection:
            rows = self._of.all(connection, {"keys": some, "now": now})
        return {row[0]: _value(row) for row in rows}

    @repeatable
    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanMark | None, limit: int
    ) -> tuple[list[KeptValue], ScanMark | None]:
        """Values in the order of a page, behind a mark; the next mark, or None at the end."""
        at, last = after or (_END_OF_TIME, 0)
        values = {**bounds(prefix), "now": now, "at": at, "last": last, "most": limit}
        with self._database.read_raw() as connection:
            rows = self._scans[bool(prefix)].all(connection, values)
        if len(rows) < limit:
            return [_value(row) for row in rows], None
        changed = UtcDateTime().process_result_value(rows[-1][3], self._database.dialect)
        return [_value(row) for row in rows], ScanMark(changed or _END_OF_TIME, rows[-1][0])


def _value(row: Sequence[Any]) -> KeptValue:
    return KeptValue(row[0], row[1], json.loads(unpack_json(row[2])))


def _between(
    self: str | BindParameter[str], children: str | BindParameter[str], end: str | BindParameter[str]
) -> tuple[ColumnElement[bool], ...]:
    path = item_namespaces.c.path
    return path >= self, path < end, or_(path == self, path > children)
