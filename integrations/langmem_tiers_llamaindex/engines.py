"""Which engine a memory stands on, so that it is found again when the memory comes back from JSON.

LlamaIndex writes the memory of an agent down and reads it again between two runs of a ``Context``. What is
written names the engine and holds no secret.
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

from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidInputError, LangmemTiersError, StorageUnavailableError
from langmem_tiers.integration_kit.argument_checks import check_engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.common.namespaces import NamespacePath


_log = logging.getLogger("langmem_tiers")
_FILE_PREFIX, _URI_PREFIX = "sqlite:///", "file:"
_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):[^/?#@]*(?=@)")
_lock = threading.Lock()
_names_by_engine: WeakKeyDictionary[MemoryEngine, str] = WeakKeyDictionary()
_engines_by_name: WeakValueDictionary[str, MemoryEngine] = WeakValueDictionary()
_engines_by_url: WeakValueDictionary[str, MemoryEngine] = WeakValueDictionary()


def attach(engine: MemoryEngine) -> MemoryEngine:
    """Let memories that come back from JSON use this engine, if it is on the database that they were on.

    Memories and stores do so by themselves with the engines that they are given. Call it in a new process before a
    ``Context`` is read, for a database with a password or an engine with an embedder or a model of its own.

    Returns:
        The engine.
    """
    build_engine_reference(check_engine(engine))
    with _lock:
        if engine.url is not None:
            _engines_by_url[engine.url] = engine
    return engine


def build_engine_reference(engine: MemoryEngine) -> dict[str, str | None]:
    """What is written down of an engine: JSON without a secret."""
    with _lock:
        name = _names_by_engine.setdefault(engine, uuid.uuid4().hex)
        _engines_by_name[name] = engine
    return {"name": name, "url": engine.url, "database": engine.database_id}


def resolve_engine(reference: object) -> MemoryEngine:
    """The engine that was written down: the one that is live in this process, or its database opened again.

    Raises:
        InvalidInputError: That is nothing that was written down, or its database was in memory and is gone.
        StorageUnavailableError: Its database does not open.
    """
    name, url, database = _read_reference(reference)
    live = next((engine for engine in _list_known_engines(name, url, database) if not engine.is_closed), None)
    if live is not None:
        return _check_database(live, database)
    if url is None:
        raise InvalidInputError(
            "the engine of this memory is gone, and its database cannot be opened again: it was in memory, or its "
            "URL has settings that are not written down. Use a file or a server, keep the engine, or read the memory "
            "by itself, as TieredMemory.from_dict(data, engine=engine)"
        )
    return _check_database(_reopen(url), database)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store is built from."""

    engine: MemoryEngine
    namespace: NamespacePath | None
    fields: dict[str, Any]


def resolve_store_settings(engine: MemoryEngine | None, fields: Mapping[str, Any]) -> StoreSettings:
    """The engine that was handed in, or written down before, or a new one in memory; and the store's fields.

    Args:
        engine: As it was handed in.
        fields: As they were handed in, or as they were written down.
    """
    reference, namespace = fields.get("engine_reference"), fields.get("namespace")
    if engine is None:
        engine = resolve_engine(reference) if reference else MemoryEngine()
    check_engine(engine)
    whose = None if namespace is None else check_namespace(namespace)
    told = {key: value for key, value in fields.items() if key != "class_name"}
    told |= {
        "engine_reference": build_engine_reference(engine),
        "namespace": None if whose is None else list(whose),
    }
    return StoreSettings(engine, whose, told)


def _list_known_engines(name: str, url: str | None, database: str | None) -> list[MemoryEngine]:
    # The one that was written down, the one that was attached, and any other on the same database or at its place.
    place = None if url is None else _remove_password(url)
    with _lock:
        others = [None if place is None else _engines_by_url.get(place), *_names_by_engine]
        known = [_engines_by_name.get(name), *others]
    live = [engine for engine in known if engine is not None and not engine.is_closed]
    same = [engine for engine in live if database is not None and engine.database_id == database]
    return [
        *live[: known[0] in live],
        *same,
        *(one for one in live if place is not None and one.url == place),
    ]


