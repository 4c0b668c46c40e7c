"""Whose memory it is: a namespace and a session, from what a run was told, never guessed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, TypeAlias

from langgraph.config import get_config

from langmem_tiers.core.errors import InvalidConfigError, InvalidInputError
from langmem_tiers.core.names import check_name, check_namespace

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.runtime import Runtime

    from langmem_tiers.core.names import NamespacePath

    Owner: TypeAlias = str | Iterable[str] | Callable[[Any], str | Iterable[str]] | None

USER_KEYS = ("user_id", "langgraph_auth_user_id")
"""Under which a run may be told whose it is, the first that is there."""
_THREADS = "threads"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run remembers."""

    namespace: NamespacePath
    session: str


class Identity:
    """Finds the place of a run.

    Args:
        namespace: Labels, in which ``{user_id}`` and the like are filled from the run's context or its
            ``configurable``; a function of the runtime; or None for the user of the run and, where no
            user is told, for its thread alone.
    """

    def __init__(self, namespace: Owner = None) -> None:
        self._given = namespace
        self._labels: tuple[str, ...] | None = None
        if namespace is not None and not callable(namespace):
            self._labels = check_namespace((namespace,) if isinstance(namespace, str) else tuple(namespace))
            for label in self._labels:
                _check_template(label)

    def place(self, runtime: Runtime[Any] | None, messages: Iterable[BaseMessage]) -> Place:
        """Where a run remembers.

        Raises:
            InvalidInputError: Nothing tells whose run it is.
        """
        told = _Told(runtime)
        thread = told.thread()
        namespace = self._namespace(told, thread)
        session = thread if thread is not None else _session_of(messages)
        return Place(namespace, check_name(session))

    def _namespace(self, told: _Told, thread: str | None) -> NamespacePath:
        if callable(self._given):
            return check_namespace(self._given(told.runtime))
        if self._labels is not None:
            return check_namespace(tuple(filled(label, told) for label in self._labels))
        user = next((value for key in USER_KEYS if (value := told.get(key)) is not None), None)
        if user is not None:
            return check_namespace((_text(user, "user_id"),))
        if thread is not None:
            return check_namespace((_THREADS, thread))
        raise InvalidInputError(
            "nothing tells whose run this is, so nothing is remembered: pass context={'user_id': ...} or a "
            "thread_id, or give the namespace"
        )


class _Told:
    """What a run was told: its context first, then its ``configurable``."""

    def __init__(self, runtime: Runtime[Any] | None) -> None:
        self.runtime = runtime
        self._context = getattr(runtime, "context", None)
        self._configurable = _configurable()

    def get(self, key: str) -> object:
        """The value under a key; None if there is none."""
        context = self._context
        given = context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)
        return self._configurable.get(key) if given is None else given

    def thread(self) -> str | None:
        """The id of the thread."""
        info = getattr(self.runtime, "execution_info", None)
        thread = getattr(info, "thread_id", None) or self._configurable.get("thread_id")
        return None if thread is None else _text(thread, "thread_id")


def filled(label: str, told: _Told) -> str:
    """One label with its placeholders filled; a value never makes more labels of it."""
    parts = []
    for literal, field, _, _ in Formatter().parse(label):
        parts.append(literal)
        if field is not None:
            value = told.get(field)
            if value is None:
                raise InvalidInputError(
                    f"the namespace wants {field!r}, which this run was not told: pass it in context= or "
                    "in config['configurable']; nothing is remembered"
                )
            parts.append(_text(value, field))
    return "".join(parts)


def _configurable() -> Mapping[str, Any]:
    try:
        return get_config().get("configurable") or {}
    except RuntimeError:  # outside of a graph
        return {}


def _check_template(label: str) -> None:
    try:
        parts = list(Formatter().parse(label))
    except ValueError:
        parts = [("", "", "", None)]
    if any(field is not None and (spec or how or not field.isidentifier()) for _, field, spec, how in parts):
        raise InvalidConfigError(
            f"the label {label!r} is no template: write a placeholder as '{{user_id}}', and a brace twice"
        )


def _text(value: object, what: str) -> str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | uuid.UUID) and not isinstance(value, bool):
        return str(value)
    raise InvalidInputError(
        f"{what} must be a text or a number, got {value!r}: nothing is remembered of this run"
        if value is None or isinstance(value, str | bool)
        else f"{what} must be a text or a number, got a {type(value).__name__}: nothing is remembered of this run"
    )


def _session_of(messages: Iterable[BaseMessage]) -> str:
    # Without a thread each run is a conversation of its own: its first message has an id that no other has.
    first = next((message.id for message in messages if message.id), None)
    return f"run-{first or uuid.uuid4().hex}"
