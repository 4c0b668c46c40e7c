"""A conversation cut to its limit without the help of the engine: the newest of it, from a safe beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from langmem_tiers_llamaindex.layout import begins_safely

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers_llamaindex.sizes import Sizes

_OF_TOOLS = (MessageRole.TOOL, MessageRole.FUNCTION)


def plain_cut(
    pinned: Sequence[ChatMessage], talk: Sequence[ChatMessage], limit: int, sizes: Sizes
) -> tuple[list[ChatMessage], int]:
    """What is shown, and its tokens.

    The newest message is there in any case, with its tool call if it is the result of one: a model that says that
    its prompt is too long is better than one that was not asked.

    Args:
        pinned: What stands before everything.
        talk: The rest of the conversation, oldest first.
        limit: Tokens.
        sizes: Counts them.
    """
    taken = sizes.messages(pinned)
    newest = _newest_group(talk)
    start, tokens = len(talk), taken
    for place in reversed(range(len(talk))):
        tokens += sizes.message(talk[place])
        if tokens > limit and place < newest:
            break
        if place >= newest or begins_safely(talk[place]) or place == 0:
            start, taken = place, tokens
    return [*pinned, *talk[start:]], taken


def _newest_group(talk: Sequence[ChatMessage]) -> int:
    place = max(0, len(talk) - 1)
    while place > 0 and talk[place].role in _OF_TOOLS:
        place -= 1
    return place
