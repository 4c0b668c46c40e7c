"""Items: JSON values under a namespace and a key, and the contracts of the stores that keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from langmem_tiers.core.showing import Told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.core.names import NamespacePath

ANY_LABEL = "*"
"""What stands for any one label in a ``NamespaceMatch``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Told):
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
class ItemHit(Told):
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
    def beginning(self) -> NamespacePath:
        """The first labels that all namespaces it holds for have."""
        if self.kind == "suffix":
            return ()
        return self.path[: self.path.index(ANY_LABEL)] if ANY_LABEL in self.path else self.path

    def holds(self, namespace: NamespacePath) -> bool:
        """Whether a namespace fits it."""
        count = len(self.path)
        if len(namespace) < count:
            return False
        part = namespace[:count] if self.kind == "prefix" else namespace[len(namespace) - count :]
        return all(wanted in (ANY_LABEL, label) for wanted, label in zip(self.path, part, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemText:
    """One text of an item, ready to be kept."""

    text: str
    terms: str
    """As ``scoring.terms.terms_of`` makes them, with spaces between."""
    vector: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemWrite:
    """A checked change, ready to be kept."""

    namespace: NamespacePath
    key: str
    value_json: str | None
    texts: tuple[ItemText, ...] = ()
    ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptItem:
    """An item with what its store needs to find it again."""

    pk: int
    revision: int
    item: Item
    ttl_seconds: float | None


class KeptValue(NamedTuple):
    """As much of an item as a filter needs."""

    pk: int
    revision: int
    value: dict[str, Any]


class ScanMark(NamedTuple):
    """Where a scan goes on."""

    updated_at: datetime
    pk: int


class ItemNamespaceState(NamedTuple):
    """By these numbers whoever holds a part of a namespace sees what has changed."""

    pk: int
    revision: int
    erased: int


@dataclass(frozen=True, slots=True)
class IndexedItem:
    """What a search by query needs of an item."""

    pk: int
    namespace_pk: int
    revision: int
    updated_at: datetime
    texts: tuple[tuple[str, bytes | None], ...]
    """Terms with spaces between, and the vector of the model that was asked for, if there is one."""


@dataclass(frozen=True, slots=True)
class TextPlace:
    """Where a text stands: the item as of a revision, and the text's number in it."""

    pk: int
    revision: int
    number: int


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
    ) -> Mapping[tuple[NamespacePath, str], KeptItem]:
        """Those of them that are there."""
        ...

    def page(self, prefix: NamespacePath, now: datetime, *, skip: int, limit: int) -> tuple[KeptItem, ...]:
        """Items in namespaces that begin with the prefix's whole labels, last updated first.

        Args:
            prefix: All namespaces if empty.
            now: When.
            skip: How many to leave out first.
            limit: How many at most.
        """
        ...

    def scan(
        self, prefix: NamespacePath, now: datetime, *, after: ScanMark | None, limit: int
    ) -> tuple[list[KeptValue], ScanMark | None]:
        """As ``page``, behind a mark; the next mark, or None at the end."""
        ...

    def values(self, keys: Sequence[int], now: datetime) -> Mapping[int, KeptValue]:
        """The values of those of some items that are still there, by their own keys."""
        ...

    def fetch(self, keys: Sequence[int], now: datetime) -> Mapping[int, KeptItem]:
        """Those of some items that are still there, by their own keys."""
        ...

    def refresh(self, kept: Sequence[KeptItem], now: datetime) -> None:
        """Let them live for their whole time again, if they have not expired."""
        ...

    def namespaces(self, prefix: NamespacePath, now: datetime) -> tuple[NamespacePath, ...]:
        """Namespaces that hold items and begin with the prefix's whole labels."""
        ...

    def sweep(self, now: datetime) -> int:
        """Erase what has expired; how many items that were."""
        ...


class ItemIndex(Protocol):
    """What searches by query look at."""

    def states(self, prefix: NamespacePath) -> tuple[ItemNamespaceState, ...]:
        """The namespaces that begin with the prefix's whole labels."""
        ...

    def keys(self, namespaces: Sequence[int]) -> set[int]:
        """The keys of all items in some namespaces."""
        ...

    def load(self, namespaces: Sequence[int], after: int, model: int | None) -> list[IndexedItem]:
        """The items of some namespaces that were written behind a revision."""
        ...

    def texts(self, places: Sequence[TextPlace], model: int) -> Mapping[TextPlace, tuple[str, bytes | None]]:
        """Texts that are still as they were, each with its vector of that model, if there is one by now."""
        ...

    def put_vectors(self, vectors: Mapping[TextPlace, bytes], model: int) -> None:
        """Keep vectors of texts that are still as they were."""
        ...
