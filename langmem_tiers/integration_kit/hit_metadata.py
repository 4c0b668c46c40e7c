"""Metadata of recalled memories as plain JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langmem_tiers.recall.models import Hit


def build_hit_metadata(hit: Hit) -> dict[str, Any]:
    """Return the origin and the score breakdown of a memory as plain JSON, without empty fields."""
    entry = hit.entry
    values = {
        "score": hit.score,
        "relevance": hit.relevance,
        "signals": dict(hit.signals),
        "found_by": hit.found_by,
        "kind": entry.kind,
        "tier": str(entry.tier),
        "namespace": list(entry.namespace),
        "session": entry.session,
        "role": None if entry.role is None else str(entry.role),
        "name": None if hit.message is None else hit.message.name,
        "created_at": entry.created_at.isoformat(),
        "importance": entry.importance,
        "source": entry.source,
        "category": entry.category,
        "tags": sorted(entry.tags) or None,
        "valid_from": None if entry.valid_from is None else entry.valid_from.isoformat(),
        "valid_until": None if entry.valid_until is None else entry.valid_until.isoformat(),
    }
    if hit.knowledge is not None:
        knowledge = hit.knowledge
        values |= {"category": knowledge.category, "key": knowledge.key, "value": knowledge.value}
        values |= {"confidence": knowledge.confidence}
    return {name: value for name, value in values.items() if value is not None}
