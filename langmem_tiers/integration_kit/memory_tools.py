"""Backends for tools with which an agent searches and changes its memories."""

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
    """Arguments of a memory search."""

    query: str
    limit: int
    offset: int = 0
    filter: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """Requested change of a memory: create, update or delete."""

    action: Literal["create", "update", "delete"]
    content: Any = None
    id: str | None = None


class MemoryBackend(Protocol):
    """Interface for searching and changing the memories of a namespace."""

    def search(self, namespace: NamespacePath, request: SearchRequest) -> list[dict[str, Any]]:
        """Return the memories that match a query, best first, as plain JSON."""
        ...

    async def asearch(self, namespace: NamespacePath, request: SearchRequest) -> list[dict[str, Any]]:
        """Run ``search`` without blocking the event loop."""
        ...

    def change(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Apply a change and return the id of the memory.

        Raises:
            NotFoundError: No memory has that id; nothing was changed.
        """
        ...

    async def achange(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Run ``change`` without blocking the event loop."""
        ...


class EngineMemoryBackend:
    """Backend for the messages and the knowledge of an engine.

    New memories are notes. Messages cannot be changed.

    Args:
        engine: Engine with the memories.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def search(self, namespace: NamespacePath, request: SearchRequest) -> list[dict[str, Any]]:
        """Return the memories that match a query, best first, and count a use of each."""
        space = self._engine.namespace(namespace)
        found = space.recall(request.query, limit=request.offset + request.limit).hits[request.offset :]
        record_use(space, (hit.knowledge for hit in found if hit.knowledge is not None))
        return [_to_result(hit) for hit in found]

    async def asearch(self, namespace: NamespacePath, request: SearchRequest) -> list[dict[str, Any]]:
        """Run ``search`` in a thread."""
        return await asyncio.to_thread(self.search, namespace, request)

    def change(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Apply a change to the knowledge of the namespace and return the id of the memory."""
        knowledge = self._engine.namespace(namespace).knowledge
        text = (
            change.content
            if isinstance(change.content, str)
            else json.dumps(change.content, ensure_ascii=False)
        )
        if change.id is None:
            return knowledge.note(text).knowledge.id
        name = name_from_id(change.id)
        changed: object = None
        if name is not None:  # ids of messages have no name: only knowledge can be changed
            changed = knowledge.remove(*name) if change.action == "delete" else knowledge.correct(*name, text)
        if not changed:
            raise build_unknown_memory_error(change.id)
        return change.id

    async def achange(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Run ``change`` in a thread."""
        return await asyncio.to_thread(self.change, namespace, change)


def build_unknown_memory_error(memory_id: str) -> NotFoundError:
    """Return the error for an id that no memory has."""
    return NotFoundError(
        f"no memory has the id {memory_id!r}: search first and use the id of one that can be changed; "
        "messages cannot be changed"
    )


def record_use(space: Namespace, known: Iterable[Knowledge]) -> None:
    """Count a use of each knowledge entry; log a storage error instead of failing the search."""
    try:
        space.knowledge.use(list(known))
    except StorageError as error:
        _log.warning("the use of knowledge was not counted: %s", type(error).__name__)


def _to_result(hit: Hit) -> dict[str, Any]:
    metadata = build_hit_metadata(hit)
    shown = {name: metadata[name] for name in _SHOWN_FIELDS if name in metadata}
    return {
        "id": hit.entry.id,
        "content": hit.entry.content,
        **shown,
        "score": round(hit.score, 3),
        "can_be_changed": hit.knowledge is not None,
    }
