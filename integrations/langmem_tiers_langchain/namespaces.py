"""Namespaces with placeholders that are filled when a graph runs, such as ``("memories", "{user_id}")``."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from langchain_core.runnables.config import ensure_config
from langgraph.runtime import get_runtime

from langmem_tiers import InvalidInputError, InvalidNameError
from langmem_tiers.integration_kit import check_name, check_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_core.messages import BaseMessage
    from langgraph.runtime import Runtime

    from langmem_tiers.integration_kit import NamespacePath

    Owner: TypeAlias = str | Iterable[str] | Callable[[Any], str | Iterable[str]] | None

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
            f"expected a non-empty str, an int or a UUID for {name!r}, got {shown}: pass the id as a str"
        )
    return str(value)


USER_KEYS = ("langgraph_auth_user_id", "user_id")
"""Keys for the user of a run: set by the server after authentication, or by the caller."""
_THREADS_LABEL = "threads"


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Namespace and session of a run."""

    namespace: NamespacePath
    session: str


class RunLocator:
    """Finds the namespace and the session of a run.

    Args:
        namespace: Labels, with placeholders such as ``"{user_id}"`` that are filled from the run's context or
            ``configurable``; or a function of the runtime. Default: the user of the run, or its thread if the
            run has no user.
    """

    def __init__(self, namespace: Owner = None) -> None:
        self._find_namespace = namespace if callable(namespace) else None
        is_labels = namespace is not None and not callable(namespace)
        self._template = NamespaceTemplate(namespace) if is_labels else None  # type: ignore[arg-type]

    def locate(self, runtime: Runtime[Any] | None, messages: Iterable[BaseMessage]) -> RunLocation:
        """Return the location of a run.

        Raises:
            InvalidInputError: The run has neither a user nor a thread.
            InvalidNameError: The user or the thread is not a valid name, or the users differ.
        """
        info = getattr(runtime, "execution_info", None)
        thread = getattr(info, "thread_id", None) or get_run_value("thread_id", runtime)
        session = _build_session_name(messages) if thread is None else f"{thread}{_build_nested_suffix(info)}"
        return RunLocation(self._resolve_namespace(runtime, thread), check_name(session))

    def _resolve_namespace(self, runtime: Runtime[Any] | None, thread: str | None) -> NamespacePath:
        if self._find_namespace is not None:
            return check_namespace(self._find_namespace(runtime))
        if self._template is not None:
            return self._template.fill(runtime)
        # A caller must not reach another user's memory by passing a user_id of its own choice.
        users = {value for key in USER_KEYS if (value := get_run_value(key, runtime)) is not None}
        if len(users) > 1:
            raise InvalidNameError(
                "the authenticated user and the user_id of the run differ, so nothing is stored or recalled: pass "
                "the same user_id, or omit it"
            )
        if users:
            return check_namespace(tuple(users))
        if thread is not None:
            return check_namespace((_THREADS_LABEL, str(thread)))
        raise InvalidInputError(
            "the run has no owner, so nothing is stored or recalled: pass context={'user_id': ...} or a "
            "thread_id, or set namespace="
        )


def _build_session_name(messages: Iterable[BaseMessage]) -> str:
    # Without a thread, each run is a separate conversation, named after the unique id of its first message.
    first = next((message.id for message in messages if message.id), None)
    return f"run-{first or uuid.uuid4().hex}"


def _build_nested_suffix(info: object) -> str:
    # An agent nested in another graph, as a node or in a tool, shares the thread but has its own conversation.
    # checkpoint_ns is "node:task_id|node:task_id"; the last part is the current node, and task ids change with
    # every run.
    nested = str(getattr(info, "checkpoint_ns", "") or "").split("|")[:-1]
    return "".join(f"/{step.partition(':')[0]}" for step in nested)
