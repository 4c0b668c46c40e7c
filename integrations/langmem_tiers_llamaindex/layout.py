"""Where memory stands among the messages that a model is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from langmem_tiers_llamaindex.convert import get_answered_call_id, get_call_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers_llamaindex.token_count_cache import TokenCountCache


InsertMethod: TypeAlias = Literal["auto", "system", "user"]
_NON_OPENING_ROLES = (
    MessageRole.ASSISTANT,
    MessageRole.TOOL,
    MessageRole.FUNCTION,
    MessageRole.CHATBOT,
    MessageRole.MODEL,
)


@dataclass(frozen=True, slots=True)
class ViewParts:
    """What a view is made of."""

    pinned: Sequence[ChatMessage]
    """The system messages that the conversation begins with."""
    conversation: Sequence[ChatMessage]
    """The rest of it."""
    is_cut: bool
    """Whether something of it is not there."""
    has_question: bool = False
    """Whether the newest message of the user is the question, although others stand behind it."""
    summary: str = ""
    """What stands for older messages, fenced."""
    memories: str = ""
    """What is known and what was recalled, fenced."""


def arrange_messages(parts: ViewParts, insert: InsertMethod) -> list[ChatMessage]:
    """The messages in order.

    By ``auto`` memories stand in front of the question, inside its message, if it is in the list: some agents throw
    the first system message away. Where the question is not in the list yet, they are a system message. The summary
    stands before the first message of the user that is there.

    Args:
        parts: What there is.
        insert: Where memory goes.
    """
    talk, question = list(parts.conversation), _find_question(parts)
    if insert == "system" or (insert == "auto" and question is None):
        told = [text for text in (parts.summary, parts.memories) if text]
        return [
            *_add_system_texts(parts.pinned, told),
            *(_cut_to_safe_beginning(talk) if parts.is_cut else talk),
        ]
    if parts.memories and question is not None:
        talk[question] = prepend_texts(talk[question], parts.memories)
    opening = [text for text in (parts.summary, "" if question is not None else parts.memories) if text]
    if opening and talk and talk[0].role is MessageRole.USER:
        talk[0] = prepend_texts(talk[0], *opening)
    elif opening:
        talk = [ChatMessage(role=MessageRole.USER, blocks=[TextBlock(text=text) for text in opening]), *talk]
    elif parts.is_cut:
        talk = _cut_to_safe_beginning(talk)
    return [*parts.pinned, *talk]


def prepend_texts(message: ChatMessage, *texts: str) -> ChatMessage:
    """The message with texts in front of its own, which stay the objects that they are."""
    blocks = [*(TextBlock(text=text) for text in texts), *message.blocks]
    return ChatMessage.model_construct(
        role=message.role, additional_kwargs=message.additional_kwargs, blocks=blocks
    )


def can_begin(message: ChatMessage) -> bool:
    """Whether a provider takes it as the first one."""
    return message.role not in _NON_OPENING_ROLES


def _find_question(parts: ViewParts) -> int | None:
    places = reversed(range(len(parts.conversation)))
    newest = next((place for place in places if parts.conversation[place].role is MessageRole.USER), None)
    return newest if parts.has_question or newest == len(parts.conversation) - 1 else None


def find_unsafe_cuts(talk: Sequence[ChatMessage]) -> set[int]:
    """Places before which the list cannot be cut without parting a tool call from its result."""
    opened: dict[str, int] = {}
    inside: set[int] = set()
    for place, message in enumerate(talk):
        opened.update(dict.fromkeys(get_call_ids(message), place))
        call = get_answered_call_id(message)
        if call is not None and call in opened:
            inside.update(range(opened[call] + 1, place + 1))
    return inside


def _cut_to_safe_beginning(talk: list[ChatMessage]) -> list[ChatMessage]:
    # Where something was cut off, an answer without its question is no beginning.
    inside = find_unsafe_cuts(talk)
    safe = (place for place, message in enumerate(talk) if can_begin(message) and place not in inside)
    return talk[next(safe, 0) :]


def _add_system_texts(pinned: Sequence[ChatMessage], texts: Sequence[str]) -> list[ChatMessage]:
    if not texts:
        return list(pinned)
    blocks = [TextBlock(text=text) for text in texts]
    if not pinned:
        return [ChatMessage(role=MessageRole.SYSTEM, blocks=blocks)]
    first = pinned[0].model_copy(update={"blocks": [*pinned[0].blocks, *blocks]})
    return [first, *pinned[1:]]


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
