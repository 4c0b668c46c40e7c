"""What is handed in to items, checked before anything is written or read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.core.checks import check_positive
from langmem_tiers.core.config import MAX_LIMIT
from langmem_tiers.core.errors import InvalidInputError, InvalidMessageError
from langmem_tiers.core.json_values import to_json
from langmem_tiers.core.names import check_key, check_namespace
from langmem_tiers.retrieval.item_text import text_of

if TYPE_CHECKING:
    from langmem_tiers.core.items import ItemChange

_LONGEST_TTL_SECONDS = 10.0**10


def checked_change(change: ItemChange) -> tuple[ItemChange, str | None]:
    """The change with its value as JSON text; None deletes.

    Raises:
        InvalidInputError: Something in it cannot be used.
    """
    change = replace(change, namespace=check_namespace(change.namespace), key=check_key(change.key))
    if change.value is None:
        return change, None
    if not isinstance(change.value, Mapping):
        raise InvalidInputError(
            f"the value of {change.key!r} is a {type(change.value).__name__}: it must be a dict of JSON values"
        )
    if change.ttl_seconds is not None:
        check_positive(change.ttl_seconds, "ttl_seconds", _LONGEST_TTL_SECONDS)
    _check_texts(change)
    value = dict(change.value)
    try:
        return replace(change, value=value), to_json(value, f"the value of {change.key!r}")
    except InvalidMessageError as error:
        raise InvalidInputError(f"{error}; nothing was written") from None


def texts_of(change: ItemChange) -> tuple[str, ...]:
    """What queries find a checked change by."""
    if change.value is None:
        return ()
    texts = (text_of(change.value),) if change.texts is None else tuple(change.texts)
    return tuple(text for text in texts if text.strip())


def check_page(limit: object, offset: object) -> None:
    """Refuse what is no page."""
    for name, value in (("limit", limit), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_LIMIT:
            raise InvalidInputError(f"{name} must be a whole number from 0 to {MAX_LIMIT}, got {value!r}")


def _check_texts(change: ItemChange) -> None:
    texts: object = change.texts
    if texts is None:
        return
    if (
        isinstance(texts, str)
        or not isinstance(texts, Sequence)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise InvalidInputError(f"the texts of {change.key!r} must be a list of str: use [text] for one")
