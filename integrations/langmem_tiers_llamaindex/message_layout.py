"""Position of summary and memories among the messages of a view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from langmem_tiers_llamaindex.convert import get_answered_call_id, get_call_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers_llamaindex.token_counter import TokenCountCache


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
    """Parts of a view."""

    pinned: Sequence[ChatMessage]
    """Leading system messages of the conversation."""
    conversation: Sequence[ChatMessage]
    """Other messages of the conversation."""
    is_cut: bool
    """True if messages of the conversation were left out."""
    has_question: bool = False
    """True if the newest message of the user is the question even if other messages follow it."""
    summary: str = ""
    """Fenced summary of older messages."""
    memories: str = ""
    """Fenced knowledge and recalled memories."""


def arrange_messages(parts: ViewParts, insert: InsertMethod) -> list[ChatMessage]:
    """Arrange the parts of a view as a list of messages.

    With ``auto``, memories are inserted into the message of the question, because some agents discard the first
    system message. If the question is not part of the list yet, they become a system message. The summary is
    inserted before the first message.

    Args:
        parts: Parts of the view.
        insert: Position of memories.
    """
    talk, question = list(parts.conversation), _find_question(parts)
    if insert == "system" or (insert == "auto" and question is None):
        injected = [text for text in (parts.summary, parts.memories) if text]
        return [
            *_add_system_texts(parts.pinned, injected),
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
    """Return the message with texts before its blocks; the blocks are not copied."""
    blocks = [*(TextBlock(text=text) for text in texts), *message.blocks]
    return ChatMessage.model_construct(
        role=message.role, additional_kwargs=message.additional_kwargs, blocks=blocks
    )


def can_begin(message: ChatMessage) -> bool:
    """Return True if providers accept the message as the first one."""
    return message.role not in _NON_OPENING_ROLES


def _find_question(parts: ViewParts) -> int | None:
    indexes = reversed(range(len(parts.conversation)))
    newest = next((index for index in indexes if parts.conversation[index].role is MessageRole.USER), None)
    return newest if parts.has_question or newest == len(parts.conversation) - 1 else None


def find_unsafe_cuts(talk: Sequence[ChatMessage]) -> set[int]:
    """Return the indexes at which a cut would separate a tool call from its result."""
    calls: dict[str, int] = {}
    unsafe: set[int] = set()
    for index, message in enumerate(talk):
        calls.update(dict.fromkeys(get_call_ids(message), index))
        call_id = get_answered_call_id(message)
        if call_id is not None and call_id in calls:
            unsafe.update(range(calls[call_id] + 1, index + 1))
    return unsafe


def _cut_to_safe_beginning(talk: list[ChatMessage]) -> list[ChatMessage]:
    # After a cut, the list must not begin with an answer without its question.
    unsafe = find_unsafe_cuts(talk)
    safe = (index for index, message in enumerate(talk) if can_begin(message) and index not in unsafe)
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
    """Return the newest messages that fit the limit, and their tokens.

    The newest message is always included, together with its tool call if it is a result. An error of the model that
    the prompt is too long is better than a prompt without the question.

    Args:
        pinned: Messages that are always shown first.
        talk: Other messages of the conversation, oldest first.
        limit: Maximum number of tokens.
        sizes: Token counts of messages.
        is_whole: True if ``talk`` starts at the beginning of the conversation.
    """
    total = sizes.count_messages(pinned)
    unsafe = find_unsafe_cuts(talk)
    # The first message that is required: the newest one, or the one that made the calls of the newest results.
    newest = max(0, len(talk) - 1)
    while newest > 0 and (newest in unsafe or talk[newest].role in _TOOL_ROLES):
        newest -= 1
    # Walk from new to old and remember the oldest safe beginning that fits.
    start, tokens = len(talk), total
    for index in reversed(range(len(talk))):
        tokens += sizes.count_message(talk[index])
        if tokens > limit and index < newest:
            break
        is_beginning = can_begin(talk[index]) and index not in unsafe
        if index >= newest or is_beginning or (index == 0 and is_whole):
            start, total = index, tokens
    return [*pinned, *talk[start:]], total
