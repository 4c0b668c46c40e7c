"""Search for derived data: entries, facts, episodes, knowledge and patterns by their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.namespaces import escape, unescape
from langmem_tiers.facts.models import UNREADABLE_ANSWER_REASON, FactState
from langmem_tiers.items.repository import split_parameters
from langmem_tiers.knowledge.models import name_from_id
from langmem_tiers.long_term.models import Relation, RelationKind
from langmem_tiers.long_term.rows import SELECT_ENTRIES, SELECT_FACTS, to_fact, to_stored_entry
from langmem_tiers.storage.column_types import to_storable_text, unpack_json
from langmem_tiers.storage.schema import (
    extracted_facts,
    knowledge,
    knowledge_history,
    memories,
    messages,
    relations,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import ColumnElement, Connection, Select, Table

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.facts.models import ExtractedFact
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.sessions.message_sql import AnyRow


_PAGE_SIZE = 1_000
_MIN_TEXT_CHARACTERS = 2  # shorter texts do not identify anything


def find_procedures(
    connection: Connection, namespace: NamespacePath, key: int, conditions: Sequence[ColumnElement[bool]]
) -> tuple[str, ...]:
    """Return the ids of patterns and candidate steps with parameters that only occur in some task cycles.

    Args:
        connection: Connection to read from.
        namespace: Namespace of the patterns.
        key: Key of the namespace.
        conditions: Conditions that select the messages of the cycles.
    """
    own = SELECT_ENTRIES.where(memories.c.namespace_pk == key, memories.c.tier == Tier.PROCEDURAL.value)
    stored = [to_stored_entry(row, namespace) for row in connection.execute(own)]
    texts_by_id = {procedure.entry.id: set(_find_step_texts(procedure.details)) for procedure in stored}
    pattern_texts = set().union(*texts_by_id.values())
    used = [
        (cycle, text)
        for condition in conditions
        for cycle, text in _find_action_texts(connection, condition)
        if text in pattern_texts
    ]
    cycles, erased_texts = {cycle for cycle, _ in used}, {text for _, text in used}
    # A text that also occurs in a cycle that remains is not erased.
    for cycle, text in _find_action_texts(connection, messages.c.namespace_pk == key) if erased_texts else ():
        if cycle not in cycles:
            erased_texts.discard(text)
    return tuple(sorted(procedure_id for procedure_id, texts in texts_by_id.items() if texts & erased_texts))


def _find_action_texts(connection: Connection, condition: ColumnElement[bool]) -> Iterator[tuple[int, str]]:
    for row in _load_payloads(connection, condition):
        payload = json.loads(unpack_json(row.payload))
        cycle = payload.get("cycle") if isinstance(payload, Mapping) else None
        if isinstance(cycle, Mapping) and isinstance(cycle.get("action"), Mapping):
            yield from ((row.pk, text) for text in _collect_texts(cycle["action"].get("parameters")))


def _load_payloads(connection: Connection, condition: ColumnElement[bool]) -> Iterator[AnyRow]:
    query = select(messages.c.pk, messages.c.payload).where(condition, messages.c.payload.is_not(None))
    # In pages by key: the payloads of a large namespace may not fit in memory.
    rows, last = list[Any](), 0
    while not last or len(rows) == _PAGE_SIZE:
        page = query.where(messages.c.pk > last).order_by(messages.c.pk).limit(_PAGE_SIZE)
        rows = list(connection.execute(page))
        yield from rows
        last = rows[-1].pk if rows else -1


def _find_step_texts(details: Mapping[str, Any]) -> Iterator[str]:
    for step in (*_to_list(details.get("steps")), *_to_list(details.get("tried"))):
        if isinstance(step, Mapping):
            # The parameters are either under "parameters" or next to "tool".
            other_facts = {name: value for name, value in step.items() if name != "tool"}
            yield from _collect_texts(step.get("parameters", other_facts))


def _collect_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _MIN_TEXT_CHARACTERS:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _collect_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _collect_texts(item)


def _to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


_DERIVED, _SUPERSEDES = escape(RelationKind.DERIVED_FROM), escape(RelationKind.SUPERSEDES)


def build_message_sources(message_id: str) -> tuple[str, str]:
    """Return the forms in which a source may name a message."""
    return message_id, f"message {message_id}"


class SourceFinder:
    """Search for derived data in one namespace.

    Args:
        connection: Connection to read from.
        namespace: Namespace to search.
        key: Key of the namespace; 0 if it does not exist.
    """

    def __init__(self, connection: Connection, namespace: NamespacePath, key: int) -> None:
        self._connection = connection
        self._namespace = namespace
        self._key = key

    def find_facts(self, sessions: Sequence[int]) -> list[ExtractedFact]:
        """Return the facts extracted from sessions."""
        found: list[ExtractedFact] = []
        for part in split_parameters(sessions):
            found += self._load_facts(SELECT_FACTS.where(extracted_facts.c.session_pk.in_(part)))
        return found

    @staticmethod
    def is_from_messages(fact: ExtractedFact, ids: AbstractSet[str]) -> bool:
        """Return True if a fact comes, or may come, from one of the messages of its session."""
        # Without a source message, only the record of an unreadable model answer may contain a text of the messages.
        if fact.source_message_id is None:
            return fact.reason.startswith(UNREADABLE_ANSWER_REASON)
        return fact.source_message_id in ids

    def find_chunks_and_episodes(self, session: int, after: int) -> tuple[StoredEntry, ...]:
        """Return the chunks and episodes of a session that end at a turn or later, including archived ones."""
        tiers = [Tier.SHORT_TERM.value, Tier.EPISODIC.value]
        return tuple(
            self._load_entries(
                SELECT_ENTRIES.where(
                    memories.c.session_pk == session, memories.c.tier.in_(tiers), memories.c.turn >= after
                )
            )
        )

    def find_entries(
        self, names: Sequence[str], ids: AbstractSet[str] | None, facts: Sequence[ExtractedFact]
    ) -> dict[str, Any]:
        """Find the entries that come from sessions or from some of their messages, with all dependent data.

        Args:
            names: Names of the sessions.
            ids: Ids of the messages, or None for all messages of the sessions.
            facts: Facts that are erased; the entries they were promoted to are included.
        """
        of_tier = SELECT_ENTRIES.where(
            memories.c.namespace_pk == self._key, memories.c.tier == Tier.LONG_TERM.value
        )
        found: dict[str, StoredEntry] = {}
        for part in split_parameters([escape(name) for name in names]):
            query = of_tier.where(memories.c.session.in_(part))
            found.update((stored.entry.id, stored) for stored in self._load_entries(query))
        if ids is not None:
            sources = {f"message {message_id}" for message_id in ids}
            found = {entry_id: stored for entry_id, stored in found.items() if stored.entry.source in sources}
        promoted_ids = sorted({fact.entry_id for fact in facts if fact.entry_id} - found.keys())
        found.update((stored.entry.id, stored) for stored in self._load_by_ids(promoted_ids))
        return self._collect_dependents(found, facts)

    def find_by_entry(self, entry_id: str) -> dict[str, Any]:
        """Find an entry of any tier, a fact or an item of knowledge by id, with all dependent data."""
        found = {stored.entry.id: stored for stored in self._load_by_ids([entry_id])}
        own = (extracted_facts.c.namespace_pk == self._key, extracted_facts.c.id == escape(entry_id))
        facts = [] if found else self._load_facts(SELECT_FACTS.where(*own))
        superseded = self._find_superseded_entries(found)
        result = self._collect_dependents(found | {stored.entry.id: stored for stored in superseded}, facts)
        name = name_from_id(entry_id)
        knowledge_names = () if found or facts or name is None else self._list_knowledge_names(name)
        versions = frozenset(stored.entry.id for stored in superseded)
        return {**result, "versions": versions, "knowledge": knowledge_names}

    def find_knowledge(self, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return category and key of current knowledge from one of the sources."""
        return self._find_knowledge_names(knowledge, sources)

    def find_past_knowledge(self, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return category and key of earlier knowledge from one of the sources, which was replaced or deleted."""
        return self._find_knowledge_names(knowledge_history, sources)

    def _find_knowledge_names(self, table: Table, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        found = dict[tuple[str, str], None]()
        for part in split_parameters([to_storable_text(source) for source in sources]):
            own = (table.c.namespace_pk == self._key, table.c.source.in_(part))
            rows = self._connection.execute(select(table.c.category, table.c.key).distinct().where(*own))
            found.update(((unescape(row.category), unescape(row.key)), None) for row in rows)
        return tuple(found)

    def find_procedures(self, of: Sequence[ColumnElement[bool]]) -> tuple[str, ...]:
        """Return the ids of patterns that contain parameters which only occur in some messages."""
        return find_procedures(self._connection, self._namespace, self._key, of)

    def find_message_sources(self, sessions: Sequence[int]) -> list[str]:
        """Return the sources of current and earlier knowledge that name a message of some sessions."""
        # Sessions may have very many messages but knowledge has few sources, so only the sources in use are kept.
        used_sources: set[str | None] = set()
        for table in (knowledge, knowledge_history):
            own = (table.c.namespace_pk == self._key, table.c.source.is_not(None))
            used_sources.update(
                self._connection.execute(select(table.c.source).distinct().where(*own)).scalars()
            )
        found: list[str] = []
        for part in split_parameters(sessions) if used_sources else ():
            ids = self._connection.execute(select(messages.c.id).where(messages.c.session_pk.in_(part)))
            forms = (
                form for message_id in ids.scalars() for form in build_message_sources(unescape(message_id))
            )
            found += [form for form in forms if to_storable_text(form) in used_sources]
        return found

    def _list_knowledge_names(self, name: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        # Without checking for a current value: there may be earlier values only.
        return (name,) if self._key else ()

    def _collect_dependents(
        self, found: dict[str, StoredEntry], facts: Sequence[ExtractedFact]
    ) -> dict[str, Any]:
        if not found:
            return {"facts": tuple(facts)}
        derivations = self._find_derivations(found)
        derived_ids = sorted({relation.source for relation in derivations} - found.keys())
        found |= {stored.entry.id: stored for stored in self._load_by_ids(derived_ids)}
        erased_ids = {fact.id for fact in facts}
        other_facts: dict[str, tuple[ExtractedFact, ...]] = {}
        promoted = (
            extracted_facts.c.namespace_pk == self._key,
            extracted_facts.c.state == FactState.PROMOTED.value,
        )
        for fact in self._load_facts(SELECT_FACTS.where(*promoted).order_by(extracted_facts.c.pk)):
            if fact.entry_id in found and fact.id not in erased_ids:
                other_facts[fact.entry_id or ""] = (*other_facts.get(fact.entry_id or "", ()), fact)
        episodes = SELECT_ENTRIES.where(
            memories.c.namespace_pk == self._key, memories.c.tier == Tier.EPISODIC.value
        )
        linking = [
            stored
            for stored in self._load_entries(episodes)
            if found.keys() & set(stored.details.get("linked", ()))
        ]
        return {
            "entries": tuple(found.values()),
            "facts": tuple(facts),
            "facts_from_elsewhere": other_facts,
            "derivations": derivations,
            "linking_episodes": tuple(linking),
        }

    def _find_derivations(self, found: dict[str, StoredEntry]) -> tuple[Relation, ...]:
        # The relations of all entries that were derived from these, directly or indirectly. They also name the other
        # origins of such an entry: it is only erased if all its origins are.
        reached = self._find_reachable(found, _DERIVED, forwards=False)
        source, target = memories.alias("source"), memories.alias("target")
        query = (
            select(source.c.id.label("source"), target.c.id.label("target"), relations.c.created_at)
            .join(source, source.c.pk == relations.c.source_pk)
            .join(target, target.c.pk == relations.c.target_pk)
            .where(relations.c.kind == _DERIVED)
        )
        rows = [
            row
            for part in split_parameters(sorted(reached))
            for row in self._connection.execute(query.where(relations.c.source_pk.in_(part)))
        ]
        return tuple(
            Relation(
                source=unescape(row.source),
                target=unescape(row.target),
                kind=RelationKind.DERIVED_FROM,
                created_at=row.created_at,
            )
            for row in rows
        )

    def _find_superseded_entries(self, found: dict[str, StoredEntry]) -> list[StoredEntry]:
        found_keys = {stored.key for stored in found.values()}
        keys = self._find_reachable(found, _SUPERSEDES, forwards=True) - found_keys
        return [
            stored
            for part in split_parameters(sorted(keys))
            for stored in self._load_entries(SELECT_ENTRIES.where(memories.c.pk.in_(part)))
        ]

    def _find_reachable(self, found: dict[str, StoredEntry], kind: str, *, forwards: bool) -> set[int]:
        # Breadth-first search over relations. Keys that were reached before are not followed again, so a cycle ends.
        frontier = sorted(stored.key for stored in found.values())
        ends = (relations.c.source_pk, relations.c.target_pk)
        near, far = ends if forwards else reversed(ends)
        reached = set[int]()
        while frontier:
            fresh = set[int]()
            for part in split_parameters(frontier):
                step = select(far).where(near.in_(part), relations.c.kind == kind)
                fresh.update(self._connection.execute(step).scalars())
            frontier = sorted(fresh - reached)
            reached |= fresh
        return reached

    def _load_by_ids(self, ids: Sequence[str]) -> list[StoredEntry]:
        own = SELECT_ENTRIES.where(memories.c.namespace_pk == self._key)
        return [
            stored
            for part in split_parameters([escape(entry_id) for entry_id in ids])
            for stored in self._load_entries(own.where(memories.c.id.in_(part)))
        ]

    def _load_entries(self, query: Select[*tuple[Any, ...]]) -> list[StoredEntry]:
        return [to_stored_entry(row, self._namespace) for row in self._connection.execute(query)]

    def _load_facts(self, query: Select[*tuple[Any, ...]]) -> list[ExtractedFact]:
        return [to_fact(row) for row in self._connection.execute(query)]
