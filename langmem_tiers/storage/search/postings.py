"""Postings: where terms occur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Postings:
    """Occurrences of terms: for each term, the ascending keys of the messages that contain it, with counts."""

    terms: Sequence[str]
    """Terms that occur at all."""
    term_numbers: NDArray[np.int64]
    """Index into ``terms`` of each occurrence."""
    keys: NDArray[np.int64]
    """Message key of each occurrence."""
    counts: NDArray[np.float32]
    """Number of times that the message contains the term."""

    def count_messages(self) -> Mapping[str, int]:
        """Return the number of messages that contain each term."""
        counts: dict[int, int] = {}
        for number in self.term_numbers.tolist():
            counts[number] = counts.get(number, 0) + 1
        return {term: counts.get(number, 0) for number, term in enumerate(self.terms)}
