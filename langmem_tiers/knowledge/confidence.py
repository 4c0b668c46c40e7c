"""Rules for storing, using, correcting, removing and aging knowledge. Pure functions without storage."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.knowledge.models import Knowledge, KnowledgeUpdate, PastKnowledge

if TYPE_CHECKING:
    from datetime import datetime

INITIAL_CONFIDENCE = 0.5
STORE_CONFIDENCE_CHANGE = 0.1
USE_CONFIDENCE_CHANGE = 0.05
UNUSED_CONFIDENCE_CHANGE = -0.1
UNUSED_PERIOD = timedelta(days=30)
MIN_CONFIDENCE = 0.1
_WHITESPACE = re.compile(r"\s+")


def apply_store(old: Knowledge | None, fresh: Knowledge) -> KnowledgeUpdate:
    """Return the state after a value was stored.

    Storing the same value again raises its confidence. A different value supersedes the old one.
    """
    if old is None:
        return KnowledgeUpdate(fresh)
    if collapse_spaces(old.value) != collapse_spaces(fresh.value):
        return KnowledgeUpdate(fresh, _to_past(old, fresh.created_at, "superseded"))
    return KnowledgeUpdate(
        replace(
            fresh,
            confidence=_adjust_confidence(old.confidence, STORE_CONFIDENCE_CHANGE),
            created_at=old.created_at,
            last_used_at=old.last_used_at,
            use_count=old.use_count,
            store_count=old.store_count + 1,
            source=old.source if fresh.source is None else fresh.source,
        )
    )


def apply_note(old: Knowledge | None, fresh: Knowledge) -> KnowledgeUpdate:
    """Return the state after a sentence was noted. A different sentence under the same key is kept."""
    if old is not None and collapse_spaces(old.value) != collapse_spaces(fresh.value):
        return KnowledgeUpdate(old)
    return apply_store(old, fresh)


def apply_correction(old: Knowledge | None, fresh: Knowledge) -> KnowledgeUpdate:
    """Return the state after a value was replaced. Without an old value, nothing changes."""
    return KnowledgeUpdate(None) if old is None else apply_store(old, fresh)


def apply_removal(old: Knowledge | None, now: datetime) -> KnowledgeUpdate:
    """Return the state after a removal: no value, and the old one in the history."""
    return KnowledgeUpdate(None, None if old is None else _to_past(old, now, "removed"))


def apply_use(old: Knowledge | None, now: datetime, since: datetime | None) -> KnowledgeUpdate:
    """Return the state after a use. A use since ``since`` that was already counted changes nothing."""
    if old is None or (since is not None and old.last_used_at is not None and old.last_used_at >= since):
        return KnowledgeUpdate(old)
    confidence = _adjust_confidence(old.confidence, USE_CONFIDENCE_CHANGE)
    return KnowledgeUpdate(
        replace(
            old,
            confidence=confidence,
            use_count=old.use_count + 1,
            last_used_at=now,
            fresh_at=max(
                old.fresh_at, now
            ),  # if the system clock was set back, the knowledge must not become older
        )
    )


def apply_aging(old: Knowledge | None, now: datetime) -> KnowledgeUpdate:
    """Return the state after aging: a lower confidence, or None if it fell below the minimum."""
    if old is None:
        return KnowledgeUpdate(None)
    # Only whole periods count, and fresh_at advances by exactly those periods. The result is therefore the same
    # whether aging runs every day or once a year.
    periods = max(0, (now - old.fresh_at) // UNUSED_PERIOD)
    confidence = _adjust_confidence(old.confidence, UNUSED_CONFIDENCE_CHANGE * periods)
    if confidence < MIN_CONFIDENCE:
        return KnowledgeUpdate(None, _to_past(old, now, "pruned"))
    return KnowledgeUpdate(
        replace(old, confidence=confidence, fresh_at=old.fresh_at + periods * UNUSED_PERIOD)
    )


def _adjust_confidence(confidence: float, by: float) -> float:
    # Rounding removes floating-point errors: ten steps of 0.05 must add up to exactly 0.5.
    return round(max(0.0, min(1.0, confidence + by)), 6)


def _to_past(old: Knowledge, until: datetime, reason: str) -> PastKnowledge:
    return PastKnowledge(
        category=old.category,
        key=old.key,
        value=old.value,
        confidence=old.confidence,
        valid_from=old.created_at,
        valid_until=until,
        reason=reason,
        source=old.source,
    )


def collapse_spaces(value: str) -> str:
    """Return a value with each run of whitespace collapsed to one space."""
    # Upper and lower case are kept: they matter in selectors, paths and passwords.
    return _WHITESPACE.sub(" ", value).strip()
