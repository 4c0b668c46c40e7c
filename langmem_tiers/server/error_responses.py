"""What goes wrong, as a client is told: one word, one sentence, a status. Never where in the code."""

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
    """An answer that says what is wrong with a request.

    Args:
        status: Of the answer.
        kind: One word for programs.
        message: One sentence for people.
        headers: More to tell.
    """

    def __init__(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.kind = kind

    def to_response(self) -> Response:
        """As it is sent."""
        told = {"error": {"kind": self.kind, "message": self.detail}}
        body = json.dumps(told)  # ASCII: a message may name what no encoding takes
        return Response(body, self.status_code, self.headers, "application/json")


def to_problem(error: Exception) -> Problem:
    """What a client is told of an error: of ours what they say, of the database's and of all others nothing within."""
    if isinstance(error, HTTPException):
        return error if isinstance(error, Problem) else _convert_http_exception(error)
    for kind, status, word in _STATUS_BY_ERROR:
        if isinstance(error, kind):
            return Problem(status, word, str(error))
    if isinstance(error, StorageBusyError):
        return build_unavailable_problem("busy", "the database is busy: try again in a moment")
    if isinstance(error, StorageError | EngineClosedError):
        _log.warning("the database cannot be used: %s", error)
        told = f"the database cannot be used now ({type(error).__name__}): try again later"
        return build_unavailable_problem("unavailable", told)
    _log.error("a request failed", exc_info=error)
    return Problem(500, "internal", "something went wrong in the server: its log says what")


def _convert_http_exception(error: HTTPException) -> Problem:
    kind = _KIND_BY_STATUS.get(error.status_code, "invalid")
    return Problem(error.status_code, kind, str(error.detail), dict(error.headers or {}))


def build_unavailable_problem(kind: str, message: str) -> Problem:
    """An answer that says to come again."""
    return Problem(503, kind, message, {"Retry-After": "1"})


def build_invalid_problem(errors: list[Any]) -> Problem:
    """What is wrong with the fields of a request; what was sent is not sent back."""
    told = []
    for one in errors[:5]:
        *_, where = [str(part) for part in one["loc"]] or ["request"]
        told.append(f"{'.'.join(str(part) for part in one['loc'][1:]) or where}: {one['msg']}")
    return Problem(422, "invalid", "; ".join(told))
