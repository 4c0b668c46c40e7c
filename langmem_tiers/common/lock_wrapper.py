"""A class whose public methods run one at a time."""

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
    """Have all public methods and properties of a class, inherited ones too, hold its ``_lock``.

    The lock has to be one that a thread may take again, and there before any of them is called.
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
    def held(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of any method
        with self._lock:
            return method(self, *args, **kwargs)

    return held
