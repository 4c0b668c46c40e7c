"""What adapters are handed in: an engine, a namespace, a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.context.recall_context import check_budget
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.common.namespaces import NamespacePath

CHAT_LABEL = "chat"
"""The first label of the namespace that a session without one has for itself."""


def check_engine(engine: object) -> MemoryEngine:
    """The engine, or an error that says how to make one."""
    if not isinstance(engine, MemoryEngine):
        raise InvalidInputError(
            f"a {type(engine).__name__} is no MemoryEngine: pass MemoryEngine('sqlite:///memory.db')"
        )
    return engine


def resolve_namespace(namespace: str | Iterable[str] | None, session_id: str) -> NamespacePath:
    """The namespace, or the one that a session without any has for itself."""
    return check_namespace((CHAT_LABEL, session_id) if namespace is None else namespace)


def to_token_budget(budget: TokenBudget | int | None) -> TokenBudget | None:
    """The budget; a number is so many tokens for memory."""
    if isinstance(budget, int):
        return TokenBudget.of(budget)
    return None if budget is None else check_budget(budget)
