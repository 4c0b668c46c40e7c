"""Items: JSON values under namespaces and keys, found by key, filter or query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.checks import check_positive, check_whole
from langmem_tiers.common.json_values import to_json
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_key, check_namespace
from langmem_tiers.common.workers import Sweeper
from langmem_tiers.config import MAX_LIMIT
from langmem_tiers.errors import InvalidInputError, InvalidMessageError
from langmem_tiers.items.models import ItemChange, ItemHit, ItemWrite, check_filter, matches
from langmem_tiers.recall.embedders.embedding import EmbeddingClient
from langmem_tiers.recall.item_records import build_item_texts, embed_texts, to_search_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import Embedder
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.items.models import Filter, Item, NamespaceMatch, ScanPosition, StoredItem
    from langmem_tiers.items.repository import ItemRepository
    from langmem_tiers.recall.item_index import ItemRanking, RankedItem
    from langmem_tiers.recall.item_ranking import ItemRanker
    from langmem_tiers.recall.item_records import ItemIndex
    from langmem_tiers.recall.vector_repository import VectorRepository

    _ScoredItem: TypeAlias = tuple[StoredItem, float | None]


_MAX_TTL_SECONDS = 10.0**10  # about 317 years: the expiry stays within the range of datetime


def check_change(change: ItemChange) -> tuple[ItemChange, str | None]:
    """Return a validated copy of a change and its value as JSON text. The text is None for a deletion.

    Raises:
        InvalidInputError: The namespace, key, value, texts or lifetime is invalid.
    """
    change = replace(change, namespace=check_namespace(change.namespace), key=check_key(change.key))
    if change.value is None:
        return change, None
    if not isinstance(change.value, Mapping):
        raise InvalidInputError(
            f"the value of {change.key!r} is a {type(change.value).__name__}: it must be a dict of JSON values"
        )
    if change.ttl_seconds is not None:
        check_positive(change.ttl_seconds, "ttl_seconds", _MAX_TTL_SECONDS)
    _check_texts(change)
    value = dict(change.value)
    try:
        return replace(change, value=value), to_json(value, f"the value of {change.key!r}")
    except InvalidMessageError as error:
        raise InvalidInputError(f"{error}; nothing was written") from None


def get_change_texts(change: ItemChange) -> tuple[str, ...]:
    """Return the texts that queries find a checked change by."""
    if change.value is None:
        return ()
    texts = (to_search_text(change.value),) if change.texts is None else tuple(change.texts)
    return tuple(text for text in texts if text.strip())


def check_page(limit: object, offset: object) -> None:
    """Check a limit and an offset."""
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_LIMIT:
            raise InvalidInputError(
                f"{name} must be a whole number from 0 to {MAX_LIMIT}, got {value!r}: use e.g. 10"
            )


def _check_texts(change: ItemChange) -> None:
    texts: object = change.texts
    if texts is None:
        return
    if (
        isinstance(texts, str)
        or not isinstance(texts, Sequence)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise InvalidInputError(f"the texts of {change.key!r} must be a list of str: use [text] for one")


_FIRST_READ_SIZE, _MAX_READ_SIZE = 200, 5000  # the first read usually fills the page
_MAX_ATTEMPTS = 3  # rankings of one search while items change; then the last ranking is returned


class Items:
    """All items of a database. Get it from ``engine.items``.

    Vectors are computed when a query first needs them, so ``put`` is not slowed down. Items returned by
    ``using()`` compute the vectors when values are put.

    Args:
        store: Repository of the values.
        index: Index of the search texts and their vectors.
        vectors: Repository of the embedding models and of cached query vectors.
        config: Configuration of the engine.
        clock: Source of the current time.
        embedder: Embedding model for texts and queries. None searches by words only.
        eager: Compute vectors when values are put. If the embedder fails, nothing is stored.
    """

    def __init__(
        self,
        store: ItemRepository,
        index: ItemIndex,
        vectors: VectorRepository,
        config: EngineConfig,
        clock: Clock,
        *,
        embedder: Embedder | None,
        eager: bool = False,
    ) -> None:
        self._store = store
        self._index = index
        self._vectors = vectors
        self._config = config
        self._clock = clock
        self._embedding = (
            None if embedder is None else EmbeddingClient(embedder, vectors, config.embedding, clock)
        )
        self._is_eager = eager
        self._cached_ranker: ItemRanker | None = None
        # Without a reference to self, which the sweeper would keep alive.
        self.sweeper = Sweeper(lambda: store.sweep(check_time(clock.now())))

    def using(self, embedder: Embedder) -> Items:
        """Return the same items, searched with another embedding model."""
        return Items(
            self._store,
            self._index,
            self._vectors,
            self._config,
            self._clock,
            embedder=embedder,
            eager=True,
        )

    def _now(self) -> datetime:
        return check_time(self._clock.now())

    def put(
        self,
        namespace: str | Iterable[str],
        key: str,
        value: Mapping[str, Any],
        *,
        texts: Sequence[str] | None = None,
        ttl_seconds: float | None = None,
    ) -> None:
        """Store a value under a key. An existing value is replaced.

        Args:
            namespace: Namespace of the item.
            key: Name of the item within the namespace.
            value: JSON object: dict, list, str, number, bool and None, without other types inside.
            texts: Searchable texts. Default: the whole value. ``()`` excludes the item from queries.
            ttl_seconds: Lifetime in seconds since the last write or the last read with ``refresh``.

        Raises:
            InvalidInputError: The value is not JSON, or a name is invalid; nothing was written.
        """
        path = check_namespace(namespace)
        self.write([ItemChange(namespace=path, key=key, value=value, texts=texts, ttl_seconds=ttl_seconds)])

    def delete(self, namespace: str | Iterable[str], key: str) -> bool:
        """Delete a value and its search texts. Return True if it existed."""
        return self.write([ItemChange(namespace=check_namespace(namespace), key=key, value=None)]) > 0

    def write(self, changes: Iterable[ItemChange]) -> int:
        """Put and delete values in one transaction. If a key occurs more than once, its last change counts.

        Returns:
            Number of deleted items.

        Raises:
            InvalidInputError: A value is not JSON, or a name is invalid; nothing was written.
            EmbeddingError: Vectors are computed eagerly and the embedder failed; nothing was written.
        """
        checked = [check_change(change) for change in changes]
        last = {(change.namespace, change.key): (change, value_json) for change, value_json in checked}
        if not last:
            return 0
        texts = {name: get_change_texts(change) for name, (change, _) in last.items()}
        vectors, model = dict[str, bytes](), None
        # Before the transaction: a slow embedder must not hold locks, and a failing one must prevent all changes.
        if self._is_eager and self._embedding is not None and any(texts.values()):
            vectors = embed_texts([text for group in texts.values() for text in group], self._embedding)
            model = self._embedding.get_model_key()
        writes = [
            ItemWrite(
                namespace=change.namespace,
                key=change.key,
                value_json=value_json,
                texts=build_item_texts(texts[name], vectors),
                ttl_seconds=change.ttl_seconds,
            )
            for name, (change, value_json) in last.items()
        ]
        return self._store.write(writes, self._now(), model=model)

    def get(self, namespace: str | Iterable[str], key: str, *, refresh: bool = False) -> Item | None:
        """Return the item with a key, or None.

        Args:
            namespace: Namespace of the item.
            key: Name of the item.
            refresh: Restart the item's lifetime.
        """
        return self.get_many([(check_namespace(namespace), key)], refresh=refresh)[0]

    def get_many(
        self, names: Sequence[tuple[NamespacePath, str]], *, refresh: bool = False
    ) -> list[Item | None]:
        """Return the items with the given names, in the same order. A missing item is None."""
        checked = [(check_namespace(namespace), check_key(key)) for namespace, key in names]
        now = self._now()
        found = self._store.get(checked, now)
        if refresh:
            self._store.refresh(list(found.values()), now)
        return [found[name].item if name in found else None for name in checked]

    def search(
        self,
        prefix: str | Iterable[str] = (),
        query: str | None = None,
        *,
        where: Filter | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = False,
    ) -> tuple[ItemHit, ...]:
        """Return items below a namespace prefix.

        Without a query, the most recently updated items come first. A query ranks all items and excludes none. It
        combines words and vectors; items without searchable texts come last.

        Args:
            prefix: Leading labels. ``("acme",)`` finds ``("acme", "alice")`` but not ``("acme-corp",)``. Default: all.
            query: A question or keywords.
            where: Filter on the values, for example ``{"kind": "note", "size": {"$gte": 3}}``.
            limit: Maximum number of items.
            offset: Number of items to skip.
            refresh: Restart the lifetime of the returned items.
        """
        path = () if prefix == () else check_namespace(prefix)
        check_page(limit, offset)
        if where is not None:
            check_filter(where)
        now = self._now()
        page = (offset, limit)
        if query:
            found = self._search_by_rank(path, query, where, now, page)
        else:
            found = [(stored, None) for stored in self._list_latest(path, where, now, page)]
        if refresh:
            self._store.refresh([stored for stored, _ in found], now)
        return tuple(ItemHit(item=stored.item, score=score) for stored, score in found)

    def namespaces(
        self,
        matches: Sequence[NamespaceMatch] = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[NamespacePath, ...]:
        """Return the namespaces that contain items, sorted.

        Args:
            matches: Conditions that must all be satisfied.
            max_depth: Shorten namespaces to this number of labels and remove duplicates.
            limit: Maximum number of namespaces.
            offset: Number of namespaces to skip.
        """
        check_page(limit, offset)
        if max_depth is not None:
            check_whole(max_depth, 1, "max_depth")
        # The longest fixed prefix lets the database return few candidates; the conditions are checked below.
        prefix = max((match.fixed_prefix for match in matches), key=len, default=())
        found = self._store.list_namespaces(prefix, self._now())
        fitting = {path[:max_depth] for path in found if all(match.matches(path) for match in matches)}
        return tuple(sorted(fitting)[offset : offset + limit])

    def sweep(self) -> int:
        """Delete expired items and return their number. Expired items were already invisible."""
        return self._store.sweep(self._now())

    def invalidate(self, _erased: ErasedIds) -> dict[str, int]:
        """Discard the cached index and vectors. The next search reads them again."""
        self._cached_ranker = None
        if self._embedding is not None:
            self._embedding.invalidate()
        return {}

    def _list_latest(
        self, prefix: NamespacePath, where: Filter | None, now: datetime, page: tuple[int, int]
    ) -> Sequence[StoredItem]:
        offset, limit = page
        if not where:
            return self._store.list_items(prefix, now, skip=offset, limit=limit)
        found: list[int] = []
        position: ScanPosition | None = None
        while len(found) < offset + limit:
            read_size = _FIRST_READ_SIZE if position is None else _MAX_READ_SIZE
            values, position = self._store.scan(prefix, now, after=position, limit=read_size)
            found += [value.pk for value in values if matches(value.value, where)]
            if position is None:
                break
        return self._get_in_order(found[offset : offset + limit], now)

    def _search_by_rank(
        self,
        prefix: NamespacePath,
        query: str,
        where: Filter | None,
        now: datetime,
        page: tuple[int, int],
    ) -> list[_ScoredItem]:
        found: list[_ScoredItem] = []
        # An item that changed after it was ranked may not belong on this page: rank again.
        for _ in range(_MAX_ATTEMPTS):
            ranking = self._get_ranker().rank(prefix, query)
            found, is_as_ranked = self._read_by_rank(ranking, where, now, page)
            if is_as_ranked:
                break
        return found

    def _read_by_rank(
        self, ranking: ItemRanking, where: Filter | None, now: datetime, page: tuple[int, int]
    ) -> tuple[list[_ScoredItem], bool]:
        offset, limit = page
        found: dict[int, RankedItem] = {}
        start = 0
        while len(found) < offset + limit and start < len(ranking):
            # Without a filter, the first read is the whole page. With a filter, each read doubles the total.
            ranked_items = ranking.get_slice(start, start + max(offset + limit, min(start, _MAX_READ_SIZE)))
            start += len(ranked_items)
            values = self._store.get_values([ranked.pk for ranked in ranked_items], now)
            for ranked in ranked_items:
                stored = values.get(ranked.pk)
                if stored is not None and (not where or matches(stored.value, where)):
                    found[ranked.pk] = ranked
        items = self._get_in_order(list(found)[offset : offset + limit], now)
        is_as_ranked = all(stored.revision == found[stored.pk].revision for stored in items)
        return [(stored, found[stored.pk].score) for stored in items], is_as_ranked

    def _get_in_order(self, keys: Sequence[int], now: datetime) -> list[StoredItem]:
        stored = self._store.get_by_keys(keys, now)
        return [stored[key] for key in keys if key in stored]

    def _get_ranker(self) -> ItemRanker:
        if self._cached_ranker is None:
            from langmem_tiers.recall.item_ranking import (  # noqa: PLC0415 - imports numpy only when needed
                ItemRanker,
            )

            self._cached_ranker = ItemRanker(self._index, self._embedding, self._config, self._clock)
        return self._cached_ranker
