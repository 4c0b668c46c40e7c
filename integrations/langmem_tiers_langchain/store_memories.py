"""Where the memory tools keep memories if not in an engine: any LangGraph store."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from langgraph.config import get_store

from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.integration_kit.memory_tools import build_unknown_memory_error

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Item

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.integration_kit.memory_tools import MemoryChange, SearchRequest


class StoreMemoryBackend:
    """The items of a LangGraph store, as ``{"content": ...}``.

    Args:
        store: The store; that of the graph that runs, if left out.
    """

    def __init__(self, store: BaseStore | None) -> None:
        self._store = store

    def search(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """What answers a query, in the store's own order."""
        found = self._require_store().search(
            namespace, query=wish.query, limit=wish.limit, offset=wish.offset, filter=wish.filter
        )
        return [_to_result(item, namespace) for item in found]

    async def asearch(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """The same without blocking."""
        found = await self._require_store().asearch(
            namespace, query=wish.query, limit=wish.limit, offset=wish.offset, filter=wish.filter
        )
        return [_to_result(item, namespace) for item in found]

    def change(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Carry a change out; the id of the memory."""
        store, key = self._require_store(), change.id or str(uuid.uuid4())
        if change.id is not None and store.get(namespace, key) is None:
            raise build_unknown_memory_error(key)
        if change.action == "delete":
            store.delete(namespace, key)
        else:
            store.put(namespace, key, {"content": change.content})
        return key

    async def achange(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """The same without blocking."""
        store, key = self._require_store(), change.id or str(uuid.uuid4())
        if change.id is not None and await store.aget(namespace, key) is None:
            raise build_unknown_memory_error(key)
        if change.action == "delete":
            await store.adelete(namespace, key)
        else:
            await store.aput(namespace, key, {"content": change.content})
        return key

    def _require_store(self) -> BaseStore:
        if self._store is not None:
            return self._store
        try:
            running: BaseStore | None = get_store()
        except (RuntimeError, KeyError):  # outside of a graph
            running = None
        if running is None:
            raise InvalidConfigError(
                "the memory tool has no store: pass engine= or store= to it, or a store to the graph"
            )
        return running


def _to_result(item: Item, namespace: NamespacePath) -> dict[str, Any]:
    value, there = item.value, item.dict()
    told = {name: there[name] for name in ("created_at", "updated_at", "score") if name in there}
    is_ours = tuple(item.namespace) == namespace
    return {
        "id": item.key,
        "content": value["content"] if set(value) == {"content"} else value,
        **({} if is_ours else {"namespace": list(item.namespace)}),
        **told,
        "can_be_changed": is_ours,
    }
