"""Fork hooks for objects that hold locks or connections.

A lock that another thread holds during a fork would stay locked in the child forever. A
SQLite connection shared by both processes makes one of them lose its writes.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import Protocol


class ForkAware(Protocol):
    """An object that must be idle while its process forks.

    An optional method ``after_fork_in_child()`` is also called, only in the child and before ``after_fork()``.
    At that point the parent's threads, and everything that they hold or have started, do not exist.
    """

    def before_fork(self) -> None:
        """Become idle: acquire locks, close connections."""
        ...

    def after_fork(self) -> None:
        """Resume, in the parent and in the child alike."""
        ...


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_paused: list[ForkAware] = []
_registry_lock = threading.RLock()  # held while forking, so that no other thread holds it in the child
_has_hooks = False


def register_fork_aware(resource: ForkAware) -> None:
    """Call the object's fork hooks at each fork, as long as it exists."""
    global _has_hooks  # noqa: PLW0603 - fork hooks cannot be unregistered, so they are registered once
    with _registry_lock:
        _registered.add(resource)
        if not _has_hooks and hasattr(os, "register_at_fork"):
            _has_hooks = True
            os.register_at_fork(
                before=_run_before_fork,
                after_in_parent=_run_after_fork,
                after_in_child=_run_after_fork_in_child,
            )


def _run_before_fork() -> None:
    _registry_lock.acquire()
    for resource in list(_registered):
        with suppress(BaseException):  # one failing hook must not prevent the others
            resource.before_fork()
            _paused.append(resource)


def _run_after_fork_in_child() -> None:
    # Without pop(): _run_after_fork() below resumes the same objects, also in reverse order.
    for resource in reversed(_paused):
        reset = getattr(resource, "after_fork_in_child", None)
        if reset is not None:
            reset()
    _run_after_fork()


def _run_after_fork() -> None:
    while _paused:
        _paused.pop().after_fork()
    _registry_lock.release()
