"""Items: JSON values under a namespace and a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.item_records import ItemText

ANY_LABEL = "*"
"""Wildcard that matches any single label in a ``NamespaceMatch``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Displayable):
    """A stored value. Changing ``value`` does not change the database: it is a copy."""

    namespace: NamespacePath
    key: str
    value: dict[str, Any]
    created_at: datetime
    """Creation time of the key's first value. Later writes keep it."""
    updated_at: datetime
    expires_at: datetime | None = None
    """Expiry time. None means never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemHit(Displayable):
    """An item found by a search."""

    item: Item
    score: float | None = None
    """Relevance to the query, at most 1. None without a query and for items that have no searchable text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """A requested write or deletion of one key. ``Items.write`` validates it."""

    namespace: NamespacePath
    key: str
    value: Mapping[str, Any] | None
    """JSON object to store. None deletes the key."""
    texts: Sequence[str] | None = None
    """Searchable texts. None uses the whole value; an empty sequence excludes the item from queries."""
    ttl_seconds: float | None = None
    """Lifetime in seconds since the last write or the last read with ``refresh``. None means forever."""


@dataclass(frozen=True, slots=True)
class NamespaceMatch:
    """A condition on namespaces, label by label. ``*`` matches any single label."""

    kind: Literal["prefix", "suffix"]
    path: NamespacePath

    @property
    def fixed_prefix(self) -> NamespacePath:
        """Labels before the first wildcard that all matching namespaces share. Empty for a suffix."""
        if self.kind == "suffix":
            return ()
        return self.path[: self.path.index(ANY_LABEL)] if ANY_LABEL in self.path else self.path

    def matches(self, namespace: NamespacePath) -> bool:
        """Return True if the namespace satisfies the condition."""
        count = len(self.path)
        if len(namespace) < count:
            return False
        part = namespace[:count] if self.kind == "prefix" else namespace[len(namespace) - count :]
        return all(expected in (ANY_LABEL, label) for expected, label in zip(self.path, part, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemWrite:
    """A validated change, ready to be written."""

    namespace: NamespacePath
    key: str
    value_json: str | None
    texts: tuple[ItemText, ...] = ()
    ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """An item with its row key, revision and lifetime."""

    pk: int
    revision: int
    item: Item
    ttl_seconds: float | None


class StoredItemValue(NamedTuple):
    """The columns of an item that a filter needs."""

    pk: int
    revision: int
    value: dict[str, Any]


class ScanPosition(NamedTuple):
    """The last item that a scan has read. The next page starts after it."""

    updated_at: datetime
    pk: int
