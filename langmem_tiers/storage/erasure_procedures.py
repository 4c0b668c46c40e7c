"""Procedures that were learned from tasks, by what was done in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from langmem_tiers.core.entries import Tier
from langmem_tiers.storage.memory_rows import ENTRIES, to_kept
from langmem_tiers.storage.memory_tables import memories
from langmem_tiers.storage.schema import messages
from langmem_tiers.storage.text import unpack_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.storage.rows import AnyRow

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
