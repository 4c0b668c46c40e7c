"""What was taken and waits in this process: stored before others look, and let go of when it is erased."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.batch_writer import BatchWriter


def flush_all(
    parts: EngineServices, namespace: NamespacePath | None = None, session: str | None = None
) -> None:
    """Store what waits in writers and in working memories, and uses that were counted; each, whatever fails.

    Args:
        parts: Where it waits.
        namespace: Of working memories only those of this one; all, if left out.
        session: Only that of this session.

    Raises:
        StorageError: The database took it not, or not all; what it did not take is held on.
    """
    with ExitStack() as stack:  # it begins with the last
        stack.callback(parts.long_term.access_counter.flush)
        stack.callback(parts.working.flush, namespace, session)
        for writer in _list_writers(parts):
            stack.callback(writer.flush)


def delete_erased_from_writers(parts: EngineServices, erased: ErasedIds) -> dict[str, int]:
    """Have writers hold nothing of what is erased, nor their files."""
    for writer in _list_writers(parts):
        writer.delete_erased(erased)
    return {}


def _list_writers(parts: EngineServices) -> list[BatchWriter]:
    while True:
        try:
            return list(parts.writers)
        except RuntimeError:  # somebody opened one meanwhile
            continue
