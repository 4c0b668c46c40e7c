"""What recall gives back, and what goes to the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.core.entries import check_score
from langmem_tiers.core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.core.entries import Entry
    from langmem_tiers.core.knowledge import KnowledgeHit
    from langmem_tiers.core.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """An entry that answers a query, and why."""

    entry: Entry
    score: float
    signals: Mapping[str, float]
    """What each signal gave, by its name."""

    def __post_init__(self) -> None:
        check_score(self.score, "score")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The messages of a prompt, within their budget."""

    messages: tuple[Message, ...]
    token_count: int
    token_budget: int
    full: tuple[str, ...] = ()
    """Ids of the messages that are there as they were said."""
    compressed: tuple[str, ...] = ()
    """Ids of those that are there in fewer words."""
    dropped: tuple[str, ...] = ()
    """Ids of those that had no room, or were archived."""
    knowledge: tuple[KnowledgeHit, ...] = ()
    """What was recalled from other sessions."""
    missing: tuple[str, ...] = ()
    """Facts that have no room in the summary in force, the newest of them; the record keeps them."""
    problems: tuple[str, ...] = ()
    """What went wrong this time: a model that failed, or a newest message that had to be compressed."""

    def __post_init__(self) -> None:
        if not 0 <= self.token_count <= self.token_budget:
            raise InvalidInputError(
                f"a context of {self.token_count!r} tokens does not fit a budget of {self.token_budget!r}: "
                "leave something out or raise the budget"
            )

    @property
    def usage(self) -> float:
        """The share of the budget that is in use."""
        return self.token_count / self.token_budget
