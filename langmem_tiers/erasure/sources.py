"""What was made of what: entries, facts, episodes and knowledge by where they come from."""

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
    from langmem_tiers.sessions.message_rows import AnyRow


_PAGE_SIZE = 1_000
_MIN_TEXT_CHARACTERS = 2  # characters of what may tell of something


def find_procedures(
    connection: Connection, namespace: NamespacePath, key: int, of: Sequence[ColumnElement[bool]]
) -> tuple[str, ...]:
    """Ids of patterns, and of steps that may become one, that hold what was given in some cycles and in no others.

    Args:
        connection: To read by.
        namespace: Whose.
        key: Its key.
        of: Which messages the cycles are.
    """
    own = SELECT_ENTRIES.where(memories.c.namespace_pk == key, memories.c.tier == Tier.PROCEDURAL.value)
    kept = [to_stored_entry(row, namespace) for row in connection.execute(own)]
    held = {one.entry.id: set(_find_step_texts(one.details)) for one in kept}
    all_held = set().union(*held.values())
    given = [one for which in of for one in _find_action_texts(connection, which) if one[1] in all_held]
    cycles, gone = {cycle for cycle, _ in given}, {text for _, text in given}
    for cycle, text in _find_action_texts(connection, messages.c.namespace_pk == key) if gone else ():
        if cycle not in cycles:
            gone.discard(text)  # it was given elsewhere too, and that stays
    return tuple(sorted(name for name, texts in held.items() if texts & gone))


def _find_action_texts(connection: Connection, which: ColumnElement[bool]) -> Iterator[tuple[int, str]]:
    for row in _load_payloads(connection, which):
        payload = json.loads(unpack_json(row.payload))
        cycle = payload.get("cycle") if isinstance(payload, Mapping) else None
        if isinstance(cycle, Mapping) and isinstance(cycle.get("action"), Mapping):
            yield from ((row.pk, text) for text in _collect_texts(cycle["action"].get("parameters")))


def _load_payloads(connection: Connection, which: ColumnElement[bool]) -> Iterator[AnyRow]:
    query = select(messages.c.pk, messages.c.payload).where(which, messages.c.payload.is_not(None))
    rows, last = list[Any](), 0
    while not last or len(rows) == _PAGE_SIZE:
        page = query.where(messages.c.pk > last).order_by(messages.c.pk).limit(_PAGE_SIZE)
        rows = list(connection.execute(page))
        yield from rows
        last = rows[-1].pk if rows else -1


def _find_step_texts(details: Mapping[str, Any]) -> Iterator[str]:
    for step in (*_to_list(details.get("steps")), *_to_list(details.get("tried"))):
        if isinstance(step, Mapping):
            told = step.get("parameters", {name: one for name, one in step.items() if name != "tool"})
            yield from _collect_texts(told)


def _collect_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _MIN_TEXT_CHARACTERS:
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _collect_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _collect_texts(one)


def _to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


_DERIVED, _SUPERSEDES = escape(RelationKind.DERIVED_FROM), escape(RelationKind.SUPERSEDES)


def build_message_sources(message_id: str) -> tuple[str, str]:
    """How a source may name a message."""
    return message_id, f"message {message_id}"


