"""Where memory stands among the messages that a model is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from langmem_tiers_llamaindex.convert import answered_call, call_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

InsertMethod: TypeAlias = Literal["auto", "system", "user"]
_CANNOT_BEGIN = (
    MessageRole.ASSISTANT,
    MessageRole.TOOL,
    MessageRole.FUNCTION,
    MessageRole.CHATBOT,
    MessageRole.MODEL,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a view is made of."""

    pinned: Sequence[ChatMessage]
    """The system messages that the conversation begins with."""
    talk: Sequence[ChatMessage]
    """The rest of it."""
    is_cut: bool
    """Whether something of it is not there."""
    is_asked: bool = False
    """Whether the newest message of the user is the question, although others stand behind it."""
    summary: str = ""
    """What stands for older messages, fenced."""
    memories: str = ""
    """What is known and what was recalled, fenced."""


def lay_out(parts: Parts, insert: InsertMethod) -> list[ChatMessage]:
    """The messages in order.

    By ``auto`` memories stand in front of the question, inside its message, if it is in the list: some agents throw
    the first system message away. Where the question is not in the list yet, they are a system message. The summary
    stands before the first message of the user that is there.

    Args:
        parts: What there is.
        insert: Where memory goes.
    """
    talk, question = list(parts.talk), _question(parts)
    if insert == "system" or (insert == "auto" and question is None):
        told = [text for text in (parts.summary, parts.memories) if text]
        return [*_with_system(parts.pinned, told), *(_begun(talk) if parts.is_cut else talk)]
    if parts.memories and question is not None:
        talk[question] = prefixed(talk[question], parts.memories)
    opening = [text for text in (parts.summary, "" if question is not None else parts.memories) if text]
    if opening and talk and talk[0].role is MessageRole.USER:
        talk[0] = prefixed(talk[0], *opening)
    elif opening:
        talk = [ChatMessage(role=MessageRole.USER, blocks=[TextBlock(text=text) for text in opening]), *talk]
    elif parts.is_cut:
        talk = _begun(talk)
    return [*parts.pinned, *talk]


def prefixed(message: ChatMessage, *texts: str) -> ChatMessage:
    """The message with texts in front of its own, which stay the objects that they are."""
    blocks = [*(TextBlock(text=text) for text in texts), *message.blocks]
    return ChatMessage.model_construct(
        role=message.role, additional_kwargs=message.additional_kwargs, blocks=blocks
    )


def begins_safely(message: ChatMessage) -> bool:
    """Whether a provider takes it as the first one."""
    return message.role not in _CANNOT_BEGIN


def _question(parts: Parts) -> int | None:
    places = reversed(range(len(parts.talk)))
    newest = next((place for place in places if parts.talk[place].role is MessageRole.USER), None)
    return newest if parts.is_asked or newest == len(parts.talk) - 1 else None


def inside_groups(talk: Sequence[ChatMessage]) -> set[int]:
    """Places before which the list cannot be cut without parting a tool call from its result."""
    opened: dict[str, int] = {}
    inside: set[int] = set()
    for place, message in enumerate(talk):
        opened.update(dict.fromkeys(call_ids(message), place))
        call = answered_call(message)
        if call is not None and call in opened:
            inside.update(range(opened[call] + 1, place + 1))
    return inside


def _begun(talk: list[ChatMessage]) -> list[ChatMessage]:
    # Where something was cut off, an answer without its question is no beginning.
    inside = inside_groups(talk)
    safe = (place for place, message in enumerate(talk) if begins_safely(message) and place not in inside)
    return talk[next(safe, 0) :]


def _with_system(pinned: Sequence[ChatMessage], texts: Sequence[str]) -> list[ChatMessage]:
    if not texts:
        return list(pinned)
    blocks = [TextBlock(text=text) for text in texts]
    if not pinned:
        return [ChatMessage(role=MessageRole.SYSTEM, blocks=blocks)]
    first = pinned[0].model_copy(update={"blocks": [*pinned[0].blocks, *blocks]})
    return [first, *pinned[1:]]
