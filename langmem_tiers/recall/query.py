"""What a query says: the words to look for, and the times it speaks of."""

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
"""Distinct words of a query that are looked for; the rest of a long one adds cost, not sense."""
_TERMS_PER_UNSPACED_WORD = 3
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
    normalized_text: str
    """The text with one way to write each letter, where scripts without spaces have several."""

    def find_speaker_names(self, speakers: Speakers) -> set[str]:
        """The names of speakers that the query says."""
        names: set[str] = set()
        for name in self.names:
            if is_unspaced(name):
                names.update(
                    name[start:end]
                    for start, end in _find_name_spans(name, speakers, speakers.max_name_characters)
                )
            elif name in speakers:
                names.add(name)
        return names

    def get_terms_without(self, speakers: Collection[str]) -> list[str]:
        """The words to look for besides the names of speakers."""
        cut = self._remove_names(speakers)
        terms = self.terms if cut == self.normalized_text else extract_distinct_terms(cut)
        return [term for term in terms if term not in speakers]

    def get_text_without(self, speakers: Collection[str]) -> str:
        """The text without the names of speakers: who said it says nothing of what was said."""
        if not speakers:
            return " ".join(self.text.split()) or self.text
        words = self._remove_names(speakers).split()
        kept = [word for word in words if not any(term in speakers for term in extract_name_terms(word))]
        return " ".join(kept) or self.text

    def _remove_names(self, speakers: Collection[str]) -> str:
        # Names that no spaces set apart are cut out; where scripts meet, a space goes between them.
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
    """Read a query; of a very long one the beginning and the end."""
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
    """The different terms of a text; of many the first and the last, where people say what they want."""
    terms = list(dict.fromkeys(extract_terms(text)))
    if len(terms) <= MAX_TERMS:
        return terms
    most = MAX_TERMS * (_TERMS_PER_UNSPACED_WORD if any(find_unspaced_runs(text)) else 1)
    return terms if len(terms) <= most else [*terms[: most // 2], *terms[-most // 2 :]]


def _find_name_spans(run: str, names: Container[str], longest: int) -> Iterator[tuple[int, int]]:
    # The longest name at each place, from the first on.
    start = 0
    while start < len(run):
        ends = range(min(len(run), start + longest), start, -1)
        end = next((end for end in ends if run[start:end] in names), None)
        if end is not None:
            yield start, end
        start = end or start + 1
