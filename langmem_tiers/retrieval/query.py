"""What a query says: the words to look for, and the times it speaks of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.scoring.terms import name_terms, terms_of
from langmem_tiers.scoring.times.ranges import time_ranges

if TYPE_CHECKING:
    from collections.abc import Container
    from datetime import datetime

    from langmem_tiers.scoring.times.ranges import TimeRange

MAX_TERMS = 32
"""Distinct words of a query that are looked for; the rest of a long one adds cost, not sense."""
_MAX_CHARACTERS = 10_000


@dataclass(frozen=True, slots=True)
class Query:
    """A query, read."""

    text: str
    terms: tuple[str, ...]
    names: tuple[str, ...]
    """All words as they would stand in a speaker's name."""
    times: tuple[TimeRange, ...]

    def without(self, speakers: Container[str]) -> str:
        """The text without the names of speakers: who said it says nothing of what was said."""
        kept = [word for word in self.text.split() if not any(term in speakers for term in name_terms(word))]
        return " ".join(kept) or self.text


def read_query(text: str, now: datetime) -> Query:
    """Read a query; of a very long one the beginning."""
    short = text[:_MAX_CHARACTERS]
    names = name_terms(" ".join(re.findall(r"\S+", short)))
    return Query(
        text=short,
        terms=tuple(dict.fromkeys(terms_of(short)))[:MAX_TERMS],
        names=tuple(dict.fromkeys(names))[:MAX_TERMS],
        times=time_ranges(short, now),
    )
