"""Full-text search on PostgreSQL: text search vectors of messages and knowledge, and indexes over them.

The vectors consist of terms that are already tokenized, so the server's text search
configuration has no effect. Ranking is not left to ``ts_rank``, which ignores term rarity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.pool import PoolProxiedConnection

MESSAGES_DDL = (
    "CREATE INDEX lmt_messages_terms ON lmt_messages USING gin (terms)",
    # Keys are assigned before transactions commit, so a reader that polls by key would miss late commits.
    # Readers poll by transaction id instead, starting at the oldest one that may have been active last time.
    "ALTER TABLE lmt_messages ADD COLUMN written_by xid8 DEFAULT pg_current_xact_id()",
    "CREATE INDEX lmt_messages_by_writer ON lmt_messages (namespace_pk, written_by)",
)
# Indexes for queries by time that do not load a namespace into memory: messages older than a date (of one tenant or
# all), their number, and recent important ones. Retention and statistics use them; recall does not. All three
# together cost 2 to 4 % of an add.
BY_TIME_DDL = (
    # A tenant's messages by day with their tokens, from the index alone. The text is not included: an index row
    # is limited to 2,704 bytes, so longer messages could not be stored.
    """CREATE INDEX lmt_messages_by_time ON lmt_messages (namespace_pk, created_at DESC)
        INCLUDE (role, importance, token_count)""",
    # The few important messages that outlive the retention period.
    """CREATE INDEX lmt_messages_important ON lmt_messages (namespace_pk, created_at DESC)
        WHERE importance > 0.7""",
    # Messages of all tenants by age. BRIN takes a few kilobytes for millions of rows, as they are stored roughly
    # in the order of time.
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


_MAX_VECTOR_BYTES = 1_000_000  # PostgreSQL limits a tsvector to 1 MB


def pack_terms(terms: Sequence[str]) -> str:
    """Return the terms as a text search vector with their positions."""
    positions: dict[str, list[str]] = {}
    for position, term in enumerate(terms, 1):
        positions.setdefault(term, []).append(str(position))
    lexemes, left = [], _MAX_VECTOR_BYTES
    for term, term_positions in positions.items():
        left -= len(term.encode()) + 2 * len(term_positions) + 8
        if left < 0:  # only the beginning of a longer message is indexed
            break
        # PostgreSQL stores at most 255 positions per term.
        lexemes.append(f"{_quote_term(term)}:{','.join(term_positions[:255])}")
    return " ".join(lexemes)


def unpack_terms(vector: str) -> list[str]:
    """Return the terms of a vector, repeated by their number of positions."""
    terms: list[str] = []
    for lexeme in vector.split():
        term, _, positions = lexeme.rpartition(":")
        if "," in positions:
            terms.extend([term[1:-1]] * (positions.count(",") + 1))
        else:
            terms.append(term[1:-1])
    return [term.replace("''", "'") for term in terms] if "''" in vector else terms


def find_postings(
    connection: PoolProxiedConnection,
    terms: Sequence[str],
    table: Literal["messages", "knowledge"] = "messages",
) -> Postings:
    """Return the occurrences of the terms in messages or in knowledge."""
    import numpy as np  # noqa: PLC0415 - slow import, needed only for recall

    query = " | ".join(_quote_term(term) for term in terms)
    cursor = connection.cursor()
    try:
        cursor.execute(_POSTINGS_QUERY.format(of=table), (query, list(terms)))
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
