"""Checks of arguments that adapters receive: engine, namespace, budget."""

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
"""First label of the default namespace of a session: ``("chat", session_id)``."""


def check_engine(engine: object) -> MemoryEngine:
    """Return the engine, or raise InvalidInputError if the value is not a MemoryEngine."""
    if not isinstance(engine, MemoryEngine):
        raise InvalidInputError(
            f"expected a MemoryEngine, got {type(engine).__name__}: pass MemoryEngine('sqlite:///memory.db')"
        )
    return engine


def resolve_namespace(namespace: str | Iterable[str] | None, session_id: str) -> NamespacePath:
    """Return the checked namespace; ``None`` means ``("chat", session_id)``."""
    return check_namespace((CHAT_LABEL, session_id) if namespace is None else namespace)


def to_token_budget(budget: TokenBudget | int | None) -> TokenBudget | None:
    """Convert a number of tokens to a TokenBudget; check a budget; keep ``None``."""
    if isinstance(budget, int):
        return TokenBudget.of(budget)
    return None if budget is None else check_budget(budget)
