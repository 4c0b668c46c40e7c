"""How long a thing takes, told so that a busy machine does not change the verdict."""

import gc
import time
from collections.abc import Callable

TRIES = 3


def takes_at_most(seconds: float, work: Callable[[], object]) -> bool:
    """Whether `work` needs no more CPU time than that, by the best of a few tries.

    Time in which the thread did not run does not count, and a collection of garbage that others left
    falls into no measurement; what is slow by its own nature is slow in each try.
    """
    return any(_cpu_seconds(work) <= seconds for _ in range(TRIES))


def _cpu_seconds(work: Callable[[], object]) -> float:
    was_on = gc.isenabled()
    gc.disable()
    start = time.thread_time()
    try:
        work()
        return time.thread_time() - start
    finally:
        if was_on:
            gc.enable()
