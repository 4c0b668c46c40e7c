"""Reservation of keys for restored rows: one contiguous range per table."""

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
    """Check that a backup does not claim an unreasonable number of keys, which would exhaust the sequences.

    Raises:
        DamagedBackupError: A span is too large.
    """
    if any(span > MAX_KEYS_PER_KIND for span in spans.values()):
        raise DamagedBackupError(
            "the backup contains invalid numbers of rows: use another backup; nothing was restored"
        )


def find_last_keys(connection: Connection, spans: Mapping[str, int]) -> dict[str, int]:
    """Return the highest key of each kind that was ever used, on SQLite.

    Call it in the transaction that inserts the rows. The result includes keys of deleted rows, which must not be used
    again. SQLite records them in ``sqlite_sequence``.
    """
    has_sequences = connection.execute(_HAS_SEQUENCES_QUERY).first() is not None
    found: dict[str, int] = {}
    for kind, backup_table in get_backup_tables().items():
        if spans.get(kind, 0):
            highest = connection.execute(select(func.max(backup_table.table.c.pk))).scalar() or 0
            last_used = (
                connection.execute(_SEQUENCE_QUERY, {"table": backup_table.table.name}).scalar()
                if has_sequences
                else None
            )
            found[kind] = max(highest, last_used or 0)
    return found


def reserve_keys(database: Database, spans: Mapping[str, int]) -> dict[str, int]:
    """Reserve a range of keys of each kind, on PostgreSQL, and return the key before each range.

    Each range is reserved in a separate short transaction, so that other writers wait only for it and not for the whole
    restore. If the restore fails, the keys remain unused, which does no harm.
    """
    found: dict[str, int] = {}
    for kind, backup_table in get_backup_tables().items():
        span = spans.get(kind, 0)
        if not span:
            continue
        name = backup_table.table.name
        with database.write() as connection:
            # An INSERT locks the table before it draws a key. With this lock held, no other process can draw a key
            # between nextval and setval.
            connection.execute(text(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE"))
            sequence = text(f"pg_get_serial_sequence('{name}', 'pk')")
            next_key = connection.execute(select(func.nextval(sequence))).scalar_one()
            highest = connection.execute(select(func.max(backup_table.table.c.pk))).scalar() or 0
            found[kind] = max(int(next_key), int(highest))
            connection.execute(select(func.setval(sequence, found[kind] + span)))
    return found
