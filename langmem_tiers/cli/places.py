"""Namespaces and databases as they are written on a command line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from langmem_tiers.core.errors import InvalidNameError, StorageUnavailableError
from langmem_tiers.core.names import check_namespace
from langmem_tiers.engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers.core.config import EngineConfig
    from langmem_tiers.core.names import NamespacePath

_SLASH = re.compile(r"\\(.)|/", re.DOTALL)


def path_of(text: str) -> NamespacePath:
    """The namespace of ``acme/alice``; a slash or a backslash within a label stands behind a backslash."""
    labels, start, label = [], 0, ""
    for found in _SLASH.finditer(text):
        label += text[start : found.start()]
        start = found.end()
        if found[1] is None:
            labels.append(label)
            label = ""
        else:
            label += found[1]
    try:
        return check_namespace([*labels, label + text[start:]])
    except InvalidNameError as error:
        raise InvalidNameError(
            f"{text!r} is no namespace ({error}): write its labels as acme/alice"
        ) from error


def shown(path: Sequence[str]) -> str:
    """A namespace as ``path_of`` reads it."""
    return "/".join(label.replace("\\", "\\\\").replace("/", "\\/") for label in path)


def database_url(text: str) -> str:
    """A URL, or the path of a SQLite file, as a URL."""
    return text if "://" in text else f"sqlite:///{text}"


@contextmanager
def opened(
    database: str,
    *,
    embedder: Literal["offline"] | None = None,
    config: EngineConfig | None = None,
    creates: bool = False,
) -> Iterator[MemoryEngine]:
    """An engine on a database, closed at the end.

    Args:
        database: A URL, or the path of a SQLite file.
        embedder: Whether meaning counts.
        config: Settings.
        creates: Whether a SQLite file that is not there is made.

    Raises:
        StorageUnavailableError: There is no such file.
    """
    url = database_url(database)
    name = url.removeprefix("sqlite:///").partition("?")[0]
    if url.startswith("sqlite:///") and not creates and not Path(name).exists():
        raise StorageUnavailableError(
            f"there is no memory at {name!r}: give --database the file or URL of one"
        )
    with MemoryEngine(url, embedder=embedder, config=config) as engine:
        yield engine
