"""An MCP server for the memory of one namespace, over standard input and output.

::

    with MemoryEngine("sqlite:///memory.db") as engine:
        serve(engine, ("acme", "alice"))

``langmem-tiers mcp`` does the same from the command line. The MCP SDK is imported when ``serve`` is called.
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
        engine: Engine with the memory.
        namespace: Namespace to serve; the tools cannot reach any other.
        read_only: Offer only the tools that read, and do not record their results as used.

    Raises:
        InvalidNameError: The namespace is invalid.
        MissingExtraError: The MCP SDK is not installed.
    """
    try:
        from langmem_tiers.mcp.server import run_stdio_server  # noqa: PLC0415 - an extra, imported on demand
    except ModuleNotFoundError as error:
        # Any other missing module is a defect, not an extra that is not installed.
        if (error.name or "").split(".")[0] not in _PACKAGES:
            raise
        raise MissingExtraError("an MCP server needs mcp: pip install 'langmem-tiers[mcp]'") from error
    run_stdio_server(engine, namespace, read_only=read_only)
