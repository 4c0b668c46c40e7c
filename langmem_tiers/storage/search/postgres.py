"""Full text on PostgreSQL: text search vectors of messages and of knowledge, and indexes over them.

A vector is made of terms that come made, so no configuration of the server has a say.
How much a place is worth is not left to ``ts_rank``, which does not know how rare a word is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.pool import PoolProxiedConnection

MESSAGES_DDL = (
    "CREATE INDEX lmt_messages_terms ON lmt_messages USING gin (terms)",
    # Keys are given before transactions end, so a reader that goes by them may miss a late one:
    # it goes by the transaction instead, and asks for all that may not have been over when it last looked.
    "ALTER TABLE lmt_messages ADD COLUMN written_by xid8 DEFAULT pg_current_xact_id()",
    "CREATE INDEX lmt_messages_by_writer ON lmt_messages (namespace_pk, written_by)",
)
# What is asked of messages by time alone, without holding their namespace in memory: what is older than a date, of
# one tenant or of all, how much there is of it, and what mattered lately: retention and figures for operators. Nothing
# that recall does needs them; all three together cost 2 to 4 % of an add.
BY_TIME_DDL = (
    # A tenant's messages by day, with their tokens, from the index alone. Not with their text, as one could think:
    # an index row takes 2,704 bytes, and a longer message could not be stored.
    """CREATE INDEX lmt_messages_by_time ON lmt_messages (namespace_pk, created_at DESC)
        INCLUDE (role, importance, token_count)""",
    # The few that are worth keeping when the rest of their age goes.
    """CREATE INDEX lmt_messages_important ON lmt_messages (namespace_pk, created_at DESC)
        WHERE importance > 0.7""",
    # The oldest of all tenants: some kilobytes for millions of rows, which lie about in the order of their time.
    "CREATE INDEX lmt_messages_by_age ON lmt_messages USING brin (created_at)",
)
DDL = (
    *MESSAGES_DDL,
    *BY_TIME_DDL,
    "CREATE INDEX lmt_knowledge_terms ON lmt_knowledge USING gin (terms)",
)


_POSTINGS_QUERY = """SELECT place.lexeme, array_agg(pk ORDER BY pk), array_agg(cardinality(place.positions) ORDER BY pk)
        FROM lmt_{of}, unnest(terms) AS place
        WHERE terms @@ CAST(%s AS tsquery) AND place.lexeme = ANY(%s)
        GROUP BY place.lexeme"""


_MAX_VECTOR_BYTES = 1_000_000  # of a vector; PostgreSQL takes 1 MB


def pack_terms(terms: Sequence[str]) -> str:
    """Terms as a text search vector with their places."""
    places: dict[str, list[str]] = {}
    for place, term in enumerate(terms, 1):
        places.setdefault(term, []).append(str(place))
    lexemes, left = [], _MAX_VECTOR_BYTES
    for term, where in places.items():
        left -= len(term.encode()) + 2 * len(where) + 8
        if left < 0:  # of a message that is longer still, the beginning is indexed
            break
        lexemes.append(f"{_quote_term(term)}:{','.join(where[:255])}")  # no more places are kept anyway
    return " ".join(lexemes)


def unpack_terms(vector: str) -> list[str]:
    """The terms of a vector, each as often as it is there."""
    terms: list[str] = []
    for lexeme in vector.split():
        term, _, places = lexeme.rpartition(":")
        if "," in places:
            terms.extend([term[1:-1]] * (places.count(",") + 1))
        else:
            terms.append(term[1:-1])
    return [term.replace("''", "'") for term in terms] if "''" in vector else terms


def find_postings(
    connection: PoolProxiedConnection, terms: Sequence[str], of: Literal["messages", "knowledge"] = "messages"
) -> Postings:
    """Where the terms are, in messages or in what is known."""
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    query = " | ".join(_quote_term(term) for term in terms)
    cursor = connection.cursor()
    try:
        cursor.execute(_POSTINGS_QUERY.format(of=of), (query, list(terms)))
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


def _quote_term(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"
