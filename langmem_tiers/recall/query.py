"""What a query says: the words to look for, and the times it speaks of."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.text.chinese_variants import simplified
from langmem_tiers.text.time_expressions.extraction import time_ranges
from langmem_tiers.text.tokenize import is_unspaced, name_terms, terms_of, unspaced_runs

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator
    from datetime import datetime

    from langmem_tiers.recall.speakers import Speakers
    from langmem_tiers.text.time_expressions.extraction import TimeRange

MAX_TERMS = 32
"""Distinct words of a query that are looked for; the rest of a long one adds cost, not sense."""
_PIECES = 3
"""Terms that a word makes in a script without spaces, about."""
_MAX_CHARACTERS = 10_000


@dataclass(frozen=True, slots=True)
class Query:
    """A query, read."""

    text: str
    terms: tuple[str, ...]
    names: tuple[str, ...]
    """All words as they would stand in a speaker's name."""
    times: tuple[TimeRange, ...]
    read: str
    """The text with one way to write each letter, where scripts without spaces have several."""

    def names_among(self, speakers: Speakers) -> set[str]:
        """The names of speakers that the query says."""
        names: set[str] = set()
        for name in self.names:
            if is_unspaced(name):
                names.update(name[start:end] for start, end in _inside(name, speakers, speakers.longest))
            elif name in speakers:
                names.add(name)
        return names

    def terms_without(self, speakers: Collection[str]) -> list[str]:
        """The words to look for besides the names of speakers."""
        cut = self._cut(speakers)
        terms = self.terms if cut == self.read else distinct_terms(cut)
        return [term for term in terms if term not in speakers]

    def without(self, speakers: Collection[str]) -> str:
        """The text without the names of speakers: who said it says nothing of what was said."""
        if not speakers:
            return " ".join(self.text.split()) or self.text
        words = self._cut(speakers).split()
        kept = [word for word in words if not any(term in speakers for term in name_terms(word))]
        return " ".join(kept) or self.text

    def _cut(self, speakers: Collection[str]) -> str:
        # Names that no spaces set apart are cut out; where scripts meet, a space goes between them.
        longest = max((len(name) for name in speakers if is_unspaced(name)), default=0)
        pieces, end = [], 0
        for run in unspaced_runs(self.read):
            pieces.append(self.read[end : run.start()])
            at, end = run.start(), run.end()
            for first, last in _inside(simplified(run.group()), speakers, longest):
                pieces.append(self.read[at : run.start() + first])
                at = run.start() + last
            pieces.append(self.read[at:end])
        return " ".join([*pieces, self.read[end:]]) if pieces else self.read


def read_query(text: str, now: datetime) -> Query:
    """Read a query; of a very long one the beginning and the end."""
    half = _MAX_CHARACTERS // 2
    short = text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}\n{text[-half:]}"
    has_runs = not short.isascii() and any(unspaced_runs(short))
    read = unicodedata.normalize("NFKC", short) if has_runs else short
    names = name_terms(" ".join(re.findall(r"\S+", read)))
    return Query(
        text=short,
        terms=tuple(distinct_terms(read)),
        names=tuple(dict.fromkeys(names))[:MAX_TERMS],
        times=time_ranges(read, now),
        read=read,
    )


def distinct_terms(text: str) -> list[str]:
    """The different terms of a text; of many the first and the last, where people say what they want."""
    terms = list(dict.fromkeys(terms_of(text)))
    if len(terms) <= MAX_TERMS:
        return terms
    most = MAX_TERMS * (_PIECES if any(unspaced_runs(text)) else 1)
    return terms if len(terms) <= most else [*terms[: most // 2], *terms[-most // 2 :]]


def _inside(run: str, names: Container[str], longest: int) -> Iterator[tuple[int, int]]:
    # The longest name at each place, from the first on.
    start = 0
    while start < len(run):
        ends = range(min(len(run), start + longest), start, -1)
        end = next((end for end in ends if run[start:end] in names), None)
        if end is not None:
            yield start, end
        start = end or start + 1
