"""Namespaces with placeholders that are filled when a graph runs, such as ``("memories", "{user_id}")``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from langchain_core.runnables.config import ensure_config
from langgraph.runtime import get_runtime

from langmem_tiers import InvalidNameError
from langmem_tiers.integration_kit import check_namespace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.integration_kit import NamespacePath

_PLACEHOLDER = re.compile(r"\{([A-Za-z]\w*)\}")


class NamespaceTemplate:
    """Namespace with placeholders, filled from the configuration and the context of a run.

    A placeholder is a whole label, and its value becomes exactly one label. A value therefore cannot address
    another namespace. A missing value is an error; no namespace is used by default.

    Args:
        labels: One label or several; ``"{user_id}"`` is the placeholder for the value ``user_id``.

    Raises:
        InvalidNameError: The namespace is invalid, or a label has braces next to other text.
    """

    def __init__(self, labels: str | Iterable[str]) -> None:
        self.labels = check_namespace(labels)
        for label in self.labels:
            if ("{" in label or "}" in label) and not _PLACEHOLDER.fullmatch(label):
                raise InvalidNameError(
                    f"the label {label!r} has braces: a placeholder must be a whole label, such as '{{user_id}}'"
                )

    def __repr__(self) -> str:
        return f"NamespaceTemplate({self.labels!r})"

    def fill(self, runtime: object = None) -> NamespacePath:
        """Return the namespace of the current run.

        Args:
            runtime: Runtime of the run. Default: the active runtime of the graph.

        Raises:
            InvalidNameError: A value is missing, not a valid label, or differs between configuration and context.
        """
        placeholders = {label: found[1] for label in self.labels if (found := _PLACEHOLDER.fullmatch(label))}
        if not placeholders:
            return self.labels
        return check_namespace(
            self._require_value(placeholders[label], runtime) if label in placeholders else label
            for label in self.labels
        )

    def _require_value(self, name: str, runtime: object) -> str:
        value = get_run_value(name, runtime)
        if value is None:
            raise InvalidNameError(
                f"the namespace {self.labels!r} needs a value for {name!r}: pass it as "
                f"config={{'configurable': {{{name!r}: ...}}}} or in the context of the run"
            )
        return value


def get_run_value(name: str, runtime: object = None) -> str | None:
    """Return a value from the configuration or the context of a run; None if it is not set.

    Args:
        name: Name of the value, such as ``user_id``.
        runtime: Runtime of the run. Default: the active runtime of the graph.

    Raises:
        InvalidNameError: The value is not a valid label, or differs between configuration and context.
    """
    configured = (ensure_config().get("configurable") or {}).get(name)
    context = getattr(_get_runtime() if runtime is None else runtime, "context", None)
    in_context = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
    # Compared as labels: 5 and "5" are the same value.
    values = {_to_label(value, name) for value in (configured, in_context) if value is not None}
    if len(values) > 1:
        raise InvalidNameError(
            f"{name!r} differs between the configuration and the context of the run: pass it once, or pass the "
            "same value"
        )
    return values.pop() if values else None


def _get_runtime() -> object:
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # not inside a graph
        return None


def _to_label(value: object, name: str) -> str:
    # Only types with one obvious text form. str(None) or the text of a secret object must not become a label.
    if isinstance(value, bool) or not isinstance(value, str | int | UUID) or not str(value):
        shown = repr(value) if isinstance(value, str | bool) else f"a {type(value).__name__}"
        raise InvalidNameError(
            f"the value for {name!r} must be a non-empty str, an int or a UUID, got {shown}"
        )
    return str(value)
