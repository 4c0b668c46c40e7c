"""Namespaces and databases as they are written on a command line."""

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

_MISSPELLED_URL = re.compile(r"postgres(ql)?(\+\w+)?(:|//)", re.IGNORECASE)  # it may hold a password
_SQLITE_PREFIX = "sqlite:///"
_REDIS_TIMEOUT_SECONDS = (
    5.0  # nobody waits for an answer of the agent here, and what is not erased now stays for long
)


def to_database_url(text: str) -> str:
    """A URL, or the path of a SQLite file, as a URL."""
    if "://" not in text and _MISSPELLED_URL.match(text):
        raise InvalidConfigError(
            "that is no URL of a database, and looks like one: write it as postgresql://user@host/name"
        )
    return text if "://" in text else f"sqlite:///{text}"


def to_database_label(text: str) -> str:
    """A database as it was named, without what a URL may hold of secrets."""
    url = to_database_url(text)
    return get_url_label(url) if url == text else text


def parse_redis_config(text: str | None) -> RedisConfig | None:
    """A Redis by its URL; another beginning of its keys stands behind a ``#``."""
    if text is None:
        return None
    url, mark, prefix = text.partition("#")
    config = RedisConfig(url=url, timeout_seconds=_REDIS_TIMEOUT_SECONDS)
    return replace(config, prefix=unquote(prefix)) if mark else config


@contextmanager
def open_engine(  # noqa: PLR0913 - each is a setting of its own
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
    """An engine on a database, closed at the end.

    Args:
        database: A URL, or the path of a SQLite file.
        redis: The Redis above it, as ``redis_config`` reads it.
        embedder: Whether meaning counts.
        maintenance: What maintenance does.
        creates: Whether a SQLite file that is not there is made.
        metrics: Told how long things take.
        budget: Tokens that agents have for memory; as many as a config has that says nothing, if left out.
        busy_timeout_seconds: How long others may hold the database; as long as a config says, if left out.

    Raises:
        StorageUnavailableError: There is no such file.
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
    teller: Output,
    *,
    redis: str | None = None,
    creates: bool = False,
    metrics: Metrics | None = None,
    budget: int | None = None,
    busy_timeout_seconds: float | None = None,
) -> Iterator[MemoryEngine]:
    """An engine for other programs: with the offline embedder, unless the memory has vectors of another one alone.

    Beside those, vectors of the offline one would rank otherwise than the agents do whose memory it is.

    Args:
        database: A URL, or the path of a SQLite file.
        teller: Says on standard error that meaning does not count, if it does not.
        redis: The Redis above it, as ``redis_config`` reads it.
        creates: Whether a SQLite file that is not there is made.
        metrics: Told how long things take.
        budget: Tokens that the agents have for memory.
        busy_timeout_seconds: How long others may hold the database.
    """
    open_one = partial(
        open_engine,
        database,
        redis=redis,
        metrics=metrics,
        budget=budget,
        busy_timeout_seconds=busy_timeout_seconds,
    )
    with open_one(embedder="offline", creates=creates) as engine:
        others = engine.embedders()
        if not others or OfflineEmbedder.identity in others:
            yield engine
            return
    teller.err.print(
        f"The vectors are of {', '.join(map(repr, others))}, which is not at hand here: words alone rank. "
        "Mount create_app(engine) to see what your agents see.",
        soft_wrap=True,
    )
    with open_one() as engine:
        yield engine


def require_namespace(engine: MemoryEngine, namespace: str, *, below: bool = False) -> NamespacePath:
    """The namespace that is meant, if it holds anything.

    Args:
        engine: Where.
        namespace: As ``path_of`` reads it.
        below: Whether one below it is enough.

    Raises:
        NotFoundError: It holds nothing.
    """
    path = parse_namespace(namespace)
    found = find_used_namespaces(engine, path)
    if not found or (path not in found and not below):
        slashed = (namespace,)  # in Python a slash is a part of a label
        meant = f"there is '{format_namespace(slashed)}', or " if engine.namespaces(slashed, limit=1) else ""
        raise NotFoundError(
            f"there is nothing in {format_namespace(path)!r}: {meant}inspect shows the namespaces that there are"
        )
    return path


def is_new_database(database: str) -> bool:
    """Whether it is a SQLite file that is not there yet."""
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
        raise StorageUnavailableError(f"{str(path)!r} is a folder: give --database the file of a memory")
    if not creates and is_new_database(database):
        raise StorageUnavailableError(
            f"there is no memory at {str(path)!r}: give --database the file or URL of one"
        )
