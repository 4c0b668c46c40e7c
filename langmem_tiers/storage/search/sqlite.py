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
)

_text = table("lmt_messages_text", column("rowid"))


def matches(words: Sequence[str]) -> Subquery:
    """The keys of messages that hold any of the words, with a score."""
    query = " OR ".join('"' + word.replace('"', '""') + '"' for word in words)
    name: ColumnClause[str] = column("lmt_messages_text")
    return (
        select(_text.c.rowid.label("pk"), (-func.bm25(name)).label("score"))
        .select_from(_text)
        .where(name.op("MATCH")(query))
        .subquery()
    )
