"""Full-text search on SQLite: FTS5 indexes over the terms of messages and knowledge, maintained by triggers.

Triggers fire inside the transaction of the row, also for rows deleted by a cascade, so
the index always matches the table. The text itself is not stored twice.

The terms are already tokenized. FTS5 stores their positions, and a second virtual table
(fts5vocab) reads them back term by term. Ranking is not left to FTS5, whose statistics
span all tenants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from langmem_tiers.storage.search.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.pool import PoolProxiedConnection

MESSAGES_DDL = (
    # The ascii tokenizer splits only at ASCII punctuation, and the underscore is the only one in terms.
    """CREATE VIRTUAL TABLE lmt_messages_terms USING fts5(
        terms, content='lmt_messages', content_rowid='pk', tokenize="ascii tokenchars '_'"
    )""",
    "CREATE VIRTUAL TABLE lmt_messages_term_instances USING fts5vocab(lmt_messages_terms, instance)",
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
    "CREATE VIRTUAL TABLE lmt_knowledge_term_instances USING fts5vocab(lmt_knowledge_terms, instance)",
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
    """Return the terms as the text to be indexed."""
    return " ".join(terms)


def unpack_terms(stored: str) -> list[str]:
    """Return the terms of an indexed text."""
    return stored.split()


def find_postings(
    connection: PoolProxiedConnection,
    terms: Sequence[str],
    table: Literal["messages", "knowledge"] = "messages",
) -> Postings:
    """Return the occurrences of the terms in messages or in knowledge."""
    import numpy as np  # noqa: PLC0415 - slow import, needed only for recall

    marks = ",".join("?" * len(terms))
    # One text with all occurrences of a term: fetching a row for each costs more than finding them.
    query = f"SELECT term, group_concat(doc) FROM lmt_{table}_term_instances WHERE term IN ({marks}) GROUP BY term"  # noqa: S608 - only placeholders
    cursor = connection.cursor()
    try:
        cursor.execute(query, terms)
        rows = cursor.fetchall()
    finally:
        cursor.close()
    sizes = [documents.count(",") + 1 for _, documents in rows]
    each = np.fromstring(",".join(documents for _, documents in rows), np.int64, sep=",")
    # Term number and message key are packed into one integer, so that one sort groups equal pairs. The length of
    # each group is the number of occurrences.
    together = np.sort(np.repeat(np.arange(len(rows)) << _KEY_BITS, sizes) | each)
    is_first = np.ones(len(together) + 1, np.bool_)  # with a sentinel after the last group
    np.not_equal(together[1:], together[:-1], out=is_first[1:-1])
    starts = np.flatnonzero(is_first)
    first, counts = together[starts[:-1]], (starts[1:] - starts[:-1]).astype(np.float32)
    return Postings([term for term, _ in rows], first >> _KEY_BITS, first & _KEY_MASK, counts)
