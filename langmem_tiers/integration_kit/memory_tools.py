"""Memories that an agent searches and changes by itself, in an engine."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from langmem_tiers.errors import NotFoundError, StorageError
from langmem_tiers.integration_kit.hit_metadata import build_hit_metadata
from langmem_tiers.knowledge.models import name_from_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.namespace import Namespace
    from langmem_tiers.recall.models import Hit

_log = logging.getLogger("langmem_tiers")
_SHOWN_FIELDS = ("kind", "category", "role", "name", "session", "created_at", "confidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What a search asks for."""

    query: str
    limit: int
    offset: int = 0
    filter: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """What is to become of a memory."""

    action: Literal["create", "update", "delete"]
    content: Any = None
    id: str | None = None


class MemoryBackend(Protocol):
    """Finds and changes the memories of a namespace."""

    def search(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """What answers a query, best first, as plain JSON."""
        ...

    async def asearch(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """The same without blocking."""
        ...

    def change(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Carry a change out; the id of the memory.

        Raises:
            NotFoundError: No memory has that id; nothing was changed.
        """
        ...

    async def achange(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """The same without blocking."""
        ...


class EngineMemoryBackend:
    """Messages and knowledge of an engine. What is created is a note; what was said cannot be changed.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def search(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """What answers a query, best first. What is found counts as used."""
        space = self._engine.namespace(namespace)
        found = space.recall(wish.query, limit=wish.offset + wish.limit).hits[wish.offset :]
        record_use(space, (hit.knowledge for hit in found if hit.knowledge is not None))
        return [_to_result(hit) for hit in found]

    async def asearch(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """The same without blocking."""
        return await asyncio.to_thread(self.search, namespace, wish)

    def change(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Carry a change out; the id of the memory."""
        known = self._engine.namespace(namespace).knowledge
        text = (
            change.content
            if isinstance(change.content, str)
            else json.dumps(change.content, ensure_ascii=False)
        )
        if change.id is None:
            return known.note(text).knowledge.id
        name = name_from_id(change.id)
        done: object = None
        if name is not None:
            done = known.remove(*name) if change.action == "delete" else known.correct(*name, text)
        if not done:
            raise build_unknown_memory_error(change.id)
        return change.id

    async def achange(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """The same without blocking."""
        return await asyncio.to_thread(self.change, namespace, change)


def build_unknown_memory_error(memory_id: str) -> NotFoundError:
    """What to raise where no memory has that id."""
    return NotFoundError(
        f"no memory has the id {memory_id!r}: search first and use the id of one that can be changed; "
        "messages stay as they were said"
    )


def record_use(space: Namespace, known: Iterable[Knowledge]) -> None:
    """Count a use of what was found; a database that does not take it is no reason not to tell it."""
    try:
        space.knowledge.use(list(known))
    except StorageError as error:
        _log.warning("a use of knowledge was not counted: %s", type(error).__name__)


def _to_result(hit: Hit) -> dict[str, Any]:
    metadata = build_hit_metadata(hit)
    told = {name: metadata[name] for name in _SHOWN_FIELDS if name in metadata} | {
        "score": round(hit.score, 3)
    }
    return {
        "id": hit.entry.id,
        "content": hit.entry.content,
        **told,
        "can_be_changed": hit.knowledge is not None,
    }
