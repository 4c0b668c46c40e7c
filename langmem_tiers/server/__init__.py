"""The HTTP API for a memory, with an inspector for the browser. Requires ``langmem-tiers[server]``.

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
    """Build the server as an ASGI app, to run with uvicorn or to mount into another app.

    The app does not close the engine: close it after the server has stopped.

    Args:
        engine: Engine with the memory.
        config: Access rules and limits. By default, every client that reaches the server under a name of this
            machine has access.
        registry: Registry that ``/metrics`` exports: the one passed to the engine's ``PrometheusMetrics``.

    Raises:
        MissingExtraError: FastAPI is not installed.
    """
    try:
        import fastapi  # noqa: F401, PLC0415 - an extra, imported on demand
    except ImportError as error:
        raise MissingExtraError("the server needs FastAPI: pip install 'langmem-tiers[server]'") from error
    from langmem_tiers.server.app import build_app  # noqa: PLC0415 - as above

    return build_app(engine, ServerConfig() if config is None else config, registry)
