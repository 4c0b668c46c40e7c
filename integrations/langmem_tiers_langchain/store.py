"""LangGraph store on the database of an engine."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from langgraph.store import base
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    ensure_embeddings,
    get_text_at_path,
)

from langmem_tiers import InvalidConfigError, InvalidInputError, MemoryEngine
from langmem_tiers.integration_kit import ItemChange, NamespaceMatch, to_search_text
from langmem_tiers_langchain.models import LangChainEmbedder

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import IndexConfig, MatchCondition, Op, Result, TTLConfig

    from langmem_tiers.integration_kit import Item as StoredItem
    from langmem_tiers.integration_kit import ItemHit


T = TypeVar("T")
CALLER_LOOP: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "langmem_tiers_caller_loop", default=None
)
"""Event loop that awaits the store; an async embedding client may be bound to this loop."""


def build_index_embedder(index: Mapping[str, Any]) -> tuple[Embeddings, LangChainEmbedder]:
    """Return the model of an index configuration as LangChain ``Embeddings`` and as an ``Embedder``.

    Raises:
        InvalidConfigError: The model or the dimensions are invalid.
    """
    try:
        embeddings = ensure_embeddings(index["embed"])
    except (ImportError, ValueError) as error:
        raise InvalidConfigError(
            f"invalid embed of the index ({error}): pass Embeddings, a function or 'provider:model'"
        ) from error
    identity = index.get("identity") or _find_identity(embeddings)
    function = getattr(embeddings, "afunc", None)
    model: Any = embeddings if function is None else _BlockingEmbeddings(embeddings)
    return embeddings, LangChainEmbedder(model, identity=identity, dimension=index.get("dims"))


class _BlockingEmbeddings:
    """Synchronous wrapper of an async embedding model."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        return _wait_for(self._embeddings.aembed_documents(texts))

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text."""
        return _wait_for(self._embeddings.aembed_query(text))


def _wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    loop = CALLER_LOOP.get()
    if loop is None:
        return asyncio.run(coroutine)  # the embedder calls this in its own thread, where no loop is running
    # The caller's loop is idle in abatch(), so it can run the coroutine while this thread waits.
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def _find_identity(embeddings: Embeddings) -> str:
    function = getattr(embeddings, "func", None) or getattr(embeddings, "afunc", None)
    if function is not None:
        named = function if hasattr(function, "__qualname__") else type(function)
        return f"{named.__module__}.{named.__qualname__}"
    try:
        return LangChainEmbedder(embeddings).identity
    except InvalidConfigError:  # the model has no name: use its class
        kind = type(embeddings)
        return f"{kind.__module__}.{kind.__qualname__}"


WHOLE_VALUE_PATH = "$"
"""Path of the whole value."""


def check_op(op: Op) -> None:
    """Check an operation and its namespace, because ``batch`` bypasses the checks of ``put``.

    Raises:
        InvalidNamespaceError: A label is empty, not a str, or contains a period or NUL.
        InvalidInputError: The object is not a store operation.
    """
    if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
        raise InvalidInputError(
            f"expected a store operation, got {op!r}: use GetOp, PutOp, SearchOp or ListNamespacesOp"
        )
    validate = getattr(base, "validate_op_namespace", None)  # since langgraph-checkpoint 4.3
    if validate is not None:
        validate(op)
    for path in _list_paths(op):
        _check_labels(path)
    if isinstance(op, PutOp) and not op.namespace:
        raise InvalidNamespaceError(
            "a namespace needs at least one label, got (): pass for example ('memories',)"
        )


def to_item_change(op: PutOp, fields: Sequence[str]) -> ItemChange:
    """Convert a put operation; a value of None is a deletion."""
    value = op.value
    return ItemChange(
        namespace=tuple(op.namespace),
        key=op.key,
        value=value,
        texts=None if value is None else _extract_texts(value, _choose_fields(op, fields)),
        ttl_seconds=None if op.ttl is None else op.ttl * 60,
    )


def to_namespace_matches(op: ListNamespacesOp) -> list[NamespaceMatch]:
    """Convert the match conditions of a list operation."""
    return [_to_namespace_match(condition) for condition in op.match_conditions or ()]


def to_store_item(item: StoredItem | None) -> Item | None:
    """Convert an item to LangGraph's ``Item``."""
    if item is None:
        return None
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def to_search_item(hit: ItemHit) -> SearchItem:
    """Convert a hit to LangGraph's ``SearchItem``."""
    item = hit.item
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, hit.score)


