"""Texts that memory tools return to a model: results, guard advice and errors."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, TypeGuard

from langmem_tiers.common.prompt_fences import FENCE_CLOSING, FENCE_OPENING, neutralize_fence_tags
from langmem_tiers.errors import BudgetExceededError, InvalidInputError, MessageConflictError, NotFoundError
from langmem_tiers.tasks.guard import AdviceLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.tasks.guard import GuardAdvice


ANSWER_TOOL = "answer_guard"
"""Name of the tool with which an agent responds to a block."""
ANSWER_TOOL_DESCRIPTION = (
    "Explain why a call that was blocked as a loop must be repeated. Use it only after a block, and only if "
    "there is nothing else to try."
)
ANSWER_HINT = f"To answer, call {ANSWER_TOOL} with the reason, in three words or more."
BLOCK_LIFTED = "The block is lifted for now."
BLOCK_NOT_LIFTED = (
    "No block was lifted: no call is blocked, the reason has fewer than three words or was given before, or the "
    "block was already lifted three times. Do something else."
)
NO_RESULT_TEXT = "[no result: the call was interrupted]"
"""Result of a tool call that has no stored result; providers require one for every call."""


def is_block(advice: GuardAdvice | None) -> TypeGuard[GuardAdvice]:
    """Return True if the advice blocks the next such call."""
    return advice is not None and advice.level is AdviceLevel.BLOCK


def format_advice(advice: GuardAdvice, *, can_answer: bool = True) -> str:
    """Return the message of the guard, with a hint how to respond to a block if that is possible."""
    is_answered = can_answer and is_block(advice) and advice.must_answer
    return f"{advice.message} {ANSWER_HINT}" if is_answered else advice.message


def format_stop_message(max_blocked: int, block_text: str) -> str:
    """Return the final message of a run that requested only blocked calls.

    Args:
        max_blocked: Number of blocked attempts.
        block_text: Text of the last block.
    """
    return f"Stopped after {max_blocked} blocked attempts. {block_text.removesuffix(ANSWER_HINT).strip()}"


_log = logging.getLogger("langmem_tiers")
_USAGE_ERRORS = (BudgetExceededError, InvalidInputError, MessageConflictError, NotFoundError)


def render_memories(memories: Iterable[dict[str, Any]]) -> str:
    """Render memories as one JSON object, ``{"note": ..., "memories": [...], "end": ...}``, fenced as data."""
    # The fence is part of the JSON: any parser can read the result, and strip_fences() still recognizes it, so
    # recalled memories are not stored again as new messages.
    result = {
        "note": FENCE_OPENING,
        "memories": [sanitize_value(memory) for memory in memories],
        "end": FENCE_CLOSING,
    }
    return json.dumps(result, ensure_ascii=False, default=str)


def describe_tool_error(error: Exception) -> str:
    """Return the error text for the model, so that it can continue.

    Usage errors are returned in full. Of all other errors only the type is returned and logged, because the
    message of a database driver may contain a URL with a password. Logging at level DEBUG shows the full error.
    """
    if isinstance(error, _USAGE_ERRORS):
        _log.debug("invalid call of a memory tool", exc_info=error)
        return str(error)
    _log.warning("a memory tool failed: %s", type(error).__name__)
    _log.debug("a memory tool failed", exc_info=error)
    return f"memory is currently unavailable ({type(error).__name__}): continue without it"


def sanitize_value(value: object) -> object:
    """Return a JSON value without fence tags and without characters that UTF-8 cannot encode."""
    if isinstance(value, str):
        return neutralize_fence_tags(value.encode("utf-8", "replace").decode())
    if isinstance(value, dict):
        return {sanitize_value(str(key)): sanitize_value(item) for key, item in value.items()}
    return [sanitize_value(item) for item in value] if isinstance(value, list | tuple) else value
