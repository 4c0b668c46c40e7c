"""Adding to the records of many sessions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.telemetry.instruments import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.ports import BatchStore
    from langmem_tiers.core.records import AppendedTo, SessionBatch
    from langmem_tiers.tiers.short_term import ShortTermParts


def add_to_sessions(
    parts: ShortTermParts, store: BatchStore, batches: Sequence[SessionBatch], *, new_ids: bool
) -> tuple[AppendedTo, ...]:
    """Store batches in one transaction, and note it as ``session.add`` does.

    Args:
        parts: What sessions stand on.
        store: Where to.
        batches: One for each session.
        new_ids: That no session knows any of the ids, as far as can be told.
    """
    with parts.instruments.watch(Verb.ADD) as watch:
        done = store.append_all(batches, parts.now(), new_ids=new_ids)
        watch.note(
            messages=sum(len(one.stored) for one in done),
            duplicates=sum(len(one.duplicates) for one in done),
            sessions=len(batches),
        )
    for batch, one in zip(batches, done, strict=True):
        if one.stored:
            parts.cache.extend(one.key, one)
            parts.changed(batch.namespace)
    return done
