"""Extracted facts, and how far the messages of a session were worked through, on SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from langmem_tiers.common.namespaces import escape, namespace_key, unescape
from langmem_tiers.items.repository import parts_of
from langmem_tiers.long_term.records import Cursor, Turn
from langmem_tiers.long_term.rows import FACTS, to_fact
from langmem_tiers.sessions.message_rows import to_message
from langmem_tiers.sessions.models import IN_LIST
from langmem_tiers.storage.retry_read import repeatable
from langmem_tiers.storage.schema import (
    POSITION_STEP,
    RECORD,
    extracted_facts,
    learned_sessions,
    listings,
    messages,
    namespaces,
    sessions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.facts.models import ExtractedFact, FactState
    from langmem_tiers.storage.database import Database

_FACTS = FACTS.join(namespaces, namespaces.c.pk == extracted_facts.c.namespace_pk)
_is_listed = func.coalesce(listings.c.listing, IN_LIST[0].value).in_([one.value for one in IN_LIST])


class SqlExtractedFacts:
    """The part of the ``MemoryStore`` port that reads what is on its way into memory."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @repeatable
    def facts(
        self,
        namespace: NamespacePath,
        states: frozenset[FactState] | None,
        *,
        session_key: int | None = None,
        after: str | None = None,
        limit: int,
    ) -> tuple[ExtractedFact, ...]:
        """Extracted facts in one of these states, oldest first, behind the fact ``after``."""
        of = namespaces.c.path == namespace_key(namespace)
        query = _FACTS.where(of)
        if states is not None:
            query = query.where(extracted_facts.c.state.in_([state.value for state in states]))
        if session_key is not None:
            query = query.where(extracted_facts.c.session_pk == session_key)
        if after is not None:
            last = (
                select(extracted_facts.c.pk).join(namespaces).where(of, extracted_facts.c.id == escape(after))
            )
            query = query.where(extracted_facts.c.pk > last.scalar_subquery())
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(extracted_facts.c.pk).limit(limit)).all()
        return tuple(to_fact(row) for row in rows)

    @repeatable
    def fact(self, namespace: NamespacePath, fact_id: str) -> ExtractedFact | None:
        """One extracted fact."""
        own = _FACTS.where(
            namespaces.c.path == namespace_key(namespace), extracted_facts.c.id == escape(fact_id)
        )
        with self._database.read() as connection:
            row = connection.execute(own).first()
        return None if row is None else to_fact(row)

    @repeatable
    def cursor(self, session_key: int) -> Cursor:
        """How far a session was worked through."""
        query = (
            select(learned_sessions.c.learned, learned_sessions.c.chunked, namespaces.c.erased)
            .select_from(sessions.join(namespaces).outerjoin(learned_sessions))
            .where(sessions.c.pk == session_key)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return Cursor() if row is None else Cursor(row.learned or 0, row.chunked or 0, row.erased)

    @repeatable
    def turns(self, session_key: int, *, after: int, limit: int) -> tuple[Turn, ...]:
        """Messages of a session behind a turn, oldest first."""
        query = (
            select(*RECORD)
            .outerjoin(listings, listings.c.message_pk == messages.c.pk)
            .where(messages.c.session_pk == session_key, messages.c.position > after * POSITION_STEP)
            .where(messages.c.position % POSITION_STEP == 0, _is_listed)  # summaries stand in between
            .order_by(messages.c.position, messages.c.pk)
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(
            Turn(number=row.position // POSITION_STEP, message=to_message(row, (0, 0))) for row in rows
        )

    @repeatable
    def numbers(self, session_key: int, message_ids: Sequence[str]) -> Mapping[str, int]:
        """The numbers of those of some messages that the session has."""
        found: dict[str, int] = {}
        with self._database.read() as connection:
            for some in parts_of([escape(name) for name in message_ids]):
                query = select(messages.c.id, messages.c.position).where(
                    messages.c.session_pk == session_key, messages.c.id.in_(some)
                )
                rows = connection.execute(query)
                found.update((unescape(row.id), row.position // POSITION_STEP) for row in rows)
        return found

    @repeatable
    def last_turn(self, session_key: int) -> int:
        """The number of a session's newest message; 0 if there is none."""
        query = select(sessions.c.last_position).where(sessions.c.pk == session_key)
        with self._database.read() as connection:
            return int(connection.execute(query).scalar() or 0) // POSITION_STEP
