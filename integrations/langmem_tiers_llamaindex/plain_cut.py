"""A conversation cut to its limit without the help of the engine: the newest of it, from a safe beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from langmem_tiers_llamaindex.layout import can_begin, find_unsafe_cuts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers_llamaindex.sizes import TokenCountCache

_TOOL_ROLES = (MessageRole.TOOL, MessageRole.FUNCTION)


def cut_to_limit(
    pinned: Sequence[ChatMessage],
    talk: Sequence[ChatMessage],
    limit: int,
    sizes: TokenCountCache,
    *,
    is_whole: bool = True,
) -> tuple[list[ChatMessage], int]:
    """What is shown, and its tokens.

    The newest message is there in any case, with its tool call if it is the result of one: a model that says that
    its prompt is too long is better than one that was not asked.

    Args:
        pinned: What stands before everything.
        talk: The rest of the conversation, oldest first.
        limit: Tokens.
        sizes: Counts them.
        is_whole: Whether the talk begins where the conversation does.
    """
    taken = sizes.count_messages(pinned)
    inside = find_unsafe_cuts(talk)
    newest = max(0, len(talk) - 1)
    while newest > 0 and (newest in inside or talk[newest].role in _TOOL_ROLES):
        newest -= 1
    start, tokens = len(talk), taken
    for place in reversed(range(len(talk))):
        tokens += sizes.count_message(talk[place])
        if tokens > limit and place < newest:
            break
        is_beginning = can_begin(talk[place]) and place not in inside
        if place >= newest or is_beginning or (place == 0 and is_whole):
            start, taken = place, tokens
    return [*pinned, *talk[start:]], taken
