"""Conversion of entries and extracted facts to rows and back."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from langmem_tiers.common.entries import Entry, EntryState, Tier
from langmem_tiers.common.namespaces import escape, unescape
from langmem_tiers.facts.models import ExtractedFact, FactState
from langmem_tiers.long_term.records import StoredEntry
from langmem_tiers.storage.column_types import pack_json, to_storable_text, unpack_json
from langmem_tiers.storage.schema import extracted_facts, memories, sessions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.records import NewEntry
    from langmem_tiers.sessions.message_sql import AnyRow

# Only the index reads the terms; the stored session name is a fallback in the join below.
_ENTRY_COLUMNS = tuple(column for column in memories.c if column.name not in {"terms", "session"})
SELECT_ENTRIES = select(
    *_ENTRY_COLUMNS, func.coalesce(sessions.c.name, memories.c.session).label("session")
).outerjoin(sessions, sessions.c.pk == memories.c.session_pk)
"""Entries with the present names of their sessions."""
SELECT_FACTS = select(extracted_facts, sessions.c.name.label("session")).outerjoin(
    sessions, sessions.c.pk == extracted_facts.c.session_pk
)
"""Extracted facts with the present names of their sessions."""
_FACT_FIELDS = (
    "content",
    "kind",
    "source_message_id",
    "reason",
    "category",
    "entry_id",
    "importance",
    "source",
)
_FACT_TIMES = ("valid_from", "valid_until")


def to_entry_row(new: NewEntry, namespace_pk: int, revision: int) -> dict[str, Any]:
    """Convert a new entry to a row."""
    entry = new.entry
    content = to_storable_text(entry.content)
    body: dict[str, Any] = {"details": dict(new.details), "reason": entry.reason, "source": entry.source}
    body["tags"] = sorted(entry.tags)
    # The original text, if the database cannot store one of its characters.
    if content is not entry.content:
        body["content"] = entry.content
    return {
        "namespace_pk": namespace_pk,
        "tier": entry.tier.value,
        "id": escape(entry.id),
        "kind": escape(entry.kind),
        "category": None if entry.category is None else escape(entry.category),
        "content": content,
        "importance": entry.importance,
        "token_count": entry.token_count,
        "created_at": entry.created_at,
        "valid_from": entry.valid_from or entry.created_at,
        "valid_until": entry.valid_until,
        "archived_at": None,
        "access_count": entry.access_count,
        "last_access_at": entry.last_access_at or entry.created_at,
        "session_pk": new.session_key,
        "session": None if entry.session is None else escape(entry.session),
        "turn": new.turn,
        "revision": revision,
        "terms": to_storable_text(new.terms),
        "body": pack_body(body),
    }


def to_stored_entry(row: AnyRow, namespace: NamespacePath) -> StoredEntry:
    """Convert a row to an entry."""
    body = unpack_body(row.body)
    entry = Entry(
        id=unescape(row.id),
        namespace=namespace,
        tier=Tier(row.tier),
        kind=unescape(row.kind),
        content=body.get("content", row.content),
        created_at=row.created_at,
        session=None if row.session is None else unescape(row.session),
        importance=row.importance,
        relevance=row.importance,
        token_count=row.token_count,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        tags=frozenset(body["tags"]),
        source=body["source"],
        category=None if row.category is None else unescape(row.category),
        access_count=row.access_count,
        last_access_at=row.last_access_at,
        state=EntryState.FULL if row.archived_at is None else EntryState.ARCHIVED,
        reason=body["reason"],
    )
    return StoredEntry(row.pk, entry, body["details"], row.archived_at)


def to_fact_row(fact: ExtractedFact, namespace_pk: int, session_pk: int | None) -> dict[str, Any]:
    """Convert a new extracted fact to a row."""
    return {
        "namespace_pk": namespace_pk,
        "session_pk": session_pk,
        "id": escape(fact.id),
        "state": fact.state.value,
        "confidence": fact.confidence,
        "extracted_at": fact.extracted_at,
        "body": to_fact_body(fact),
    }


def to_fact_body(fact: ExtractedFact) -> str:
    """Return the fields of a fact that have no column, as JSON text."""
    body: dict[str, Any] = {name: getattr(fact, name) for name in ("session", *_FACT_FIELDS)}
    for name in _FACT_TIMES:
        moment: datetime | None = getattr(fact, name)
        body[name] = None if moment is None else moment.isoformat()
    return pack_body({**body, "tags": list(fact.tags), "mentions": list(fact.mentions)})


def to_fact(row: AnyRow) -> ExtractedFact:
    """Convert a row to an extracted fact."""
    body = unpack_body(row.body)
    return ExtractedFact(
        id=unescape(row.id),
        session=body["session"] if row.session is None else unescape(row.session),
        state=FactState(row.state),
        confidence=row.confidence,
        extracted_at=row.extracted_at,
        tags=tuple(body["tags"]),
        mentions=tuple(body["mentions"]),
        **{name: body[name] for name in _FACT_FIELDS},
        valid_from=_parse_time(body["valid_from"]),
        valid_until=_parse_time(body["valid_until"]),
    )


def _parse_time(stored: str | None) -> datetime | None:
    return None if stored is None else datetime.fromisoformat(stored)


def pack_body(body: Mapping[str, Any]) -> str:
    """Serialize values to JSON text that every database can store."""
    return pack_json(json.dumps(dict(body), ensure_ascii=False, separators=(",", ":")))


def unpack_body(stored: str) -> dict[str, Any]:
    """Parse the result of ``pack_body``."""
    body: dict[str, Any] = json.loads(unpack_json(stored))
    return body
