"""Find the facts of a text, and check which of them another text still contains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.text.facts import Fact
from langmem_tiers.text.patterns import FACT_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.text.facts import FactPattern


@dataclass(frozen=True, slots=True)
class FactSpan:
    """One occurrence of a fact in a text."""

    start: int
    end: int
    fact: Fact


class FactFinder:
    """Pattern-based finder of facts: names, numbers, dates, paths and other details.

    Args:
        patterns: The pattern table. Example with more rows: ``(*FACT_PATTERNS, FactPattern("ticket", ...))``.
    """

    def __init__(self, patterns: Sequence[FactPattern] = FACT_PATTERNS) -> None:
        self._patterns = tuple(patterns)

    def find_spans(self, text: str) -> list[FactSpan]:
        """Return every occurrence of every fact in order of its start, longer ones first."""
        lowered = text.lower()  # computed once for all patterns
        found = [
            FactSpan(start, end, Fact(pattern.kind, text[start:end], pattern.priority))
            for pattern in self._patterns
            for start, end in pattern.spans(text, lowered)
        ]
        return sorted(found, key=lambda span: (span.start, -span.end))

    def find(self, text: str) -> tuple[Fact, ...]:
        """Return each fact once per kind, in the order of the text."""
        return tuple(dict.fromkeys(span.fact for span in self.find_spans(text)))

    def find_outermost(self, text: str) -> tuple[Fact, ...]:
        """Return the facts that are not inside another fact. A text that contains these contains all facts."""
        kept, _ = select_outermost(text, self.find_spans(text))
        return tuple(dict.fromkeys(span.fact for span in kept))


def select_outermost(
    text: str, spans: Sequence[FactSpan], covered: Sequence[tuple[int, int]] = ()
) -> tuple[list[FactSpan], set[str]]:
    """Select the spans that are neither inside another span nor in a covered range.

    Args:
        text: The text that contains the spans.
        spans: Spans in order of their start, longer ones first.
        covered: Ranges of the text that are kept anyway.

    Returns:
        One span for each selected fact, and the texts of the facts that survive inside of these or of a covered range.
    """
    kept: list[FactSpan] = []
    inside = {
        span.fact.text
        for span in spans
        if any(start <= span.start and span.end <= end for start, end in covered)
        and _is_whole_word(text, span)
    }
    parts: set[str] = set()
    for span in spans:
        # In this order, a span is inside an earlier one exactly if it does not end after the last one kept.
        last = kept[-1] if kept else None
        if last is None or span.end > last.end:
            kept.append(span)
        elif (span.start, span.end) != (last.start, last.end):
            # A nested fact survives within the longer one if it is a whole word there.
            (inside if _is_whole_word(text, span) else parts).add(span.fact.text)
    unique: dict[str, FactSpan] = {}
    for span in kept:
        if span.fact.text not in inside:
            unique.setdefault(span.fact.text, span)
    return list(unique.values()), inside | (parts - set(unique))


def _is_whole_word(text: str, span: FactSpan) -> bool:
    # The characters before the span are reversed, so that both sides are read away from it.
    before, after = text[max(0, span.start - 2) : span.start][::-1], text[span.end : span.end + 2]
    return not _continues_word(before) and not _continues_word(after)


def contains_fact(text: str, fact: Fact) -> bool:
    """Return True if the text contains the fact verbatim and as a whole word: "$50" does not contain "$5"."""
    start = text.find(fact.text)
    while start >= 0:
        if _is_whole_word(text, FactSpan(start, start + len(fact.text), fact)):
            return True
        start = text.find(fact.text, start + 1)
    return False


def _continues_word(adjacent: str) -> bool:
    # A letter or digit, or a joining mark followed by one: neither 10.0.0.12 nor 10.0.0.1.5 contains 10.0.0.1.
    if not adjacent:
        return False
    if adjacent[0].isalnum() or adjacent[0] == "_":
        return True
    return len(adjacent) > 1 and adjacent[0] in "-.,/" and adjacent[1].isalnum()


def find_missing_facts(text: str, facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return the facts that the text does not contain verbatim."""
    return tuple(fact for fact in facts if not contains_fact(text, fact))
