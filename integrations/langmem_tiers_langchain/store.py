"""A LangGraph store on the engine's database."""

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

from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidConfigError, InvalidInputError
from langmem_tiers.items.models import ItemChange, NamespaceMatch
from langmem_tiers.recall.item_index import to_search_text
from langmem_tiers_langchain.embeddings import LangChainEmbedder

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import IndexConfig, MatchCondition, Op, Result, TTLConfig

    import langmem_tiers.items.models as ours


T = TypeVar("T")
CALLER_LOOP: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "langmem_tiers_caller_loop", default=None
)
"""The loop that waits for the store; clients of an async embedding function may be bound to it."""


def build_index_embedder(index: Mapping[str, Any]) -> tuple[Embeddings, LangChainEmbedder]:
    """The model of an index configuration, as LangChain knows it and as the engine does.

    Raises:
        InvalidConfigError: It has no such model, or dimensions that make no sense.
    """
    try:
        embeddings = ensure_embeddings(index["embed"])
    except (ImportError, ValueError) as error:
        raise InvalidConfigError(
            f"the embed of the index cannot be used ({error}): give Embeddings, a function or 'provider:model'"
        ) from error
    identity = index.get("identity") or _find_identity(embeddings)
    function = getattr(embeddings, "afunc", None)
    model: Any = embeddings if function is None else _BlockingEmbeddings(embeddings)
    return embeddings, LangChainEmbedder(model, identity=identity, dimension=index.get("dims"))


