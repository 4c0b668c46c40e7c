"""Pending writes of this process: store them before others read, and delete what is erased."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.batch_writer import BatchWriter


def flush_all(
    services: EngineServices, namespace: NamespacePath | None = None, session: str | None = None
) -> None:
    """Store the pending messages of writers and working memories, and pending access counts.

    Args:
        services: Services of the engine.
        namespace: Flush only the working memories of this namespace. Default: all.
        session: Flush only the working memory of this session. Default: all.

    Raises:
        StorageError: Some data could not be stored. It stays pending.
    """
    # The stack runs in reverse order, and continues if a step fails: writers, working memories, access counts.
    with ExitStack() as stack:
        stack.callback(services.long_term.access_counter.flush)
        stack.callback(services.working.flush, namespace, session)
        for writer in _list_writers(services):
            stack.callback(writer.flush)


def delete_erased_from_writers(services: EngineServices, erased: ErasedIds) -> dict[str, int]:
    """Delete erased messages from the writers and their report files."""
    for writer in _list_writers(services):
        writer.delete_erased(erased)
    return {}


def _list_writers(services: EngineServices) -> list[BatchWriter]:
    while True:
        try:
            return list(services.writers)
        except RuntimeError:
            # Another thread opened a writer during the iteration.
            continue
