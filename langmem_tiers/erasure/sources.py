"""What was made of what: entries, facts, episodes and knowledge by where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.namespaces import escape, unescape
from langmem_tiers.facts.models import UNREAD, FactState
from langmem_tiers.items.repository import parts_of
from langmem_tiers.knowledge.models import name_from_id
from langmem_tiers.long_term.models import Relation, RelationKind
from langmem_tiers.long_term.rows import ENTRIES, FACTS, to_fact, to_kept
from langmem_tiers.storage.column_types import storable, unpack_json
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
    from langmem_tiers.long_term.records import KeptEntry
    from langmem_tiers.sessions.message_rows import AnyRow


_AT_ONCE = 1_000
_SHORTEST = 2  # characters of what may tell of something


def procedures_of(
    connection: Connection, namespace: NamespacePath, key: int, of: Sequence[ColumnElement[bool]]
) -> tuple[str, ...]:
    """Ids of patterns, and of steps that may become one, that hold what was given in some cycles and in no others.

    Args:
        connection: To read by.
        namespace: Whose.
        key: Its key.
        of: Which messages the cycles are.
    """
    own = ENTRIES.where(memories.c.namespace_pk == key, memories.c.tier == Tier.PROCEDURAL.value)
    kept = [to_kept(row, namespace) for row in connection.execute(own)]
    held = {one.entry.id: set(_given_in(one.details)) for one in kept}
    all_held = set().union(*held.values())
    given = [one for which in of for one in _given(connection, which) if one[1] in all_held]
    cycles, gone = {cycle for cycle, _ in given}, {text for _, text in given}
    for cycle, text in _given(connection, messages.c.namespace_pk == key) if gone else ():
        if cycle not in cycles:
            gone.discard(text)  # it was given elsewhere too, and that stays
    return tuple(sorted(name for name, texts in held.items() if texts & gone))


def _given(connection: Connection, which: ColumnElement[bool]) -> Iterator[tuple[int, str]]:
    for row in _with_payload(connection, which):
        payload = json.loads(unpack_json(row.payload))
        cycle = payload.get("cycle") if isinstance(payload, Mapping) else None
        if isinstance(cycle, Mapping) and isinstance(cycle.get("action"), Mapping):
            yield from ((row.pk, text) for text in _texts(cycle["action"].get("parameters")))


def _with_payload(connection: Connection, which: ColumnElement[bool]) -> Iterator[AnyRow]:
    query = select(messages.c.pk, messages.c.payload).where(which, messages.c.payload.is_not(None))
    rows, last = list[Any](), 0
    while not last or len(rows) == _AT_ONCE:
        page = query.where(messages.c.pk > last).order_by(messages.c.pk).limit(_AT_ONCE)
        rows = list(connection.execute(page))
        yield from rows
        last = rows[-1].pk if rows else -1


def _given_in(details: Mapping[str, Any]) -> Iterator[str]:
    for step in (*_list(details.get("steps")), *_list(details.get("tried"))):
        if isinstance(step, Mapping):
            told = step.get("parameters", {name: one for name, one in step.items() if name != "tool"})
            yield from _texts(told)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _SHORTEST:
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


_DERIVED, _SUPERSEDES = escape(RelationKind.DERIVED_FROM), escape(RelationKind.SUPERSEDES)


def forms_of(message_id: str) -> tuple[str, str]:
    """How a source may name a message."""
    return message_id, f"message {message_id}"


class Sources:
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

    def facts(self, sessions: Sequence[int]) -> list[ExtractedFact]:
        """The facts of some sessions."""
        found: list[ExtractedFact] = []
        for some in parts_of(sessions):
            found += self._facts(FACTS.where(extracted_facts.c.session_pk.in_(some)))
        return found

    @staticmethod
    def is_from(fact: ExtractedFact, ids: AbstractSet[str]) -> bool:
        """Whether a fact of a session comes from one of its messages, or may."""
        if fact.source_message_id is None:
            return fact.reason.startswith(UNREAD)
        return fact.source_message_id in ids

    def told(self, session: int, after: int) -> tuple[KeptEntry, ...]:
        """The chunks and episodes of a session that end at a turn or later, archived or not."""
        tiers = [Tier.SHORT_TERM.value, Tier.EPISODIC.value]
        return tuple(
            self._kept(
                ENTRIES.where(
                    memories.c.session_pk == session, memories.c.tier.in_(tiers), memories.c.turn >= after
                )
            )
        )

    def entries(
        self, names: Sequence[str], ids: AbstractSet[str] | None, facts: Sequence[ExtractedFact]
    ) -> dict[str, Any]:
        """The entries that come from sessions, or from some of their messages, with all that hangs on them."""
        of_tier = ENTRIES.where(memories.c.namespace_pk == self._key, memories.c.tier == Tier.LONG_TERM.value)
        found: dict[str, KeptEntry] = {}
        for some in parts_of([escape(name) for name in names]):
            query = of_tier.where(memories.c.session.in_(some))
            found.update((one.entry.id, one) for one in self._kept(query))
        if ids is not None:
            told = {f"message {one}" for one in ids}
            found = {name: one for name, one in found.items() if one.entry.source in told}
        said = sorted({one.entry_id for one in facts if one.entry_id} - found.keys())
        found.update((one.entry.id, one) for one in self._by_ids(said))
        return self._hanging_on(found, facts)

    def of_entry(self, entry_id: str) -> dict[str, Any]:
        """An entry of any tier, or a fact, or something known, with all that hangs on it."""
        found = {one.entry.id: one for one in self._by_ids([entry_id])}
        own = (extracted_facts.c.namespace_pk == self._key, extracted_facts.c.id == escape(entry_id))
        facts = [] if found else self._facts(FACTS.where(*own))
        before = self._superseded(found)
        result = self._hanging_on(found | {one.entry.id: one for one in before}, facts)
        name = name_from_id(entry_id)
        known = () if found or facts or name is None else self._known(name)
        versions = frozenset(one.entry.id for one in before)
        return {**result, "versions": versions, "knowledge": known}

    def knowledge(self, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """What is known from one of the sources."""
        return self._named(knowledge, sources)

    def known_before(self, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """What was known from one of the sources, and has another value since, or none."""
        return self._named(knowledge_history, sources)

    def _named(self, table: Table, sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
        found = dict[tuple[str, str], None]()
        for some in parts_of([storable(one) for one in sources]):
            own = (table.c.namespace_pk == self._key, table.c.source.in_(some))
            rows = self._connection.execute(select(table.c.category, table.c.key).distinct().where(*own))
            found.update(((unescape(row.category), unescape(row.key)), None) for row in rows)
        return tuple(found)

    def procedures(self, of: Sequence[ColumnElement[bool]]) -> tuple[str, ...]:
        """What was learned from tasks that does something of what was done in some messages."""
        return procedures_of(self._connection, self._namespace, self._key, of)

    def of_messages(self, sessions: Sequence[int]) -> list[str]:
        """Sources of what is known, or was, that name a message of some sessions."""
        named: set[str | None] = set()
        for table in (knowledge, knowledge_history):
            mine = (table.c.namespace_pk == self._key, table.c.source.is_not(None))
            named.update(self._connection.execute(select(table.c.source).distinct().where(*mine)).scalars())
        found: list[str] = []
        for some in parts_of(sessions) if named else ():
            ids = self._connection.execute(select(messages.c.id).where(messages.c.session_pk.in_(some)))
            forms = (form for one in ids.scalars() for form in forms_of(unescape(one)))
            found += [form for form in forms if storable(form) in named]
        return found

    def _known(self, name: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        # Past values may be there without a present one.
        return (name,) if self._key else ()

    def _hanging_on(self, found: dict[str, KeptEntry], facts: Sequence[ExtractedFact]) -> dict[str, Any]:
        if not found:
            return {"facts": tuple(facts)}
        derived = self._derived(found)
        found |= {
            one.entry.id: one for one in self._by_ids(sorted({r.source for r in derived} - found.keys()))
        }
        taken = {one.id for one in facts}
        others: dict[str, tuple[ExtractedFact, ...]] = {}
        promoted = (
            extracted_facts.c.namespace_pk == self._key,
            extracted_facts.c.state == FactState.PROMOTED.value,
        )
        for one in self._facts(FACTS.where(*promoted).order_by(extracted_facts.c.pk)):
            if one.entry_id in found and one.id not in taken:
                others[one.entry_id or ""] = (*others.get(one.entry_id or "", ()), one)
        episodes = ENTRIES.where(memories.c.namespace_pk == self._key, memories.c.tier == Tier.EPISODIC.value)
        linking = [one for one in self._kept(episodes) if found.keys() & set(one.details.get("linked", ()))]
        return {
            "entries": tuple(found.values()),
            "facts": tuple(facts),
            "others": others,
            "derived": derived,
            "linking": tuple(linking),
        }

    def _derived(self, found: dict[str, KeptEntry]) -> tuple[Relation, ...]:
        # All that was derived from them, itself or by way of others, and what else that was derived from.
        reached = self._reached(found, _DERIVED, forwards=False)
        source, target = memories.alias("source"), memories.alias("target")
        query = (
            select(source.c.id.label("source"), target.c.id.label("target"), relations.c.created_at)
            .join(source, source.c.pk == relations.c.source_pk)
            .join(target, target.c.pk == relations.c.target_pk)
            .where(relations.c.kind == _DERIVED)
        )
        rows = [
            row
            for some in parts_of(sorted(reached))
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

    def _superseded(self, found: dict[str, KeptEntry]) -> list[KeptEntry]:
        keys = self._reached(found, _SUPERSEDES, forwards=True) - {one.key for one in found.values()}
        return [
            one
            for some in parts_of(sorted(keys))
            for one in self._kept(ENTRIES.where(memories.c.pk.in_(some)))
        ]

    def _reached(self, found: dict[str, KeptEntry], kind: str, *, forwards: bool) -> set[int]:
        keys = sorted(one.key for one in found.values())
        ends = (relations.c.source_pk, relations.c.target_pk)
        near, far = ends if forwards else reversed(ends)
        done, edge = set[int](), keys
        while edge:
            fresh = set[int]()
            for some in parts_of(edge):
                step = select(far).where(near.in_(some), relations.c.kind == kind)
                fresh.update(self._connection.execute(step).scalars())
            edge = sorted(fresh - done)
            done |= fresh
        return done

    def _by_ids(self, ids: Sequence[str]) -> list[KeptEntry]:
        own = ENTRIES.where(memories.c.namespace_pk == self._key)
        return [
            one
            for some in parts_of([escape(name) for name in ids])
            for one in self._kept(own.where(memories.c.id.in_(some)))
        ]

    def _kept(self, query: Select[*tuple[Any, ...]]) -> list[KeptEntry]:
        return [to_kept(row, self._namespace) for row in self._connection.execute(query)]

    def _facts(self, query: Select[*tuple[Any, ...]]) -> list[ExtractedFact]:
        return [to_fact(row) for row in self._connection.execute(query)]
