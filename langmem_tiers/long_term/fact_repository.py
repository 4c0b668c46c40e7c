"""SQL queries of extracted facts and of learning cursors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from langmem_tiers.common.namespaces import build_namespace_key, escape, unescape
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.long_term.records import LearningCursor, NumberedMessage
from langmem_tiers.long_term.rows import SELECT_FACTS, to_fact
from langmem_tiers.sessions.message_sql import from_message_row
from langmem_tiers.sessions.models import IN_LIST
from langmem_tiers.storage.database import retry_on_disconnect
from langmem_tiers.storage.schema import (
    MESSAGE_COLUMNS,
    POSITION_STEP,
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

_SELECT_NAMESPACE_FACTS = SELECT_FACTS.join(namespaces, namespaces.c.pk == extracted_facts.c.namespace_pk)
_is_listed = func.coalesce(listings.c.listing, IN_LIST[0].value).in_([listing.value for listing in IN_LIST])


class FactRepository:
    """Reads extracted facts, turns and learning cursors."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retry_on_disconnect
    def list_facts(
        self,
        namespace: NamespacePath,
        states: frozenset[FactState] | None,
        *,
        session_key: int | None = None,
        after: str | None = None,
        limit: int,
    ) -> tuple[ExtractedFact, ...]:
        """Return extracted facts in the given states, oldest first.

        Args:
            namespace: Namespace of the facts.
            states: States to include. None means all.
            session_key: Include only facts of this session.
            after: Id of the last fact of the previous page.
            limit: Maximum number of facts.
        """
        is_in_namespace = namespaces.c.path == build_namespace_key(namespace)
        query = _SELECT_NAMESPACE_FACTS.where(is_in_namespace)
        if states is not None:
            query = query.where(extracted_facts.c.state.in_([state.value for state in states]))
        if session_key is not None:
            query = query.where(extracted_facts.c.session_pk == session_key)
        if after is not None:
            last = (
                select(extracted_facts.c.pk)
                .join(namespaces)
                .where(is_in_namespace, extracted_facts.c.id == escape(after))
            )
            query = query.where(extracted_facts.c.pk > last.scalar_subquery())
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(extracted_facts.c.pk).limit(limit)).all()
        return tuple(to_fact(row) for row in rows)

    @retry_on_disconnect
    def get_fact(self, namespace: NamespacePath, fact_id: str) -> ExtractedFact | None:
        """Return an extracted fact, or None."""
        own = _SELECT_NAMESPACE_FACTS.where(
            namespaces.c.path == build_namespace_key(namespace), extracted_facts.c.id == escape(fact_id)
        )
        with self._database.read() as connection:
            row = connection.execute(own).first()
        return None if row is None else to_fact(row)

    @retry_on_disconnect
    def get_cursor(self, session_key: int) -> LearningCursor:
        """Return how far a session's messages have been processed."""
        query = (
            select(
                learned_sessions.c.learned_turn, learned_sessions.c.chunked_turn, namespaces.c.erasure_epoch
            )
            .select_from(sessions.join(namespaces).outerjoin(learned_sessions))
            .where(sessions.c.pk == session_key)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return (
            LearningCursor()
            if row is None
            else LearningCursor(row.learned_turn or 0, row.chunked_turn or 0, row.erasure_epoch)
        )

    @retry_on_disconnect
    def list_turns(self, session_key: int, *, after: int, limit: int) -> tuple[NumberedMessage, ...]:
        """Return messages of a session after a turn, oldest first, without summaries and removed messages."""
        query = (
            select(*MESSAGE_COLUMNS)
            .outerjoin(listings, listings.c.message_pk == messages.c.pk)
            .where(messages.c.session_pk == session_key, messages.c.position > after * POSITION_STEP)
            # Messages have multiples of POSITION_STEP as positions. Summaries are in between, so this skips them.
            .where(messages.c.position % POSITION_STEP == 0, _is_listed)
            .order_by(messages.c.position, messages.c.pk)
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(
            NumberedMessage(number=row.position // POSITION_STEP, message=from_message_row(row, (0, 0)))
            for row in rows
        )

    @retry_on_disconnect
    def get_turn_numbers(self, session_key: int, message_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the turn numbers of messages by id. Ids that the session does not contain are omitted."""
        found: dict[str, int] = {}
        with self._database.read() as connection:
            for batch in split_parameters([escape(name) for name in message_ids]):
                query = select(messages.c.id, messages.c.position).where(
                    messages.c.session_pk == session_key, messages.c.id.in_(batch)
                )
                rows = connection.execute(query)
                found.update((unescape(row.id), row.position // POSITION_STEP) for row in rows)
        return found

    @retry_on_disconnect
    def get_last_turn(self, session_key: int) -> int:
        """Return the number of a session's newest message, or 0."""
        query = select(sessions.c.last_position).where(sessions.c.pk == session_key)
        with self._database.read() as connection:
            return int(connection.execute(query).scalar() or 0) // POSITION_STEP
