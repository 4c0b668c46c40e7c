"""Fork the test process, and wait for the child."""

from __future__ import annotations

import os
import signal
import warnings
from typing import TYPE_CHECKING

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def fork(work: Callable[[], object]) -> int:
    """Do the work in a forked child, and return the id of its process. Its exit code is 1 if the work raises."""
    with warnings.catch_warnings():  # forking with threads is the case under test
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        child = os.fork()
    if child != 0:
        return child
    try:
        work()
    except BaseException:  # noqa: BLE001 - the exit code reports it
        os._exit(1)
    os._exit(0)


def wait(child: int) -> int:
    """Return the exit code of a child; kill a child that hangs."""
    codes: list[int] = []

    def has_ended() -> bool:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            codes.append(os.waitstatus_to_exitcode(status))
        return bool(done)

    try:
        wait_until(has_ended, "a forked child ends")
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return codes[0]
