"""The write-ahead log of PostgreSQL, which holds all that was written until the server lets go of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from langmem_tiers.core.errors import StorageError

if TYPE_CHECKING:
    from langmem_tiers.storage.database import Database

# A new segment first: what lies before the one that a checkpoint begins in is not needed after it.
_LET_GO = ("SELECT pg_switch_wal()", "CHECKPOINT")
_KEPT = text(
    """SELECT current_setting('wal_recycle') = 'on' AS is_recycled,
        current_setting('archive_mode') <> 'off' OR current_setting('wal_keep_size') <> '0'
            OR EXISTS (SELECT 1 FROM pg_replication_slots) AS is_kept"""
)
_RECYCLED = (
    "the server writes over old segments of its write-ahead log, which hold what was written until then: with "
    "wal_recycle = off in its settings it deletes them, and forgetting the same again leaves nothing"
)
_KEPT_FOR_OTHERS = (
    "the server keeps its write-ahead log for an archive or for replicas: they hold what was written until they let go "
    "of it"
)


def let_go(database: Database) -> tuple[str, ...]:
    """Have the server delete what it need not keep of its log; what of it stays, and why."""
    notes = list[str]()
    for statement in _LET_GO:
        try:
            with database.outside() as connection:
                connection.execute(text(statement))
        except StorageError:
            notes.append(
                f"this role may not run {statement}: what is in the server's write-ahead log stays until the server "
                "lets go of it"
            )
    with database.outside() as connection:
        kept = connection.execute(_KEPT).one()
    notes += [_RECYCLED] if kept.is_recycled else []
    notes += [_KEPT_FOR_OTHERS] if kept.is_kept else []
    return tuple(notes)
