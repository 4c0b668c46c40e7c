"""How tools tell a model what memory found, and what went wrong."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, TypeGuard

from langmem_tiers.common.prompt_fences import FENCE_CLOSING, FENCE_OPENING, neutralize_fence_tags
from langmem_tiers.errors import BudgetExceededError, InvalidInputError, MessageConflictError, NotFoundError
from langmem_tiers.tasks.guard_advice import AdviceLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.tasks.guard_advice import GuardAdvice


ANSWER_TOOL = "answer_guard"
"""The tool with which an agent answers a block."""
ANSWER_TOOL_DESCRIPTION = (
    "Say why a call that was blocked for going in circles has to be made once more. Use it only after a block, and "
    "only if nothing else is left to try."
)
ANSWER_HINT = f"To answer, call {ANSWER_TOOL} with the reason, in three words or more."
BLOCK_LIFTED = "The block is lifted for now."
BLOCK_NOT_LIFTED = (
    "Nothing is lifted: no call is blocked, the reason has fewer than three words or was given before, or it was "
    "lifted three times already. Do something else."
)


def is_block(advice: GuardAdvice | None) -> TypeGuard[GuardAdvice]:
    """Whether the next such call is not made."""
    return advice is not None and advice.level is AdviceLevel.BLOCK


def format_advice(advice: GuardAdvice, *, can_answer: bool = True) -> str:
    """What the guard says, and how it is answered where it can be."""
    is_answered = can_answer and is_block(advice) and advice.must_answer
    return f"{advice.message} {ANSWER_HINT}" if is_answered else advice.message


def format_stop_message(most: int, said: str) -> str:
    """What ends a run that asked for nothing but what is blocked."""
    return f"Stopped after {most} blocked tries. {said.removesuffix(ANSWER_HINT).strip()}"


_log = logging.getLogger("langmem_tiers")
_USAGE_ERRORS = (BudgetExceededError, InvalidInputError, MessageConflictError, NotFoundError)


def render_memories(memories: Iterable[dict[str, Any]]) -> str:
    """Memories as one JSON object, ``{"note": ..., "memories": [...], "end": ...}``, fenced as data."""
    # A fence that is JSON as well: read by any parser, and taken out by whoever leaves out what was injected.
    told = {
        "note": FENCE_OPENING,
        "memories": [sanitize_value(one) for one in memories],
        "end": FENCE_CLOSING,
    }
    return json.dumps(told, ensure_ascii=False, default=str)


def describe_tool_error(error: Exception) -> str:
    """What a model is told of an error, so that it can go on.

    Wrong use is told as it is. Of all else only the kind is told and logged: what a driver raises may quote an
    address with its password. Logging at level DEBUG shows all of it.
    """
    if isinstance(error, _USAGE_ERRORS):
        _log.debug("a memory tool was used wrongly", exc_info=error)
        return str(error)
    _log.warning("a memory tool failed: %s", type(error).__name__)
    _log.debug("a memory tool failed", exc_info=error)
    return f"memory cannot be reached just now ({type(error).__name__}): go on without it"


def sanitize_value(value: object) -> object:
    """A JSON value without anything that could be taken for the end of the fence, or that UTF-8 cannot write."""
    if isinstance(value, str):
        return neutralize_fence_tags(value.encode("utf-8", "replace").decode())
    if isinstance(value, dict):
        return {sanitize_value(str(key)): sanitize_value(one) for key, one in value.items()}
    return [sanitize_value(one) for one in value] if isinstance(value, list | tuple) else value
