"""Assembly of the FastAPI application."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from langmem_tiers.errors import LangmemTiersError
from langmem_tiers.server.dependencies import AppState
from langmem_tiers.server.error_responses import build_invalid_problem, to_problem
from langmem_tiers.server.response_models import ProblemResponse
from langmem_tiers.server.routes import admin, read, recall, write
from langmem_tiers.server.security import SecurityMiddleware
from langmem_tiers.server.thread_pools import ThreadPools
from langmem_tiers.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.server.config import ServerConfig

_INSPECTOR_FOLDER = Path(__file__).parent / "inspector"
_ERROR_STATUSES = (400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 503)


def build_app(engine: MemoryEngine, config: ServerConfig, registry: CollectorRegistry | None) -> FastAPI:
    """Build the application for an engine."""
    error_responses: dict[int | str, dict[str, Any]] = {
        status: {"model": ProblemResponse} for status in _ERROR_STATUSES
    }
    app = FastAPI(
        title="langmem-tiers",
        version=__version__,
        docs_url=None,  # these pages would load scripts from another host
        redoc_url=None,
        responses=error_responses,
        middleware=[Middleware(SecurityMiddleware, config=config)],
    )
    app.state.app_state = AppState(engine, ThreadPools(config), registry)
    for routes in (admin, read, recall, write):
        app.include_router(routes.router)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    for kind in (LangmemTiersError, HTTPException):
        app.add_exception_handler(kind, _handle_error)
    app.add_api_route("/", _redirect_to_inspector, methods=["GET", "HEAD"], include_in_schema=False)
    _document_limit(app, engine.config.recall.max_limit)
    app.mount("/inspector", StaticFiles(directory=_INSPECTOR_FOLDER, html=True, check_dir=False))
    return app


def _document_limit(app: FastAPI, max_limit: int) -> None:
    # The maximum depends on the configuration of the engine, so it cannot be written in the request model.
    build_document = app.openapi

    def build_document_with_limit() -> dict[str, Any]:
        document = build_document()
        properties = document["components"]["schemas"]["RecallMemoriesRequest"]["properties"]
        (limit,) = (schema for schema in properties["limit"]["anyOf"] if schema["type"] == "integer")
        limit["maximum"] = max_limit
        return document

    # FastAPI documents this assignment as the way to extend the OpenAPI document.
    app.openapi = build_document_with_limit  # type: ignore[method-assign]


async def _redirect_to_inspector() -> Response:
    return RedirectResponse("inspector/")


async def _handle_invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    return build_invalid_problem(list(error.errors())).to_response()


async def _handle_error(_request: Request, error: Exception) -> Response:
    return to_problem(error).to_response()
