"""Items: JSON values under a namespace and a key, and the contracts of the stores that keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from langmem_tiers.display.displayable import Displayable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.recall.item_records import ItemText

ANY_LABEL = "*"
"""What stands for any one label in a ``NamespaceMatch``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Displayable):
    """A value as it is stored now. The value is the caller's own: changing it changes nothing stored."""

    namespace: NamespacePath
    key: str
    value: dict[str, Any]
    created_at: datetime
    """Of the first value; later ones keep it."""
    updated_at: datetime
    expires_at: datetime | None = None
    """From then on it is not there any more; None lives for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemHit(Displayable):
    """An item that a search found."""

    item: Item
    score: float | None = None
    """How well it answers the query, up to 1; None without a query, and for what has no text to be found by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """What is to become of a key. Checked by ``Items.write``."""

    namespace: NamespacePath
    key: str
    value: Mapping[str, Any] | None
    """JSON; None deletes."""
    texts: Sequence[str] | None = None
    """What queries find it by; None takes the whole value, none at all keeps it from being found by a query."""
    ttl_seconds: float | None = None
    """How long it lives after it was written, or last read with ``refresh``; None lives for ever."""


@dataclass(frozen=True, slots=True)
class NamespaceMatch:
    """A condition on namespaces, label by label; ``*`` stands for any one label."""

    kind: Literal["prefix", "suffix"]
    path: NamespacePath

    @property
    def fixed_prefix(self) -> NamespacePath:
        """The first labels that all namespaces it holds for have."""
        if self.kind == "suffix":
            return ()
        return self.path[: self.path.index(ANY_LABEL)] if ANY_LABEL in self.path else self.path

    def matches(self, namespace: NamespacePath) -> bool:
        """Whether a namespace fits it."""
        count = len(self.path)
        if len(namespace) < count:
            return False
        part = namespace[:count] if self.kind == "prefix" else namespace[len(namespace) - count :]
        return all(wanted in (ANY_LABEL, label) for wanted, label in zip(self.path, part, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemWrite:
    """A checked change, ready to be kept."""

    namespace: NamespacePath
    key: str
    value_json: str | None
    texts: tuple[ItemText, ...] = ()
    ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """An item with what its store needs to find it again."""

    pk: int
    revision: int
    item: Item
    ttl_seconds: float | None


class StoredItemValue(NamedTuple):
    """As much of an item as a filter needs."""

    pk: int
    revision: int
    value: dict[str, Any]


class ScanPosition(NamedTuple):
    """Where a scan goes on."""

    updated_at: datetime
    pk: int


class ItemStore(Protocol):
    """Values by namespace and key. What has expired is not there, whether or not it was swept."""

    def write(self, writes: Sequence[ItemWrite], now: datetime, *, model: int | None) -> int:
        """Do all of it in one transaction, or nothing.

        Args:
            writes: At most one for each namespace and key.
            now: When.
            model: Whose vectors the texts have.

        Returns:
            How many items were deleted.
        """
        ...

    def get(
        self, names: Sequence[tuple[NamespacePath, str]], now: datetime
    ) -> Mapping[tuple[NamespacePath, str], StoredItem]:
        """Those of them that are there."""
        ...

    def list_items(
        self, prefix: NamespacePath, now: datetime, *, skip: int, limit: int
    ) -> tuple[StoredItem, ...]:
        """Items in namespaces that begin with the prefix's whole labels, last updated first.

        Args:
            prefix: All namespaces if empty.
            now: When.
            skip: How many to leave out first.
            limit: How many at most.
        """
        ...

    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanPosition | None, limit: int
    ) -> tuple[list[StoredItemValue], ScanPosition | None]:
        """As ``page``, behind a mark; the next mark, or None at the end."""
        ...

    def get_values(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItemValue]:
        """The values of those of some items that are still there, by their own keys."""
        ...

    def get_by_keys(self, keys: Sequence[int], now: datetime) -> Mapping[int, StoredItem]:
        """Those of some items that are still there, by their own keys."""
        ...

    def refresh(self, kept: Sequence[StoredItem], now: datetime) -> None:
        """Let them live for their whole time again, if they have not expired."""
        ...

    def list_namespaces(self, prefix: NamespacePath, now: datetime) -> tuple[NamespacePath, ...]:
        """Namespaces that hold items and begin with the prefix's whole labels."""
        ...

    def sweep(self, now: datetime) -> int:
        """Erase what has expired; how many items that were."""
        ...