class _BlockingEmbeddings:
    """An async model for callers that wait."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        return _wait_for(self._embeddings.aembed_documents(texts))

    def embed_query(self, text: str) -> list[float]:
        """One vector."""
        return _wait_for(self._embeddings.aembed_query(text))


def _wait_for(answer: Coroutine[Any, Any, T]) -> T:
    loop = CALLER_LOOP.get()
    if loop is None:
        return asyncio.run(answer)  # in a thread of the embedder's own, so no loop runs here
    return asyncio.run_coroutine_threadsafe(answer, loop).result()


def _find_identity(embeddings: Embeddings) -> str:
    function = getattr(embeddings, "func", None) or getattr(embeddings, "afunc", None)
    if function is not None:
        named = function if hasattr(function, "__qualname__") else type(function)
        return f"{named.__module__}.{named.__qualname__}"
    try:
        return LangChainEmbedder(embeddings).identity
    except InvalidConfigError:  # nothing names the model: its class is all there is
        kind = type(embeddings)
        return f"{kind.__module__}.{kind.__qualname__}"


WHOLE_VALUE_PATH = "$"
"""The path of the whole value."""


def check_op(op: Op) -> None:
    """Refuse an operation that names no possible namespace; ``batch`` is called past the checks of ``put``.

    Raises:
        InvalidNamespaceError: A label is empty, no text, or holds a period or NUL.
        InvalidInputError: It is no operation.
    """
    if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
        raise InvalidInputError(
            f"{op!r} is no operation of a store: use GetOp, PutOp, SearchOp, ListNamespacesOp"
        )
    validate = getattr(base, "validate_op_namespace", None)  # from langgraph-checkpoint 4.3 on
    if validate is not None:
        validate(op)
    for path in _list_paths(op):
        _check_labels(path)
    if isinstance(op, PutOp) and not op.namespace:
        raise InvalidNamespaceError("a namespace needs at least one label, got (): pass e.g. ('memories',)")


def to_item_change(op: PutOp, fields: Sequence[str]) -> ItemChange:
    """A put or a deletion."""
    value = op.value
    return ItemChange(
        namespace=tuple(op.namespace),
        key=op.key,
        value=value,
        texts=None if value is None else _extract_texts(value, _choose_fields(op, fields)),
        ttl_seconds=None if op.ttl is None else op.ttl * 60,
    )


def to_namespace_matches(op: ListNamespacesOp) -> list[NamespaceMatch]:
    """The conditions on namespaces."""
    return [_to_namespace_match(condition) for condition in op.match_conditions or ()]


def to_store_item(item: ours.Item | None) -> Item | None:
    """An item as LangGraph knows it."""
    if item is None:
        return None
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def to_search_item(hit: ours.ItemHit) -> SearchItem:
    """A hit as LangGraph knows it."""
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
                f"the label {label!r} of {path!r} cannot be one: use a text that is not empty, "
                "without periods and NUL"
            )


def _choose_fields(op: PutOp, fields: Sequence[str]) -> Sequence[str]:
    if op.index is None:
        return fields
    return () if op.index is False else op.index


def _extract_texts(value: Mapping[str, Any], fields: Sequence[str]) -> list[str] | None:
    if list(fields) == [WHOLE_VALUE_PATH]:
        return None
    try:
        return [text for path in fields for text in _extract_texts_at(value, path)]
    except (TypeError, ValueError, RecursionError):  # no JSON, which the engine refuses by name
        return None


def _extract_texts_at(value: Mapping[str, Any], path: str) -> list[str]:
    return [to_search_text(value)] if path == WHOLE_VALUE_PATH else get_text_at_path(value, path)


def _to_namespace_match(condition: MatchCondition) -> NamespaceMatch:
    if condition.match_type not in {"prefix", "suffix"}:
        raise InvalidInputError(f"unknown match type {condition.match_type!r}: use 'prefix' or 'suffix'")
    return NamespaceMatch(condition.match_type, tuple(condition.path))


_DEFAULT_SWEEP_MINUTES = 5.0


class TieredStore(BaseStore):
    """Long-term memory of LangGraph agents in SQLite or PostgreSQL, found by words and vectors together.

    ``search`` without a query gives the last updated first. With a query it ranks all items under the
    prefix and leaves none out; the score is the cosine, lifted towards 1 by the words of the query, and
    None for items that were put with ``index=False``, which come last. Filters do not confuse types:
    True is not 1, and what a value does not hold matches nothing. What has expired cannot be read,
    whether or not it was swept. Safe to share between threads.

    Args:
        engine: Whose database to use; one of its own in memory, gone with the store, if left out.
        index: ``{"embed": ..., "dims": ..., "fields": [...]}`` as for any LangGraph store. Without
            ``embed`` the engine's own embedder is used, once a query asks for it. ``"identity"`` may name
            the model: vectors of two identities are never compared.
        ttl: ``{"default_ttl": minutes, "refresh_on_read": True, "sweep_interval_minutes": 5}``.

    Attributes:
        index_config: What was given as index.
        embeddings: The model in it, as LangChain knows it.
        ttl_config: What was given as ttl.
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
        used = MemoryEngine() if engine is None else engine
        self._owned_engine = used if engine is None else None
        self._items = used.items if embedder is None else used.items.using(embedder)

    @classmethod
    @contextmanager
    def from_conn_string(
        cls,
        conn_string: str | os.PathLike[str],
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> Iterator[Self]:
        """A store on a database of its own, closed at the end.

        Args:
            conn_string: ``sqlite:///memory.db`` or a ``Path``, ``sqlite://`` or ``postgresql://user@host/name``.
            index: As for the store.
            ttl: As for the store.
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
        """Nothing to do: the tables are there already. For code that calls it on other stores."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do some operations; their results in order.

        All reads see what was there before, then all puts happen in one transaction; of several for
        one key the last counts.

        Raises:
            InvalidNamespaceError: A namespace cannot be one; nothing was done.
            InvalidInputError: A value is not JSON, or a filter has an unknown operator; nothing was written.
            EmbeddingError: The model of the index failed; nothing was written.
        """
        every = list(ops)
        for op in every:
            check_op(op)
        results: list[Result] = [None] * len(every)
        for refresh in (True, False):
            self._get(every, results, refresh=refresh)
        for at, op in enumerate(every):
            if isinstance(op, SearchOp):
                results[at] = self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[at] = list(
                    self._items.namespaces(
                        to_namespace_matches(op), max_depth=op.max_depth, limit=op.limit, offset=op.offset
                    )
                )
        self._items.write(to_item_change(op, self._fields) for op in every if isinstance(op, PutOp))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As ``batch``, in a thread, while the loop goes on."""
        token = CALLER_LOOP.set(asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(self.batch, list(ops))
        finally:
            CALLER_LOOP.reset(token)

    def sweep_ttl(self) -> int:
        """Erase what has expired; how many items that were."""
        return self._items.sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweep every so often in a thread of its own, until it is stopped or the store is closed.

        Args:
            sweep_interval_minutes: How often; as the configuration says, or every 5 minutes, if left out.
        """
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        minutes = sweep_interval_minutes if sweep_interval_minutes is not None else configured
        self._items.sweeper.start((_DEFAULT_SWEEP_MINUTES if minutes is None else minutes) * 60)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the thread. Says whether it has ended within that many seconds."""
        return self._items.sweeper.stop(timeout)

    def close(self) -> None:
        """Stop sweeping and close the database, if it is the store's own. An engine handed in stays open."""
        self._items.sweeper.stop()
        if self._owned_engine is not None:
            self._owned_engine.close()

    def _get(self, ops: list[Op], results: list[Result], *, refresh: bool) -> None:
        wanted = [
            (at, op)
            for at, op in enumerate(ops)
            if isinstance(op, GetOp) and op.namespace and bool(op.refresh_ttl) is refresh
        ]
        if not wanted:
            return
        found = self._items.get_many([(tuple(op.namespace), op.key) for _, op in wanted], refresh=refresh)
        for (at, _), item in zip(wanted, found, strict=True):
            results[at] = to_store_item(item)

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
            f"engine must be a MemoryEngine, got a {type(engine).__name__}: "
            "use TieredStore.from_conn_string(url) for a database by its address"
        )


def _check_fields(fields: object) -> list[str]:
    if fields is None:
        return [WHOLE_VALUE_PATH]
    if not isinstance(fields, list | tuple) or not all(isinstance(path, str) for path in fields):
        raise InvalidConfigError(f"fields must be a list of paths, got {fields!r}: use e.g. ['text']")
    return list(fields) or [WHOLE_VALUE_PATH]
