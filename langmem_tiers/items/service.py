"""Items: what an agent keeps as JSON values under namespaces and keys, and finds by key, filter or query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.checks import check_positive, check_whole
from langmem_tiers.common.json_values import to_json
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_key, check_namespace
from langmem_tiers.common.ttl_sweeper import Sweeper
from langmem_tiers.config import MAX_LIMIT
from langmem_tiers.errors import InvalidInputError, InvalidMessageError
from langmem_tiers.items.filters import check_filter, matches
from langmem_tiers.items.models import ItemChange, ItemHit, ItemWrite
from langmem_tiers.recall.embedders.embedding import EmbeddingClient
from langmem_tiers.recall.item_index import build_item_texts, embed_texts, to_search_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import Embedder
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.items.filters import Filter
    from langmem_tiers.items.models import Item, ItemStore, NamespaceMatch, ScanPosition, StoredItem
    from langmem_tiers.recall.item_index import ItemRanking, RankedItem
    from langmem_tiers.recall.item_ranking import ItemRanker
    from langmem_tiers.recall.item_records import ItemIndex
    from langmem_tiers.recall.records import VectorStore

    _ScoredItem: TypeAlias = tuple[StoredItem, float | None]


_MAX_TTL_SECONDS = 10.0**10


def check_change(change: ItemChange) -> tuple[ItemChange, str | None]:
    """The change with its value as JSON text; None deletes.

    Raises:
        InvalidInputError: Something in it cannot be used.
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
    """What queries find a checked change by."""
    if change.value is None:
        return ()
    texts = (to_search_text(change.value),) if change.texts is None else tuple(change.texts)
    return tuple(text for text in texts if text.strip())


def check_page(limit: object, offset: object) -> None:
    """Refuse what is no page."""
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_LIMIT:
            raise InvalidInputError(f"{name} must be a whole number from 0 to {MAX_LIMIT}, got {value!r}")


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


_FIRST_READ_SIZE, _MAX_READ_SIZE = 200, 5000  # a page is mostly filled by the first few
_MAX_ATTEMPTS = 3  # if others change what was just ranked; after that the page stands as it was ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDependencies:
    """What items stand on, handed in by the engine."""

    store: ItemStore
    index: ItemIndex
    vectors: VectorStore
    config: EngineConfig
    clock: Clock

    def now(self) -> datetime:
        """The time in UTC."""
        return check_time(self.clock.now())