def _list_paths(op: Op) -> Iterator[tuple[str, ...]]:
    if isinstance(op, GetOp | PutOp):
        yield op.namespace
    elif isinstance(op, SearchOp):
        yield op.namespace_prefix
    else:
        yield from (condition.path for condition in op.match_conditions or ())


def _check_labels(path: Sequence[object]) -> None:
    for label in path:
        if not isinstance(label, str) or not label or "." in label or "\0" in label:
            raise InvalidNamespaceError(
                f"invalid label {label!r} in {path!r}: use a non-empty str without periods and NUL"
            )


def _choose_fields(op: PutOp, fields: Sequence[str]) -> Sequence[str]:
    if op.index is None:
        return fields
    return () if op.index is False else op.index


def _extract_texts(value: Mapping[str, Any], fields: Sequence[str]) -> list[str] | None:
    if list(fields) == [WHOLE_VALUE_PATH]:
        return None  # the engine indexes the whole value by default
    try:
        return [text for path in fields for text in _extract_texts_at(value, path)]
    except (TypeError, ValueError, RecursionError):  # not JSON: the engine raises a proper error
        return None


def _extract_texts_at(value: Mapping[str, Any], path: str) -> list[str]:
    return [to_search_text(value)] if path == WHOLE_VALUE_PATH else get_text_at_path(value, path)


def _to_namespace_match(condition: MatchCondition) -> NamespaceMatch:
    if condition.match_type not in {"prefix", "suffix"}:
        raise InvalidInputError(f"unknown match type {condition.match_type!r}: use 'prefix' or 'suffix'")
    return NamespaceMatch(condition.match_type, tuple(condition.path))


_DEFAULT_SWEEP_MINUTES = 5.0


