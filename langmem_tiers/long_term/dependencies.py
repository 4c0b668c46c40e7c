"""What the tiers of lasting memories stand on, handed in by the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langmem_tiers.common.ids import IdSource
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.long_term.access_counter import AccessCounter
    from langmem_tiers.long_term.records import MemoryStore
    from langmem_tiers.recall.entry_search import MemorySearch


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTermDependencies:
    """Where entries, episodes and chunks are kept, and what counts, names and finds them."""

    store: MemoryStore
    search: MemorySearch
    access_counter: AccessCounter
    token_counter: TokenCounter
    ids: IdSource
    now: Callable[[], datetime]
    word_similarity: Callable[[str, str], float] | None = None
    """How near two words are in meaning, by an embedder that is quick enough to be asked."""

    def new_id(self) -> str:
        """An id for something new; later ones sort behind it."""
        return self.ids.new(self.now())
