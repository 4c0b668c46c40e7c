"""Scrubbing of PostgreSQL's write-ahead log, which keeps all written data until its segments are overwritten."""

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
# pg_switch_wal() does nothing if no record was written since the last switch.
_WRITE_RECORD = text("SELECT pg_logical_emit_message(false, 'langmem-tiers', '')")
_COUNT_OLD_SEGMENTS = text(
    """SELECT count(*) FROM pg_ls_waldir()
        WHERE name ~ '^[0-9A-F]{24}$' AND name > pg_walfile_name(pg_current_wal_lsn())"""
)
_IS_LOG_RETAINED = text(
    """SELECT current_setting('archive_mode') <> 'off' OR current_setting('wal_keep_size') <> '0'
            OR EXISTS (SELECT 1 FROM pg_replication_slots)"""
)
_MAX_OLD_SEGMENTS = 256
"""Maximum number of old segments to overwrite, of 16 MB each; only a server with a special configuration has more."""
_LOG_RETAINED_NOTE = (
    "the server retains its write-ahead log for an archive or for replicas: these contain erased data until they "
    "discard it"
)
_NOT_ALLOWED_NOTE = (
    "this role may not switch the server's write-ahead log, request a checkpoint and list the log files "
    "(pg_switch_wal, CHECKPOINT, pg_ls_waldir): the log contains erased data until the server overwrites it"
)
_TOO_MANY_SEGMENTS = (
    "the server has {count} old segments of its write-ahead log to reuse, which may contain erased data: set "
    "wal_recycle = off and a lower max_wal_size, then forget the same data again"
)


def scrub_write_ahead_log(database: Database) -> ScrubResult:
    """Overwrite the segments of the server's log that may contain data written until now."""
    with database.autocommit() as connection:
        is_retained = bool(connection.execute(_IS_LOG_RETAINED).scalar_one())
    # Overwriting local segments would not help: every new segment goes to the archive or the replicas as well.
    if is_retained:
        return ScrubResult(notes=(_LOG_RETAINED_NOTE,), is_clear=False)
    try:
        with database.autocommit() as connection:
            problem = _overwrite_segments(connection)
    except StorageReadOnlyError:
        return ScrubResult(notes=(_NOT_ALLOWED_NOTE,), is_clear=False)
    except StorageError as error:
        problem = f"the server's write-ahead log was not cleared ({error}): forget the same data again"
    return ScrubResult(left=() if problem is None else (problem,))


def _overwrite_segments(connection: Connection) -> str | None:
    # Switch to a new segment first. A checkpoint deletes the segments before the one in which it starts, or renames
    # them for later reuse with their old content. These recycled segments are overwritten one after the other:
    # switching away from a segment fills the rest of it with zeros.
    connection.execute(_SWITCH_SEGMENT)
    connection.execute(_CHECKPOINT)
    recycled = int(connection.execute(_COUNT_OLD_SEGMENTS).scalar_one())
    if recycled > _MAX_OLD_SEGMENTS:
        return _TOO_MANY_SEGMENTS.format(count=recycled)
    # One more than counted: the current segment may be a recycled one too.
    for _ in range(recycled + 1):
        connection.execute(_WRITE_RECORD)
        connection.execute(_SWITCH_SEGMENT)
    return None
