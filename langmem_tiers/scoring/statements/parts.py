"""The clauses of a sentence that are joined by and, but or a full stop, each with its subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.scoring.statements.items import Item

_STARTS: Final = frozenset({"verb", "be", "modal", "helper", "no"})
_FINITE: Final = frozenset({"be", "modal", "helper"})
_JOINTS: Final = frozenset({"and", "but"})
_MOST_PARTS: Final = 4


def parts_of(items: Sequence[Item]) -> list[list[Item]]:
    """The items of each clause, with the subject of the first in front of those that have none."""
    cuts = [place for place in range(1, len(items) - 1) if _is_cut(items, place)]
    if not cuts or len(cuts) >= _MOST_PARTS:
        return []
    found: list[list[Item]] = []
    subject: list[Item] = []
    for start, stop in zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(items)], strict=True):
        part = list(items[start:stop])
        while part and part[0].part == "mark":
            part = part[1:]
        if not part:
            continue
        if part[0].part in _STARTS and found:
            part = [*subject, *part]
        else:
            subject = _subject(part)
        found.append(part)
    return found if len(found) > 1 else []


def _subject(part: Sequence[Item]) -> list[Item]:
    at = next((place for place, item in enumerate(part) if item.part in _STARTS), 0)
    return list(part[:at])


def _is_cut(items: Sequence[Item], place: int) -> bool:
    """Whether a clause of its own begins behind it."""
    item, behind = items[place], items[place + 1]
    if item.part == "mark":
        return item.key in ".;!"
    if item.part != "conjunction" or item.key not in _JOINTS:
        return False
    if not any(one.part in {"verb", "be"} for one in items[:place]):
        return False
    if behind.part in _FINITE:
        return True
    if behind.part == "person":
        return place + 2 < len(items) and items[place + 2].part in _STARTS
    return behind.part == "verb" and not behind.determiner and _is_finite(behind)


def _is_finite(verb: Item) -> bool:
    return verb.is_past or (verb.word.endswith("s") and not verb.word.endswith("ss"))
