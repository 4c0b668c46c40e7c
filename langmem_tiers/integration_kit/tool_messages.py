"""How tools tell a model what memory found, and what went wrong."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, TypeGuard

from langmem_tiers.common.prompt_fences import CLOSING, OPENING, harmless
from langmem_tiers.errors import BudgetExceededError, InvalidInputError, MessageConflictError, NotFoundError
from langmem_tiers.tasks.guard_advice import AdviceLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.tasks.guard_advice import GuardAdvice


ANSWER_TOOL = "answer_guard"
"""The tool with which an agent answers a block."""
ANSWER_TOOL_TOLD = (
    "Say why a call that was blocked for going in circles has to be made once more. Use it only after a block, and "
    "only if nothing else is left to try."
)
HOW_TO_ANSWER = f"To answer, call {ANSWER_TOOL} with the reason, in three words or more."
LIFTED = "The block is lifted for now."
NOT_LIFTED = (
    "Nothing is lifted: no call is blocked, the reason has fewer than three words or was given before, or it was "
    "lifted three times already. Do something else."
)


def is_block(advice: GuardAdvice | None) -> TypeGuard[GuardAdvice]:
    """Whether the next such call is not made."""
    return advice is not None and advice.level is AdviceLevel.BLOCK


def words_of(advice: GuardAdvice, *, can_answer: bool = True) -> str:
    """What the guard says, and how it is answered where it can be."""
    is_answered = can_answer and is_block(advice) and advice.must_answer
    return f"{advice.message} {HOW_TO_ANSWER}" if is_answered else advice.message


def stopped(most: int, said: str) -> str:
    """What ends a run that asked for nothing but what is blocked."""
    return f"Stopped after {most} blocked tries. {said.removesuffix(HOW_TO_ANSWER).strip()}"


_log = logging.getLogger("langmem_tiers")
_WRONG_USE = (BudgetExceededError, InvalidInputError, MessageConflictError, NotFoundError)


def as_data(memories: Iterable[dict[str, Any]]) -> str:
    """Memories as one JSON object, ``{"note": ..., "memories": [...], "end": ...}``, fenced as data."""
    # A fence that is JSON as well: read by any parser, and taken out by whoever leaves out what was injected.
    told = {"note": OPENING, "memories": [safe(one) for one in memories], "end": CLOSING}
    return json.dumps(told, ensure_ascii=False, default=str)


def in_words(error: Exception) -> str:
    """What a model is told of an error, so that it can go on.

    Wrong use is told as it is. Of all else only the kind is told and logged: what a driver raises may quote an
    address with its password. Logging at level DEBUG shows all of it.
    """
    if isinstance(error, _WRONG_USE):
        _log.debug("a memory tool was used wrongly", exc_info=error)
        return str(error)
    _log.warning("a memory tool failed: %s", type(error).__name__)
    _log.debug("a memory tool failed", exc_info=error)
    return f"memory cannot be reached just now ({type(error).__name__}): go on without it"


def safe(value: object) -> object:
    """A JSON value without anything that could be taken for the end of the fence, or that UTF-8 cannot write."""
    if isinstance(value, str):
        return harmless(value.encode("utf-8", "replace").decode())
    if isinstance(value, dict):
        return {safe(str(key)): safe(one) for key, one in value.items()}
    return [safe(one) for one in value] if isinstance(value, list | tuple) else value
