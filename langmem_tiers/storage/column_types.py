"""Column types that mean the same on every database."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Integer, String, Text, TypeDecorator
from sqlalchemy.types import TIMESTAMP, TypeEngine, UserDefinedType

if TYPE_CHECKING:
    from sqlalchemy import Dialect


_UNSTORABLE_CHARACTERS = re.compile("[\0\ud800-\udfff]")
_BASE64_PREFIX = "base64:"  # JSON never starts like this


def to_storable_text(text: str) -> str:
    """The text with every character that a database refuses replaced; the same object if there is none."""
    return (
        _UNSTORABLE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)
        if _UNSTORABLE_CHARACTERS.search(text)
        else text
    )


def pack_json(text: str) -> str:
    """JSON text in a form that every database takes."""
    if _UNSTORABLE_CHARACTERS.search(text) is None:
        return text
    return _BASE64_PREFIX + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def unpack_json(stored: str) -> str:
    """The JSON text that was packed."""
    if not stored.startswith(_BASE64_PREFIX):
        return stored
    return base64.b64decode(stored[len(_BASE64_PREFIX) :]).decode("utf-8", "surrogatepass")


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC times: ``timestamptz`` on PostgreSQL, sortable ISO 8601 text on SQLite."""

    impl = String(27)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime] | TypeEngine[str]:
        """The column type of each database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(String(27))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | str | None:
        """Write a time, which the engine has made UTC."""
        if value is None or dialect.name == "postgresql":
            return value
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"

    def process_result_value(self, value: datetime | str | None, _dialect: Dialect) -> datetime | None:
        """Read a time."""
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        return None if value is None else value.astimezone(UTC)


class TextVector(UserDefinedType[str]):
    """PostgreSQL's ``tsvector``, without loading its whole dialect for other databases."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """What the column is called."""
        return "TSVECTOR"


# Names compare byte by byte everywhere: PostgreSQL's default collation would order them by locale.
NAME_TYPE = Text().with_variant(Text(collation="C"), "postgresql")
KEY_TYPE = BigInteger().with_variant(Integer(), "sqlite")  # SQLite gives row ids to INTEGER only
