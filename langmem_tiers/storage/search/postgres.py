"""Full text on PostgreSQL: text search vectors of messages and of knowledge, and indexes over them.

A message's vector is made of terms that come made, so no configuration of the server has a say.
How much a place is worth is not left to ``ts_rank``, which does not know how rare a word is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, literal_column, select

from langmem_tiers.core.indexes import Postings
from langmem_tiers.storage.schema import knowledge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnClause, Subquery, Table
    from sqlalchemy.pool import PoolProxiedConnection

MESSAGES_DDL = (
    "CREATE INDEX lmt_messages_terms ON lmt_messages USING gin (terms)",
    # Keys are given before transactions end, so a reader that goes by them may miss a late one:
    # it goes by the transaction instead, and asks for all that may not have been over when it last looked.
    "ALTER TABLE lmt_messages ADD COLUMN written_by xid8 DEFAULT pg_current_xact_id()",
    "CREATE INDEX lmt_messages_by_writer ON lmt_messages (namespace_pk, written_by)",
)
DDL = (
    *MESSAGES_DDL,
    # Marks become spaces: left in, they make one word of an address or a path.
    """ALTER TABLE lmt_knowledge ADD COLUMN text_vector tsvector
        GENERATED ALWAYS AS (to_tsvector('english', translate(
            left(key_text || ' ' || value, 100000), './:@_#?&=+~-', '            '
        ))) STORED""",
    "CREATE INDEX lmt_knowledge_text ON lmt_knowledge USING gin (text_vector)",
)


_PLACES = """SELECT place.lexeme, array_agg(pk ORDER BY pk), array_agg(cardinality(place.positions) ORDER BY pk)
        FROM lmt_messages, unnest(terms) AS place
        WHERE terms @@ CAST(%s AS tsquery) AND place.lexeme = ANY(%s)
        GROUP BY place.lexeme"""


_MOST_BYTES = 1_000_000  # of a vector; PostgreSQL takes 1 MB


def packed(terms: Sequence[str]) -> str:
    """Terms as a text search vector with their places."""
    places: dict[str, list[str]] = {}
    for place, term in enumerate(terms, 1):
        places.setdefault(term, []).append(str(place))
    lexemes, left = [], _MOST_BYTES
    for term, where in places.items():
        left -= len(term.encode()) + 2 * len(where) + 8
        if left < 0:  # of a message that is longer still, the beginning is indexed
            break
        lexemes.append(f"{_quoted(term)}:{','.join(where[:255])}")  # no more places are kept anyway
    return " ".join(lexemes)


def unpacked(vector: str) -> list[str]:
    """The terms of a vector, each as often as it is there."""
    terms: list[str] = []
    for lexeme in vector.split():
        term, _, places = lexeme.rpartition(":")
        terms.extend([term.strip("'").replace("''", "'")] * (places.count(",") + 1))
    return terms


def postings(connection: PoolProxiedConnection, terms: Sequence[str]) -> Postings:
    """Where the terms are."""
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    query = " | ".join(_quoted(term) for term in terms)
    cursor = connection.cursor()
    try:
        cursor.execute(_PLACES, (query, list(terms)))
        found = cursor.fetchall()
    finally:
        cursor.close()
    sizes = [len(keys) for _, keys, _ in found]
    return Postings(
        [term for term, _, _ in found],
        np.repeat(np.arange(len(found)), sizes),
        np.array([key for _, keys, _ in found for key in keys], np.int64),
        np.array([count for _, _, counts in found for count in counts], np.float32),
    )


def _quoted(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


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
