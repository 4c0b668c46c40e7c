"""Stores what waits for a writer, batch after batch; what fails is tried again until it works or is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.errors import EngineClosedError, StorageError
from langmem_tiers.flows.batch_queue import BatchQueue
from langmem_tiers.tiers.many_sessions import add_to_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.core.ports import BatchStore
    from langmem_tiers.flows.batch_queue import Waiting
    from langmem_tiers.tiers.short_term import ShortTermParts

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds between two tries of a batch that failed


class BatchStoring:
    """The work of a writer's own thread.

    Args:
        parts: What sessions stand on.
        store: Where to.
        queue: What waits.
        tidy: Called after each batch.
    """

    def __init__(
        self, parts: ShortTermParts, store: BatchStore, queue: BatchQueue, tidy: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._store = store
        self._queue = queue
        self._tidy = tidy

    def run(self) -> None:
        """Store batch after batch, until there are none any more or what failed is given up."""
        while batch := self._queue.take():
            pause, is_again = _FIRST_PAUSE, False
            while batch:
                batch = self._attempt(batch, is_again=is_again)
                if batch:
                    self._queue.keep(batch)
                    if not self._queue.pause(pause):
                        return
                    pause, is_again = min(pause * 2, _LONGEST_PAUSE), True
            self._tidy()

    def _attempt(self, batch: Sequence[Waiting], *, is_again: bool) -> Sequence[Waiting]:
        """Store a batch; what is left of it for another time."""
        try:
            self._commit(batch, is_again=is_again)
        except (StorageError, EngineClosedError) as error:
            self._queue.failed(error)
            if isinstance(error, EngineClosedError):
                self._queue.give_up()  # it will not open again
            return batch
        except Exception as error:  # noqa: BLE001 - told to whoever waits; the others must not suffer from it
            if len(batch) == 1:
                self._queue.refuse(batch[0], error)
                return ()
        else:
            return ()
        for place, one in enumerate(batch):  # one of them will not be taken: which?
            if self._attempt([one], is_again=is_again):
                return batch[place:]
        return ()

    def _commit(self, batch: Sequence[Waiting], *, is_again: bool) -> None:
        batches = BatchQueue.by_session(batch)
        new_ids = not is_again and all(one.is_new for one in batch)
        done = add_to_sessions(self._parts, self._store, batches, new_ids=new_ids)
        self._queue.done(batch, batches, done)
