"""Class decorator that makes public methods mutually exclusive."""

from __future__ import annotations

import inspect
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Class = TypeVar("_Class", bound=type)
_LOCKED_DUNDERS = frozenset({"__len__", "__eq__"})


def synchronize_methods(kind: _Class) -> _Class:
    """Wrap all public methods and properties of a class, including inherited ones, to hold ``self._lock``.

    The lock must be reentrant and must exist before any of them is called.
    """
    for name in dir(kind):
        if name.startswith("_") and name not in _LOCKED_DUNDERS:
            continue
        found = inspect.getattr_static(kind, name)
        if isinstance(found, FunctionType):
            setattr(kind, name, _wrap_with_lock(found))
        elif isinstance(found, property) and found.fget is not None:
            setattr(kind, name, property(_wrap_with_lock(found.fget), found.fset, found.fdel, found.__doc__))
    return kind


def _wrap_with_lock(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call_with_lock(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any signature
        with self._lock:
            return method(self, *args, **kwargs)

    return call_with_lock
