"""What would become of the messages of a session, kept from one page of its timeline to the next."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from langmem_tiers.core.clock import SystemClock
from langmem_tiers.core.config import CacheConfig
from langmem_tiers.tiers.weighed import WeighedCache

if TYPE_CHECKING:
    from langmem_tiers.core.budget import TokenBudget
    from langmem_tiers.core.previews import Verdicts
    from langmem_tiers.flows.session import Session

_MOST_MESSAGES = 300_000
"""Of all that is kept."""
_LEAST = 1_000
"""As how many messages each counts besides, so that there are not too many."""
_SECONDS = 60.0


class Timelines:
    """Keeps verdicts for a minute, a bounded number of them. Of what messages and questions say it keeps nothing."""

    def __init__(self) -> None:
        config = CacheConfig(max_characters=_MOST_MESSAGES, ttl_seconds=_SECONDS)
        self._kept: WeighedCache[Verdicts] = WeighedCache(config, SystemClock().monotonic)

    def verdicts(
        self, session: Session, question: str | None, budget: TokenBudget, *, is_first: bool
    ) -> Verdicts:
        """What becomes of the messages of a session in a context.

        Args:
            session: Whose.
            question: What memory is asked for; without one nothing is recalled.
            budget: What there is.
            is_first: Whether they are for a first page, which is told as it is now.
        """
        # What was said or erased since changes all of them: then they are made anew.
        asked = hashlib.blake2b((question or "").encode("utf-8", "surrogatepass"), digest_size=16).digest()
        key = (session.key, session.info().revision, asked, budget)
        kept = None if is_first else self._kept.get(key)
        if kept is None:
            kept = session.preview(question, budget=budget, recall=bool(question)).verdicts
            self._kept.put(key, kept, _LEAST + len(kept.reasons))
        return kept
