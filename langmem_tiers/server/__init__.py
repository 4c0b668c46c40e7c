"""The HTTP server: a memory over the network, and pages to look into it. Needs ``langmem-tiers[server]``.

>>> from langmem_tiers import MemoryEngine
>>> from langmem_tiers.server import create_app
>>> with MemoryEngine() as engine:
...     app = create_app(engine)
>>> app.title
'langmem-tiers'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.errors import MissingExtraError
from langmem_tiers.server.config import ServerConfig, Token, parse_tokens

if TYPE_CHECKING:
    from fastapi import FastAPI
    from prometheus_client import CollectorRegistry

    from langmem_tiers.engine import MemoryEngine

__all__ = ["ServerConfig", "Token", "create_app", "parse_tokens"]


def create_app(
    engine: MemoryEngine,
    *,
    config: ServerConfig | None = None,
    registry: CollectorRegistry | None = None,
) -> FastAPI:
    """The server as an ASGI app, to be served by uvicorn or mounted into an app of your own.

    The engine stays yours: close it after the server has stopped.

    Args:
        engine: The memory.
        config: Who may ask for what, and how much at once; without tokens it answers everybody who reaches it
            by a name of this machine.
        registry: What ``/metrics`` tells: the one that the engine's ``PrometheusMetrics`` was handed.

    Raises:
        MissingExtraError: FastAPI is not installed.
    """
    try:
        import fastapi  # noqa: F401, PLC0415 - an extra, and not before it is needed
    except ImportError as error:
        raise MissingExtraError("the server needs FastAPI: pip install 'langmem-tiers[server]'") from error
    from langmem_tiers.server.app import build_app  # noqa: PLC0415 - as above

    return build_app(engine, ServerConfig() if config is None else config, registry)
