"""Keyword arguments for storing and filtering entries."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, TypedDict

from langmem_tiers.common.entries import check_score
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.long_term.models import EntryFilters

if TYPE_CHECKING:
    from datetime import datetime


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
