"""Positions of messages in their sessions, and the weights between neighboring messages.

A short turn says little by itself: "Three years now" answers the question before it. Therefore each message
adds its terms to its neighbors, with a weight that falls with the distance. Distance is measured in terms, not
in turns: a message reaches several short turns, but hardly past a long one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from langmem_tiers.recall.query import Speakers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from langmem_tiers.recall.records import IndexRows

NEIGHBORS_PER_SIDE = 4
"""Number of neighbors on each side to which a message adds its terms."""
NEIGHBOR_OFFSETS = (*range(-NEIGHBORS_PER_SIDE, 0), *range(1, NEIGHBORS_PER_SIDE + 1))
FORWARD_WEIGHT, BACKWARD_WEIGHT = 1.0, 0.7
"""Weights of terms added to later and to earlier messages. A message explains the next ones more than the previous."""
NEIGHBOR_SIMILARITY = 0.5
"""Assumed cosine between neighbors, to estimate the length of their vectors' sum without loading them."""
_COLUMN_TYPES = {
    "keys": np.int64,
    "sessions": np.int64,
    "positions": np.int64,
    "times": np.int64,
    "roles": np.uint8,
    "lengths": np.float32,
    "is_question": np.bool_,
    "importance": np.float64,
    "accesses": np.float32,
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """Decay of the weight between neighbors: ``exp(-distance / reach)``."""

    reach: float
    """Distance in terms at which the weight has fallen to 37 %."""


class MessagePositions:
    """The messages of one namespace as columns, in ascending order of keys. Rows are only ever appended.

    ``positions[name]`` returns a column without its spare capacity. Columns in addition to those of ``IndexRows``:

    - ``session``: session number, from 0 in order of appearance
    - ``speaker``: speaker number, see ``Speakers``
    - ``follows_question``: True if the previous message of the session ends with a question
    - ``neighbors``: rows of the neighbors, one slot per entry of ``NEIGHBOR_OFFSETS``, -1 for none
    - ``lent{k}``, ``borrowed{k}``: weights to and from each neighbor, by kernel
    - ``length{k}``, ``joined{k}``: length in terms and length of the vector sum, with neighbors, by kernel

    Args:
        kernels: Decays of the weights between neighbors.
    """

    def __init__(self, kernels: tuple[Kernel, ...]) -> None:
        self.count = 0
        self.kernels = kernels
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(0, kind) for name, kind in _COLUMN_TYPES.items()
        }
        self._columns["session"] = np.zeros(0, np.int32)
        self._columns["speaker"] = np.zeros(0, np.int32)
        self._columns["follows_question"] = np.zeros(0, np.bool_)
        self._columns["neighbors"] = np.zeros((0, len(NEIGHBOR_OFFSETS)), np.int32)
        for number in range(len(kernels)):
            self._columns[f"lent{number}"] = np.zeros((0, len(NEIGHBOR_OFFSETS)), np.float32)
            self._columns[f"length{number}"] = np.zeros(0, np.float32)
            self._columns[f"borrowed{number}"] = np.zeros((0, len(NEIGHBOR_OFFSETS)), np.float32)
            self._columns[f"joined{number}"] = np.zeros(0, np.float32)
        self.speakers = Speakers()
        self._session_numbers: dict[int, int] = {}
        self._session_tails: dict[int, NDArray[np.int64]] = {}
        self._newest_key = -1
        self.derived_arrays: dict[object, NDArray[np.floating]] = {}
        """Cache of arrays that depend on the rows only. Cleared when rows are added."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self.count]

    @property
    def session_count(self) -> int:
        """Number of sessions that have messages."""
        return len(self._session_numbers)

    def get_session_number(self, key: int) -> int | None:
        """Return the number of a session in the column ``session``, or None if it has no messages."""
        return self._session_numbers.get(key)

    def outgoing_weights(self, kernel: int) -> NDArray[np.float32]:
        """Return the weights with which each message counts for each of its neighbors."""
        return self[f"lent{kernel}"]

    def incoming_weights(self, kernel: int) -> NDArray[np.float32]:
        """Return the weights with which each neighbor counts for a message. 0 without a neighbor."""
        return self[f"borrowed{kernel}"]

    def joined_vector_lengths(self, kernel: int) -> NDArray[np.float32]:
        """Return the estimated lengths of the vectors that are summed over each message and its neighbors."""
        return self[f"joined{kernel}"]

    def lengths_with_neighbors(self, kernel: int) -> NDArray[np.float32]:
        """Return the number of terms of each message, including the borrowed ones by weight."""
        return self[f"length{kernel}"]

    def get_or_compute(self, name: object, make: Callable[[], NDArray[np.floating]]) -> NDArray[np.floating]:
        """Return a cached array that depends on the rows only, computed again after rows were added."""
        known = self.derived_arrays.get(name)
        if known is None:
            known = self.derived_arrays[name] = make()
        return known

    def find_rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows with these keys, -1 for unknown keys."""
        if not self.count:
            return np.full(len(keys), -1, np.int64)
        rows = np.searchsorted(self["keys"], keys)
        # searchsorted returns `count`, an invalid index, for keys above the highest. Row 0 cannot match such a key.
        rows[rows == self.count] = 0
        return np.where(self["keys"][rows] == keys, rows, -1)

    def extend(self, rows: IndexRows) -> bool:
        """Append rows. Rows that are present already are skipped.

        Returns:
            False, with nothing added, if an unknown key is lower than the highest known key.
        """
        if not len(rows.keys):
            return True
        # The order of keys is what find_rows() searches by. A transaction may commit a lower key after a higher one
        # was read. Such a row cannot be appended: the caller has to load all rows again.
        fresh = rows.keys > self._newest_key
        if (self.find_rows(rows.keys[~fresh]) < 0).any():
            return False
        added = int(fresh.sum())
        if not added:
            return True
        start = self.count
        self._grow(start + added)
        for name in _COLUMN_TYPES:
            self._columns[name][start : start + added] = getattr(rows, name)[fresh]
        self._columns["speaker"][start : start + added] = [
            self.speakers.get_or_add_number(name)
            for name, new in zip(rows.speakers, fresh.tolist(), strict=True)
            if new
        ]
        self.count += added
        self._newest_key = int(self["keys"][-1])
        self._link_sessions(start)
        self.derived_arrays.clear()
        return True

    def add_accesses(self, accesses: Mapping[int, int]) -> None:
        """Add to the access counts of messages.

        The accesses by other processes are included as of the time when the rows were loaded.
        """
        keys = np.fromiter(accesses, np.int64, len(accesses))
        rows = self.find_rows(keys)
        counts = np.fromiter(accesses.values(), np.float32, len(accesses))
        self["accesses"][rows[rows >= 0]] += counts[rows >= 0]

    def find_speakers(self, names: Iterable[str]) -> tuple[set[str], NDArray[np.bool_]]:
        """Return the names that belong to speakers, and flags of the messages by these speakers."""
        known = {name for name in names if name in self.speakers}
        if not known:
            return known, np.zeros(self.count, np.bool_)
        return known, np.isin(self["speaker"], list(self.speakers.find_numbers(known)))

    def _grow(self, needed: int) -> None:
        have = len(self._columns["keys"])
        if needed <= have:
            return
        # Growing by half each time makes appending cost amortized constant time.
        size = max(needed, have * 3 // 2, 64)
        for name, column in self._columns.items():
            wider = np.zeros((size, *column.shape[1:]), column.dtype)
            wider[: self.count] = column[: self.count]
            self._columns[name] = wider

    def _link_sessions(self, start: int) -> None:
        # Neighbors are adjacent in their session, but rows are ordered by key, which mixes the sessions. Build a chain
        # of rows, session after session: the last known rows of the session, followed by its new rows by position.
        columns = self._columns
        columns["neighbors"][start : self.count] = -1
        keys = columns["sessions"][start : self.count]
        order = np.lexsort((columns["positions"][start : self.count], keys)) + start
        chain: list[NDArray[np.int64]] = []
        # np.diff is not 0 where the next session begins, so this splits the sorted rows by session.
        for rows in np.split(order, np.flatnonzero(np.diff(columns["sessions"][order])) + 1):
            key = int(columns["sessions"][rows[0]])
            columns["session"][rows] = self._session_numbers.setdefault(key, len(self._session_numbers))
            tail = self._session_tails.get(key)
            joined = rows if tail is None else np.concatenate([tail, rows])
            self._session_tails[key] = joined[-2 * NEIGHBORS_PER_SIDE :]
            chain.append(joined)
        self._link_neighbors(np.concatenate(chain), start)

    def _link_neighbors(self, chain: NDArray[np.int64], start: int) -> None:
        columns, session = self._columns, self._columns["session"][chain]
        lengths = columns["lengths"][chain].astype(np.float64)
        # Position of the middle of each message, in terms from the beginning of the chain.
        middles = np.cumsum(lengths) - lengths / 2
        changed = np.zeros(len(chain), np.bool_)
        for slot, offset in enumerate(NEIGHBOR_OFFSETS):
            # All pairs of chain elements at this offset, without those that would reach past an end of the chain.
            low, high = max(0, -offset), len(chain) - max(0, offset)
            own, other = np.arange(low, high), np.arange(low, high) + offset
            # Keep pairs within a session. Pairs of two old rows (below `start`) were linked before.
            new = (session[own] == session[other]) & ((chain[own] >= start) | (chain[other] >= start))
            own, other = own[new], other[new]
            changed[own] = True
            columns["neighbors"][chain[own], slot] = chain[other]
            distance = np.abs(middles[other] - middles[own])
            for number, kernel in enumerate(self.kernels):
                share = np.exp(-distance / kernel.reach) * (FORWARD_WEIGHT if offset > 0 else BACKWARD_WEIGHT)
                columns[f"lent{number}"][chain[own], slot] = share
            if offset == 1:
                columns["follows_question"][chain[other]] = columns["is_question"][chain[own]]
        # A new row without neighbors is in no pair, but its sums still have to be set.
        changed |= chain >= start
        self._update_incoming_weights(chain[changed])

    def _update_incoming_weights(self, rows: NDArray[np.int64]) -> None:
        columns = self._columns
        near = columns["neighbors"][rows]
        has_neighbor = near >= 0
        lengths = np.where(has_neighbor, columns["lengths"][near], 0)
        for number in range(len(self.kernels)):
            # The neighbor at offset d has this message at offset -d. NEIGHBOR_OFFSETS is symmetric, so the weight is
            # in the neighbor's row in the slot that mirrors this one.
            share = columns[f"lent{number}"][near, np.arange(len(NEIGHBOR_OFFSETS))[::-1]]
            borrowed = columns[f"borrowed{number}"][rows] = np.where(has_neighbor, share, 0)
            columns[f"length{number}"][rows] = columns["lengths"][rows] + (borrowed * lengths).sum(axis=1)
            # Length of a sum of unit vectors with weights w (1 for the message itself) and pairwise cosine c:
            # |sum|^2 = sum(w^2) + c * (sum(w)^2 - sum(w^2)).
            squares, plain = 1 + (borrowed**2).sum(axis=1), 1 + borrowed.sum(axis=1)
            columns[f"joined{number}"][rows] = np.sqrt(squares + NEIGHBOR_SIMILARITY * (plain**2 - squares))
