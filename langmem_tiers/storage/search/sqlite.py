"""Full text on SQLite: an FTS5 index over the terms of messages and one over knowledge, kept by triggers.

Triggers fire inside the transaction of the row, also for rows that a cascade deletes, so
the index never holds more or less than the table. The text itself is not stored twice.

The terms of messages come made: FTS5 keeps where they are, and a second virtual table reads
that back term by term. How much a place is worth is not left to FTS5, whose statistics span
all tenants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import column, func, select, table

from langmem_tiers.core.indexes import Postings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnClause, Subquery
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
    """CREATE VIRTUAL TABLE lmt_knowledge_text USING fts5(
        key_text, value, content='lmt_knowledge', content_rowid='pk',
        tokenize='porter unicode61 remove_diacritics 2'
    )""",
    """CREATE TRIGGER lmt_knowledge_text_add AFTER INSERT ON lmt_knowledge BEGIN
        INSERT INTO lmt_knowledge_text(rowid, key_text, value) VALUES (new.pk, new.key_text, new.value);
    END""",
    """CREATE TRIGGER lmt_knowledge_text_change AFTER UPDATE OF key_text, value ON lmt_knowledge BEGIN
        INSERT INTO lmt_knowledge_text(lmt_knowledge_text, rowid, key_text, value)
        VALUES ('delete', old.pk, old.key_text, old.value);
        INSERT INTO lmt_knowledge_text(rowid, key_text, value) VALUES (new.pk, new.key_text, new.value);
    END""",
    """CREATE TRIGGER lmt_knowledge_text_remove AFTER DELETE ON lmt_knowledge BEGIN
        INSERT INTO lmt_knowledge_text(lmt_knowledge_text, rowid, key_text, value)
        VALUES ('delete', old.pk, old.key_text, old.value);
    END""",
)


_KEY_BITS = 50
_KEYS = (1 << _KEY_BITS) - 1


def packed(terms: Sequence[str]) -> str:
    """Terms as the text that is indexed."""
    return " ".join(terms)


def unpacked(text: str) -> list[str]:
    """The terms of an indexed text."""
    return text.split()


def postings(connection: PoolProxiedConnection, terms: Sequence[str]) -> Postings:
    """Where the terms are."""
    import numpy as np  # noqa: PLC0415 - not before something is recalled

    marks = ",".join("?" * len(terms))
    # One text for all places of a term: a row for each would cost more to hand over than to find.
    query = f"SELECT term, group_concat(doc) FROM lmt_messages_places WHERE term IN ({marks}) GROUP BY term"  # noqa: S608 - marks
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
    return Postings([term for term, _ in rows], first >> _KEY_BITS, first & _KEYS, counts)


def knowledge_matches(words: Sequence[str]) -> Subquery:
    """The keys of knowledge that holds any of the words, with a score."""
    return _matches("lmt_knowledge_text", words)


def _matches(index: str, words: Sequence[str]) -> Subquery:
    query = " OR ".join('"' + word.replace('"', '""') + '"' for word in words)
    text = table(index, column("rowid"))
    name: ColumnClause[str] = column(index)
    return (
        select(text.c.rowid.label("pk"), (-func.bm25(name)).label("score"))
        .select_from(text)
        .where(name.op("MATCH")(query))
        .subquery()
    )