def _check_database(engine: MemoryEngine, database: str | None) -> MemoryEngine:
    if database is not None and engine.database_id != database:
        raise InvalidInputError(
            f"{engine!r} is another database than the one that this memory was on, which is gone or elsewhere: put "
            "it back, attach(MemoryEngine(url)) where it is now, or make a new memory"
        )
    return engine


def _remove_password(url: str) -> str:
    # None is ever written down: somebody may have put one in by hand.
    return _PASSWORD.sub(r"\1", url)


def _reopen(url: str) -> MemoryEngine:
    # Of a server nothing but its address: what stands before and behind it may be a secret.
    shown = url if url.startswith("sqlite") else url.rpartition("@")[2].partition("?")[0]
    if url.startswith(_FILE_PREFIX) and not _database_exists(url):  # opening it would make an empty one
        raise StorageUnavailableError(
            f"the database {shown!r} of this memory is not there any more: put the file back, or open another with "
            "MemoryEngine(url) and make a new memory"
        )
    try:
        engine = MemoryEngine(url)
    except LangmemTiersError as error:
        raise StorageUnavailableError(
            f"the database {shown!r} of this memory does not open ({type(error).__name__}). Open it yourself "
            "and call langmem_tiers_llamaindex.attach(engine) before the memory is read; passwords are never "
            "written down"
        ) from error
    if engine.url is None:
        engine.close()
        raise InvalidInputError(f"{shown!r} is in memory, and what was there is gone: use a file or a server")
    _log.info("opened %r again for a memory, with the default embedder and no model", engine)
    return attach(engine)


def _database_exists(url: str) -> bool:
    path = url.removeprefix(_FILE_PREFIX)
    if path.startswith(_URI_PREFIX):
        path = path.removeprefix(_URI_PREFIX).partition("?")[0]
    # Whether a name is written with escapes depends on the release of SQLAlchemy.
    return any(_is_nonempty_file(Path(name)) for name in (path, unquote(path)))


def _is_nonempty_file(path: Path) -> bool:
    try:
        return path.stat().st_size > 0  # an empty one is what is left of a database, or none yet
    except (OSError, ValueError):
        return False


def _read_reference(reference: object) -> tuple[str, str | None, str | None]:
    given: Mapping[str, Any] = reference if isinstance(reference, dict) else {}
    name, url, database = given.get("name"), given.get("url"), given.get("database")
    is_ours = isinstance(name, str) and isinstance(database, str | None) and _is_own_url(url)
    if not is_ours:
        raise InvalidInputError(
            f"a {type(reference).__name__} without the engine's name and url is nothing that to_dict() gave: pass "
            "the whole dict"
        )
    return str(name), url, database


def _is_own_url(url: object) -> bool:
    # Other URLs may name a database that is empty each time, such as one in memory.
    return url is None or (isinstance(url, str) and url.startswith((_FILE_PREFIX, "postgresql://")))


class EngineBackedModel(BaseModel):
    """Names and settings around an engine. So it may be copied, written down and read again.

    Args:
        engine: Where everything is; one in memory, if left out.
        **data: The fields; a misspelled one is an error.
    """

    model_config = ConfigDict(extra="forbid")

    # What says where everything is cannot be changed: that would be another one.
    namespace: list[str] | None = Field(default=None, frozen=True)
    engine_reference: dict[str, str | None] = Field(default_factory=dict, frozen=True)
    """Where the engine is found again; without secrets."""
    _engine: MemoryEngine = PrivateAttr()
    _namespace_path: tuple[str, ...] | None = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        found = resolve_store_settings(engine, data)
        super().__init__(**found.fields)
        self._engine, self._namespace_path = found.engine, found.namespace

    @property
    def engine(self) -> MemoryEngine:
        """Where everything is."""
        return self._engine

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return copy.copy(self)  # on the same engine: agents copy their state with all memory in it

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).model_validate, (self.model_dump(mode="json"),)
