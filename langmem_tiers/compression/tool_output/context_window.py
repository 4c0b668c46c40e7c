"""Reduction of a context that exceeds its limit: extracted data is cut first, then history, then other sections."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.compression.tool_output.budget import fit_head_and_tail, keep_head_and_tail
from langmem_tiers.text.sentences import find_largest_fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.ports import TokenCounter

MIN_SECTION_CHARACTERS = 200
"""Minimum length of a truncated section. As a last resort, the section is dropped."""
MIN_ESSENTIAL_CHARACTERS = 40
"""Minimum length of a truncated essential section, before the whole text is cut."""
MIN_HISTORY_ENTRIES = 3
"""Number of history entries that are kept as long as other sections can be cut."""

_PARAGRAPH = re.compile(r"\n{2,}")
_ENTRY = re.compile(r"\n(?=\S)")
_LEFT_OUT_NOTE = re.compile(r"\[(\d{1,9}) older entries were left out\]")


class SectionKind(StrEnum):
    """Kind of a prompt section, which determines when it is reduced."""

    ESSENTIAL = "essential"
    """Goal, current page: kept."""
    EXTRACTION = "extraction"
    """Truncated first, to its beginning and end."""
    HISTORY = "history"
    """The oldest entries are dropped next. Entries are separated by empty lines; without empty lines, each line that is
    not indented starts an entry."""
    OTHER = "other"
    """Truncated after that, and dropped last."""


@dataclass(frozen=True, slots=True)
class ContextSection:
    """A section of a prompt.

    Args:
        name: Heading; no heading if empty.
        text: Content.
        kind: Kind of the section. Unknown kinds count as ``other``.
    """

    name: str
    text: str
    kind: SectionKind | str = SectionKind.OTHER

    def __post_init__(self) -> None:
        known = {section_kind.value for section_kind in SectionKind}
        kind = str(self.kind)
        object.__setattr__(self, "kind", SectionKind(kind) if kind in known else SectionKind.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedContext:
    """A context within its limit, and the sections that were reduced for it."""

    text: str
    tokens: int
    dropped_sections: tuple[str, ...] = ()
    """Names of the dropped sections."""
    truncated_sections: tuple[str, ...] = ()
    """Names of the shortened sections."""


_Fits: TypeAlias = "Callable[[Sequence[ContextSection]], bool]"
_ReductionStep: TypeAlias = "Callable[[list[ContextSection], _Fits], list[ContextSection]]"


def handle_large_context(
    sections: Sequence[ContextSection],
    max_tokens: int,
    counter: TokenCounter,
    *,
    history_first: bool = False,
) -> FittedContext:
    """Join the sections to one text of at most ``max_tokens``.

    If the text is too large, it is reduced in this order until it fits:

    1. Truncate extractions to their beginning and end.
    2. Drop the oldest history entries, except for the last three.
    3. Truncate other sections.
    4. Drop the remaining history.
    5. Drop extractions and other sections.
    6. Truncate essential sections, all to the same length.

    Args:
        sections: Sections in the order of the prompt; history oldest first.
        max_tokens: Maximum size of the text.
        counter: Token counter.
        history_first: If True, old history is dropped before extractions are truncated. For tasks that collect data.
    """
    reduced = list(sections)

    def fits(candidate: Sequence[ContextSection]) -> bool:
        return counter.count(_join_sections(candidate)) <= max_tokens

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
        if fits(reduced):
            break
        reduced = step(reduced, fits)
    # If even that is too large, cut the joined text: then every remaining section counts as truncated.
    text = fit_head_and_tail(_join_sections(reduced), max_tokens, counter)
    is_cut_whole = text != _join_sections(reduced)
    return FittedContext(
        text=text,
        tokens=counter.count(text),
        dropped_sections=_select_names(sections, reduced, lambda now, _: not now.text),
        truncated_sections=_select_names(
            sections, reduced, lambda now, was: bool(now.text) and (is_cut_whole or now.text != was.text)
        ),
    )


def _make_truncation_step(kind: SectionKind, min_characters: int = MIN_SECTION_CHARACTERS) -> _ReductionStep:
    def truncate(sections: list[ContextSection], fits: _Fits) -> list[ContextSection]:
        # All sections of the kind get the same maximum length, the largest that fits. So a short section is not
        # truncated because of a long one.
        longest = max((len(section.text) for section in sections if section.kind is kind), default=0)

        def truncate_to(size: int) -> list[ContextSection]:
            length = max(size, min_characters)
            return [
                replace(section, text=keep_head_and_tail(section.text, length))
                if section.kind is kind
                else section
                for section in sections
            ]

        return truncate_to(find_largest_fitting(longest, lambda size: fits(truncate_to(size))))

    return truncate


def _make_pruning_step(min_entries: int) -> _ReductionStep:
    def prune(sections: list[ContextSection], fits: _Fits) -> list[ContextSection]:
        counts = [len(_split_entries(section)) for section in sections]
        total = sum(counts)

        def drop_oldest(number: int) -> list[ContextSection]:
            # Sections are ordered from oldest to newest: drop from the first ones.
            remaining, kept = number, []
            for section, count in zip(sections, counts, strict=True):
                dropped = min(remaining, count)
                remaining -= dropped
                kept.append(section if not dropped else _drop_entries(section, dropped))
            return kept

        fitting = find_largest_fitting(total, lambda kept: fits(drop_oldest(total - kept)))
        return drop_oldest(max(0, total - max(fitting, min_entries)))

    return prune


def _drop_whole_sections(sections: list[ContextSection], fits: _Fits) -> list[ContextSection]:
    for kind in (SectionKind.EXTRACTION, SectionKind.OTHER):
        for index, section in enumerate(sections):  # the first is the oldest
            if section.kind is kind and not fits(sections):
                sections = [*sections[:index], replace(section, text=""), *sections[index + 1 :]]
    return sections


def _split_entries(section: ContextSection) -> list[str]:
    # Without the note that an earlier reduction put at the start: it is not an entry.
    if section.kind is not SectionKind.HISTORY or not section.text:
        return []
    separator = _PARAGRAPH if "\n\n" in section.text else _ENTRY
    parts = [part for part in separator.split(section.text) if part.strip()]
    return parts[1:] if _LEFT_OUT_NOTE.fullmatch(parts[0]) else parts


def _drop_entries(section: ContextSection, dropped: int) -> ContextSection:
    kept = _split_entries(section)[dropped:]
    separator = "\n\n" if "\n\n" in section.text else "\n"
    # Add the number of an earlier reduction.
    note = _LEFT_OUT_NOTE.match(section.text)
    dropped += int(note[1]) if note else 0
    return replace(
        section, text=separator.join([f"[{dropped} older entries were left out]", *kept]) if kept else ""
    )


def _join_sections(sections: Sequence[ContextSection]) -> str:
    return "\n\n".join(
        f"## {section.name}\n{section.text}" if section.name else section.text
        for section in sections
        if section.text
    )


def _select_names(
    before: Sequence[ContextSection],
    now: Sequence[ContextSection],
    picks: Callable[[ContextSection, ContextSection], bool],
) -> tuple[str, ...]:
    pairs = zip(before, now, strict=True)
    return tuple(was.name for was, section in pairs if was.text and picks(section, was))
