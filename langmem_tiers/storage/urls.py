"""Parsing, validation and redaction of database URLs."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy import URL, exc, make_url

from langmem_tiers.errors import InvalidConfigError

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
_PUBLIC_SETTINGS = {"host", "port", "sslmode"}
"""Query parameters of a PostgreSQL URL that locate the database and contain no secret."""


def parse_url(url: str | os.PathLike[str]) -> URL:
    """Parse a database URL, or raise InvalidConfigError with an example.

    A ``Path`` is a SQLite file with exactly that name.
    """
    if isinstance(url, os.PathLike):
        return _build_sqlite_url(os.fspath(url))
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, TypeError, ValueError, AttributeError):
        raise InvalidConfigError(
            f"{_redact_text(url)} is not a database URL: use 'sqlite:///memory.db' or 'postgresql://user@host/name'"
        ) from None
    driver = _DRIVERS.get(parsed.drivername, parsed.drivername)
    if driver not in _DRIVERS.values():
        raise InvalidConfigError(
            f"unknown database type {parsed.drivername!r}: use sqlite:/// or postgresql:// (psycopg 3)"
        )
    if "@" in (parsed.host or ""):
        raise InvalidConfigError("the host of the URL contains an '@': write an '@' in the password as %40")
    parsed = parsed.set(drivername=driver)
    return _check_sqlite(parsed, "?" in str(url)) if parsed.get_backend_name() == "sqlite" else parsed


def is_memory(url: URL) -> bool:
    """Return True if a SQLite URL names an in-memory database."""
    name = url.database or ":memory:"
    if not name.startswith("file:"):
        return name == ":memory:"
    return name == "file::memory:" or url.query.get("mode") == "memory" or url.query.get("vfs") == "memdb"


def to_shared_memory_url(url: URL) -> URL:
    """Return the URL of an in-memory database that several connections of this process can share."""
    # A random name, so that two engines in this process do not share a database by accident.
    if url.database in (None, ":memory:"):
        url = url.set(database=f"file:lmt-{uuid.uuid4().hex}", query={"mode": "memory"})
    return url.update_query_dict({"cache": "shared", "uri": "true"})


def get_file_identity(url: URL) -> tuple[int, int] | None:
    """Return device and inode of a SQLite file, or None if it does not exist. A replaced file has another identity."""
    name = url.database or ""
    path = unquote(name.removeprefix("file:")) if name.startswith("file:") else name
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def redact_url(url: URL) -> str:
    """Return the URL for display, without password and query, which may contain secrets."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database}" if url.database else "sqlite://"
    host = url.host or url.query.get("host", "")
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return (
        f"postgresql://{user}{host if isinstance(host, str) else ','.join(host)}{port}/{url.database or ''}"
    )


def build_reopen_url(url: URL) -> str | None:
    """Return a URL without secrets that opens the same database from any folder on this machine.

    None for an in-memory database, and for a URL with settings that may be secrets or select other tables.
    """
    if url.get_backend_name() == "sqlite":
        if is_memory(url):
            return None
        name = url.database or ""
        plain = url if name.startswith("file:") else url.set(database=str(Path(name).absolute()))
        return plain.set(drivername="sqlite").render_as_string(hide_password=False)
    if set(url.query) - _PUBLIC_SETTINGS:
        return None
    # A new URL, because set(password=None) keeps the password.
    return URL.create(
        "postgresql",
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query=url.query,
    ).render_as_string(hide_password=False)


def _check_sqlite(url: URL, has_query: bool) -> URL:  # noqa: FBT001 - an empty query is dropped by the parser
    if url.database == "" or url.host:
        raise InvalidConfigError(
            f"{redact_url(url)!r} does not name a file: use 'sqlite:///memory.db', or 'sqlite://' for an in-memory "
            "database"
        )
    if url.database is None or url.database == ":memory:":
        return url
    if url.database.startswith("file:"):
        return _parse_sqlite_uri(url)
    if has_query:
        raise InvalidConfigError(
            f"{redact_url(url)!r} has parameters after a '?': use 'sqlite:///file:PATH?mode=ro&uri=true' for "
            "parameters of SQLite, or a Path if the file name contains a '?'"
        )
    return _build_sqlite_url(url.database)


def _parse_sqlite_uri(url: URL) -> URL:
    name = (url.database or "").removeprefix("file:")
    # A NUL would cut the name in C and so open another file.
    if not name or "\0" in name or "%00" in name:
        raise InvalidConfigError(
            "a SQLite URI must name a file or an in-memory database: use 'sqlite:///file:PATH?mode=ro'"
        )
    if not is_memory(url) and not name.startswith("/"):  # absolute, as a plain file below
        url = url.set(database=f"file:{quote(str(Path.cwd()))}/{name}")
    return url.update_query_dict({"uri": "true"})  # otherwise SQLite reads the name as a path


def _build_sqlite_url(name: str | bytes) -> URL:
    # Absolute, because later connections must open the same file even if the working directory changes.
    try:
        path = str(Path(os.fsdecode(name)).absolute())
        os.fsencode(path)
    except UnicodeError:
        path = "\0"
    if "\0" in path:
        raise InvalidConfigError(f"{name!r} is not a valid file name: use another one")
    return URL.create(_DRIVERS["sqlite"], database=path)


def _redact_text(url: object) -> str:
    # An invalid URL may still contain a password; a SQLite file name does not.
    text = str(url)
    return repr(url) if text.startswith("sqlite") or not set(text) & set("@:") else "that"
