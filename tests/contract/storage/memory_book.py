"""Helpers of the long-term suites: reads and writes in one namespace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pytest

from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.facts.models import ExtractedFact
from langmem_tiers.long_term.models import EntryFilters, Relation, RelationKind
from langmem_tiers.long_term.records import CursorMove, FactMove, MemoryWrite, NewEntry
from tests.contract.storage.base import ANY_TEXT, NOW, StoreConformance, Stores, message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.facts.models import FactState
    from langmem_tiers.long_term.records import LearningCursor, StoredEntry
    from langmem_tiers.long_term.repository import LongTermRepository
    from langmem_tiers.recall.item_records import ItemIndex, ItemNamespaceState

LONG_TERM, EPISODIC, SHORT_TERM = Tier.LONG_TERM, Tier.EPISODIC, Tier.SHORT_TERM
TIERS = frozenset({LONG_TERM, EPISODIC, SHORT_TERM})
ALL = EntryFilters(archived=True)
TEXTS = (ANY_TEXT, "\0", "\udfff", "base64:AA==", "base64:\0", " \n")
_OWN = {"terms", "session_key", "turn", "details"}  # fields of NewEntry
_ENOUGH = 5000


@dataclass(frozen=True)
class Book:
    """The memory of a namespace, with one session in it."""

    stores: Stores
    store: LongTermRepository
    index: ItemIndex
    namespace: NamespacePath
    key: int

    def beside(self, label: str) -> Self:
        """The memory of another namespace."""
        namespace = (*self.namespace, label)
        key = self.stores.sessions.get_or_create(namespace, "session", NOW).key
        return replace(self, namespace=namespace, key=key)

    def new(self, name: str, /, **about: object) -> NewEntry:
        """An entry that says its id, unless something else is said of it."""
        own: dict[str, Any] = {"terms": name}
        own |= {field: about.pop(field) for field in _OWN & about.keys()}
        given: dict[str, Any] = {"id": name, "namespace": self.namespace, "tier": LONG_TERM, "kind": "fact"}
        given |= {"content": name, "created_at": NOW, "valid_from": NOW, "last_access_at": NOW}
        given |= {"token_count": 3, "relevance": about.get("importance", 0.5), **about}
        return NewEntry(entry=Entry(**given), **own)

    def put(self, *names: str, **about: object) -> None:
        """Keep entries, each in a write of its own."""
        for name in names:
            self.write(put=(self.new(name, **about),))

    def write(self, *, now: datetime = NOW, **changes: object) -> None:
        """Make changes that nobody else comes before."""
        assert self.commit(now=now, **changes)

    def commit(self, *, now: datetime = NOW, **changes: object) -> bool:
        """Make changes."""
        given: dict[str, Any] = changes
        return self.store.commit(self.namespace, MemoryWrite(**given), now)

    def get_stored(self, name: str) -> StoredEntry:
        """An entry that is there."""
        return self.store.get(self.namespace, [name])[name]

    def key_of(self, name: str) -> int:
        """The key of an entry that is there."""
        return self.get_stored(name).key

    def ids(self, tier: Tier = LONG_TERM, /, **filters: object) -> list[str]:
        """The ids of entries, the first stored first; by page and by key they are the same."""
        given: dict[str, Any] = filters
        meant = EntryFilters(**given)
        page = self.store.list_entries(self.namespace, tier, meant, limit=_ENOUGH)
        everything = [
            stored_entry.key
            for stored_entry in self.store.list_entries(self.namespace, tier, ALL, limit=_ENOUGH)
        ]
        fetched = self.store.get_by_keys(self.namespace, everything, frozenset({tier}), meant)
        assert fetched == {stored_entry.key: stored_entry for stored_entry in page}
        return [stored_entry.entry.id for stored_entry in reversed(page)]

    def related(self, *names: str) -> list[tuple[str, str, str]]:
        """The relations of entries."""
        found = self.store.list_relations(self.namespace, names)
        return [(relation.source, relation.kind, relation.target) for relation in found]

    def facts(self, states: frozenset[FactState] | None = None) -> list[str]:
        """The ids of facts."""
        return [fact.id for fact in self.store.list_facts(self.namespace, states, limit=_ENOUGH)]

    def state(self) -> ItemNamespaceState:
        """What the index says of the memory, once there is any."""
        (found,) = self.index.list_namespace_states(self.namespace)
        return found

    def all(self) -> object:
        """Everything that a write changes, for comparing."""
        pages = [self.store.list_entries(self.namespace, tier, ALL, limit=_ENOUGH) for tier in sorted(TIERS)]
        names = [stored_entry.entry.id for page in pages for stored_entry in page]
        return (
            pages,
            self.store.list_relations(self.namespace, names),
            self.store.list_facts(self.namespace, None, limit=_ENOUGH),
            self.store.get_cursor(self.key),
            self.index.list_namespace_states(self.namespace),
        )

    def say(self, *ids: str) -> None:
        """Add messages to the session."""
        self.stores.messages.append(self.key, [message(message_id, id=message_id) for message_id in ids], NOW)

    def turn_numbers(self, *, after: int = 0, limit: int = _ENOUGH) -> dict[int, str]:
        """The ids of messages by their numbers."""
        found = self.store.list_turns(self.key, after=after, limit=limit)
        assert [turn.number for turn in found] == sorted({turn.number for turn in found})
        return {turn.number: turn.message.id for turn in found}


class MemoryConformance(StoreConformance):
    """What all suites for memories stand on."""

    @pytest.fixture
    def book(self, stores: Stores, namespace: NamespacePath, key: int) -> Book:
        """A memory with nothing in it."""
        assert stores.memories is not None, "hand in Stores(memories=...) to run this suite"
        assert stores.memory_index is not None, "hand in Stores(memory_index=...) to run this suite"
        return Book(stores, stores.memories, stores.memory_index, namespace, key)


def ids(found: Iterable[StoredEntry]) -> list[str]:
    """The ids, for comparing."""
    return [stored_entry.entry.id for stored_entry in found]


def relation(
    source: str, target: str, kind: str = RelationKind.SUPERSEDES, *, now: datetime = NOW, strength: float = 1
) -> Relation:
    """A relation."""
    return Relation(source=source, target=target, kind=kind, strength=strength, created_at=now)


def fact(name: str, /, **about: object) -> ExtractedFact:
    """A fact that says its id, unless something else is said of it."""
    given: dict[str, Any] = {"id": name, "content": name, "kind": "fact", "confidence": 0.5}
    given |= {"session": None, "source_message_id": None, "extracted_at": NOW, **about}
    return ExtractedFact(**given)


def moved(name: str, state: FactState, *was: FactState, **about: object) -> FactMove:
    """What becomes of a fact."""
    given: dict[str, Any] = {"reason": "because", **about}
    return FactMove(name, frozenset(was), state, **given)


def forward(book: Book, was: LearningCursor, now: LearningCursor) -> CursorMove:
    """How far the session of a book is worked through."""
    return CursorMove(book.key, was, now)
