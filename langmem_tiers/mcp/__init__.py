"""Memory as an MCP server: tools of one namespace, spoken over standard input and output.

::

    with MemoryEngine("sqlite:///memory.db") as engine:
        serve(engine, ("acme", "alice"))

``langmem-tiers mcp`` does the same from a command line. Nothing of the SDK is imported before ``serve`` is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.engine import MemoryEngine

__all__ = ["serve"]

_PACKAGES = ("mcp", "mcp_types", "pydantic", "anyio")


def serve(engine: MemoryEngine, namespace: str | Iterable[str], *, read_only: bool = False) -> None:
    """Serve the memory of one namespace until standard input ends. The engine stays open.

    Args:
        engine: Where the memory is.
        namespace: Whose memory; no tool reaches another.
        read_only: Whether only tools that read are offered; what they find counts as no use then.

    Raises:
        InvalidNameError: That is no namespace.
        MissingExtraError: The MCP SDK is not installed.
    """
    try:
        from langmem_tiers.mcp.server import run_stdio_server  # noqa: PLC0415 - an extra, not before it is needed
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _PACKAGES:
            raise
        raise MissingExtraError("an MCP server needs mcp: pip install 'langmem-tiers[mcp]'") from error
    run_stdio_server(engine, namespace, read_only=read_only)
