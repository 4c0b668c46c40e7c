"""What models are told of blocked calls, the same in every framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from langmem_tiers.tiers.task.guard_advice import AdviceLevel

if TYPE_CHECKING:
    from langmem_tiers.tiers.task.guard_advice import GuardAdvice

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
