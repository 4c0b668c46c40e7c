"""Full text on PostgreSQL: an index over the text search vector of the messages.

The index is on an expression, so it lives and dies with the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, literal_column, select

from langmem_tiers.storage.schema import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnClause, Subquery

# A text search vector holds at most 1 MB: of a longer message the beginning is indexed.
_VECTOR = "to_tsvector('english', left(content, 100000))"

DDL = (f"CREATE INDEX lmt_messages_text ON lmt_messages USING gin ({_VECTOR})",)

FILL = ()


def matches(words: Sequence[str]) -> Subquery:
    """The keys of messages that hold any of the words, with a score."""
    vector: ColumnClause[str] = literal_column(_VECTOR)
    query = func.websearch_to_tsquery(literal_column("'english'"), " or ".join(f'"{word}"' for word in words))
    return (
        select(messages.c.pk, func.ts_rank(vector, query).label("score"))
        .where(vector.op("@@")(query))
        .subquery()
    )
