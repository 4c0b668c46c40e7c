"""Messages: conversation turns as passed by the framework, stored without loss."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.json_values import JsonValue, is_same_json, to_json
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SUMMARY_PREFIX = "[CONTEXT SUMMARY]"
"""Prefix of a system message that replaces the older messages it summarizes."""


COUNTED_BY_CALLER = "caller"
"""Counter name stored when the caller provided the token count."""


class Role(StrEnum):
    """Author of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


_ROLES = {role.value: role for role in Role}
_MAX_ROLE_CHARACTERS = 12  # longer values are assumed not to be role names


@dataclass(frozen=True, slots=True)
class MessageToolCall:
    """A tool call in an assistant message.

    Args:
        id: Id to which the result refers as ``tool_call_id``.
        name: Name of the tool.
        arguments: Arguments exactly as the model wrote them: JSON text, valid or not.
    """

    id: str
    name: str
    arguments: str = "{}"

    def __post_init__(self) -> None:
        for field in ("id", "name", "arguments"):
            value = getattr(self, field)
            if not isinstance(value, str):
                raise InvalidMessageError(
                    f"a tool call's {field} must be a str, got {type(value).__name__}: use json.dumps for arguments"
                )


@dataclass(frozen=True, slots=True, init=False)
class MessageDraft:
    """A message before it is stored. The engine fills in omitted fields.

    Args:
        role: ``user``, ``assistant``, ``system`` or ``tool``.
        content: The text.
        id: The framework's id. Adding the same id to a session twice stores the message once.
        created_at: An aware datetime. Default: now.
        name: Name of the speaker, if several share a role.
        tool_calls: Tool calls of an assistant message.
        tool_call_id: Id of the call that a tool message answers.
        payload: The framework's own form of the message, any JSON value.
        token_count: Known token count. Default: counted by the engine.
    """

    role: Role
    content: str
    id: str | None
    created_at: datetime | None
    name: str | None
    tool_calls: tuple[MessageToolCall, ...]
    tool_call_id: str | None
    payload_json: str | None
    token_count: int | None

    def __init__(  # noqa: PLR0913 - one parameter per field, all but two by keyword
        self,
        role: Role | str,
        content: str,
        *,
        id: str | None = None,  # noqa: A002 - the name that frameworks use
        created_at: datetime | None = None,
        name: str | None = None,
        tool_calls: Sequence[MessageToolCall] = (),
        tool_call_id: str | None = None,
        payload: object = None,
        token_count: int | None = None,
    ) -> None:
        # A frozen dataclass allows assignment only through object.__setattr__.
        put = object.__setattr__
        put(self, "role", check_role(role))
        put(self, "content", _check_text(content, "content"))
        put(self, "id", None if id is None else check_name(id, "message id"))
        put(self, "created_at", None if created_at is None else check_time(created_at))
        put(self, "name", None if name is None else _check_text(name, "name"))
        put(self, "tool_calls", _check_calls(tool_calls) if tool_calls else ())
        put(
            self,
            "tool_call_id",
            None if tool_call_id is None else _check_text(tool_call_id, "tool_call_id"),
        )
        put(self, "payload_json", None if payload is None else to_json(payload, "payload"))
        put(self, "token_count", None if token_count is None else _check_count(token_count))

    def with_id(self, id: str) -> MessageDraft:  # noqa: A002 - the name that frameworks use
        """Return a copy of the draft with another id."""
        draft = copy(self)  # the other fields are validated already
        object.__setattr__(draft, "id", check_name(id, "message id"))
        return draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Displayable):
    """A stored message, immutable once acknowledged.

    ``is_compressed`` tells how the session currently shows the message: True if a ``[CONTEXT SUMMARY]`` covers it.
    The record itself does not change.
    """

    id: str
    role: Role
    content: str
    created_at: datetime
    token_count: int
    token_counter: str
    is_compressed: bool = False
    name: str | None = None
    tool_calls: tuple[MessageToolCall, ...] = ()
    tool_call_id: str | None = None
    payload_json: str | None = None

    @property
    def payload(self) -> JsonValue:
        """The framework's own form of the message, as a new copy on each access."""
        return None if self.payload_json is None else json.loads(self.payload_json)

    @property
    def is_summary(self) -> bool:
        """True if the message summarizes older, compressed messages."""
        return self.role is Role.SYSTEM and self.content.startswith(SUMMARY_PREFIX)

    def has_same_content(self, other: Message) -> bool:
        """Return True if both messages have the same content, regardless of times, counts and states."""
        return (
            (self.role, self.content, self.name, self.tool_calls, self.tool_call_id)
            == (other.role, other.content, other.name, other.tool_calls, other.tool_call_id)
        ) and is_same_json(self.payload_json, other.payload_json)

    def _to_row(self) -> dict[str, object]:
        return {
            "time": self.created_at,
            "role": self.role,
            "tokens": self.token_count,
            "text": self._render_text(),
        }

    def _to_line(self) -> str:
        return f"{self.role}: {self._render_text()}"

    def _render_text(self) -> str:
        calls = (f"{call.name}({call.arguments})" for call in self.tool_calls)
        return "\n".join([self.content, *calls] if self.content else calls)


def check_role(role: object) -> Role:
    """Return the role, or raise InvalidMessageError with the list of valid roles."""
    if isinstance(role, str) and (known := _ROLES.get(role)) is not None:
        return known
    # A long value is probably message text passed as the role. Message text must not appear in errors.
    is_short = isinstance(role, str | int | float | None) and len(str(role)) <= _MAX_ROLE_CHARACTERS
    shown = repr(role) if is_short else f"of type {type(role).__name__}"
    raise InvalidMessageError(f"unknown role {shown}: use one of {', '.join(_ROLES)}")


def check_time(moment: object) -> datetime:
    """Return the time in UTC, or raise InvalidMessageError if it is not an aware datetime."""
    if type(moment) is datetime and moment.tzinfo is UTC:
        return moment  # fast path for the common case
    if not isinstance(moment, datetime):
        raise InvalidMessageError(
            f"a time must be a datetime, got {moment!r}: parse it with datetime.fromisoformat"
        )
    if moment.utcoffset() is None:
        raise InvalidMessageError(f"the time {moment!r} has no time zone: add tzinfo=datetime.UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidMessageError(
            f"the time {moment!r} is outside the years 1 to 9999 in UTC: use another time"
        ) from error


def _check_text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidMessageError(
            f"{what} must be a str, got {type(text).__name__}: put other forms into payload"
        )
    return text


def _check_calls(calls: object) -> tuple[MessageToolCall, ...]:
    if not isinstance(calls, tuple | list) or not all(isinstance(call, MessageToolCall) for call in calls):
        raise InvalidMessageError(
            f"tool_calls must be a list of MessageToolCall, got {type(calls).__name__}: "
            "wrap each as MessageToolCall(...)"
        )
    return tuple(calls)


def _check_count(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
        raise InvalidMessageError(
            f"token_count must be a whole number from 0 to 2147483647, got {count!r}: leave it out to be counted"
        )
    return count
