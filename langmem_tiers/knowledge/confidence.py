"""What storing, using, correcting, removing and time make of something known: pure, and the same everywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.knowledge.models import Kept, Knowledge, PastKnowledge

if TYPE_CHECKING:
    from datetime import datetime

INITIAL_CONFIDENCE = 0.5
STORED_AGAIN = 0.1
USED = 0.05
UNUSED = -0.1
UNUSED_AFTER = timedelta(days=30)
PRUNED_BELOW = 0.1
_SPACE = re.compile(r"\s+")


def stored(old: Knowledge | None, fresh: Knowledge) -> Kept:
    """What is known after a value was stored."""
    if old is None:
        return Kept(fresh)
    if plain(old.value) != plain(fresh.value):
        return Kept(fresh, _past(old, fresh.created_at, "superseded"))
    return Kept(
        replace(
            fresh,
            confidence=_moved(old.confidence, STORED_AGAIN),
            created_at=old.created_at,
            last_used_at=old.last_used_at,
            use_count=old.use_count,
            store_count=old.store_count + 1,
            source=old.source if fresh.source is None else fresh.source,
        )
    )


def noted(old: Knowledge | None, fresh: Knowledge) -> Kept:
    """What is known after a sentence was noted; another sentence in its place stays."""
    if old is not None and plain(old.value) != plain(fresh.value):
        return Kept(old)
    return stored(old, fresh)


def corrected(old: Knowledge | None, fresh: Knowledge) -> Kept:
    """What is known after a value was replaced; nothing, if nothing was."""
    return Kept(None) if old is None else stored(old, fresh)


def removed(old: Knowledge | None, now: datetime) -> Kept:
    """Nothing is known any more; the history keeps what was."""
    return Kept(None, None if old is None else _past(old, now, "removed"))


def used(old: Knowledge | None, now: datetime, since: datetime | None) -> Kept:
    """What is known after it was used."""
    if old is None or (since is not None and old.last_used_at is not None and old.last_used_at >= since):
        return Kept(old)
    confidence = _moved(old.confidence, USED)
    return Kept(
        replace(
            old,
            confidence=confidence,
            use_count=old.use_count + 1,
            last_used_at=now,
            fresh_at=max(old.fresh_at, now),  # a clock that is set back makes nothing older
        )
    )


def aged(old: Knowledge | None, now: datetime) -> Kept:
    """What is left of something that was not used."""
    if old is None:
        return Kept(None)
    periods = max(0, (now - old.fresh_at) // UNUSED_AFTER)
    confidence = _moved(old.confidence, UNUSED * periods)
    if confidence < PRUNED_BELOW:
        return Kept(None, _past(old, now, "pruned"))
    return Kept(replace(old, confidence=confidence, fresh_at=old.fresh_at + periods * UNUSED_AFTER))


def _moved(confidence: float, by: float) -> float:
    # Rounded, so that ten steps of 0.05 are a half.
    return round(max(0.0, min(1.0, confidence + by)), 6)


def _past(old: Knowledge, until: datetime, reason: str) -> PastKnowledge:
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


def plain(value: str) -> str:
    """The value with every run of spaces as one."""
    return _SPACE.sub(" ", value).strip()  # not the case: it matters to selectors, paths and passwords