class Items:
    """All items of a database. Get it from ``engine.items``.

    Vectors are made when a query asks for them, so that putting costs nothing more; those from
    ``using()`` make them as they are put.

    Args:
        parts: What it stands on.
        embedder: For vectors of texts and queries; None finds by words alone.
        eager: Make vectors of what is put at once, and put nothing without them.
    """

    def __init__(self, parts: ItemDependencies, embedder: Embedder | None, *, eager: bool = False) -> None:
        self._dependencies = parts
        self._store = parts.store
        self._embedding = (
            None
            if embedder is None
            else EmbeddingClient(embedder, parts.vectors, parts.config.embedding, parts.clock)
        )
        self._is_eager = eager
        self._cached_ranker: ItemRanker | None = None
        self.sweeper = Sweeper(lambda: parts.store.sweep(parts.now()))

    def using(self, embedder: Embedder) -> Items:
        """The same items, found by the vectors of another embedder."""
        return Items(self._dependencies, embedder, eager=True)

    def put(
        self,
        namespace: str | Iterable[str],
        key: str,
        value: Mapping[str, Any],
        *,
        texts: Sequence[str] | None = None,
        ttl_seconds: float | None = None,
    ) -> None:
        """Keep a value under a key, in place of the one before.

        Args:
            namespace: Where.
            key: Under which name.
            value: JSON: dict, list, str, number, bool, None, and nothing else inside.
            texts: What queries find it by; the whole value if left out, and no query finds it by ``()``.
            ttl_seconds: How long it lives after it was written, or last read with ``refresh``.

        Raises:
            InvalidInputError: The value is not JSON, or a name cannot be used; nothing was written.
        """
        path = check_namespace(namespace)
        self.write([ItemChange(namespace=path, key=key, value=value, texts=texts, ttl_seconds=ttl_seconds)])

    def delete(self, namespace: str | Iterable[str], key: str) -> bool:
        """Erase a value with all that it was found by; whether it was there."""
        return self.write([ItemChange(namespace=check_namespace(namespace), key=key, value=None)]) > 0

    def write(self, changes: Iterable[ItemChange]) -> int:
        """Put and delete in one transaction: all of it is done, or nothing. The last change of a key counts.

        Returns:
            How many items were deleted.

        Raises:
            InvalidInputError: A value is not JSON, or a name cannot be used; nothing was written.
            EmbeddingError: Vectors are made at once, and the embedder failed; nothing was written.
        """
        checked = [check_change(change) for change in changes]
        last = {(change.namespace, change.key): (change, value_json) for change, value_json in checked}
        if not last:
            return 0
        texts = {name: get_change_texts(change) for name, (change, _) in last.items()}
        vectors, model = dict[str, bytes](), None
        if self._is_eager and self._embedding is not None and any(texts.values()):
            vectors = embed_texts([text for some in texts.values() for text in some], self._embedding)
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
        return self._store.write(writes, self._dependencies.now(), model=model)

    def get(self, namespace: str | Iterable[str], key: str, *, refresh: bool = False) -> Item | None:
        """The value under a key, if there is one.

        Args:
            namespace: Where.
            key: Under which name.
            refresh: Let it live for its whole time again.
        """
        return self.get_many([(check_namespace(namespace), key)], refresh=refresh)[0]

    def get_many(
        self, names: Sequence[tuple[NamespacePath, str]], *, refresh: bool = False
    ) -> list[Item | None]:
        """The values under some keys, in their order; None where there is none."""
        checked = [(check_namespace(namespace), check_key(key)) for namespace, key in names]
        now = self._dependencies.now()
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
        """Items in namespaces that begin with the prefix's whole labels.

        Without a query the last updated come first. A query ranks all of them and leaves none out: words
        and vectors count together, and what is kept from being found by queries comes last.

        Args:
            prefix: ``("acme",)`` finds ``("acme", "alice")`` and not ``("acme-corp",)``; all if empty.
            query: A question, or words.
            where: What values must hold: ``{"kind": "note", "size": {"$gte": 3}}``.
            limit: How many at most.
            offset: How many to leave out first.
            refresh: Let what is found live for its whole time again.
        """
        path = () if prefix == () else check_namespace(prefix)
        check_page(limit, offset)
        if where is not None:
            check_filter(where)
        now = self._dependencies.now()
        page = (offset, limit)
        if query:
            found = self._search_ranked(path, query, where, now, page)
        else:
            found = [(kept, None) for kept in self._list_latest(path, where, now, page)]
        if refresh:
            self._store.refresh([kept for kept, _ in found], now)
        return tuple(ItemHit(item=kept.item, score=score) for kept, score in found)

    def namespaces(
        self,
        matches: Sequence[NamespaceMatch] = (),
        *,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[NamespacePath, ...]:
        """Namespaces that hold items, sorted.

        Args:
            matches: Conditions that all must hold.
            max_depth: Cut them after so many labels, each once.
            limit: How many at most.
            offset: How many to leave out first.
        """
        check_page(limit, offset)
        if max_depth is not None:
            check_whole(max_depth, 1, "max_depth")
        beginning = max((match.fixed_prefix for match in matches), key=len, default=())
        found = self._store.list_namespaces(beginning, self._dependencies.now())
        fitting = {path[:max_depth] for path in found if all(match.matches(path) for match in matches)}
        return tuple(sorted(fitting)[offset : offset + limit])

    def sweep(self) -> int:
        """Erase what has expired; how many items that were. They could not be read any more before."""
        return self._store.sweep(self._dependencies.now())

    def invalidate(self, _erased: ErasedIds) -> dict[str, int]:
        """Hold nothing in memory of what was erased; all is read anew when it is asked for."""
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
        mark: ScanPosition | None = None
        while len(found) < offset + limit:
            most = _FIRST_READ_SIZE if mark is None else _MAX_READ_SIZE
            some, mark = self._store.scan(prefix, now, after=mark, limit=most)
            found += [each.pk for each in some if matches(each.value, where)]
            if mark is None:
                break
        return self._get_in_order(found[offset : offset + limit], now)

    def _search_ranked(
        self,
        prefix: NamespacePath,
        query: str,
        where: Filter | None,
        now: datetime,
        page: tuple[int, int],
    ) -> list[_ScoredItem]:
        found: list[_ScoredItem] = []
        for _ in range(_MAX_ATTEMPTS):
            ranking = self._get_ranker().rank(prefix, query)
            found, is_as_ranked = self._read_ranked(ranking, where, now, page)
            if is_as_ranked:
                break
        return found

    def _read_ranked(
        self, ranking: ItemRanking, where: Filter | None, now: datetime, page: tuple[int, int]
    ) -> tuple[list[_ScoredItem], bool]:
        offset, limit = page
        found: dict[int, RankedItem] = {}
        start = 0
        while len(found) < offset + limit and start < len(ranking):
            # Without a filter the first part is the page; with one, twice as much is read each time.
            some = ranking.get_slice(start, start + max(offset + limit, min(start, _MAX_READ_SIZE)))
            start += len(some)
            values = self._store.get_values([each.pk for each in some], now)
            for each in some:
                kept = values.get(each.pk)
                if kept is not None and (not where or matches(kept.value, where)):
                    found[each.pk] = each
        items = self._get_in_order(list(found)[offset : offset + limit], now)
        is_as_ranked = all(kept.revision == found[kept.pk].revision for kept in items)
        return [(kept, found[kept.pk].score) for kept in items], is_as_ranked

    def _get_in_order(self, keys: Sequence[int], now: datetime) -> list[StoredItem]:
        kept = self._store.get_by_keys(keys, now)
        return [kept[key] for key in keys if key in kept]

    def _get_ranker(self) -> ItemRanker:
        if self._cached_ranker is None:
            from langmem_tiers.recall.item_ranking import (  # noqa: PLC0415 - numpy, not before it is needed
                ItemRanker,
            )

            parts = self._dependencies
            self._cached_ranker = ItemRanker(parts.index, self._embedding, parts.config, parts.clock)
        return self._cached_ranker