class SourceFinder:
    """Looks through the memory of one namespace.

    Args:
        connection: To read by.
        namespace: Whose.
        key: Its key; 0 if it is not there.
    """

    def __init__(self, connection: Connection, namespace: NamespacePath, key: int) -> None:
        self._connection = connection
        self._namespace = namespace
        self._key = key

    def find_facts(self, sessions: Sequence[int]) -> list[ExtractedFact]:
        """The facts of some sessions."""
        found: list[ExtractedFact] = []
        for some in split_parameters(sessions):
            found += self._load_facts(SELECT_FACTS.where(extracted_facts.c.session_pk.in_(some)))
        return found

    @staticmethod
    def is_from_messages(fact: ExtractedFact, ids: AbstractSet[str]) -> bool:
        """Whether a fact of a session comes from one of its messages, or may."""
        if fact.source_message_id is None:
            return fact.reason.startswith(UNREADABLE_ANSWER_REASON)
        return fact.source_message_id in ids

    def find_chunks_and_episodes(self, session: int, after: int) -> tuple[StoredEntry, ...]:
        """The chunks and episodes of a session that end at a turn or later, archived or not."""
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
        """The entries that come from sessions, or from some of their messages, with all that hangs on them."""
        of_tier = SELECT_ENTRIES.where(
            memories.c.namespace_pk == self._key, memories.c.tier == Tier.LONG_TERM.value
        )
        found: dict[str, StoredEntry] = {}
        for some in split_parameters([escape(name) for name in names]):
            query = of_tier.where(memories.c.session.in_(some))
            found.update((one.entry.id, one) for one in self._load_entries(query))
        if ids is not None:
            told = {f"message {one}" for one in ids}
            found = {name: one for name, one in found.items() if one.entry.source in told}
        said = sorted({one.entry_id for one in facts if one.entry_id} - found.keys())
        found.update((one.entry.id, one) for one in self._load_by_ids(said))
        return self._collect_dependents(found, facts)

    def find_by_entry(self, entry_id: str) -> dict[str, Any]:
        """An entry of any tier, or a fact, or something known, with all that hangs on it."""
        found = {one.entry.id: one for one in self._load_by_ids([entry_id])}
        own = (extracted_facts.c.namespace_pk == self._key, extracted_facts.c.id == escape(entry_id))
        facts = [] if found else self._load_facts(SELECT_FACTS.where(*own))
        before = self._find_superseded(found)
        result = self._collect_dependents(found | {one.entry.id: one for one in before}, facts)
        name = name_from_id(entry_id)
        known = () if found or facts or name is None else self._list_knowledge_names(name)
        versions = frozenset(one.entry.id for one in before)
        return {**result, "versions": versions, "knowledge": known}

    def find_knowledge(self, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """What is known from one of the sources."""
        return self._find_knowledge_names(knowledge, sources)

    def find_past_knowledge(self, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """What was known from one of the sources, and has another value since, or none."""
        return self._find_knowledge_names(knowledge_history, sources)

    def _find_knowledge_names(self, table: Table, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        found = dict[tuple[str, str], None]()
        for some in split_parameters([to_storable_text(one) for one in sources]):
            own = (table.c.namespace_pk == self._key, table.c.source.in_(some))
            rows = self._connection.execute(select(table.c.category, table.c.key).distinct().where(*own))
            found.update(((unescape(row.category), unescape(row.key)), None) for row in rows)
        return tuple(found)

    def find_procedures(self, of: Sequence[ColumnElement[bool]]) -> tuple[str, ...]:
        """What was learned from tasks that does something of what was done in some messages."""
        return find_procedures(self._connection, self._namespace, self._key, of)

    def find_message_sources(self, sessions: Sequence[int]) -> list[str]:
        """Sources of what is known, or was, that name a message of some sessions."""
        named: set[str | None] = set()
        for table in (knowledge, knowledge_history):
            mine = (table.c.namespace_pk == self._key, table.c.source.is_not(None))
            named.update(self._connection.execute(select(table.c.source).distinct().where(*mine)).scalars())
        found: list[str] = []
        for some in split_parameters(sessions) if named else ():
            ids = self._connection.execute(select(messages.c.id).where(messages.c.session_pk.in_(some)))
            forms = (form for one in ids.scalars() for form in build_message_sources(unescape(one)))
            found += [form for form in forms if to_storable_text(form) in named]
        return found

    def _list_knowledge_names(self, name: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        # Past values may be there without a present one.
        return (name,) if self._key else ()

    def _collect_dependents(
        self, found: dict[str, StoredEntry], facts: Sequence[ExtractedFact]
    ) -> dict[str, Any]:
        if not found:
            return {"facts": tuple(facts)}
        derived = self._find_derivations(found)
        found |= {
            one.entry.id: one for one in self._load_by_ids(sorted({r.source for r in derived} - found.keys()))
        }
        taken = {one.id for one in facts}
        others: dict[str, tuple[ExtractedFact, ...]] = {}
        promoted = (
            extracted_facts.c.namespace_pk == self._key,
            extracted_facts.c.state == FactState.PROMOTED.value,
        )
        for one in self._load_facts(SELECT_FACTS.where(*promoted).order_by(extracted_facts.c.pk)):
            if one.entry_id in found and one.id not in taken:
                others[one.entry_id or ""] = (*others.get(one.entry_id or "", ()), one)
        episodes = SELECT_ENTRIES.where(
            memories.c.namespace_pk == self._key, memories.c.tier == Tier.EPISODIC.value
        )
        linking = [
            one for one in self._load_entries(episodes) if found.keys() & set(one.details.get("linked", ()))
        ]
        return {
            "entries": tuple(found.values()),
            "facts": tuple(facts),
            "facts_from_elsewhere": others,
            "derivations": derived,
            "linking_episodes": tuple(linking),
        }

    def _find_derivations(self, found: dict[str, StoredEntry]) -> tuple[Relation, ...]:
        # All that was derived from them, itself or by way of others, and what else that was derived from.
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
            for some in split_parameters(sorted(reached))
            for row in self._connection.execute(query.where(relations.c.source_pk.in_(some)))
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

    def _find_superseded(self, found: dict[str, StoredEntry]) -> list[StoredEntry]:
        keys = self._find_reachable(found, _SUPERSEDES, forwards=True) - {one.key for one in found.values()}
        return [
            one
            for some in split_parameters(sorted(keys))
            for one in self._load_entries(SELECT_ENTRIES.where(memories.c.pk.in_(some)))
        ]

    def _find_reachable(self, found: dict[str, StoredEntry], kind: str, *, forwards: bool) -> set[int]:
        keys = sorted(one.key for one in found.values())
        ends = (relations.c.source_pk, relations.c.target_pk)
        near, far = ends if forwards else reversed(ends)
        done, edge = set[int](), keys
        while edge:
            fresh = set[int]()
            for some in split_parameters(edge):
                step = select(far).where(near.in_(some), relations.c.kind == kind)
                fresh.update(self._connection.execute(step).scalars())
            edge = sorted(fresh - done)
            done |= fresh
        return done

    def _load_by_ids(self, ids: Sequence[str]) -> list[StoredEntry]:
        own = SELECT_ENTRIES.where(memories.c.namespace_pk == self._key)
        return [
            one
            for some in split_parameters([escape(name) for name in ids])
            for one in self._load_entries(own.where(memories.c.id.in_(some)))
        ]

    def _load_entries(self, query: Select[*tuple[Any, ...]]) -> list[StoredEntry]:
        return [to_stored_entry(row, self._namespace) for row in self._connection.execute(query)]

    def _load_facts(self, query: Select[*tuple[Any, ...]]) -> list[ExtractedFact]:
        return [to_fact(row) for row in self._connection.execute(query)]
