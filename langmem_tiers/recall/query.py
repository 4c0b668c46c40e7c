"""Parse a query into search terms, speaker names and time ranges."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.text.chinese_variants import simplify_chinese
from langmem_tiers.text.time_expressions.extraction import find_time_ranges
from langmem_tiers.text.tokenize import extract_name_terms, extract_terms, find_unspaced_runs, is_unspaced
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator
    from datetime import datetime

    from langmem_tiers.text.time_expressions.extraction import TimeRange


_HAN_NAME = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]{2,4}")
_HANGUL_NAME = re.compile("[\uac00-\ud7af]{3}")
_HAN_AND_KANA = re.compile("([\u3400-\u4dbf\u4e00-\u9fff]{2,3})([\u3040-\u30ff]{2,})")
_HONORIFICS = frozenset("さん くん ちゃん さま".split())
_TWO_CHARACTER_SURNAMES = frozenset(load_words(__name__, "surnames", "surnames"))
_FAMILIAR_PREFIXES = "小阿老大"


def build_name_forms(name: str) -> tuple[str, ...]:
    """Return the other forms of a name in simplified characters; empty for names in other scripts."""
    if _HAN_NAME.fullmatch(name):
        return _build_han_forms(name)
    if _HANGUL_NAME.fullmatch(name):
        return (name[1:],)
    if parts := _HAN_AND_KANA.fullmatch(name):
        return tuple(part for part in parts.groups() if part not in _HONORIFICS)
    return ()


def _build_han_forms(name: str) -> tuple[str, ...]:
    if name[0] in _FAMILIAR_PREFIXES or name[0] == name[-1]:
        return ()  # already a short form
    # Four characters have a two-character surname, as do those in the list; all others have one character.
    family = name[:2] if len(name) == 4 or name[:2] in _TWO_CHARACTER_SURNAMES else name[0]
    given_name = name[len(family) :]
    if not given_name:
        return ()
    called = (given_name, family) if len(family) > 1 else (given_name, f"小{family}", f"老{family}")
    familiar = (given_name[-1] * 2, f"小{given_name[-1]}", f"阿{given_name[-1]}")
    return tuple(dict.fromkeys(form for form in (*called, *familiar) if len(form) > 1))


class Speakers:
    """Numbers of speakers by name. 0 is the number of messages without a speaker's name.

    Each word of a speaker's name refers to the speaker, for example the first name alone.
    """

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {None: 0}
        self._by_name: dict[str, set[int]] = {}
        self._by_name_form: dict[str, set[int]] = {}
        self.max_name_characters = 0
        """Length of the longest name in a script without spaces."""

    def __contains__(self, name: object) -> bool:
        return name in self._by_name or name in self._by_name_form

    def get_or_add_number(self, terms: str | None) -> int:
        """Return the number of the speaker with these terms in the name, and add the speaker if unknown."""
        number = self._numbers.get(terms)
        if number is None:
            number = self._numbers[terms] = len(self._numbers)
            words = (terms or "").split()
            for word in words:
                self._add(word, number, is_whole=len(words) == 1)
        return number

    def find_numbers(self, names: Iterable[str]) -> set[int]:
        """Return the numbers of the speakers with any of the names.

        A short or familiar form of a name counts only if no speaker has exactly this name.
        """
        return {
            number
            for name in names
            for number in self._by_name.get(name, self._by_name_form.get(name, set()))
        }

    def _add(self, word: str, number: int, *, is_whole: bool) -> None:
        if not is_unspaced(word):
            self._by_name.setdefault(word, set()).add(number)
            return
        if len(word) == 1 and not is_whole:
            # A single character, such as a Chinese surname, occurs in too many words.
            return
        self.max_name_characters = max(self.max_name_characters, len(word))
        self._by_name.setdefault(word, set()).add(number)
        for form in build_name_forms(word):
            self._by_name_form.setdefault(form, set()).add(number)


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
    max_terms = MAX_TERMS * (_TERMS_PER_UNSPACED_WORD if any(find_unspaced_runs(text)) else 1)
    return terms if len(terms) <= max_terms else [*terms[: max_terms // 2], *terms[-max_terms // 2 :]]


def _find_name_spans(run: str, names: Container[str], longest: int) -> Iterator[tuple[int, int]]:
    # Yields the longest name at each position, from left to right and without overlaps.
    start = 0
    while start < len(run):
        ends = range(min(len(run), start + longest), start, -1)
        end = next((end for end in ends if run[start:end] in names), None)
        if end is not None:
            yield start, end
        start = end or start + 1
