"""Long-term memory: what was promoted, from all sessions of a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.config import check_limit
from langmem_tiers.core.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.ports import EntryStore
    from langmem_tiers.core.records import Promoted

_PAGE = 500


class LongTerm:
    """The long-term entries of a namespace, newest first. Get it from ``namespace.long_term``."""

    def __init__(self, store: EntryStore, namespace: NamespacePath) -> None:
        self._store = store
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"LongTerm({'/'.join(self._namespace)!r})"

    def latest(self, limit: int = 100) -> tuple[Entry, ...]:
        """The newest entries."""
        check_limit(limit)
        found = self._store.promoted(self._namespace, before=None, limit=limit)
        return tuple(self._entry(one) for one in found)

    def __iter__(self) -> Iterator[Entry]:
        before: int | None = None
        while page := self._store.promoted(self._namespace, before=before, limit=_PAGE):
            yield from (self._entry(one) for one in page)
            before = page[-1].shown.key

    def _entry(self, promoted: Promoted) -> Entry:
        item = promoted.shown
        shown = item.as_marked()
        return Entry(
            id=item.message.id,
            namespace=self._namespace,
            session=promoted.session,
            tier=item.tier,
            state=item.state,
            kind="message",
            role=item.message.role,
            content=shown.content,
            created_at=item.message.created_at,
            relevance=1.0,
            token_count=shown.token_count,
            reason="" if item.mark is None else item.mark.reason,
        )
