"""Finding the facts of a text, and telling which of them another text still holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.text.facts import Fact
from langmem_tiers.text.patterns import FACT_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langmem_tiers.text.facts import FactPattern


@dataclass(frozen=True, slots=True)
class FactSpan:
    """A fact at one of its places."""

    start: int
    end: int
    fact: Fact


class FactFinder:
    """Finds facts by a table of patterns.

    Args:
        patterns: The table; add rows of your own: ``(*FACT_PATTERNS, FactPattern("ticket", ...))``.
    """

    def __init__(self, patterns: Sequence[FactPattern] = FACT_PATTERNS) -> None:
        self._patterns = tuple(patterns)

    def find_spans(self, text: str) -> list[FactSpan]:
        """Every fact at every place, in order; of two at the same place the longer one first."""
        lowered = text.lower()
        found = [
            FactSpan(start, end, Fact(pattern.kind, text[start:end], pattern.priority))
            for pattern in self._patterns
            for start, end in pattern.spans(text, lowered)
        ]
        return sorted(found, key=lambda one: (one.start, -one.end))

    def find(self, text: str) -> tuple[Fact, ...]:
        """Each fact once per kind, in the order of the text."""
        return tuple(dict.fromkeys(one.fact for one in self.find_spans(text)))

    def find_outermost(self, text: str) -> tuple[Fact, ...]:
        """The facts that lie in no other fact: whoever keeps these keeps them all."""
        kept, _ = select_outermost(text, self.find_spans(text))
        return tuple(dict.fromkeys(one.fact for one in kept))


def select_outermost(
    text: str, places: Sequence[FactSpan], covered: Sequence[tuple[int, int]] = ()
) -> tuple[list[FactSpan], set[str]]:
    """The places that lie neither in another place nor in a covered range, and the texts of those that do.

    Args:
        text: Where they stand.
        places: In order of their start, longer ones first.
        covered: Ranges of the text that are kept anyway.
    """
    kept: list[FactSpan] = []
    inside = {
        one.fact.text
        for one in places
        if any(start <= one.start and one.end <= end for start, end in covered) and _is_whole_word(text, one)
    }
    parts: set[str] = set()
    for one in places:
        last = kept[-1] if kept else None
        if last is None or one.end > last.end:
            kept.append(one)
        elif (one.start, one.end) != (last.start, last.end):
            # One place within a longer fact is enough for it to survive, if it is a word there.
            (inside if _is_whole_word(text, one) else parts).add(one.fact.text)
    unique: dict[str, FactSpan] = {}
    for one in kept:
        if one.fact.text not in inside:
            unique.setdefault(one.fact.text, one)
    return list(unique.values()), inside | (parts - set(unique))


def _is_whole_word(text: str, place: FactSpan) -> bool:
    before, behind = text[max(0, place.start - 2) : place.start][::-1], text[place.end : place.end + 2]
    return not _continues_word(before) and not _continues_word(behind)


def contains_fact(text: str, fact: Fact) -> bool:
    """Whether the text holds the fact word for word: "$5" does not survive in "$50"."""
    start = text.find(fact.text)
    while start >= 0:
        if _is_whole_word(text, FactSpan(start, start + len(fact.text), fact)):
            return True
        start = text.find(fact.text, start + 1)
    return False


def _continues_word(beside: str) -> bool:
    # A letter, or a mark that joins: 10.0.0.1 goes on in 10.0.0.12 and in 10.0.0.1.5.
    if not beside:
        return False
    if beside[0].isalnum() or beside[0] == "_":
        return True
    return len(beside) > 1 and beside[0] in "-.,/" and beside[1].isalnum()


def find_missing_facts(text: str, facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The facts that the text does not hold word for word."""
    return tuple(fact for fact in facts if not contains_fact(text, fact))


def count_surviving_facts(facts: Iterable[Fact], text: str) -> Mapping[str, tuple[int, int]]:
    """For each kind, how many of the facts the text still holds, and how many there were."""
    there: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for fact in facts:
        there[fact.kind] += 1
        kept[fact.kind] += contains_fact(text, fact)
    return {kind: (kept[kind], count) for kind, count in there.items()}
