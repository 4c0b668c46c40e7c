"""Full text on SQLite: an FTS5 index over the messages, kept by triggers.

Triggers fire inside the transaction of the row, also for rows that a cascade deletes, so
the index never holds more or less than the table. The text itself is not stored twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import column, func, select, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnClause, Subquery

DDL = (
    """CREATE VIRTUAL TABLE lmt_messages_text USING fts5(
        content, content='lmt_messages', content_rowid='pk', tokenize='porter unicode61 remove_diacritics 2'
    )""",
    """CREATE TRIGGER lmt_messages_text_add AFTER INSERT ON lmt_messages BEGIN
        INSERT INTO lmt_messages_text(rowid, content) VALUES (new.pk, new.content);
    END""",
    """CREATE TRIGGER lmt_messages_text_remove AFTER DELETE ON lmt_messages BEGIN
        INSERT INTO lmt_messages_text(lmt_messages_text, rowid, content)
        VALUES ('delete', old.pk, old.content);
    END""",
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


def matches(words: Sequence[str]) -> Subquery:
    """The keys of messages that hold any of the words, with a score."""
    return _matches("lmt_messages_text", words)


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
