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
    """Where terms are: for each the keys of the messages that hold it, ascending, and how often."""

    terms: Sequence[str]
    """Those that are anywhere at all."""
    term_numbers: NDArray[np.int64]
    """Which of the terms it is, in their order."""
    keys: NDArray[np.int64]
    counts: NDArray[np.float32]

    def count_messages(self) -> Mapping[str, int]:
        """How many messages hold each term."""
        counts: dict[int, int] = {}
        for number in self.term_numbers.tolist():
            counts[number] = counts.get(number, 0) + 1
        return {term: counts.get(number, 0) for number, term in enumerate(self.terms)}
