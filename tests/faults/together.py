"""Child processes that begin together, and tell what they came to."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext
    from multiprocessing.synchronize import Barrier

_PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class _Failed:
    told: str


def all_at_once(
    context: ForkServerContext, work: Callable[..., Any], arguments: Sequence[tuple[object, ...]]
) -> list[Any]:
    """Run the work once for each arguments, in processes of their own; what they return.

    Args:
        context: Makes the processes.
        work: Its first argument is a function that waits until all others are there too.
        arguments: The others.
    """
    start = context.Barrier(len(arguments), timeout=_PATIENCE_SECONDS)
    running = [_started(context, start, work, some) for some in arguments]
    return [_outcome(pipe) for pipe in running]


def _started(
    context: ForkServerContext, start: Barrier, work: Callable[..., Any], arguments: tuple[object, ...]
) -> Connection:
    ours, theirs = context.Pipe(duplex=False)
    context.Process(target=_run, args=(theirs, start, work, arguments), daemon=True).start()
    theirs.close()
    return ours


def _run(pipe: Connection, start: Barrier, work: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    try:
        pipe.send(work(start.wait, *arguments))
    except BaseException:  # noqa: BLE001 - whatever it was, the test is told
        start.abort()
        pipe.send(_Failed(traceback.format_exc()))


def _outcome(pipe: Connection) -> Any:
    assert pipe.poll(2 * _PATIENCE_SECONDS), "a child hangs"
    outcome = pipe.recv()
    assert not isinstance(outcome, _Failed), outcome.told
    return outcome
