"""Namespaces with places for what is known when a graph runs, such as ``("memories", "{user_id}")``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from langchain_core.runnables.config import ensure_config
from langgraph.runtime import get_runtime

from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.errors import InvalidNameError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.common.namespaces import NamespacePath

_PLACEHOLDER = re.compile(r"\{([A-Za-z]\w*)\}")


class NamespaceTemplate:
    """A namespace whose labels may be places, filled from the configuration and the context of a run.

    A place is a whole label and its value becomes that one label, so no value reaches into another
    namespace. A value that is missing is an error: there is no namespace to fall back to.

    Args:
        labels: One label or several; ``"{user_id}"`` is the place for the value ``user_id``.

    Raises:
        InvalidNameError: It is no namespace, or a label has braces beside other text.
    """

    def __init__(self, labels: str | Iterable[str]) -> None:
        self.labels = check_namespace(labels)
        for label in self.labels:
            if ("{" in label or "}" in label) and not _PLACEHOLDER.fullmatch(label):
                raise InvalidNameError(
                    f"the label {label!r} has braces: make a place a label of its own, such as '{{user_id}}'"
                )

    def __repr__(self) -> str:
        return f"NamespaceTemplate({self.labels!r})"

    def fill(self, runtime: object = None) -> NamespacePath:
        """The namespace of the run at hand.

        Args:
            runtime: Of the run, where it is at hand; found, if left out.

        Raises:
            InvalidNameError: A value is missing, makes no label, or differs between configuration and context.
        """
        places = {label: found[1] for label in self.labels if (found := _PLACEHOLDER.fullmatch(label))}
        if not places:
            return self.labels
        return check_namespace(
            self._require_value(places[label], runtime) if label in places else label for label in self.labels
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
    """What a run was told under a name, in its configuration or its context; None if nothing.

    Args:
        name: Such as ``user_id``.
        runtime: Of the run, where it is at hand; found, if left out.

    Raises:
        InvalidNameError: It makes no label, or differs between configuration and context.
    """
    configured = (ensure_config().get("configurable") or {}).get(name)
    context = getattr(_get_runtime() if runtime is None else runtime, "context", None)
    in_context = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
    values = {_to_label(value, name) for value in (configured, in_context) if value is not None}
    if len(values) > 1:
        raise InvalidNameError(
            f"{name!r} is one thing in the configuration and another in the context: pass the same, or one"
        )
    return values.pop() if values else None


def _get_runtime() -> object:
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # outside of a graph
        return None


def _to_label(value: object, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | UUID) or not str(value):
        shown = repr(value) if isinstance(value, str | bool) else f"a {type(value).__name__}"
        raise InvalidNameError(f"the value for {name!r} must be a name, got {shown}: pass a non-empty str")
    return str(value)