class TieredStore(BaseStore):
    """LangGraph store in SQLite or PostgreSQL with combined keyword and vector search.

    ``search`` without a query returns the most recently updated items first. With a query, it ranks all items
    under the prefix. The score is the cosine similarity, raised towards 1 by matching words. Items put with
    ``index=False`` have the score None and come last. Filters distinguish types: True is not 1, and a missing
    field matches nothing. Expired items cannot be read, even before they are swept. The store is thread-safe.

    Args:
        engine: Engine whose database is used. Default: a separate in-memory database that is lost with the
            store.
        index: ``{"embed": ..., "dims": ..., "fields": [...]}`` as for any LangGraph store. Without ``embed``,
            the engine's embedder is used for the first query. ``"identity"`` names the model; vectors of
            different identities are never compared.
        ttl: ``{"default_ttl": minutes, "refresh_on_read": True, "sweep_interval_minutes": 5}``.

    Attributes:
        index_config: Copy of ``index``.
        embeddings: Embedding model of ``index``, as LangChain ``Embeddings``.
        ttl_config: Copy of ``ttl``.
    """

    supports_ttl = True

    def __init__(
        self,
        engine: MemoryEngine | None = None,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        _check_engine(engine)
        self.index_config = None if index is None else index.copy()
        self.ttl_config = None if ttl is None else ttl.copy()
        config: dict[str, Any] = {**(index or {})}
        self._fields = _check_fields(config.get("fields"))
        self.embeddings: Embeddings | None = None
        embedder = None
        if config.get("embed") is not None:
            self.embeddings, embedder = build_index_embedder(config)
        store_engine = MemoryEngine() if engine is None else engine
        self._owned_engine = store_engine if engine is None else None  # closed together with the store
        self._items = store_engine.items if embedder is None else store_engine.items.using(embedder)

    @classmethod
    @contextmanager
    def from_conn_string(
        cls,
        conn_string: str | os.PathLike[str],
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> Iterator[Self]:
        """Open a store on a database and close both at the end of the block.

        Args:
            conn_string: ``sqlite:///memory.db`` or a ``Path``, ``sqlite://`` or ``postgresql://user@host/name``.
            index: Index configuration, see the class.
            ttl: TTL configuration, see the class.
        """
        with MemoryEngine(conn_string) as engine, cls(engine, index=index, ttl=ttl) as store:
            yield store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def setup(self) -> None:
        """Do nothing: the tables exist already. Provided for compatibility with other stores."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations and return their results in order.

        All reads see the state before the batch. Then all puts are written in one transaction; the last put for
        a key wins.

        Raises:
            InvalidNamespaceError: A namespace is invalid; nothing was done.
            InvalidInputError: A value is not JSON, or a filter has an unknown operator; nothing was written.
            EmbeddingError: The model of the index failed; nothing was written.
        """
        operations = list(ops)
        for op in operations:
            check_op(op)
        results: list[Result] = [None] * len(operations)
        # Gets are grouped by their refresh flag, so that a batch takes two queries at most.
        for refresh in (True, False):
            self._get(operations, results, refresh=refresh)
        for index, op in enumerate(operations):
            if isinstance(op, SearchOp):
                results[index] = self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[index] = list(
                    self._items.namespaces(
                        to_namespace_matches(op), max_depth=op.max_depth, limit=op.limit, offset=op.offset
                    )
                )
        self._items.write(to_item_change(op, self._fields) for op in operations if isinstance(op, PutOp))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run ``batch`` in a thread."""
        token = CALLER_LOOP.set(asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(self.batch, list(ops))
        finally:
            CALLER_LOOP.reset(token)

    def sweep_ttl(self) -> int:
        """Erase expired items and return their number."""
        return self._items.sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Start a thread that sweeps periodically until it is stopped or the store is closed.

        Args:
            sweep_interval_minutes: Interval in minutes. Default: the TTL configuration, or 5.
        """
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        minutes = sweep_interval_minutes if sweep_interval_minutes is not None else configured
        self._items.sweeper.start((_DEFAULT_SWEEP_MINUTES if minutes is None else minutes) * 60)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper thread; return True if it ended within ``timeout`` seconds."""
        return self._items.sweeper.stop(timeout)

    def close(self) -> None:
        """Stop the sweeper and close the store's own database; an engine passed by the caller stays open."""
        self._items.sweeper.stop()
        if self._owned_engine is not None:
            self._owned_engine.close()

    def _get(self, ops: list[Op], results: list[Result], *, refresh: bool) -> None:
        gets = [
            (index, op)
            for index, op in enumerate(ops)
            if isinstance(op, GetOp) and op.namespace and bool(op.refresh_ttl) is refresh
        ]
        if not gets:
            return
        found = self._items.get_many([(tuple(op.namespace), op.key) for _, op in gets], refresh=refresh)
        for (index, _), item in zip(gets, found, strict=True):
            results[index] = to_store_item(item)

    def _search(self, op: SearchOp) -> list[Any]:
        hits = self._items.search(
            tuple(op.namespace_prefix),
            op.query,
            where=op.filter,
            limit=op.limit,
            offset=op.offset,
            refresh=bool(op.refresh_ttl),
        )
        return [to_search_item(hit) for hit in hits]


def _check_engine(engine: object) -> None:
    if engine is not None and not isinstance(engine, MemoryEngine):
        raise InvalidConfigError(
            f"engine must be a MemoryEngine, got {type(engine).__name__}: "
            "use TieredStore.from_conn_string(url) to open a database by URL"
        )


def _check_fields(fields: object) -> list[str]:
    if fields is None:
        return [WHOLE_VALUE_PATH]
    if not isinstance(fields, list | tuple) or not all(isinstance(path, str) for path in fields):
        raise InvalidConfigError(f"fields must be a list of paths, got {fields!r}: use for example ['text']")
    return list(fields) or [WHOLE_VALUE_PATH]
