"""Parse a query into search terms, speaker names and time ranges."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.text.chinese_variants import simplify_chinese
from langmem_tiers.text.time_expressions.extraction import find_time_ranges
from langmem_tiers.text.tokenize import extract_name_terms, extract_terms, find_unspaced_runs, is_unspaced

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator
    from datetime import datetime

    from langmem_tiers.recall.speakers import Speakers
    from langmem_tiers.text.time_expressions.extraction import TimeRange

MAX_TERMS = 32
"""Maximum number of distinct search terms. More terms of a long query add cost, not precision."""
_TERMS_PER_UNSPACED_WORD = 3
"""Approximate number of terms (single characters and pairs) per word of a script without spaces."""
_MAX_CHARACTERS = 10_000
"""Maximum length of a query that is parsed."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query."""

    text: str
    terms: tuple[str, ...]
    names: tuple[str, ...]
    """Words of the query, normalized like the words of a speaker's name."""
    times: tuple[TimeRange, ...]
    normalized_text: str
    """The text in Unicode NFKC form if it contains a script without spaces, else unchanged."""

    def find_speaker_names(self, speakers: Speakers) -> set[str]:
        """Return the speakers' names that occur in the query."""
        names: set[str] = set()
        for name in self.names:
            if is_unspaced(name):
                # A run of characters without spaces may contain names at any position.
                names.update(
                    name[start:end]
                    for start, end in _find_name_spans(name, speakers, speakers.max_name_characters)
                )
            elif name in speakers:
                names.add(name)
        return names

    def get_terms_without(self, speakers: Collection[str]) -> list[str]:
        """Return the search terms without the names of speakers."""
        cut = self._remove_names(speakers)
        # self.terms were extracted from the same text: extract again only if a name was removed.
        terms = self.terms if cut == self.normalized_text else extract_distinct_terms(cut)
        return [term for term in terms if term not in speakers]

    def get_text_without(self, speakers: Collection[str]) -> str:
        """Return the text without the names of speakers.

        The result is meant to be embedded: a name in it would pull the vector toward any message with that name.
        The original text is returned if nothing else remains.
        """
        if not speakers:
            return " ".join(self.text.split()) or self.text
        words = self._remove_names(speakers).split()
        kept = [word for word in words if not any(term in speakers for term in extract_name_terms(word))]
        return " ".join(kept) or self.text

    def _remove_names(self, speakers: Collection[str]) -> str:
        # Only names in scripts without spaces are removed here. The other names are separate words, which the
        # callers filter. The join inserts spaces where a name was removed and where scripts meet, so that no term
        # is made of characters that were not adjacent.
        longest = max((len(name) for name in speakers if is_unspaced(name)), default=0)
        pieces, end = [], 0
        for run in find_unspaced_runs(self.normalized_text):
            pieces.append(self.normalized_text[end : run.start()])
            at, end = run.start(), run.end()
            for first, last in _find_name_spans(simplify_chinese(run.group()), speakers, longest):
                pieces.append(self.normalized_text[at : run.start() + first])
                at = run.start() + last
            pieces.append(self.normalized_text[at:end])
        return " ".join([*pieces, self.normalized_text[end:]]) if pieces else self.normalized_text


def parse_query(text: str, now: datetime) -> Query:
    """Parse a query. Only the beginning and the end of a very long query are used.

    Args:
        text: The query.
        now: Current time, to resolve expressions such as "last week".
    """
    half = _MAX_CHARACTERS // 2
    short = text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}\n{text[-half:]}"
    has_runs = not short.isascii() and any(find_unspaced_runs(short))
    read = unicodedata.normalize("NFKC", short) if has_runs else short
    names = extract_name_terms(" ".join(re.findall(r"\S+", read)))
    return Query(
        text=short,
        terms=tuple(extract_distinct_terms(read)),
        names=tuple(dict.fromkeys(names))[:MAX_TERMS],
        times=find_time_ranges(read, now),
        normalized_text=read,
    )


def extract_distinct_terms(text: str) -> list[str]:
    """Return the distinct terms of a text in order.

    Of too many terms only the first and the last are kept, because a long message usually states its request at
    the beginning or at the end.
    """
    terms = list(dict.fromkeys(extract_terms(text)))
    if len(terms) <= MAX_TERMS:
        return terms
    # A word of a script without spaces makes several terms, so such a query may have more of them.
    most = MAX_TERMS * (_TERMS_PER_UNSPACED_WORD if any(find_unspaced_runs(text)) else 1)
    return terms if len(terms) <= most else [*terms[: most // 2], *terms[-most // 2 :]]


def _find_name_spans(run: str, names: Container[str], longest: int) -> Iterator[tuple[int, int]]:
    # Yields the longest name at each position, from left to right and without overlaps.
    start = 0
    while start < len(run):
        ends = range(min(len(run), start + longest), start, -1)
        end = next((end for end in ends if run[start:end] in names), None)
        if end is not None:
            yield start, end
        start = end or start + 1
