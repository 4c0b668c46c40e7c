"""Contents of one namespace, from counters of its sessions; rows of messages are not counted."""

from __future__ import annotations

from datetime import UTC, date
from typing import TYPE_CHECKING, Any

from sqlalchemy import String, func, select, type_coerce

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.namespaces import build_namespace_key
from langmem_tiers.maintenance.models import DailyUsage, NamespaceUsage, TierUsage
from langmem_tiers.storage.schema import entries, knowledge, memories, messages, namespaces, sessions

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.storage.database import Database

_MAX_GROWTH_MESSAGES = 20_000
"""Maximum number of messages read for the growth by day."""


def load_namespace_usage(
    database: Database, namespace: NamespacePath, since: datetime
) -> NamespaceUsage | None:
    """Return the contents of a namespace and its growth since a time; None if it does not exist."""
    with database.read() as connection:
        found = connection.execute(
            select(namespaces.c.pk).where(namespaces.c.path == build_namespace_key(namespace))
        ).scalar()
        if found is None:
            return None
        key = int(found)
        row = sessions.c
        count, message_count, tokens = _fetch_counts(
            connection,
            select(func.count(), func.sum(row.message_count), func.sum(row.token_count)).where(
                row.namespace_pk == key
            ),
        )
        tiers = _count_tiers(connection, key, TierUsage(entries=message_count, tokens=tokens))
        (knowledge_count,) = _fetch_counts(
            connection, select(func.count()).where(knowledge.c.namespace_pk == key)
        )
        growth, is_whole = _count_by_day(connection, key, since, is_sqlite=database.is_sqlite)
    return NamespaceUsage(
        sessions=count,
        messages=message_count,
        tokens=tokens,
        tiers=tiers,
        knowledge=knowledge_count,
        growth=growth,
        growth_is_whole=is_whole,
    )


def _count_tiers(connection: Connection, key: int, all_messages: TierUsage) -> dict[str, TierUsage]:
    # A promoted message belongs to the long-term tier instead of the short-term tier.
    promoted = TierUsage(
        *_fetch_counts(
            connection,
            select(func.count(), func.sum(messages.c.token_count))
            .select_from(entries.join(messages, messages.c.pk == entries.c.message_pk))
            .where(entries.c.namespace_pk == key, entries.c.tier == Tier.LONG_TERM.value),
        )
    )
    row = memories.c
    rows = connection.execute(
        select(row.tier, func.count(), func.sum(row.token_count))
        .where(row.namespace_pk == key)
        .group_by(row.tier)
    )
    found = {Tier.SHORT_TERM.value: all_messages - promoted, Tier.LONG_TERM.value: promoted}
    for tier, count, tokens in rows:
        found[tier] = found.get(tier, TierUsage()) + TierUsage(int(count), int(tokens or 0))
    return found


def _count_by_day(
    connection: Connection, key: int, since: datetime, *, is_sqlite: bool
) -> tuple[tuple[DailyUsage, ...], bool]:
    row = messages.c
    own = select(row.created_at, row.token_count).where(row.namespace_pk == key).limit(_MAX_GROWTH_MESSAGES)
    # PostgreSQL answers this from its index on the time. SQLite has no such index, so the newest rows by primary key
    # are used: that is the order in which they were written.
    newest = (
        own.order_by(row.pk.desc())
        if is_sqlite
        else own.where(row.created_at >= _to_start_of_day(since)).order_by(row.created_at.desc())
    ).subquery()
    day: ColumnElement[Any] = (
        func.substr(type_coerce(newest.c.created_at, String), 1, 10)
        if is_sqlite
        else func.to_char(func.timezone("UTC", newest.c.created_at), "YYYY-MM-DD")
    )
    rows = connection.execute(select(day, func.count(), func.sum(newest.c.token_count)).group_by(day)).all()
    days = sorted(
        DailyUsage(date.fromisoformat(text), int(count), int(tokens)) for text, count, tokens in rows
    )
    is_whole = sum(day.messages for day in days) < _MAX_GROWTH_MESSAGES
    # If the limit was reached, the oldest day may be incomplete.
    complete = days if is_whole else days[1:]
    requested = tuple(day for day in complete if day.day >= since.date())
    return requested, is_whole or bool(days and days[0].day < since.date())


def _to_start_of_day(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _fetch_counts(connection: Connection, query: Any) -> tuple[int, ...]:  # noqa: ANN401 - any statement
    # A sum over no rows is NULL.
    return tuple(int(value or 0) for value in connection.execute(query).one())
