"""A context that is too large: what is essential stays, extracted data is cut, then old history goes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.compression.extraction_budget import head_and_tail, head_and_tail_within
from langmem_tiers.compression.fitting import most_that_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.core.ports import TokenCounter

LEAST_EXTRACTION_CHARACTERS = 200
"""What the second step leaves of an extraction; in need, less of it is left in the end."""

_PARAGRAPH = re.compile(r"\n{2,}")
_ENTRY = re.compile(r"\n(?=\S)")


class SectionKind(StrEnum):
    """What a section of a prompt is, and with that when it gives way."""

    ESSENTIAL = "essential"
    """Goal, current page: stays."""
    EXTRACTION = "extraction"
    """Cut first, to its beginning and end."""
    HISTORY = "history"
    """Its oldest entries go next. Entries are parted by empty lines; if there are none, each line that is not
    indented begins one."""
    OTHER = "other"
    """Goes last."""


@dataclass(frozen=True, slots=True)
class ContextSection:
    """A part of a prompt.

    Args:
        name: Its heading; none, if empty.
        text: What it says.
        kind: When it gives way.
    """

    name: str
    text: str
    kind: SectionKind | str = SectionKind.OTHER

    def __post_init__(self) -> None:
        known = {one.value for one in SectionKind}
        kind = str(self.kind)
        object.__setattr__(self, "kind", SectionKind(kind) if kind in known else SectionKind.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandledContext:
    """A context within its limit, and what that cost."""

    text: str
    tokens: int
    dropped: tuple[str, ...] = ()
    """Names of the sections that went."""
    cut: tuple[str, ...] = ()
    """Names of the sections that were shortened."""


def handle_large_context(
    sections: Sequence[ContextSection], max_tokens: int, counter: TokenCounter
) -> HandledContext:
    """The sections as one text of no more than ``max_tokens``.

    Where it is too large, extractions are cut to their beginning and end, then the oldest entries of
    history go, then extractions and other sections as a whole, and in the end what is essential is
    cut itself, with a note.

    Args:
        sections: In the order of the prompt; history oldest first.
        max_tokens: The limit.
        counter: Counts tokens.
    """
    held = list(sections)

    def fits(some: Sequence[ContextSection]) -> bool:
        return counter.count(_joined(some)) <= max_tokens

    for step in (_cut_extractions, _prune_history, _drop_the_rest):
        if fits(held):
            break
        held = step(held, fits)
    text = head_and_tail_within(_joined(held), max_tokens, counter)
    is_cut_whole = text != _joined(held)
    return HandledContext(
        text=text,
        tokens=counter.count(text),
        dropped=_names(sections, held, lambda now, _: not now.text),
        cut=_names(
            sections, held, lambda now, was: bool(now.text) and (is_cut_whole or now.text != was.text)
        ),
    )


def _cut_extractions(
    held: list[ContextSection], fits: Callable[[Sequence[ContextSection]], bool]
) -> list[ContextSection]:
    # All to the same length, the longest that fits: no extraction pays for another.
    longest = max((len(one.text) for one in held if one.kind is SectionKind.EXTRACTION), default=0)

    def at(size: int) -> list[ContextSection]:
        return [
            replace(one, text=head_and_tail(one.text, max(size, LEAST_EXTRACTION_CHARACTERS)))
            if one.kind is SectionKind.EXTRACTION
            else one
            for one in held
        ]

    return at(most_that_fits(longest, lambda size: fits(at(size))))


def _prune_history(
    held: list[ContextSection], fits: Callable[[Sequence[ContextSection]], bool]
) -> list[ContextSection]:
    counts = [len(_entries(one)) for one in held]
    total = sum(counts)

    def without(oldest: int) -> list[ContextSection]:
        left, kept = oldest, []
        for one, count in zip(held, counts, strict=True):
            gone = min(left, count)
            left -= gone
            kept.append(one if not gone else _without_entries(one, gone))
        return kept

    return without(total - most_that_fits(total, lambda kept: fits(without(total - kept))))


def _drop_the_rest(
    held: list[ContextSection], fits: Callable[[Sequence[ContextSection]], bool]
) -> list[ContextSection]:
    for kind in (SectionKind.EXTRACTION, SectionKind.OTHER):
        for index, one in enumerate(held):  # the first is the oldest
            if one.kind is kind and not fits(held):
                held = [*held[:index], replace(one, text=""), *held[index + 1 :]]
    return held


def _entries(one: ContextSection) -> list[str]:
    if one.kind is not SectionKind.HISTORY or not one.text:
        return []
    return [part for part in (_PARAGRAPH if "\n\n" in one.text else _ENTRY).split(one.text) if part.strip()]


def _without_entries(one: ContextSection, gone: int) -> ContextSection:
    kept = _entries(one)[gone:]
    mark = "\n\n" if "\n\n" in one.text else "\n"
    return replace(one, text=mark.join([f"[{gone} older entries were left out]", *kept]) if kept else "")


def _joined(sections: Sequence[ContextSection]) -> str:
    return "\n\n".join(f"## {one.name}\n{one.text}" if one.name else one.text for one in sections if one.text)


def _names(
    before: Sequence[ContextSection],
    now: Sequence[ContextSection],
    picks: Callable[[ContextSection, ContextSection], bool],
) -> tuple[str, ...]:
    pairs = zip(before, now, strict=True)
    return tuple(was.name for was, one in pairs if was.text and picks(one, was))
