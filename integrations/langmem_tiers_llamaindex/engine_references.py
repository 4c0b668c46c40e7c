"""References to engines, with which memories find their engine again when they are restored from JSON.

LlamaIndex serializes the memory of an agent between two runs of a ``Context``. The reference identifies the engine
and contains no secrets.
"""

from __future__ import annotations

import copy
import logging
import re
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote
from weakref import WeakKeyDictionary, WeakValueDictionary

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from langmem_tiers import InvalidInputError, LangmemTiersError, MemoryEngine, StorageUnavailableError
from langmem_tiers.integration_kit import check_engine, check_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.integration_kit import NamespacePath


_log = logging.getLogger("langmem_tiers")
_FILE_PREFIX, _URI_PREFIX = "sqlite:///", "file:"
# The password of "scheme://user:password@host".
_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):[^/?#@]*(?=@)")
_lock = threading.Lock()
# Weak references: these tables must not keep engines open.
_names_by_engine: WeakKeyDictionary[MemoryEngine, str] = WeakKeyDictionary()
_engines_by_name: WeakValueDictionary[str, MemoryEngine] = WeakValueDictionary()
_engines_by_url: WeakValueDictionary[str, MemoryEngine] = WeakValueDictionary()


def attach(engine: MemoryEngine) -> MemoryEngine:
    """Register an engine for memories that are restored from JSON, if they belong to its database.

    Engines that are passed to memories and stores are registered automatically. In a new process, call it before a
    ``Context`` is restored, for a database with a password or an engine with a custom embedder or model.

    Returns:
        The engine.
    """
    build_engine_reference(check_engine(engine))
    with _lock:
        if engine.url is not None:
            _engines_by_url[engine.url] = engine
    return engine


def build_engine_reference(engine: MemoryEngine) -> dict[str, str | None]:
    """Return the reference to an engine as JSON without secrets."""
    with _lock:
        name = _names_by_engine.setdefault(engine, uuid.uuid4().hex)
        _engines_by_name[name] = engine
    return {"name": name, "url": engine.url, "database": engine.database_id}


def resolve_engine(reference: object) -> MemoryEngine:
    """Return the engine of a reference: an open one of this process, or a new one on the same database.

    Raises:
        InvalidInputError: The reference is invalid, or the database was in memory and no longer exists.
        StorageUnavailableError: The database cannot be opened.
    """
    name, url, database = _read_reference(reference)
    live = next((engine for engine in _list_known_engines(name, url, database) if not engine.is_closed), None)
    if live is not None:
        return _check_database(live, database)
    if url is None:
        raise InvalidInputError(
            "the engine of this memory no longer exists, and its database cannot be opened again: it was in memory, "
            "or its URL has settings that are not serialized. Use a file or a server, keep the engine open, or pass "
            "an engine, as in TieredMemory.from_dict(data, engine=engine)"
        )
    return _check_database(_reopen(url), database)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Engine, namespace and fields of a chat store or memory block."""

    engine: MemoryEngine
    namespace: NamespacePath | None
    fields: dict[str, Any]


def resolve_store_settings(engine: MemoryEngine | None, fields: Mapping[str, Any]) -> StoreSettings:
    """Resolve the engine and the fields of a store.

    Args:
        engine: Engine passed by the caller. Default: the engine of the serialized fields, or a new one in memory.
        fields: Fields passed by the caller, or serialized fields.
    """
    reference, namespace = fields.get("engine_reference"), fields.get("namespace")
    if engine is None:
        engine = resolve_engine(reference) if reference else MemoryEngine()
    check_engine(engine)
    path = None if namespace is None else check_namespace(namespace)
    values = {key: value for key, value in fields.items() if key != "class_name"}
    values |= {
        "engine_reference": build_engine_reference(engine),
        "namespace": None if path is None else list(path),
    }
    return StoreSettings(engine, path, values)


def _list_known_engines(name: str, url: str | None, database: str | None) -> list[MemoryEngine]:
    # Candidates in order of preference: the engine with this name, engines on the same database (an attached one
    # first), and engines with the same URL.
    plain_url = None if url is None else _remove_password(url)
    with _lock:
        other_names = [None if plain_url is None else _engines_by_url.get(plain_url), *_names_by_engine]
        known = [_engines_by_name.get(name), *other_names]
    live = [engine for engine in known if engine is not None and not engine.is_closed]
    same_database = [engine for engine in live if database is not None and engine.database_id == database]
    return [
        *live[: known[0] in live],  # the named engine, if it is open: it is the first element then
        *same_database,
        *(engine for engine in live if plain_url is not None and engine.url == plain_url),
    ]


def _check_database(engine: MemoryEngine, database: str | None) -> MemoryEngine:
    if database is not None and engine.database_id != database:
        raise InvalidInputError(
            f"{engine!r} is not the database of this memory, which was moved or deleted: restore it, call "
            "attach(MemoryEngine(url)) with its new URL, or create a new memory"
        )
    return engine


def _remove_password(url: str) -> str:
    # References never contain a password, but it may have been added by hand.
    return _PASSWORD.sub(r"\1", url)


def _reopen(url: str) -> MemoryEngine:
    # For a server, show only host and database: credentials and query parameters may be secret.
    shown = url if url.startswith("sqlite") else url.rpartition("@")[2].partition("?")[0]
    if url.startswith(_FILE_PREFIX) and not _database_exists(
        url
    ):  # opening it would create an empty database
        raise StorageUnavailableError(
            f"the database file {shown!r} of this memory does not exist: restore it to this path, or create a new "
            "memory on MemoryEngine(url)"
        )
    try:
        engine = MemoryEngine(url)
    except LangmemTiersError as error:
        raise StorageUnavailableError(
            f"the database {shown!r} of this memory cannot be opened ({type(error).__name__}). Open it yourself "
            "and call langmem_tiers_llamaindex.attach(engine) before the memory is restored; passwords are never "
            "serialized"
        ) from error
    if engine.url is None:
        engine.close()
        raise InvalidInputError(
            f"the database {shown!r} was in memory and no longer exists: use a file or a server"
        )
    _log.info("reopened %r for a restored memory, with the default embedder and without a model", engine)
    return attach(engine)


def _database_exists(url: str) -> bool:
    path = url.removeprefix(_FILE_PREFIX)
    if path.startswith(_URI_PREFIX):
        path = path.removeprefix(_URI_PREFIX).partition("?")[0]
    # Depending on its version, SQLAlchemy percent-encodes the path in a URL.
    return any(_is_nonempty_file(Path(name)) for name in (path, unquote(path)))


def _is_nonempty_file(path: Path) -> bool:
    try:
        return path.stat().st_size > 0  # an empty file is not a database
    except (OSError, ValueError):
        return False


def _read_reference(reference: object) -> tuple[str, str | None, str | None]:
    values: Mapping[str, Any] = reference if isinstance(reference, dict) else {}
    name, url, database = values.get("name"), values.get("url"), values.get("database")
    is_ours = isinstance(name, str) and isinstance(database, str | None) and _is_own_url(url)
    if not is_ours:
        raise InvalidInputError(
            "invalid engine_reference: expected the dict with name, url and database from to_dict(), got "
            f"{type(reference).__name__}: pass the whole result of to_dict()"
        )
    return str(name), url, database


def _is_own_url(url: object) -> bool:
    # Other URLs may refer to a new, empty database on each use, such as one in memory.
    return url is None or (isinstance(url, str) and url.startswith((_FILE_PREFIX, "postgresql://")))


class EngineBackedModel(BaseModel):
    """Base class of pydantic models with an engine; they can be copied, serialized and restored.

    Args:
        engine: Engine that stores the data. Default: a new one in memory.
        **data: Fields of the model; a misspelled field is an error.
    """

    model_config = ConfigDict(extra="forbid")

    # The fields that identify the data are frozen: with other values, this would be another object.
    namespace: list[str] | None = Field(default=None, frozen=True)
    engine_reference: dict[str, str | None] = Field(default_factory=dict, frozen=True)
    """Reference to the engine for deserialization, without secrets."""
    _engine: MemoryEngine = PrivateAttr()
    _namespace_path: tuple[str, ...] | None = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        settings = resolve_store_settings(engine, data)
        super().__init__(**settings.fields)
        self._engine, self._namespace_path = settings.engine, settings.namespace

    @property
    def engine(self) -> MemoryEngine:
        """Engine that stores the data."""
        return self._engine

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return copy.copy(self)  # agents deep-copy their state, but an engine cannot be copied

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).model_validate, (self.model_dump(mode="json"),)
