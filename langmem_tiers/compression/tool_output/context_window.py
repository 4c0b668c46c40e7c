"""A context that is too large: what is essential stays, extracted data is cut, then old history goes, then the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.compression.selection import find_largest_fitting
from langmem_tiers.compression.tool_output.budget import fit_head_and_tail, keep_head_and_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.ports import TokenCounter

MIN_SECTION_CHARACTERS = 200
"""What cutting leaves of an extraction or another section; in need, it goes as a whole in the end."""
MIN_ESSENTIAL_CHARACTERS = 40
"""What cutting leaves of each essential section, until all of them are cut as one text."""
MIN_HISTORY_ENTRIES = 3
"""Of history that stay while anything else can be cut."""

_PARAGRAPH = re.compile(r"\n{2,}")
_ENTRY = re.compile(r"\n(?=\S)")
_LEFT_OUT_NOTE = re.compile(r"\[(\d{1,9}) older entries were left out\]")


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
    """Cut then, and goes last."""


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
class FittedContext:
    """A context within its limit, and what that cost."""

    text: str
    tokens: int
    dropped_sections: tuple[str, ...] = ()
    """Names of the sections that went."""
    truncated_sections: tuple[str, ...] = ()
    """Names of the sections that were shortened."""


_Fits: TypeAlias = "Callable[[Sequence[ContextSection]], bool]"
_ReductionStep: TypeAlias = "Callable[[list[ContextSection], _Fits], list[ContextSection]]"


def handle_large_context(
    sections: Sequence[ContextSection],
    max_tokens: int,
    counter: TokenCounter,
    *,
    history_first: bool = False,
) -> FittedContext:
    """The sections as one text of no more than ``max_tokens``.

    Where it is too large, extractions are cut to their beginning and end, then the oldest entries of history go but
    for the last three, then other sections are cut, then the rest of history goes, then extractions and other
    sections as a whole, and in the end what is essential is cut itself, each section to the same length, with a note.

    Args:
        sections: In the order of the prompt; history oldest first.
        max_tokens: The limit.
        counter: Counts tokens.
        history_first: Whether old history goes before extractions are cut: for who is out for data.
    """
    held = list(sections)

    def fits(some: Sequence[ContextSection]) -> bool:
        return counter.count(_join_sections(some)) <= max_tokens

    steps: list[_ReductionStep] = [
        _make_truncation_step(SectionKind.EXTRACTION),
        _make_pruning_step(MIN_HISTORY_ENTRIES),
    ]
    steps = [
        *(reversed(steps) if history_first else steps),
        _make_truncation_step(SectionKind.OTHER),
        _make_pruning_step(0),
    ]
    for step in (
        *steps,
        _drop_whole_sections,
        _make_truncation_step(SectionKind.ESSENTIAL, MIN_ESSENTIAL_CHARACTERS),
    ):
        if fits(held):
            break
        held = step(held, fits)
    text = fit_head_and_tail(_join_sections(held), max_tokens, counter)
    is_cut_whole = text != _join_sections(held)
    return FittedContext(
        text=text,
        tokens=counter.count(text),
        dropped_sections=_select_names(sections, held, lambda now, _: not now.text),
        truncated_sections=_select_names(
            sections, held, lambda now, was: bool(now.text) and (is_cut_whole or now.text != was.text)
        ),
    )


def _make_truncation_step(kind: SectionKind, least: int = MIN_SECTION_CHARACTERS) -> _ReductionStep:
    def cut(held: list[ContextSection], fits: _Fits) -> list[ContextSection]:
        # All to the same length, the longest that fits: none pays for another.
        longest = max((len(one.text) for one in held if one.kind is kind), default=0)

        def at(size: int) -> list[ContextSection]:
            most = max(size, least)
            return [
                replace(one, text=keep_head_and_tail(one.text, most)) if one.kind is kind else one
                for one in held
            ]

        return at(find_largest_fitting(longest, lambda size: fits(at(size))))

    return cut


def _make_pruning_step(least: int) -> _ReductionStep:
    def prune(held: list[ContextSection], fits: _Fits) -> list[ContextSection]:
        counts = [len(_split_entries(one)) for one in held]
        total = sum(counts)

        def without(oldest: int) -> list[ContextSection]:
            left, kept = oldest, []
            for one, count in zip(held, counts, strict=True):
                gone = min(left, count)
                left -= gone
                kept.append(one if not gone else _drop_entries(one, gone))
            return kept

        stay = find_largest_fitting(total, lambda kept: fits(without(total - kept)))
        return without(max(0, total - max(stay, least)))

    return prune


def _drop_whole_sections(held: list[ContextSection], fits: _Fits) -> list[ContextSection]:
    for kind in (SectionKind.EXTRACTION, SectionKind.OTHER):
        for index, one in enumerate(held):  # the first is the oldest
            if one.kind is kind and not fits(held):
                held = [*held[:index], replace(one, text=""), *held[index + 1 :]]
    return held


def _split_entries(one: ContextSection) -> list[str]:
    if one.kind is not SectionKind.HISTORY or not one.text:
        return []
    parts = [part for part in (_PARAGRAPH if "\n\n" in one.text else _ENTRY).split(one.text) if part.strip()]
    return parts[1:] if _LEFT_OUT_NOTE.fullmatch(parts[0]) else parts


def _drop_entries(one: ContextSection, gone: int) -> ContextSection:
    kept = _split_entries(one)[gone:]
    mark = "\n\n" if "\n\n" in one.text else "\n"
    before = _LEFT_OUT_NOTE.match(one.text)
    gone += int(before[1]) if before else 0
    return replace(one, text=mark.join([f"[{gone} older entries were left out]", *kept]) if kept else "")


def _join_sections(sections: Sequence[ContextSection]) -> str:
    return "\n\n".join(f"## {one.name}\n{one.text}" if one.name else one.text for one in sections if one.text)


def _select_names(
    before: Sequence[ContextSection],
    now: Sequence[ContextSection],
    picks: Callable[[ContextSection, ContextSection], bool],
) -> tuple[str, ...]:
    pairs = zip(before, now, strict=True)
    return tuple(was.name for was, one in pairs if was.text and picks(one, was))
