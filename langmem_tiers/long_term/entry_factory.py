"""Builds entries from drafts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, Tier, build_interval_error
from langmem_tiers.long_term.models import DEFAULT_IMPORTANCE, DEFAULT_IMPORTANCE_BY_KIND
from langmem_tiers.long_term.records import NewEntry
from langmem_tiers.recall.entry_search import build_search_terms, get_search_texts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import EntryDraft

_MAX_CLOCK_SKEW = timedelta(minutes=1)
"""Maximum lead of another process's clock that is followed."""


def build_entry(
    dependencies: LongTermDependencies, namespace: NamespacePath, draft: EntryDraft, now: datetime
) -> Entry:
    """Build the long-term entry of a draft.

    Raises:
        InvalidInputError: The entry would end before it is stored.
    """
    importance = DEFAULT_IMPORTANCE_BY_KIND.get(draft.kind, DEFAULT_IMPORTANCE)
    if draft.valid_from is None and draft.valid_until is not None and draft.valid_until <= now:
        raise build_interval_error(now, draft.valid_until)
    return Entry(
        id=dependencies.new_id(),
        namespace=namespace,
        tier=Tier.LONG_TERM,
        kind=str(draft.kind),
        content=draft.content,
        created_at=now,
        session=draft.session,
        importance=importance if draft.importance is None else draft.importance,
        relevance=importance if draft.importance is None else draft.importance,
        token_count=dependencies.token_counter.count(draft.content),
        valid_from=now if draft.valid_from is None else draft.valid_from,
        valid_until=draft.valid_until,
        tags=frozenset(draft.tags),
        source=draft.source,
        category=draft.category,
        last_access_at=now,
    )


def align_start_time(entry: Entry, draft: EntryDraft, there: Iterable[Entry]) -> Entry:
    """Return the entry with a start time that is not before the creation of the entries it is compared with.

    An entry that another process stored first may have a later time, if that process's clock is ahead. The new
    entry must not begin before it. Entries with an explicit ``valid_from`` are unchanged.
    """
    if draft.valid_from is not None:
        return entry
    now = entry.created_at
    latest = max(
        (other.created_at for other in there if other.created_at - now <= _MAX_CLOCK_SKEW), default=now
    )
    if latest <= now or (entry.valid_until is not None and entry.valid_until <= latest):
        return entry
    return replace(entry, created_at=latest, valid_from=latest, last_access_at=latest)


def to_new_entry(entry: Entry) -> NewEntry:
    """Return an entry ready to be stored, with the terms of its words, tags, category and kind."""
    return NewEntry(entry=entry, terms=build_search_terms(get_search_texts(entry)))
