"""Turns what a database driver raises into errors that name the value and the next step."""

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
    """Somebody else was faster: a unique value is taken, or a parent row is gone.

    The stores of this package catch it and look again.
    """


class ConnectionLostError(StorageUnavailableError):
    """The connection broke while it was used: nothing of a transaction is there, unless it was in its last step.

    The stores of this package catch it where what they do may be done twice.
    """


_ADVICE: dict[type[StorageError], str] = {
    StorageUnavailableError: "check that the server runs, and that this user may use it",
    ConnectionLostError: "the server stopped or dropped the connection in the middle of it: check that it runs, and "
    "look whether a write was kept before you make it again",
    StorageBusyError: "others hold it: try again, or raise EngineConfig.busy_timeout_seconds",
    StorageReadOnlyError: "it cannot be written: check permissions, or open a writable copy",
    StorageFullError: "no room is left: free some space and try again; nothing of this write was kept",
    StorageCorruptError: "it is damaged or no database: restore a backup, the file was left as it is",
    ConcurrentWriteError: "try again; nothing of this write was kept",
    StorageError: "nothing of this write was kept",
}

_SQLITE_ERRORS: dict[int, type[StorageError]] = {  # by the extended code, else by its last byte
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

_POSTGRES_ERRORS: dict[str, type[StorageError]] = {  # by the whole of SQLSTATE, else by its class
    "23505": ConcurrentWriteError,
    "23503": ConcurrentWriteError,
    "53100": StorageFullError,
    "25006": StorageReadOnlyError,
    "42501": StorageReadOnlyError,
    "55P03": StorageBusyError,
    "57014": StorageBusyError,
    "40": StorageBusyError,
    "08": ConnectionLostError,
    "57P01": ConnectionLostError,
    "57P02": ConnectionLostError,
    "57P03": ConnectionLostError,
    "28": StorageUnavailableError,
    "3D": StorageUnavailableError,
    "53": StorageUnavailableError,
    "57": StorageUnavailableError,
    "XX001": StorageCorruptError,
    "XX002": StorageCorruptError,
}


@contextmanager
def translate_errors(database: str, driver: DBAPIModule) -> Iterator[None]:
    """Raise errors of our tree for those of SQLAlchemy or the driver below it."""
    try:
        yield
    except exc.TimeoutError as error:
        raise _build_error(StorageBusyError, database, "no connection came free in time") from error
    except (OverflowError, UnicodeError) as error:
        raise _build_error(
            StorageError, database, f"it cannot hold such a value: {type(error).__name__}"
        ) from None
    except (exc.DBAPIError, driver.Error) as error:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        # Not chained: a driver's error may quote the row that it refused.
        raise _build_error(_find_error_class(cause, driver), database, _describe_cause(cause)) from None


def build_connection_error(database: str, error: exc.DBAPIError) -> StorageError:
    """What to raise when a server gives no connection."""
    cause = error.orig
    kind = _POSTGRES_ERRORS.get(getattr(cause, "sqlstate", None) or "", StorageUnavailableError)
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
        advice = "check that the folder exists, that its disk works, and that you may write there"
    return kind(f"the database {database!r} failed ({reason}): {advice}")


def _describe_cause(cause: BaseException | None) -> str:
    code = (
        getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None) or type(cause).__name__
    )
    first_line = str(cause).strip().split("\n", 1)[0]
    return f"{first_line.partition(' with text ')[0]} [{code}]"  # SQLite quotes a text that it cannot decode


@contextmanager
def detect_damaged_rows(label: str) -> Iterator[None]:
    """Tell of rows that cannot be read as messages.

    Args:
        label: What the database is called.
    """
    try:
        yield
    except LangmemTiersError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        raise StorageCorruptError(
            f"{label!r} holds a message that was not written by us or is damaged: "
            "restore a backup, nothing was changed"
        ) from None
