"""Resolution of conflicts between a new entry and existing ones. Pure functions without storage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import EntryState
from langmem_tiers.long_term.conflicts.comparison import Verdict, compare
from langmem_tiers.long_term.conflicts.statement import read_statement
from langmem_tiers.long_term.models import Outcome, Receipt, Relation, RelationKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import Entry

_read = lru_cache(maxsize=4096)(read_statement)  # entries are compared often, so parsed statements are cached


@dataclass(frozen=True, slots=True)
class ConflictResolution:
    """Changes that storing an entry requires."""

    receipt: Receipt
    close: Mapping[str, datetime] = field(default_factory=dict)
    """Ids of entries that end, with the time at which they end."""
    relate: tuple[Relation, ...] = ()
    restore: tuple[str, ...] = ()
    """Ids of archived entries that the new entry repeats."""
    update: tuple[Entry, ...] = ()
    """Entries that the new entry repeats, with the tags and the importance that it adds."""


def resolve_conflicts(
    new: Entry,
    there: Iterable[Entry],
    now: datetime,
    *,
    importance: float | None = None,
    kin: Callable[[str, str], float] | None = None,
    is_copy: bool = False,
) -> ConflictResolution:
    """Compare a new entry with existing ones. It may repeat one of them, or end those that it contradicts.

    Args:
        new: Entry to store.
        there: Entries to compare with, most similar first, archived or not.
        now: Current time.
        importance: Importance given by the caller. None if it is the default of the kind.
        kin: Returns the cosine similarity of two words. None compares words by the tables only.
        is_copy: True for an entry synced from a pool. A repeated entry then counts even if it starts later.
    """
    statement = _read(new.content)
    same: list[tuple[Entry, str]] = []
    against: list[tuple[Entry, str]] = []
    for old in there:
        if not _is_about_the_same(new, old) or not _overlaps(new, old):
            continue
        found = compare(_read(old.content), statement, kin)
        if found.verdict is Verdict.SAME:
            same.append((old, found.reason))
        elif found.verdict is Verdict.CONTRADICTS:
            against.append((old, found.reason))
    # An entry that contradicts the new one and starts later ends the new one; an earlier one is ended by it.
    later = [(old, why) for old, why in against if _get_start(old) > _get_start(new)]
    new = _truncate_validity(new, later)
    covered: list[tuple[Entry, str]] = []
    again: list[str] = []  # ids of archived entries that are repeated
    # In the order of their start: each repeated entry can cut off a part of the new one's validity, until only the
    # part remains that no existing entry covers.
    for old, why in sorted(same, key=lambda pair: _get_start(pair[0])):
        if not _overlaps(new, old):
            continue
        lasts = old.valid_until is None or (
            new.valid_until is not None and new.valid_until <= old.valid_until
        )
        if lasts and (is_copy or _get_start(old) <= _get_start(new)):
            return _resolve_duplicate(old, new, why, importance)
        if lasts:  # the old entry covers the time from its start on
            new = replace(new, valid_until=_get_start(old))
            again += [old.id] if old.state is EntryState.ARCHIVED else []
        elif _get_start(old) > _get_start(new):  # the new entry covers the old one and more on both sides
            covered.append((old, why))
        else:  # the old entry covers the time until its end
            new = replace(new, valid_from=old.valid_until)
            again += [old.id] if old.state is EntryState.ARCHIVED else []
    earlier = [pair for pair in against if pair not in later]
    settled = _resolve_superseding(new, [*earlier, *covered], later, now)
    return replace(settled, restore=tuple(again))


def _truncate_validity(new: Entry, later: Sequence[tuple[Entry, str]]) -> Entry:
    ends = [_get_start(old) for old, _ in later]
    if new.valid_until is not None:
        ends.append(new.valid_until)
    return replace(new, valid_until=min(ends, default=None))


def _resolve_duplicate(old: Entry, new: Entry, why: str, given: float | None) -> ConflictResolution:
    # Tags, importance, category and source of the new entry are added to the old one.
    importance = old.importance if given is None else max(old.importance, given)
    together = replace(
        old,
        tags=old.tags | new.tags,
        importance=importance,
        relevance=importance,
        category=old.category or new.category,
        source=old.source or new.source,
    )
    is_richer = together != old
    reason = f"{why}; its tags and importance were added" if is_richer else why
    receipt = Receipt(outcome=Outcome.DUPLICATE, reason=reason, entry=together, duplicate_of=old.id)
    return ConflictResolution(
        receipt,
        restore=(old.id,) if old.state is EntryState.ARCHIVED else (),
        update=(together,) if is_richer else (),
    )


def _resolve_superseding(
    new: Entry,
    earlier: Sequence[tuple[Entry, str]],
    later: Sequence[tuple[Entry, str]],
    now: datetime,
) -> ConflictResolution:
    start = _get_start(new)
    ended = [(old, why) for old, why in earlier if _overlaps(new, old)]
    close = {old.id: max(start, _get_start(old)) for old, _ in ended}
    related = [_build_supersedes_relation(new.id, old.id, now) for old, _ in ended]
    reasons = [f"{why}: {old.id!r} was valid until then" for old, why in ended]
    outcome, next_one = Outcome.SUPERSEDES if ended else Outcome.STORED, None
    if later:
        next_one, why = min(later, key=lambda pair: _get_start(pair[0]))
        related.append(_build_supersedes_relation(next_one.id, new.id, now))
        reasons.append(f"{why}: {next_one.id!r} is valid since then")
    if next_one is not None and new.valid_until is not None and new.valid_until <= now:
        outcome = Outcome.PAST
    receipt = Receipt(
        outcome=outcome,
        reason="; ".join(reasons) or "new: no duplicate or conflicting entry",
        entry=new,
        supersedes=tuple(close),
        superseded_by=None if next_one is None else next_one.id,
    )
    return ConflictResolution(receipt, close, tuple(related))


def _build_supersedes_relation(new: str, old: str, now: datetime) -> Relation:
    return Relation(source=new, target=old, kind=RelationKind.SUPERSEDES, created_at=now)


def _is_about_the_same(new: Entry, old: Entry) -> bool:
    return new.category is None or old.category is None or new.category == old.category


def _overlaps(new: Entry, old: Entry) -> bool:
    return (old.valid_until is None or old.valid_until > _get_start(new)) and (
        new.valid_until is None or new.valid_until > _get_start(old)
    )


def _get_start(entry: Entry) -> datetime:
    return entry.valid_from or entry.created_at


def invalidate_statement_cache() -> None:
    """Discard all parsed statements."""
    _read.cache_clear()
