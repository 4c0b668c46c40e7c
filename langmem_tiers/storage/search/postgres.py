"""Full text on PostgreSQL: a stored text search vector of each message, and an index over it.

The vector is a generated column, so it lives and dies with the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, literal_column, select

from langmem_tiers.storage.schema import knowledge, messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnClause, Subquery, Table

DDL = (
    # A vector holds at most 1 MB: of a longer message the beginning is indexed.
    """ALTER TABLE lmt_messages ADD COLUMN content_vector tsvector
        GENERATED ALWAYS AS (to_tsvector('english', left(content, 100000))) STORED""",
    "CREATE INDEX lmt_messages_text ON lmt_messages USING gin (content_vector)",
    # Marks become spaces: left in, they make one word of an address or a path.
    """ALTER TABLE lmt_knowledge ADD COLUMN text_vector tsvector
        GENERATED ALWAYS AS (to_tsvector('english', translate(
            left(key_text || ' ' || value, 100000), './:@_#?&=+~-', '            '
        ))) STORED""",
    "CREATE INDEX lmt_knowledge_text ON lmt_knowledge USING gin (text_vector)",
)


def matches(words: Sequence[str]) -> Subquery:
    """The keys of messages that hold any of the words, with a score."""
    return _matches(messages, "lmt_messages.content_vector", words)


def knowledge_matches(words: Sequence[str]) -> Subquery:
    """The keys of knowledge that holds any of the words, with a score."""
    return _matches(knowledge, "lmt_knowledge.text_vector", words)


def _matches(table: Table, vector_name: str, words: Sequence[str]) -> Subquery:
    vector: ColumnClause[str] = literal_column(vector_name)
    words_quoted = " or ".join(f'"{word}"' for word in words)
    query = func.websearch_to_tsquery(literal_column("'english'"), words_quoted)
    return (
        select(table.c.pk, func.ts_rank(vector, query).label("score"))
        .where(vector.op("@@")(query))
        .subquery()
    )
