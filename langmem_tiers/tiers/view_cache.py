"""What sessions show, held in memory: a turn reads what is new and nothing twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.config import MAX_LIMIT
from langmem_tiers.tiers.session_cache import weight_of
from langmem_tiers.tiers.weighed import WeighedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.core.config import CacheConfig
    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.ports import EntryStore
    from langmem_tiers.core.records import View


@dataclass(frozen=True, slots=True)
class _Held:
    view: View
    weight: int


class ViewCache:
    """Views of the sessions in use. Each read asks the database what has changed since the last one.

    Args:
        entries: Where views are read.
        config: How much is held; nothing, if its limit is 0.
        timer: Tells how long something has been held.
    """

    def __init__(self, entries: EntryStore, config: CacheConfig, timer: Callable[[], float]) -> None:
        self._entries = entries
        self._held: WeighedCache[_Held] = WeighedCache(config, timer)

    def read(self, key: int) -> View:
        """What a session shows now, whoever wrote to it."""
        held = self._held.get(key)
        if held is None:
            view = self._entries.view(key, MAX_LIMIT)
            self._held.put(key, _Held(view, weight := _weight(view.items)), weight)
            return view
        view = self._entries.view(key, MAX_LIMIT, held=held.view)
        if view is not held.view:
            known = len(held.view.items) if view.revision == held.view.revision else 0
            if known:
                view.follow(held.view)
            weight = (held.weight if known else 0) + _weight(view.items[known:])
            self._held.put(key, _Held(view, weight), weight)
        return view

    def drop(self, key: int | None = None) -> None:
        """Forget one session, or all."""
        self._held.drop(key)


def _weight(items: Iterable[Shown]) -> int:
    # The compressed form is made of what the mark holds already.
    return sum(
        weight_of(item.message) + len("" if item.mark is None else item.mark.content or "") for item in items
    )
