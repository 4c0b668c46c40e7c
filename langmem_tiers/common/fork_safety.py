"""What holds locks or connections gets ready before its process forks.

A lock that another thread holds at that moment would stay locked in the child for ever,
and a SQLite connection that both processes own makes one of them lose what it wrote.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import Protocol


class ForkAware(Protocol):
    """Something that must be quiet while its process forks.

    What has a method ``after_fork_in_child()`` is called by it as well, in the child alone and before
    ``after_fork()``: there, threads of the parent and what they hold or have begun are gone.
    """

    def before_fork(self) -> None:
        """Come to rest: take locks, close connections."""
        ...

    def after_fork(self) -> None:
        """Go on, in the parent and in the child alike."""
        ...


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_paused: list[ForkAware] = []
_registry_lock = threading.RLock()  # held while forking, so that it is free in the child as well
_has_hooks = False


def register_fork_aware(thing: ForkAware) -> None:
    """Call the thing before and after each fork, for as long as it lives."""
    global _has_hooks  # noqa: PLW0603 - hooks of a process cannot be taken back, so they are set once
    with _registry_lock:
        _registered.add(thing)
        if not _has_hooks and hasattr(os, "register_at_fork"):
            _has_hooks = True
            os.register_at_fork(
                before=_run_before_fork,
                after_in_parent=_run_after_fork,
                after_in_child=_run_after_fork_in_child,
            )


def _run_before_fork() -> None:
    _registry_lock.acquire()
    for thing in list(_registered):
        with suppress(BaseException):  # one that cannot rest must not keep the others from it
            thing.before_fork()
            _paused.append(thing)


def _run_after_fork_in_child() -> None:
    for thing in reversed(_paused):
        begin_anew = getattr(thing, "after_fork_in_child", None)
        if begin_anew is not None:
            begin_anew()
    _run_after_fork()


def _run_after_fork() -> None:
    while _paused:
        _paused.pop().after_fork()
    _registry_lock.release()
