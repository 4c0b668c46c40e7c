"""Databases and namespaces that a command works on, parsed from the command line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.common.namespaces import format_namespace, parse_namespace
from langmem_tiers.config import EngineConfig, MaintenanceConfig, RedisConfig
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidConfigError, NotFoundError, StorageUnavailableError
from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder
from langmem_tiers.server.namespace_listing import find_used_namespaces
from langmem_tiers.wiring import get_url_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.cli.output import Output
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.telemetry.instruments import Metrics

# A PostgreSQL URL without "://". Used as a path, it would become a SQLite file with a password in its name.
_MISSPELLED_URL = re.compile(r"postgres(ql)?(\+\w+)?(:|//)", re.IGNORECASE)
_SQLITE_PREFIX = "sqlite:///"
# Longer than the time-out of an agent: no user waits for an answer here, and a key that a time-out leaves behind
# remains in Redis until it expires.
_REDIS_TIMEOUT_SECONDS = 5.0


def to_database_url(text: str) -> str:
    """Return a database URL from a URL or the path of a SQLite file."""
    if "://" not in text and _MISSPELLED_URL.match(text):
        # The message does not quote the text: it may contain a password.
        raise InvalidConfigError("invalid database URL: write it as postgresql://user@host/name")
    return text if "://" in text else f"sqlite:///{text}"


def to_database_label(text: str) -> str:
    """Return the name of a database for messages: as the user wrote it, without the secrets of a URL."""
    url = to_database_url(text)
    return get_url_label(url) if url == text else text


def parse_redis_config(text: str | None) -> RedisConfig | None:
    """Return the configuration for a Redis URL with an optional key prefix, as in ``URL#prefix``."""
    if text is None:
        return None
    url, separator, prefix = text.partition("#")
    config = RedisConfig(url=url, timeout_seconds=_REDIS_TIMEOUT_SECONDS)
    return replace(config, prefix=unquote(prefix)) if separator else config


@contextmanager
def open_engine(  # noqa: PLR0913 - independent settings
    database: str,
    *,
    redis: str | None = None,
    embedder: Literal["offline"] | None = None,
    maintenance: MaintenanceConfig | None = None,
    creates: bool = False,
    metrics: Metrics | None = None,
    budget: int | None = None,
    busy_timeout_seconds: float | None = None,
) -> Iterator[MemoryEngine]:
    """Open an engine on a database and close it at the end of the block.

    Args:
        database: URL, or path of a SQLite file.
        redis: Redis cache in front of the database, as parsed by ``parse_redis_config``.
        embedder: ``"offline"`` to rank by meaning; by default only words count.
        maintenance: Configuration of maintenance.
        creates: Create a SQLite file that does not exist.
        metrics: Receives measurements, for example latencies.
        budget: Tokens that agents have for memory. Default: the default of ``EngineConfig``.
        busy_timeout_seconds: Maximum wait for a locked database. Default: the default of ``EngineConfig``.

    Raises:
        StorageUnavailableError: The SQLite file does not exist and ``creates`` is False.
    """
    _check_file(database, creates=creates)
    config = EngineConfig(redis=parse_redis_config(redis), maintenance=maintenance or MaintenanceConfig())
    if budget is not None:
        config = replace(config, budget=TokenBudget.of(budget))
    if busy_timeout_seconds is not None:
        config = replace(config, busy_timeout_seconds=busy_timeout_seconds)
    with MemoryEngine(to_database_url(database), embedder=embedder, config=config, metrics=metrics) as engine:
        yield engine


@contextmanager
def open_shared_engine(
    database: str,
    printer: Output,
    *,
    redis: str | None = None,
    creates: bool = False,
    metrics: Metrics | None = None,
    budget: int | None = None,
    busy_timeout_seconds: float | None = None,
) -> Iterator[MemoryEngine]:
    """Open an engine that serves other programs, with the offline embedder if that fits the stored vectors.

    If the database only has vectors of other embedders, the engine ranks by words only: adding vectors of the
    offline embedder would change how the agents that own this memory rank.

    Args:
        database: URL, or path of a SQLite file.
        printer: Prints a warning on standard error if only words are used.
        redis: Redis cache in front of the database, as parsed by ``parse_redis_config``.
        creates: Create a SQLite file that does not exist.
        metrics: Receives measurements, for example latencies.
        budget: Tokens that the agents have for memory.
        busy_timeout_seconds: Maximum wait for a locked database.
    """
    open_with = partial(
        open_engine,
        database,
        redis=redis,
        metrics=metrics,
        budget=budget,
        busy_timeout_seconds=busy_timeout_seconds,
    )
    with open_with(embedder="offline", creates=creates) as engine:
        stored_embedders = engine.embedders()
        if not stored_embedders or OfflineEmbedder.identity in stored_embedders:
            yield engine
            return
    printer.err.print(
        f"The stored vectors come from {', '.join(map(repr, stored_embedders))}, which is not available here: "
        "results are ranked by words only. Mount create_app(engine) to rank as your agents do.",
        soft_wrap=True,
    )
    with open_with() as engine:
        yield engine


def require_namespace(engine: MemoryEngine, namespace: str, *, below: bool = False) -> NamespacePath:
    """Parse a namespace and check that something is stored in it.

    Args:
        engine: Engine to search.
        namespace: Labels separated by slashes, as parsed by ``parse_namespace``.
        below: Also accept a namespace that only has content below it.

    Raises:
        NotFoundError: Nothing is stored in the namespace.
    """
    path = parse_namespace(namespace)
    found = find_used_namespaces(engine, path)
    if not found or (path not in found and not below):
        # In Python a label may contain a slash; on the command line such a slash must be escaped. If that was
        # forgotten, suggest the escaped name.
        slashed = (namespace,)
        suggestion = (
            f"did you mean '{format_namespace(slashed)}'? " if engine.namespaces(slashed, limit=1) else ""
        )
        raise NotFoundError(
            f"nothing is stored in namespace {format_namespace(path)!r}: {suggestion}"
            "run 'langmem-tiers inspect' to list the namespaces"
        )
    return path


def is_new_database(database: str) -> bool:
    """Return True if the database is a SQLite file that does not exist or is empty."""
    path = _get_sqlite_file(to_database_url(database))
    return path is not None and (not path.exists() or not path.stat().st_size)


def _get_sqlite_file(url: str) -> Path | None:
    name, _, settings = url.removeprefix(_SQLITE_PREFIX).partition("?")
    if not url.startswith(_SQLITE_PREFIX) or not name or ":memory:" in name or "memory" in settings:
        return None
    return Path(unquote(name.removeprefix("file:")) if name.startswith("file:") else name)


def _check_file(database: str, *, creates: bool) -> None:
    path = _get_sqlite_file(to_database_url(database))
    if path is not None and path.is_dir():
        raise StorageUnavailableError(f"{str(path)!r} is a folder: pass a database file with --database")
    if not creates and is_new_database(database):
        raise StorageUnavailableError(
            f"no memory at {str(path)!r}: pass an existing database file or a URL with --database"
        )
