"""Namespaces and databases as they are written on a command line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from langmem_tiers.assembly import url_label
from langmem_tiers.core.config import EngineConfig, MaintenanceConfig
from langmem_tiers.core.errors import InvalidConfigError, NotFoundError, StorageUnavailableError
from langmem_tiers.core.items import NamespaceMatch
from langmem_tiers.core.levels import RedisConfig
from langmem_tiers.core.paths import path_of, shown
from langmem_tiers.engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.core.instruments import Metrics
    from langmem_tiers.core.names import NamespacePath

_MISSPELT = re.compile(r"postgres(ql)?(\+\w+)?(:|//)", re.IGNORECASE)  # it may hold a password
_FILE = "sqlite:///"
_REDIS_SECONDS = (
    5.0  # nobody waits for an answer of the agent here, and what is not erased now stays for long
)


def database_url(text: str) -> str:
    """A URL, or the path of a SQLite file, as a URL."""
    if "://" not in text and _MISSPELT.match(text):
        raise InvalidConfigError(
            "that is no URL of a database, and looks like one: write it as postgresql://user@host/name"
        )
    return text if "://" in text else f"sqlite:///{text}"


def label(text: str) -> str:
    """A database as it was named, without what a URL may hold of secrets."""
    url = database_url(text)
    return url_label(url) if url == text else text


def redis_config(text: str | None) -> RedisConfig | None:
    """A Redis by its URL; another beginning of its keys stands behind a ``#``."""
    if text is None:
        return None
    url, mark, prefix = text.partition("#")
    config = RedisConfig(url=url, timeout_seconds=_REDIS_SECONDS)
    return replace(config, prefix=unquote(prefix)) if mark else config


@contextmanager
def opened(
    database: str,
    *,
    redis: str | None = None,
    embedder: Literal["offline"] | None = None,
    maintenance: MaintenanceConfig | None = None,
    creates: bool = False,
    metrics: Metrics | None = None,
) -> Iterator[MemoryEngine]:
    """An engine on a database, closed at the end.

    Args:
        database: A URL, or the path of a SQLite file.
        redis: The Redis above it, as ``redis_config`` reads it.
        embedder: Whether meaning counts.
        maintenance: What maintenance does.
        creates: Whether a SQLite file that is not there is made.
        metrics: Told how long things take.

    Raises:
        StorageUnavailableError: There is no such file.
    """
    url = database_url(database)
    if url.startswith(_FILE):
        _check_file(url.removeprefix(_FILE), creates=creates)
    config = EngineConfig(redis=redis_config(redis), maintenance=maintenance or MaintenanceConfig())
    with MemoryEngine(url, embedder=embedder, config=config, metrics=metrics) as engine:
        yield engine


def known(engine: MemoryEngine, namespace: str, *, below: bool = False) -> NamespacePath:
    """The namespace that is meant, if it holds anything.

    Args:
        engine: Where.
        namespace: As ``path_of`` reads it.
        below: Whether one below it is enough.

    Raises:
        NotFoundError: It holds nothing.
    """
    path = path_of(namespace)
    of_items = engine.items.namespaces([NamespaceMatch("prefix", path)])
    found = {*engine.namespaces(path, limit=1), *of_items}
    if not found or (path not in found and not below):
        raise NotFoundError(
            f"there is nothing in {shown(path)!r}: inspect shows the namespaces that there are"
        )
    return path


def _check_file(text: str, *, creates: bool) -> None:
    name, _, settings = text.partition("?")
    if not name or ":memory:" in name or "memory" in settings:
        return
    path = Path(unquote(name.removeprefix("file:")) if name.startswith("file:") else name)
    if path.is_dir():
        raise StorageUnavailableError(f"{name!r} is a folder: give --database the file of a memory")
    if not creates and (not path.exists() or not path.stat().st_size):
        raise StorageUnavailableError(
            f"there is no memory at {name!r}: give --database the file or URL of one"
        )
