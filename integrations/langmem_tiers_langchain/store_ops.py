"""LangGraph's store operations in the words of the engine, and what comes back in those of LangGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.store import base
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    get_text_at_path,
)

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.items.models import ItemChange, NamespaceMatch
from langmem_tiers.recall.item_index import to_search_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langgraph.store.base import MatchCondition, Op

    import langmem_tiers.items.models as ours

WHOLE_VALUE_PATH = "$"
"""The path of the whole value."""


def check_op(op: Op) -> None:
    """Refuse an operation that names no possible namespace; ``batch`` is called past the checks of ``put``.

    Raises:
        InvalidNamespaceError: A label is empty, no text, or holds a period or NUL.
        InvalidInputError: It is no operation.
    """
    if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
        raise InvalidInputError(
            f"{op!r} is no operation of a store: use GetOp, PutOp, SearchOp, ListNamespacesOp"
        )
    validate = getattr(base, "validate_op_namespace", None)  # from langgraph-checkpoint 4.3 on
    if validate is not None:
        validate(op)
    for path in _list_paths(op):
        _check_labels(path)
    if isinstance(op, PutOp) and not op.namespace:
        raise InvalidNamespaceError("a namespace needs at least one label, got (): pass e.g. ('memories',)")


def to_item_change(op: PutOp, fields: Sequence[str]) -> ItemChange:
    """A put or a deletion."""
    value = op.value
    return ItemChange(
        namespace=tuple(op.namespace),
        key=op.key,
        value=value,
        texts=None if value is None else _extract_texts(value, _choose_fields(op, fields)),
        ttl_seconds=None if op.ttl is None else op.ttl * 60,
    )


def to_namespace_matches(op: ListNamespacesOp) -> list[NamespaceMatch]:
    """The conditions on namespaces."""
    return [_to_namespace_match(condition) for condition in op.match_conditions or ()]


def to_store_item(item: ours.Item | None) -> Item | None:
    """An item as LangGraph knows it."""
    if item is None:
        return None
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def to_search_item(hit: ours.ItemHit) -> SearchItem:
    """A hit as LangGraph knows it."""
    item = hit.item
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, hit.score)


def _list_paths(op: Op) -> Iterator[tuple[str, ...]]:
    if isinstance(op, GetOp | PutOp):
        yield op.namespace
    elif isinstance(op, SearchOp):
        yield op.namespace_prefix
    else:
        yield from (condition.path for condition in op.match_conditions or ())


def _check_labels(path: Sequence[object]) -> None:
    for label in path:
        if not isinstance(label, str) or not label or "." in label or "\0" in label:
            raise InvalidNamespaceError(
                f"the label {label!r} of {path!r} cannot be one: use a text that is not empty, "
                "without periods and NUL"
            )


def _choose_fields(op: PutOp, fields: Sequence[str]) -> Sequence[str]:
    if op.index is None:
        return fields
    return () if op.index is False else op.index


def _extract_texts(value: Mapping[str, Any], fields: Sequence[str]) -> list[str] | None:
    if list(fields) == [WHOLE_VALUE_PATH]:
        return None
    try:
        return [text for path in fields for text in _extract_texts_at(value, path)]
    except (TypeError, ValueError, RecursionError):  # no JSON, which the engine refuses by name
        return None


def _extract_texts_at(value: Mapping[str, Any], path: str) -> list[str]:
    return [to_search_text(value)] if path == WHOLE_VALUE_PATH else get_text_at_path(value, path)


def _to_namespace_match(condition: MatchCondition) -> NamespaceMatch:
    if condition.match_type not in {"prefix", "suffix"}:
        raise InvalidInputError(f"unknown match type {condition.match_type!r}: use 'prefix' or 'suffix'")
    return NamespaceMatch(condition.match_type, tuple(condition.path))
