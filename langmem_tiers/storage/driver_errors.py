"""Translation of driver errors to errors that name the database and the next step."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import exc

from langmem_tiers.errors import (
    LangmemTiersError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine.interfaces import DBAPIModule


class ConcurrentWriteError(StorageError):
    """A concurrent write came first: a unique value is taken, or a parent row was deleted.

    The repositories catch it and read again.
    """


class ConnectionLostError(StorageUnavailableError):
    """The connection broke during use. The transaction was rolled back, unless it broke during the commit.

    The repositories catch it where an operation can be repeated.
    """


_ADVICE: dict[type[StorageError], str] = {
    StorageUnavailableError: "check that the server runs, and that this user has access",
    ConnectionLostError: "the server stopped or dropped the connection during the operation: check that it runs, and "
    "check whether a write was stored before you repeat it",
    StorageBusyError: "it is locked: try again, or raise EngineConfig.busy_timeout_seconds",
    StorageReadOnlyError: "it cannot be written: check permissions, or open a writable copy",
    StorageFullError: "no space left: free some space and try again; this write was rolled back",
    StorageCorruptError: "it is damaged or not a database: restore a backup, the file was not changed",
    ConcurrentWriteError: "try again; this write was rolled back",
    StorageError: "this write was rolled back",
}

# Looked up by the extended code first, then by its last byte, which is the primary code.
_SQLITE_ERRORS: dict[int, type[StorageError]] = {
    # Repositories read before they write, so a violation means that another process wrote in between.
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: ConcurrentWriteError,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: ConcurrentWriteError,
    sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: ConcurrentWriteError,
    sqlite3.SQLITE_BUSY: StorageBusyError,
    sqlite3.SQLITE_LOCKED: StorageBusyError,
    sqlite3.SQLITE_READONLY: StorageReadOnlyError,
    sqlite3.SQLITE_PERM: StorageReadOnlyError,
    sqlite3.SQLITE_IOERR: StorageUnavailableError,
    sqlite3.SQLITE_CANTOPEN: StorageUnavailableError,
    sqlite3.SQLITE_FULL: StorageFullError,
    sqlite3.SQLITE_CORRUPT: StorageCorruptError,
    sqlite3.SQLITE_NOTADB: StorageCorruptError,
}

# Looked up by the whole SQLSTATE first, then by its class, the first two characters.
_POSTGRES_ERRORS: dict[str, type[StorageError]] = {
    # unique_violation and foreign_key_violation, as above.
    "23505": ConcurrentWriteError,
    "23503": ConcurrentWriteError,
    # disk_full, read_only_sql_transaction, insufficient_privilege.
    "53100": StorageFullError,
    "25006": StorageReadOnlyError,
    "42501": StorageReadOnlyError,
    # lock_not_available, query_canceled (also by a timeout), and class 40: deadlocks and serialization failures.
    "55P03": StorageBusyError,
    "57014": StorageBusyError,
    "40": StorageBusyError,
    # Class 08 and the shutdown codes: the connection was lost.
    "08": ConnectionLostError,
    "57P01": ConnectionLostError,
    "57P02": ConnectionLostError,
    "57P03": ConnectionLostError,
    # Wrong credentials, unknown database, insufficient resources, other operator intervention.
    "28": StorageUnavailableError,
    "3D": StorageUnavailableError,
    "53": StorageUnavailableError,
    "57": StorageUnavailableError,
    "XX001": StorageCorruptError,
    "XX002": StorageCorruptError,
}


@contextmanager
def translate_errors(database: str, driver: DBAPIModule) -> Iterator[None]:
    """Convert errors of SQLAlchemy or the driver to storage errors."""
    try:
        yield
    except exc.TimeoutError as error:
        raise _build_error(StorageBusyError, database, "no connection became free in time") from error
    except (OverflowError, UnicodeError) as error:
        raise _build_error(
            StorageError, database, f"it cannot store such a value: {type(error).__name__}"
        ) from None
    except (exc.DBAPIError, driver.Error) as error:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        # Not chained: a driver's error may quote the rejected row.
        raise _build_error(_find_error_class(cause, driver), database, _describe_cause(cause)) from None


def build_connection_error(database: str, error: exc.DBAPIError) -> StorageError:
    """Build the error for a failed connection attempt."""
    cause = error.orig
    kind = _POSTGRES_ERRORS.get(getattr(cause, "sqlstate", None) or "", StorageUnavailableError)
    # Nothing was sent yet, so the advice to check for a stored write would be wrong.
    kind = StorageUnavailableError if kind is ConnectionLostError else kind
    return _build_error(kind, database, _describe_cause(cause))


def _find_error_class(cause: BaseException | None, driver: DBAPIModule) -> type[StorageError]:
    if isinstance(cause, sqlite3.Error) and "Could not decode" in str(cause):
        return StorageCorruptError
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0)
        return _SQLITE_ERRORS.get(code) or _SQLITE_ERRORS.get(code & 0xFF) or StorageError
    state = getattr(cause, "sqlstate", None)
    if state is None:  # the connection itself failed
        return ConnectionLostError if isinstance(cause, driver.OperationalError) else StorageError
    return _POSTGRES_ERRORS.get(state) or _POSTGRES_ERRORS.get(state[:2]) or StorageError


def _build_error(kind: type[StorageError], database: str, reason: str) -> StorageError:
    advice = _ADVICE[kind]
    if kind is StorageUnavailableError and database.startswith("sqlite"):
        advice = "check that the folder exists, that its disk works, and that you have write permission"
    return kind(f"the database {database!r} failed ({reason}): {advice}")


def _describe_cause(cause: BaseException | None) -> str:
    code = (
        getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None) or type(cause).__name__
    )
    first_line = str(cause).strip().split("\n", 1)[0]
    return f"{first_line.partition(' with text ')[0]} [{code}]"  # SQLite quotes a text that it cannot decode


@contextmanager
def detect_damaged_rows(label: str) -> Iterator[None]:
    """Convert errors while decoding message rows to StorageCorruptError.

    Args:
        label: Name of the database in the error.
    """
    try:
        yield
    except LangmemTiersError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        raise StorageCorruptError(
            f"{label!r} contains a message that is damaged or was not written by langmem-tiers: "
            "restore a backup; nothing was changed"
        ) from None
