"""Which call a tool's result answers.

Some integrations of models, such as those of Ollama and Google, leave the ids of calls out, and give a result the
name of its tool in place of one; others leave it empty. Such results belong to the calls before them, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.common.messages import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.messages import Message, MessageDraft, ToolCall

    _AnyMessage: TypeAlias = Message | MessageDraft


def find_answered_calls(
    drafts: Sequence[MessageDraft], before: Callable[[], Sequence[_AnyMessage]]
) -> list[str | None]:
    """For each draft, the id of the call whose result it is; None if it is none.

    Args:
        drafts: What is about to be stored.
        before: What was said just before; asked only if the drafts begin with a result.
    """
    opened: list[ToolCall] = []
    if drafts and drafts[0].role is Role.TOOL:
        for message in before():
            _match_result(message, opened)
    return [_match_result(draft, opened) for draft in drafts]


def _match_result(message: _AnyMessage, opened: list[ToolCall]) -> str | None:
    if message.role is not Role.TOOL:
        if message.tool_calls or message.role is Role.USER:
            opened[:] = message.tool_calls
        return None
    told = message.tool_call_id
    by_id = (call for call in opened if call.id == told)
    by_name = (call for call in opened if not told or call.name == told)
    call = next(by_id, None) or next(by_name, None)
    if call is None:
        return told
    opened.remove(call)
    return call.id
