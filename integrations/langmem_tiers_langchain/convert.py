"""LangChain's messages as the engine stores them, and back, without loss."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langmem_tiers.common.messages import Message, MessageDraft, Role, ToolCall
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.errors import InvalidMessageError, InvalidNameError
from langmem_tiers.text.token_counting import ContentAwareCounter, count_draft
from langmem_tiers_langchain.parts import part_tokens
from langmem_tiers_langchain.values import decode_base_message, encode_base_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.common.ports import TokenCounter

__all__ = ["get_stored_id", "part_tokens", "to_draft", "to_message"]

_ROLES: tuple[tuple[type[BaseMessage], Role], ...] = (
    (HumanMessage, Role.USER),
    (AIMessage, Role.ASSISTANT),
    (ToolMessage, Role.TOOL),
    (SystemMessage, Role.SYSTEM),
    (FunctionMessage, Role.TOOL),
)
_ROLES_BY_NAME = {
    **dict.fromkeys(("assistant", "ai", "model", "bot", "agent", "chatbot"), Role.ASSISTANT),
    **dict.fromkeys(("system", "developer"), Role.SYSTEM),
    **dict.fromkeys(("tool", "function", "ipython"), Role.TOOL),
    **dict.fromkeys(("user", "human"), Role.USER),
}


def to_draft(
    message: BaseMessage,
    counter: TokenCounter | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the word that frameworks use
) -> MessageDraft:
    """A LangChain message on its way into the engine; the whole of it travels as the payload.

    Args:
        message: Of any type but ``RemoveMessage``.
        counter: Counts the words beside images, audio and files; pass ``engine.counter``.
        id: In place of the message's own.

    Raises:
        InvalidMessageError: It is no message, or one that says nothing.
    """
    _check_message(message)
    role, speaker = _find_role(message)
    said: dict[str, Any] = {
        "name": message.name if isinstance(message.name, str) and message.name else speaker,
        "tool_calls": _list_calls(message),
        "tool_call_id": message.tool_call_id if isinstance(message, ToolMessage) else None,
    }
    text = _get_text(message)
    tokens = None
    if parts := part_tokens(message):
        counter = ContentAwareCounter() if counter is None else counter
        tokens = count_draft(counter, MessageDraft(role, text, **said)) + parts
    return MessageDraft(
        role,
        text,
        id=id or (get_stored_id(message) if message.id else None),
        payload=encode_base_message(message),
        token_count=tokens,
        **said,
    )


def to_message(message: Message) -> BaseMessage:
    """The LangChain message that was stored.

    One that came from elsewhere, or is shown compressed, becomes the LangChain message of its role.
    """
    stored = None if message.payload_json is None else decode_base_message(message.payload)
    return _build_message(message) if stored is None else stored


def _check_message(message: object) -> None:
    if isinstance(message, RemoveMessage):
        raise InvalidMessageError(
            f"the RemoveMessage for {message.id!r} says nothing that could be stored: leave it out, or erase "
            "the session to forget"
        )
    if not isinstance(message, BaseMessage):
        raise InvalidMessageError(
            f"a {type(message).__name__} is no LangChain message: use HumanMessage(...), AIMessage(...) "
            "or convert_to_messages([...])"
        )


def _find_role(message: BaseMessage) -> tuple[Role, str | None]:
    # A role that the engine does not know is kept as the name of who speaks.
    for kind, role in _ROLES:
        if isinstance(message, kind):
            return role, None
    said = str(message.role if isinstance(message, ChatMessage) else message.type)
    known = _ROLES_BY_NAME.get(said.strip().lower())
    return (Role.USER, said or None) if known is None else (known, None)


def _get_text(message: BaseMessage) -> str:
    content: object = message.content
    if type(content) is str:
        return content
    return str.__str__(message.text) if isinstance(content, str | list) else ""


def get_stored_id(message: BaseMessage) -> str:
    """The id under which a message that has one is stored."""
    given = str(message.id)
    try:
        return check_name(given, "message id")
    except InvalidNameError:  # too long to be a key: the payload holds it in full
        return hashlib.blake2b(given.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _list_calls(message: BaseMessage) -> tuple[ToolCall, ...]:
    if not isinstance(message, AIMessage) or not (message.tool_calls or message.invalid_tool_calls):
        return ()
    calls: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
    return tuple(_to_tool_call(place, call) for place, call in enumerate(calls))


def _to_tool_call(place: int, call: Mapping[str, Any]) -> ToolCall:
    name, arguments = str(call.get("name") or ""), _dump_arguments(call.get("args"))
    return ToolCall(str(call.get("id") or _build_call_id(place, name, arguments)), name, arguments)


def _build_call_id(place: int, name: str, arguments: str) -> str:
    said = f"{place} {name} {arguments}".encode("utf-8", "surrogatepass")
    return f"call-{hashlib.blake2b(said, digest_size=8).hexdigest()}"


def _dump_arguments(given: object) -> str:
    if isinstance(given, str):
        return given
    if given is None:
        return "{}"
    try:
        return json.dumps(given, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return "{}"  # keys that JSON does not know: the payload holds them


def _build_message(message: Message) -> BaseMessage:
    common: dict[str, Any] = {"content": message.content, "id": message.id, "name": message.name}
    if message.role is Role.USER:
        return HumanMessage(**common)
    if message.role is Role.SYSTEM:
        return SystemMessage(**common)
    if message.role is Role.TOOL:
        return ToolMessage(**common, tool_call_id=message.tool_call_id or "")
    valid, invalid = [], []
    for call in message.tool_calls:
        arguments = _parse_object(call.arguments)
        if arguments is None:
            invalid.append({"id": call.id, "name": call.name, "args": call.arguments, "error": None})
        else:
            valid.append({"id": call.id, "name": call.name, "args": arguments})
    return AIMessage(**common, tool_calls=valid, invalid_tool_calls=invalid)


def _parse_object(arguments: str) -> dict[str, Any] | None:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
