"""How tools tell a model what memory found, and what went wrong."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from langmem_tiers.core.errors import (
    BudgetExceededError,
    InvalidInputError,
    MessageConflictError,
    NotFoundError,
)
from langmem_tiers.core.fences import CLOSING, OPENING, harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logging.getLogger("langmem_tiers")
_WRONG_USE = (BudgetExceededError, InvalidInputError, MessageConflictError, NotFoundError)


def as_data(memories: Iterable[dict[str, Any]]) -> str:
    """Memories as one JSON object, ``{"note": ..., "memories": [...], "end": ...}``, fenced as data."""
    # A fence that is JSON as well: read by any parser, and taken out by whoever leaves out what was injected.
    told = {"note": OPENING, "memories": [safe(one) for one in memories], "end": CLOSING}
    return json.dumps(told, ensure_ascii=False, default=str)


def in_words(error: Exception) -> str:
    """What a model is told of an error, so that it can go on.

    Wrong use is told as it is. Of all else only the kind is told and logged: what a driver raises may quote an
    address with its password. Logging at level DEBUG shows all of it.
    """
    if isinstance(error, _WRONG_USE):
        _log.debug("a memory tool was used wrongly", exc_info=error)
        return str(error)
    _log.warning("a memory tool failed: %s", type(error).__name__)
    _log.debug("a memory tool failed", exc_info=error)
    return f"memory cannot be reached just now ({type(error).__name__}): go on without it"


def safe(value: object) -> object:
    """A JSON value without anything that could be taken for the end of the fence, or that UTF-8 cannot write."""
    if isinstance(value, str):
        return harmless(value.encode("utf-8", "replace").decode())
    if isinstance(value, dict):
        return {safe(str(key)): safe(one) for key, one in value.items()}
    return [safe(one) for one in value] if isinstance(value, list | tuple) else value
