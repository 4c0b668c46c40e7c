"""The write-ahead log of PostgreSQL, which holds all that was written until the server writes over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from langmem_tiers.erasure.models import ScrubResult
from langmem_tiers.errors import StorageError, StorageReadOnlyError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from langmem_tiers.storage.database import Database

_SWITCH_SEGMENT = text("SELECT pg_switch_wal()")
_CHECKPOINT = text("CHECKPOINT")
_WRITE_RECORD = text(
    "SELECT pg_logical_emit_message(false, 'langmem-tiers', '')"
)  # where nothing was, there is no switch
_COUNT_OLD_SEGMENTS = text(
    """SELECT count(*) FROM pg_ls_waldir()
        WHERE name ~ '^[0-9A-F]{24}$' AND name > pg_walfile_name(pg_current_wal_lsn())"""
)
_IS_LOG_RETAINED = text(
    """SELECT current_setting('archive_mode') <> 'off' OR current_setting('wal_keep_size') <> '0'
            OR EXISTS (SELECT 1 FROM pg_replication_slots)"""
)
_MAX_OLD_SEGMENTS = 256
"""Old segments that are written over, each of 16 MB; a server has more of them only where it was told to."""
_LOG_RETAINED_NOTE = (
    "the server keeps its write-ahead log for an archive or for replicas: they hold what was written until they let go "
    "of it"
)
_NOT_ALLOWED_NOTE = (
    "this role may not switch the server's write-ahead log, have a checkpoint made and list its files (pg_switch_wal, "
    "CHECKPOINT, pg_ls_waldir): what is in the log stays until the server writes over it"
)
_TOO_MANY_SEGMENTS = (
    "the server holds {count} old segments of its write-ahead log ready to be written over, which may hold what was "
    "erased: have wal_recycle = off and a lower max_wal_size set, and forget the same again"
)


def scrub_write_ahead_log(database: Database) -> ScrubResult:
    """Have nothing in the server's log of what was written until now."""
    with database.autocommit() as connection:
        is_kept = bool(connection.execute(_IS_LOG_RETAINED).scalar_one())
    if is_kept:  # to write over what is here would only make those have more of it
        return ScrubResult(notes=(_LOG_RETAINED_NOTE,), is_clear=False)
    try:
        with database.autocommit() as connection:
            problem = _overwrite_segments(connection)
    except StorageReadOnlyError:
        return ScrubResult(notes=(_NOT_ALLOWED_NOTE,), is_clear=False)
    except StorageError as error:
        problem = f"the server's write-ahead log was not cleared ({error}): forget the same again"
    return ScrubResult(left=() if problem is None else (problem,))


def _overwrite_segments(connection: Connection) -> str | None:
    # A new segment first: what lies before the one that a checkpoint begins in is deleted with it, or kept under the
    # name of a coming segment with all that is in it. Leaving a segment fills the rest of it with zeros.
    connection.execute(_SWITCH_SEGMENT)
    connection.execute(_CHECKPOINT)
    ahead = int(connection.execute(_COUNT_OLD_SEGMENTS).scalar_one())
    if ahead > _MAX_OLD_SEGMENTS:
        return _TOO_MANY_SEGMENTS.format(count=ahead)
    for _ in range(ahead + 1):  # the one that is written to may be such a one
        connection.execute(_WRITE_RECORD)
        connection.execute(_SWITCH_SEGMENT)
    return None
