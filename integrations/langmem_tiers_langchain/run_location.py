"""Whose memory it is: a namespace and a session, from what a run was told, never guessed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.errors import InvalidInputError, InvalidNameError
from langmem_tiers_langchain.namespaces import NamespaceTemplate, get_run_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_core.messages import BaseMessage
    from langgraph.runtime import Runtime

    from langmem_tiers.common.namespaces import NamespacePath

    Owner: TypeAlias = str | Iterable[str] | Callable[[Any], str | Iterable[str]] | None

USER_KEYS = ("langgraph_auth_user_id", "user_id")
"""Under which a run may be told whose it is: by the server that checked it, or by the caller."""
_THREADS_LABEL = "threads"


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Where a run remembers."""

    namespace: NamespacePath
    session: str


class RunLocator:
    """Finds the place of a run.

    Args:
        namespace: Labels, of which ``"{user_id}"`` and the like are filled from the run's context or its
            ``configurable``; a function of the runtime; or None for the user of the run and, where no
            user is told, for its thread alone.
    """

    def __init__(self, namespace: Owner = None) -> None:
        self._find_namespace = namespace if callable(namespace) else None
        is_labels = namespace is not None and not callable(namespace)
        self._template = NamespaceTemplate(namespace) if is_labels else None  # type: ignore[arg-type]

    def locate(self, runtime: Runtime[Any] | None, messages: Iterable[BaseMessage]) -> RunLocation:
        """Where a run remembers.

        Raises:
            InvalidInputError: Nothing tells whose run it is.
            InvalidNameError: What tells it is no name.
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
        users = {value for key in USER_KEYS if (value := get_run_value(key, runtime)) is not None}
        if len(users) > 1:
            raise InvalidNameError(
                "the user whom the server has checked is not the user_id of the run: nothing is remembered"
            )
        if users:
            return check_namespace(tuple(users))
        if thread is not None:
            return check_namespace((_THREADS_LABEL, str(thread)))
        raise InvalidInputError(
            "nothing tells whose run this is, so nothing is remembered: pass context={'user_id': ...} or a "
            "thread_id, or give the namespace"
        )


def _build_session_name(messages: Iterable[BaseMessage]) -> str:
    # Without a thread each run is a conversation of its own: its first message has an id that no other has.
    first = next((message.id for message in messages if message.id), None)
    return f"run-{first or uuid.uuid4().hex}"


def _build_nested_suffix(info: object) -> str:
    # An agent inside another graph, as a node or behind a tool, has a conversation of its own in the same thread.
    nested = str(getattr(info, "checkpoint_ns", "") or "").split("|")[:-1]
    return "".join(f"/{step.partition(':')[0]}" for step in nested)
