"""Namespace and session of a run, from its configuration and context; never guessed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers import InvalidInputError, InvalidNameError
from langmem_tiers.integration_kit import check_name, check_namespace
from langmem_tiers_langchain.namespaces import NamespaceTemplate, get_run_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_core.messages import BaseMessage
    from langgraph.runtime import Runtime

    from langmem_tiers.integration_kit import NamespacePath

    Owner: TypeAlias = str | Iterable[str] | Callable[[Any], str | Iterable[str]] | None

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
