"""Column types that behave the same on every database."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Integer, String, Text, TypeDecorator
from sqlalchemy.types import TIMESTAMP, TypeEngine, UserDefinedType

if TYPE_CHECKING:
    from sqlalchemy import Dialect


# PostgreSQL rejects NUL, and no database can encode lone surrogates in UTF-8.
_UNSTORABLE_CHARACTERS = re.compile("[\0\ud800-\udfff]")
_BASE64_PREFIX = "base64:"  # JSON text never starts with this


def to_storable_text(text: str) -> str:
    """Replace characters that a database rejects; return the same object if there are none."""
    return (
        _UNSTORABLE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)
        if _UNSTORABLE_CHARACTERS.search(text)
        else text
    )


def pack_json(text: str) -> str:
    """Return JSON text in a form that every database accepts."""
    if _UNSTORABLE_CHARACTERS.search(text) is None:
        return text
    return _BASE64_PREFIX + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def unpack_json(stored: str) -> str:
    """Return the JSON text passed to ``pack_json()``."""
    if not stored.startswith(_BASE64_PREFIX):
        return stored
    return base64.b64decode(stored[len(_BASE64_PREFIX) :]).decode("utf-8", "surrogatepass")


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC times: ``timestamptz`` on PostgreSQL, sortable ISO 8601 text on SQLite."""

    impl = String(27)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime] | TypeEngine[str]:
        """Return the column type for a database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(String(27))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | str | None:
        """Convert a UTC time to its stored form."""
        if value is None or dialect.name == "postgresql":
            return value
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"

    def process_result_value(self, value: datetime | str | None, _dialect: Dialect) -> datetime | None:
        """Convert a stored time to an aware datetime."""
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        return None if value is None else value.astimezone(UTC)


class TextVector(UserDefinedType[str]):
    """PostgreSQL's ``tsvector``, without importing its dialect on other databases."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the SQL name of the type."""
        return "TSVECTOR"


# Names compare byte by byte everywhere: PostgreSQL's default collation would order them by locale.
NAME_TYPE = Text().with_variant(Text(collation="C"), "postgresql")
KEY_TYPE = BigInteger().with_variant(Integer(), "sqlite")  # in SQLite only INTEGER keys are row ids
