"""Database URLs: what they may be, and how they are shown."""

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
"""Of a PostgreSQL URL: they say where the database is and hold no secret."""


def parse_url(url: str | os.PathLike[str]) -> URL:
    """The URL with its driver, or an error that says what a URL looks like.

    A ``Path`` is a SQLite file of exactly that name.
    """
    if isinstance(url, os.PathLike):
        return _build_sqlite_url(os.fspath(url))
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, TypeError, ValueError, AttributeError):
        raise InvalidConfigError(
            f"{_redact_text(url)} is no database URL: use 'sqlite:///memory.db' or 'postgresql://user@host/name'"
        ) from None
    driver = _DRIVERS.get(parsed.drivername, parsed.drivername)
    if driver not in _DRIVERS.values():
        raise InvalidConfigError(
            f"unknown kind of database {parsed.drivername!r}: use sqlite:/// or postgresql:// (psycopg 3)"
        )
    if "@" in (parsed.host or ""):
        raise InvalidConfigError(
            "the host of the URL holds an '@': write one that belongs to the password as %40"
        )
    parsed = parsed.set(drivername=driver)
    return _check_sqlite(parsed, "?" in str(url)) if parsed.get_backend_name() == "sqlite" else parsed


def is_memory(url: URL) -> bool:
    """Whether a SQLite URL names a database in memory."""
    name = url.database or ":memory:"
    if not name.startswith("file:"):
        return name == ":memory:"
    return name == "file::memory:" or url.query.get("mode") == "memory" or url.query.get("vfs") == "memdb"


def to_shared_memory_url(url: URL) -> URL:
    """The URL of a database in memory that several connections of this process can share."""
    if url.database in (None, ":memory:"):
        url = url.set(database=f"file:lmt-{uuid.uuid4().hex}", query={"mode": "memory"})
    return url.update_query_dict({"cache": "shared", "uri": "true"})


def get_file_identity(url: URL) -> tuple[int, int] | None:
    """What tells a SQLite file from any other that is given its name; None if there is no file."""
    name = url.database or ""
    path = unquote(name.removeprefix("file:")) if name.startswith("file:") else name
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def redact_url(url: URL) -> str:
    """The URL for people: nothing that may hold a secret, so no password and no query."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database}" if url.database else "sqlite://"
    host = url.host or url.query.get("host", "")
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return (
        f"postgresql://{user}{host if isinstance(host, str) else ','.join(host)}{port}/{url.database or ''}"
    )


def build_reopen_url(url: URL) -> str | None:
    """What opens the same database from anywhere on this machine, without a secret.

    None for a database in memory, and for a URL with settings that may be secrets or choose other tables.
    """
    if url.get_backend_name() == "sqlite":
        if is_memory(url):
            return None
        name = url.database or ""
        plain = url if name.startswith("file:") else url.set(database=str(Path(name).absolute()))
        return plain.set(drivername="sqlite").render_as_string(hide_password=False)
    if set(url.query) - _PUBLIC_SETTINGS:
        return None
    # Made anew, because set(password=None) leaves it as it is.
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
            f"{redact_url(url)!r} names no file: use 'sqlite:///memory.db', or 'sqlite://' for memory"
        )
    if url.database is None or url.database == ":memory:":
        return url
    if url.database.startswith("file:"):
        return _parse_sqlite_uri(url)
    if has_query:
        raise InvalidConfigError(
            f"{redact_url(url)!r} has settings behind a '?': use 'sqlite:///file:PATH?mode=ro&uri=true' for those "
            "that SQLite knows, or a Path if the file's name holds a '?'"
        )
    return _build_sqlite_url(url.database)


def _parse_sqlite_uri(url: URL) -> URL:
    name = (url.database or "").removeprefix("file:")
    if not name or "\0" in name or "%00" in name:
        raise InvalidConfigError(
            "a SQLite URI must name a file or a memory: use 'sqlite:///file:PATH?mode=ro'"
        )
    if not is_memory(url) and not name.startswith("/"):  # absolute, as a plain file below
        url = url.set(database=f"file:{quote(str(Path.cwd()))}/{name}")
    return url.update_query_dict({"uri": "true"})  # without it the name would be taken for a path


def _build_sqlite_url(name: str | bytes) -> URL:
    # Absolute, because a later connection must open the same file, also after the program changed its folder.
    try:
        path = str(Path(os.fsdecode(name)).absolute())
        os.fsencode(path)
    except UnicodeError:
        path = "\0"
    if "\0" in path:
        raise InvalidConfigError(f"{name!r} cannot be the name of a file: use another one")
    return URL.create(_DRIVERS["sqlite"], database=path)


def _redact_text(url: object) -> str:
    # What is no URL of ours may still hold a password; a file's name does not.
    text = str(url)
    return repr(url) if text.startswith("sqlite") or not set(text) & set("@:") else "that"
