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


_watched: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_resting: list[ForkAware] = []
_registry = threading.RLock()  # held while forking, so that it is free in the child as well
_hooks_are_set = False


def watch(thing: ForkAware) -> None:
    """Call the thing before and after each fork, for as long as it lives."""
    global _hooks_are_set  # noqa: PLW0603 - hooks of a process cannot be taken back, so they are set once
    with _registry:
        _watched.add(thing)
        if not _hooks_are_set and hasattr(os, "register_at_fork"):
            _hooks_are_set = True
            os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


def _before() -> None:
    _registry.acquire()
    for thing in list(_watched):
        with suppress(BaseException):  # one that cannot rest must not keep the others from it
            thing.before_fork()
            _resting.append(thing)


def _after_in_child() -> None:
    for thing in reversed(_resting):
        begin_anew = getattr(thing, "after_fork_in_child", None)
        if begin_anew is not None:
            begin_anew()
    _after()


def _after() -> None:
    while _resting:
        _resting.pop().after_fork()
    _registry.release()
