"""Dependencies of the long-term tiers, passed by the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langmem_tiers.common.ids import IdSource
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.long_term.access_counter import AccessCounter
    from langmem_tiers.long_term.repository import LongTermRepository
    from langmem_tiers.recall.entry_search import MemorySearch


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTermDependencies:
    """Repository and helpers of long-term entries, episodes, chunks, facts and pools, built once per engine.

    These objects are created for every access, and they create each other. So the values are passed together.
    """

    store: LongTermRepository
    search: MemorySearch
    access_counter: AccessCounter
    token_counter: TokenCounter
    ids: IdSource
    now: Callable[[], datetime]
    word_similarity: Callable[[str, str], float] | None = None
    """Cosine similarity of two words, by a fast embedder. None without such an embedder."""

    def new_id(self) -> str:
        """Return a new id. Later ids sort after earlier ones."""
        return self.ids.new(self.now())
