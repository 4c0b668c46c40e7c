"""Where the words of a small namespace stand, in memory: a question to the database would cost more than the answer.

It says the same as the index of the database, from which it is read, a message at a time.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.core.indexes import Postings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MOST_TERMS = 100_000
"""Words of all messages together up to which they are held: reading so many takes tens of milliseconds, once."""
_COUNT_BITS = 12
_MOST = (1 << _COUNT_BITS) - 1
_BYTES_PER_TERM, _BYTES_PER_PLACE = 200, 8


class HeldWords:
    """The words of the messages that were added, in the order of their keys."""

    def __init__(self) -> None:
        self.messages = 0
        self._places: dict[str, array[int]] = {}
        self._number = 0

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self._places) * _BYTES_PER_TERM + self._number * _BYTES_PER_PLACE

    def add(self, keys: Sequence[int], terms: Mapping[int, Sequence[str]]) -> None:
        """The next messages; those without terms hold none."""
        for key in keys:
            counts = Counter(terms.get(key, ()))
            for term, count in counts.items():
                self._places.setdefault(term, array("q")).append(key << _COUNT_BITS | min(count, _MOST))
            self._number += len(counts)
        self.messages += len(keys)

    def take_between(
        self, before: NDArray[np.int64], now: NDArray[np.int64], terms: Mapping[int, Sequence[str]]
    ) -> bool:
        """Add messages that come between those that are held; False, if they are not the only ones that are missing.

        Args:
            before: The keys of the messages that there were.
            now: Those that there are.
            terms: Of new ones; those at the end may be missing and are added later.
        """
        new = np.setdiff1d(now, before).tolist()
        known = sorted(key for key in new if key in terms)
        held = len(before) + len(known)
        if self.messages != len(before) or set(now[held:].tolist()) != set(new) - set(known):
            return False
        self.add(known, terms)
        for term in {term for key in known for term in terms[key]}:
            self._places[term] = array("q", sorted(self._places[term]))
        return True

    def go_on(self, keys: NDArray[np.int64], terms: Mapping[int, Sequence[str]]) -> None:
        """Add the messages behind those that are held, if their terms are among these."""
        new = keys[self.messages :].tolist()
        if all(key in terms for key in new):
            self.add(new, terms)

    def postings(self, terms: Sequence[str]) -> Postings:
        """Where the terms are."""
        there = sorted(term for term in set(terms) if term in self._places)
        places = [self._places[term] for term in there]
        together = np.concatenate(
            [np.empty(0, np.int64), *(np.frombuffer(some, np.int64) for some in places)]
        )
        of = np.repeat(np.arange(len(there)), [len(some) for some in places])
        return Postings(there, of, together >> _COUNT_BITS, (together & _MOST).astype(np.float32))
