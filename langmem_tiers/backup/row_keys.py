"""Keys for rows that are restored: a run of them that nobody else has or gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, text

from langmem_tiers.backup.tables import get_backup_tables
from langmem_tiers.backup.values import MAX_KEYS_PER_KIND
from langmem_tiers.errors import DamagedBackupError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from langmem_tiers.storage.database import Database

_SEQUENCE_QUERY = text("SELECT seq FROM sqlite_sequence WHERE name = :table")
_HAS_SEQUENCES_QUERY = text("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'")


def check_spans(spans: Mapping[str, int]) -> None:
    """Refuse to take more keys than any memory needs."""
    if any(span > MAX_KEYS_PER_KIND for span in spans.values()):
        raise DamagedBackupError(
            "the backup names more rows than a database has: take another one; nothing was restored"
        )


def find_last_keys(connection: Connection, spans: Mapping[str, int]) -> dict[str, int]:
    """The highest key of each kind that was ever given, on SQLite, where nobody else writes meanwhile."""
    has_sequences = connection.execute(_HAS_SEQUENCES_QUERY).first() is not None
    found: dict[str, int] = {}
    for kind, kept in get_backup_tables().items():
        if spans.get(kind, 0):
            highest = connection.execute(select(func.max(kept.table.c.pk))).scalar() or 0
            given = (
                connection.execute(_SEQUENCE_QUERY, {"table": kept.table.name}).scalar()
                if has_sequences
                else None
            )
            found[kind] = max(highest, given or 0)
    return found


def reserve_keys(database: Database, spans: Mapping[str, int]) -> dict[str, int]:
    """Take a run of keys of each kind, on PostgreSQL: the key before the first of each.

    In a transaction of its own: others wait for this one, and not until everything is restored. Keys that are not
    used after all are never missed.
    """
    found: dict[str, int] = {}
    for kind, kept in get_backup_tables().items():
        span = spans.get(kind, 0)
        if not span:
            continue
        name = kept.table.name
        with database.write() as connection:
            # Whoever inserts takes its lock on the table before it takes a key.
            connection.execute(text(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE"))
            sequence = text(f"pg_get_serial_sequence('{name}', 'pk')")
            given = connection.execute(select(func.nextval(sequence))).scalar_one()
            highest = connection.execute(select(func.max(kept.table.c.pk))).scalar() or 0
            found[kind] = max(int(given), int(highest))
            connection.execute(select(func.setval(sequence, found[kind] + span)))
    return found
