"""Full text on SQLite: an FTS5 index over the terms of messages and one over those of knowledge, kept by triggers.

Triggers fire inside the transaction of the row, also for rows that a cascade deletes, so
the index never holds more or less than the table. The text itself is not stored twice.

Terms come made: FTS5 keeps where they are, and a second virtual table reads
that back term by term. How much a place is worth is not left to FTS5, whose statistics span
all tenants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.pool import PoolProxiedConnection

MESSAGES_DDL = (
    # The plain tokenizer splits at ASCII marks alone, and terms hold none but the underscore.
    """CREATE VIRTUAL TABLE lmt_messages_terms USING fts5(
        terms, content='lmt_messages', content_rowid='pk', tokenize="ascii tokenchars '_'"
    )""",
    "CREATE VIRTUAL TABLE lmt_messages_places USING fts5vocab(lmt_messages_terms, instance)",
    """CREATE TRIGGER lmt_messages_terms_add AFTER INSERT ON lmt_messages WHEN new.terms IS NOT NULL BEGIN
        INSERT INTO lmt_messages_terms(rowid, terms) VALUES (new.pk, new.terms);
    END""",
    """CREATE TRIGGER lmt_messages_terms_remove AFTER DELETE ON lmt_messages WHEN old.terms IS NOT NULL BEGIN
        INSERT INTO lmt_messages_terms(lmt_messages_terms, rowid, terms) VALUES ('delete', old.pk, old.terms);
    END""",
)
DDL = (
    *MESSAGES_DDL,
    """CREATE VIRTUAL TABLE lmt_knowledge_terms USING fts5(
        terms, content='lmt_knowledge', content_rowid='pk', tokenize="ascii tokenchars '_'"
    )""",
    "CREATE VIRTUAL TABLE lmt_knowledge_places USING fts5vocab(lmt_knowledge_terms, instance)",
    """CREATE TRIGGER lmt_knowledge_terms_add AFTER INSERT ON lmt_knowledge WHEN new.terms IS NOT NULL BEGIN
        INSERT INTO lmt_knowledge_terms(rowid, terms) VALUES (new.pk, new.terms);
    END""",
    """CREATE TRIGGER lmt_knowledge_terms_change AFTER UPDATE OF terms ON lmt_knowledge
    WHEN old.terms IS NOT NULL BEGIN
        INSERT INTO lmt_knowledge_terms(lmt_knowledge_terms, rowid, terms) VALUES ('delete', old.pk, old.terms);
        INSERT INTO lmt_knowledge_terms(rowid, terms) VALUES (new.pk, new.terms);
    END""",
    """CREATE TRIGGER lmt_knowledge_terms_remove AFTER DELETE ON lmt_knowledge WHEN old.terms IS NOT NULL BEGIN
        INSERT INTO lmt_knowledge_terms(lmt_knowledge_terms, rowid, terms) VALUES ('delete', old.pk, old.terms);
    END""",
)


_KEY_BITS = 50
_KEY_MASK = (1 << _KEY_BITS) - 1


def pack_terms(terms: Sequence[str]) -> str:
    """Terms as the text that is indexed."""
    return " ".join(terms)


def unpack_terms(stored: str) -> list[str]:
    """The terms of an indexed text."""
    return stored.split()


def find_postings(
    connection: PoolProxiedConnection, terms: Sequence[str], of: Literal["messages", "knowledge"] = "messages"
) -> Postings:
    """Where the terms are, in messages or in what is known."""
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    marks = ",".join("?" * len(terms))
    # One text for all places of a term: a row for each would cost more to hand over than to find.
    query = f"SELECT term, group_concat(doc) FROM lmt_{of}_places WHERE term IN ({marks}) GROUP BY term"  # noqa: S608 - marks
    cursor = connection.cursor()
    try:
        cursor.execute(query, terms)
        rows = cursor.fetchall()
    finally:
        cursor.close()
    sizes = [places.count(",") + 1 for _, places in rows]
    each = np.fromstring(",".join(places for _, places in rows), np.int64, sep=",")
    # One place of one term after the other, by term and message: where one repeats, it is counted.
    together = np.sort(np.repeat(np.arange(len(rows)) << _KEY_BITS, sizes) | each)
    is_first = np.ones(len(together) + 1, np.bool_)  # and one behind the last
    np.not_equal(together[1:], together[:-1], out=is_first[1:-1])
    starts = np.flatnonzero(is_first)
    first, counts = together[starts[:-1]], (starts[1:] - starts[:-1]).astype(np.float32)
    return Postings([term for term, _ in rows], first >> _KEY_BITS, first & _KEY_MASK, counts)
