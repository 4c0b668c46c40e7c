"""Child processes that start together and return their results."""

from __future__ import annotations

import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext
    from multiprocessing.synchronize import Barrier


@dataclass(frozen=True)
class _Failed:
    traceback_text: str


def run_at_once(
    context: ForkServerContext,
    work: Callable[..., Any],
    arguments: Sequence[tuple[object, ...]],
    limit_seconds: float = 2 * LIMIT_SECONDS,
) -> list[Any]:
    """Run the work once for each arguments, each in its own process; return the results.

    Args:
        context: Makes the processes.
        work: Its first argument is a function that waits until all processes have called it.
        arguments: Its other arguments, for each process.
        limit_seconds: Guards against children that hang.
    """
    start = context.Barrier(len(arguments), timeout=LIMIT_SECONDS)
    with ExitStack() as pipes:
        running = [pipes.enter_context(_started(context, start, work, some)) for some in arguments]
        return [_outcome(pipe, limit_seconds) for pipe in running]


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
    except BaseException:  # noqa: BLE001 - the test reports it
        start.abort()
        pipe.send(_Failed(traceback.format_exc()))


def _outcome(pipe: Connection, limit_seconds: float) -> Any:
    assert pipe.poll(limit_seconds), "a child hangs"
    outcome = pipe.recv()
    assert not isinstance(outcome, _Failed), outcome.traceback_text
    return outcome
