"""Error responses: a code, a message and a status. They never reveal where in the code an error occurred."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from langmem_tiers.errors import (
    BudgetExceededError,
    EmbeddingError,
    EngineClosedError,
    InvalidInputError,
    MessageConflictError,
    NotAllowedError,
    NotFoundError,
    PlanOutdatedError,
    StorageBusyError,
    StorageError,
)

_log = logging.getLogger("langmem_tiers.server")
_KIND_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}
_STATUS_BY_ERROR: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "not_found"),
    (NotAllowedError, 403, "forbidden"),
    (MessageConflictError, 409, "conflict"),
    (PlanOutdatedError, 409, "conflict"),
    (BudgetExceededError, 422, "invalid"),
    (InvalidInputError, 422, "invalid"),
    (EmbeddingError, 409, "conflict"),
)


class Problem(HTTPException):
    """Error response to a request.

    Args:
        status: HTTP status.
        kind: Error code for programs.
        message: One sentence for people.
        headers: Additional response headers.
    """

    def __init__(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.kind = kind

    def to_response(self) -> Response:
        """Return the HTTP response."""
        # json.dumps() escapes non-ASCII characters: a message may quote half a surrogate pair, which UTF-8 cannot
        # encode.
        body = json.dumps({"error": {"kind": self.kind, "message": self.detail}})
        return Response(body, self.status_code, self.headers, "application/json")


def to_problem(error: Exception) -> Problem:
    """Convert an exception to an error response; details of the database and of defects are only logged."""
    if isinstance(error, HTTPException):
        return error if isinstance(error, Problem) else _convert_http_exception(error)
    for error_class, status, kind in _STATUS_BY_ERROR:
        if isinstance(error, error_class):
            return Problem(status, kind, str(error))
    if isinstance(error, StorageBusyError):
        return build_unavailable_problem("busy", "the database is busy: try again in a moment")
    if isinstance(error, StorageError | EngineClosedError):
        _log.warning("the database is unavailable: %s", error)
        message = f"the database is unavailable ({type(error).__name__}): try again later"
        return build_unavailable_problem("unavailable", message)
    _log.error("a request failed", exc_info=error)
    return Problem(500, "internal", "internal error: see the log of the server")


def _convert_http_exception(error: HTTPException) -> Problem:
    kind = _KIND_BY_STATUS.get(error.status_code, "invalid")
    return Problem(error.status_code, kind, str(error.detail), dict(error.headers or {}))


def build_unavailable_problem(kind: str, message: str) -> Problem:
    """Build a 503 response that asks the client to retry."""
    return Problem(503, kind, message, {"Retry-After": "1"})


def build_invalid_problem(errors: list[Any]) -> Problem:
    """Build the response to invalid fields of a request; it does not repeat the values that were sent."""
    lines = []
    for error in errors[:5]:
        # "loc" starts with the part of the request, for example "body". Alone it names the problem; else it is noise.
        location = [str(part) for part in error["loc"]] or ["request"]
        lines.append(f"{'.'.join(location[1:]) or location[-1]}: {error['msg']}")
    return Problem(422, "invalid", "; ".join(lines))
