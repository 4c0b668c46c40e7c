"""Rules for long-term entries: options and filters as callers pass them, and entries built from drafts."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

from langmem_tiers.common.entries import Entry, Tier, build_interval_error, check_score
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.long_term.models import DEFAULT_IMPORTANCE, DEFAULT_IMPORTANCE_BY_KIND, EntryFilters
from langmem_tiers.long_term.records import NewEntry
from langmem_tiers.recall.entry_search import build_search_terms, get_search_texts

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import EntryDraft


class DraftOptions(TypedDict, total=False):
    """Keyword arguments of an ``EntryDraft``, except its content."""

    kind: str
    category: str | None
    tags: AbstractSet[str]
    importance: float | None
    source: str | None
    session: str | None
    valid_from: datetime | None
    valid_until: datetime | None


class FilterOptions(TypedDict, total=False):
    """Keyword arguments of ``EntryFilters``."""

    kinds: Iterable[str] | None
    categories: Iterable[str] | None
    tags: Iterable[str] | None
    valid_at: datetime | None
    since: datetime | None
    until: datetime | None
    min_importance: float
    sessions: Iterable[str] | None
    archived: bool


def build_filters(which: FilterOptions, now: datetime) -> EntryFilters:
    """Build checked filters from keyword arguments. Without ``valid_at``, only entries valid now are included.

    Raises:
        InvalidInputError: A filter is unknown, or its value is invalid.
    """
    unknown = which.keys() - FilterOptions.__annotations__.keys()
    if unknown:
        valid_names = ", ".join(FilterOptions.__annotations__)
        raise InvalidInputError(f"unknown filter {min(unknown)!r}: use one of {valid_names}")
    return EntryFilters(
        kinds=check_filter_names(which.get("kinds"), "kind"),
        categories=check_filter_names(which.get("categories"), "category"),
        tags=check_filter_names(which.get("tags"), "tag"),
        valid_at=_check_optional_time(which.get("valid_at", now)),
        since=_check_optional_time(which.get("since")),
        until=_check_optional_time(which.get("until")),
        min_importance=check_score(which.get("min_importance", 0.0), "min_importance"),
        sessions=check_filter_names(which.get("sessions"), "session"),
        archived=which.get("archived", False),
    )


def with_valid_at(which: FilterOptions, moment: datetime) -> FilterOptions:
    """Return the filters with another ``valid_at``."""
    changed = which.copy()
    changed["valid_at"] = check_time(moment)
    return changed


def check_filter_names(values: Iterable[str] | None, what: str) -> frozenset[str] | None:
    """Check the names of a filter and return them. None means all."""
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputError(f"a filter by {what} takes a set of names, got {values!r}: use {{...}}")
    return frozenset(check_name(value, what) for value in values)


def _check_optional_time(moment: datetime | None) -> datetime | None:
    return None if moment is None else check_time(moment)


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
