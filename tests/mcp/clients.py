"""Clients of the MCP server, in its own process and in this process."""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import TextContent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mcp.server import Server
    from mcp_types import CallToolResult, ListToolsResult

COMMAND = (sys.executable, "-m", "langmem_tiers", "mcp")
_WRITE_PID = 'echo $$ > "$0"; exec "$@"'


@asynccontextmanager
async def open_client(
    database: Path, namespace: str, *words: str, pid: Path | None = None
) -> AsyncIterator[Client]:
    """Open a client of a server process.

    Args:
        database: The SQLite file.
        namespace: As on the command line.
        words: More of the command line.
        pid: A file for the id of the process.
    """
    command = [*COMMAND, "--database", str(database), "--namespace", namespace, *words]
    if pid is not None:
        command = ["/bin/sh", "-c", _WRITE_PID, str(pid), *command]
    log = database.parent / "log"
    with log.open("a") as errors:
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        )
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield client


class Caller(Protocol):
    """Object that can call a tool."""

    async def call_tool(self, name: str, arguments: dict[str, Any], /) -> CallToolResult: ...


class InProcess:
    """Client of a server in this process, with a new connection for each call."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def call_tool(self, name: str, arguments: dict[str, Any], /) -> CallToolResult:
        async with Client(self._server) as client:
            return await client.call_tool(name, arguments)

    async def list_tools(self) -> ListToolsResult:
        async with Client(self._server) as client:
            return await client.list_tools()


async def ask(client: Caller, tool: str, **arguments: object) -> dict[str, Any]:
    """Call a tool; return its answer, which must be equal in both forms."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, get_text(result)
    answer: dict[str, Any] = result.structured_content
    assert json.loads(get_text(result)) == answer
    return answer


async def get_error(client: Caller, tool: str, **arguments: object) -> str:
    """Call a tool with invalid arguments; return the error text."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content is None
    return get_text(result)


def get_text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text
