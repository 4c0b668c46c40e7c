"""Lines that are no messages: whoever waits for an answer to one is told so."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from anyio.streams.memory import MemoryObjectSendStream

_ANSWERS = frozenset({"result", "error"})


async def relay(
    reading: AsyncIterable[SessionMessage | Exception],
    onward: MemoryObjectSendStream[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
) -> None:
    """Hand on what comes in, until it ends or nobody takes it any more.

    Args:
        reading: Messages, and why a line was none.
        onward: Where they go.
        answer: Sends the client what is wrong with a line, if an id can be read in it.
    """
    with suppress(anyio.BrokenResourceError):
        async with onward:
            async for item in reading:
                refused = _refusal(item) if isinstance(item, ValidationError) else None
                await (onward.send(item) if refused is None else answer(SessionMessage(refused)))


def _refusal(error: ValidationError) -> JSONRPCError | None:
    problems = error.errors(include_url=False, include_context=False)
    is_json = problems[0]["type"] != "json_invalid"
    told = _whole(problems) if is_json else _read(problems[0]["input"])
    asked = told.get("id") if isinstance(told, dict) and not _ANSWERS & told.keys() else None
    if not isinstance(asked, int | str) or isinstance(asked, bool) or not _can_be_told(asked):
        return None
    code, where = (
        (INVALID_REQUEST, ".".join(map(str, problems[0]["loc"]))) if is_json else (PARSE_ERROR, "line")
    )
    return JSONRPCError(
        jsonrpc="2.0", id=asked, error=ErrorData(code=code, message=f"{where}: {problems[0]['msg']}")
    )


def _can_be_told(asked: int | str) -> bool:
    try:
        str(asked).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def _whole(problems: list[Any]) -> object:
    # What lacks a field is the message itself: it was held to the shapes of all kinds of them.
    return next((one["input"] for one in problems if one["type"] == "missing" and len(one["loc"]) == 2), None)


def _read(line: object) -> object:
    # Python reads more than JSON allows, such as half a surrogate pair.
    with suppress(ValueError, RecursionError):
        return json.loads(str(line))
    return None
