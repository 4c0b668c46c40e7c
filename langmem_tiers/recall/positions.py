"""Where the messages of a namespace stand: which session, in what order, how far from each other.

A short turn says little by itself: "Three years now" is about what was asked before. So each message
lends its words to its neighbours, the less the more words lie between them. Distance is counted in
terms, not in turns: among short turns a message reaches several of them, a long one stands alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from langmem_tiers.recall.speakers import Speakers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from langmem_tiers.recall.records import IndexRows

NEIGHBORS_PER_SIDE = 4
"""Neighbours on either side that a message lends its words to."""
NEIGHBOR_OFFSETS = (*range(-NEIGHBORS_PER_SIDE, 0), *range(1, NEIGHBORS_PER_SIDE + 1))
FORWARD_WEIGHT, BACKWARD_WEIGHT = 1.0, 0.7
"""What was said before explains what follows more than the other way round."""
NEIGHBOR_SIMILARITY = 0.5
"""How alike the vectors of neighbours are taken to be, where they are added up without being looked at."""
_COLUMN_TYPES = {
    "keys": np.int64,
    "sessions": np.int64,
    "positions": np.int64,
    "times": np.int64,
    "roles": np.uint8,
    "lengths": np.float32,
    "asks": np.bool_,
    "importance": np.float64,
    "accesses": np.float32,
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """How far words reach: each so many terms, what is lent falls to 37 %."""

    reach: float


class MessagePositions:
    """The messages of one namespace, in the order of their keys. Rows are only ever added.

    Args:
        kernels: How far words reach, one entry for each way of looking at it.
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
        self._columns["neighbours"] = np.zeros((0, len(NEIGHBOR_OFFSETS)), np.int32)
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
        """What follows from the rows alone, for as long as none is added."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self.count]

    @property
    def session_count(self) -> int:
        """How many sessions have messages."""
        return len(self._session_numbers)

    def get_session_number(self, key: int) -> int | None:
        """The number under which rows name a session."""
        return self._session_numbers.get(key)

    def outgoing_weights(self, kernel: int) -> NDArray[np.float32]:
        """What each message lends to each of its neighbours."""
        return self[f"lent{kernel}"]

    def incoming_weights(self, kernel: int) -> NDArray[np.float32]:
        """What each message is lent by each of its neighbours; 0 where there is none."""
        return self[f"borrowed{kernel}"]

    def joined_vector_lengths(self, kernel: int) -> NDArray[np.float32]:
        """How long the sum of each message's vector and of what it borrows from others is, about."""
        return self[f"joined{kernel}"]

    def lengths_with_neighbors(self, kernel: int) -> NDArray[np.float32]:
        """How many terms each message has with those it borrows."""
        return self[f"length{kernel}"]

    def get_or_compute(self, name: object, make: Callable[[], NDArray[np.floating]]) -> NDArray[np.floating]:
        """What follows from the rows alone: made when it is first asked for, and again after rows were added."""
        known = self.derived_arrays.get(name)
        if known is None:
            known = self.derived_arrays[name] = make()
        return known

    def find_rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows with these keys, -1 for those that are not here."""
        if not self.count:
            return np.full(len(keys), -1, np.int64)
        there = np.searchsorted(self["keys"], keys)
        there[there == self.count] = 0
        return np.where(self["keys"][there] == keys, there, -1)

    def extend(self, rows: IndexRows) -> bool:
        """Add rows; those that are here already are left out.

        Returns:
            False, with nothing added, if a key is new and earlier than one that is here.
        """
        if not len(rows.keys):
            return True
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
        """Add to how often messages were recalled; other processes' counts are those of when rows were read."""
        keys = np.fromiter(accesses, np.int64, len(accesses))
        rows = self.find_rows(keys)
        counts = np.fromiter(accesses.values(), np.float32, len(accesses))
        self["accesses"][rows[rows >= 0]] += counts[rows >= 0]

    def find_speakers(self, names: Iterable[str]) -> tuple[set[str], NDArray[np.bool_]]:
        """Which of the names are of speakers, and which messages are theirs."""
        known = {name for name in names if name in self.speakers}
        if not known:
            return known, np.zeros(self.count, np.bool_)
        return known, np.isin(self["speaker"], list(self.speakers.find_numbers(known)))

    def _grow(self, needed: int) -> None:
        have = len(self._columns["keys"])
        if needed <= have:
            return
        size = max(needed, have * 3 // 2, 64)
        for name, column in self._columns.items():
            wider = np.zeros((size, *column.shape[1:]), column.dtype)
            wider[: self.count] = column[: self.count]
            self._columns[name] = wider

    def _link_sessions(self, start: int) -> None:
        # The new rows by session, each session behind the last few that it had before.
        columns = self._columns
        columns["neighbours"][start : self.count] = -1
        keys = columns["sessions"][start : self.count]
        order = np.lexsort((columns["positions"][start : self.count], keys)) + start
        chain: list[NDArray[np.int64]] = []
        for some in np.split(order, np.flatnonzero(np.diff(columns["sessions"][order])) + 1):
            key = int(columns["sessions"][some[0]])
            columns["session"][some] = self._session_numbers.setdefault(key, len(self._session_numbers))
            tail = self._session_tails.get(key)
            joined = some if tail is None else np.concatenate([tail, some])
            self._session_tails[key] = joined[-2 * NEIGHBORS_PER_SIDE :]
            chain.append(joined)
        self._link_neighbors(np.concatenate(chain), start)

    def _link_neighbors(self, chain: NDArray[np.int64], start: int) -> None:
        columns, session = self._columns, self._columns["session"][chain]
        lengths = columns["lengths"][chain].astype(np.float64)
        middles = np.cumsum(lengths) - lengths / 2
        changed = np.zeros(len(chain), np.bool_)
        for slot, offset in enumerate(NEIGHBOR_OFFSETS):
            low, high = max(0, -offset), len(chain) - max(0, offset)
            here, there = np.arange(low, high), np.arange(low, high) + offset
            # Of two that were here before, all is known.
            new = (session[here] == session[there]) & ((chain[here] >= start) | (chain[there] >= start))
            here, there = here[new], there[new]
            changed[here] = True
            columns["neighbours"][chain[here], slot] = chain[there]
            apart = np.abs(middles[there] - middles[here])
            for number, kernel in enumerate(self.kernels):
                share = np.exp(-apart / kernel.reach) * (FORWARD_WEIGHT if offset > 0 else BACKWARD_WEIGHT)
                columns[f"lent{number}"][chain[here], slot] = share
            if offset == 1:
                columns["follows_question"][chain[there]] = columns["asks"][chain[here]]
        changed |= chain >= start
        self._update_incoming_weights(chain[changed])

    def _update_incoming_weights(self, rows: NDArray[np.int64]) -> None:
        columns = self._columns
        near = columns["neighbours"][rows]
        there = near >= 0
        lengths = np.where(there, columns["lengths"][near], 0)
        for number in range(len(self.kernels)):
            # What a neighbour lends to a message stands in the neighbour's row, on the other side.
            share = columns[f"lent{number}"][near, np.arange(len(NEIGHBOR_OFFSETS))[::-1]]
            borrowed = columns[f"borrowed{number}"][rows] = np.where(there, share, 0)
            columns[f"length{number}"][rows] = columns["lengths"][rows] + (borrowed * lengths).sum(axis=1)
            squares, plain = 1 + (borrowed**2).sum(axis=1), 1 + borrowed.sum(axis=1)
            columns[f"joined{number}"][rows] = np.sqrt(squares + NEIGHBOR_SIMILARITY * (plain**2 - squares))
