"""Messages and knowledge of an older schema get what recall looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select, update

from langmem_tiers.common.namespaces import unescape
from langmem_tiers.sessions.message_rows import to_message
from langmem_tiers.storage.schema import RECORD, knowledge, messages, sessions
from langmem_tiers.storage.search import index_columns, known_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from langmem_tiers.common.messages import Message
    from langmem_tiers.recall.records import IndexText

INDEXED_SINCE = 4
"""The schema version from which on messages and knowledge are written with their terms."""
_PAGE = 1000
_COLUMNS = ("namespace_pk", "term_count", "asks", "importance", "speaker", "terms")


def index_messages(connection: Connection, index_text: Callable[[Message], IndexText]) -> None:
    """Write the terms of every message, page by page, in the transaction that changes the schema."""
    is_sqlite, last = connection.dialect.name == "sqlite", 0
    change = (
        update(messages)
        .where(messages.c.pk == bindparam("key"))
        .values({name: bindparam(f"new_{name}") for name in _COLUMNS})
    )
    while True:
        page = connection.execute(
            select(*RECORD, sessions.c.namespace_pk)
            .join(sessions, sessions.c.pk == messages.c.session_pk)
            .where(messages.c.pk > last)
            .order_by(messages.c.pk)
            .limit(_PAGE)
        ).all()
        rows = []
        for row in page:
            message = to_message(row, (0, 0))
            if not message.is_summary:
                columns = index_columns(index_text(message), row.namespace_pk, is_sqlite)
                rows.append({"key": row.pk, **{f"new_{name}": columns[name] for name in _COLUMNS}})
        if rows:
            connection.execute(change, rows)
        if len(page) < _PAGE:
            break
        last = page[-1].pk
    if is_sqlite:
        connection.exec_driver_sql("INSERT INTO lmt_messages_terms(lmt_messages_terms) VALUES ('rebuild')")


def index_knowledge(connection: Connection, terms_of: Callable[[str], Sequence[str]]) -> None:
    """Write the terms of everything that is known, in the same way."""
    is_sqlite, last = connection.dialect.name == "sqlite", 0
    change = (
        update(knowledge)
        .where(knowledge.c.pk == bindparam("of"))
        .values(term_count=bindparam("count"), terms=bindparam("found"))
    )
    look = select(knowledge.c.pk, knowledge.c.namespace_pk, knowledge.c.key, knowledge.c.value)
    while page := connection.execute(
        look.where(knowledge.c.pk > last).order_by(knowledge.c.pk).limit(_PAGE)
    ).all():
        rows = []
        for row in page:
            terms = terms_of(f"{unescape(row.key)} {row.value}")
            columns = known_columns(terms, row.namespace_pk, is_sqlite)
            rows.append({"of": row.pk, "count": columns["term_count"], "found": columns["terms"]})
        connection.execute(change, rows)
        last = page[-1].pk
    if is_sqlite:
        connection.exec_driver_sql("INSERT INTO lmt_knowledge_terms(lmt_knowledge_terms) VALUES ('rebuild')")
