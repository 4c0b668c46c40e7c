"""Child processes that learn and consolidate, some of them killed at a given step."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft
from langmem_tiers.config import LearningConfig, OptimizerConfig
from langmem_tiers.long_term import consolidation
from langmem_tiers.testing import FrozenClock
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

TENANT, SESSION = "acme", "monday"
LONGEST_SECONDS = LIMIT_SECONDS
LEASE_SECONDS = 600.0

STATEMENTS = (
    "We decided to use PostgreSQL for the billing service.",
    "I prefer dark roast coffee in the morning.",
    "Our goal is to open the Lisbon office in March.",
    "The invoices must be archived for ten years.",
    "We decided to hire Priya as the new designer.",
    "I want short answers without tables.",
    "The vacuum robot cannot climb the stairs to the attic.",
    "We chose the green paint for the kitchen.",
    "My name is Tomas Berg.",
    "We went with ferry tickets to Gotland.",
    "Backups need to finish before five o'clock.",
    "I prefer window seats on trains.",
    "We selected oak for the bookshelf.",
    "Our target is a marathon below four hours.",
    "The greenhouse must stay above twelve degrees.",
    "We decided to call the parrot Mango.",
)
"""Each becomes a long-term entry; no two of them speak of the same thing."""


def run(target: Callable[..., None], *arguments: Any) -> int | None:
    """Run one child to its end; its exit code."""
    child = fork_server().Process(target=target, args=arguments)
    child.start()
    child.join(LONGEST_SECONDS)
    return child.exitcode


def run_together(target: Callable[..., None], arguments: list[tuple[Any, ...]]) -> list[int | None]:
    """Run children that wait for each other before they begin; their exit codes."""
    context = fork_server()
    gate = context.Barrier(len(arguments))
    processes = [context.Process(target=target, args=(gate, *some)) for some in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LONGEST_SECONDS)
    return [process.exitcode for process in processes]


def learn_together(gate: Any, url: str, rounds: int) -> None:
    """Learn from one session again and again, while it is added to."""
    with MemoryEngine(url, embedder=None) as engine:
        session = engine.session(TENANT, SESSION)
        gate.wait(LONGEST_SECONDS)
        for number in range(rounds):
            session.learn()
            session.add_many(
                [MessageDraft("user", f"Line {number}.{line} of {os.getpid()}") for line in range(5)]
            )
        session.learn()


def optimize_often(wait: Callable[[], object], url: str, tenant: str, config: EngineConfig) -> int:
    """Run the optimizer ten times at the same time as other processes; return how many runs this process made."""
    with MemoryEngine(url, config=config) as engine:
        wait()
        return sum(engine.optimizer.run(tenant) is not None for _ in range(10))


def learn_until(url: str, step: int, when: str) -> None:
    """Learn, and die ``before`` or ``after`` the commit with that number."""
    with MemoryEngine(url, embedder=None) as engine:
        store: Any = engine.services.long_term.store
        _die_at(store, "commit", step, after=when == "after")
        engine.session(TENANT, SESSION).learn()


def consolidate_until(url: str, days: float, step: int) -> None:
    """Consolidate some days from now in batches of three, and die before the batch with that number."""
    consolidation.CONSOLIDATION_BATCH_SIZE = 3
    with _open_aged_engine(url, days) as engine:
        store: Any = engine.services.long_term.store
        _die_at(store, "archive", step, after=False)
        engine.namespace(TENANT).consolidate()


def consolidate_together(gate: Any, url: str, days: float, report: str) -> None:
    """Consolidate some days from now until it is done, and note how many entries were archived here."""
    consolidation.CONSOLIDATION_BATCH_SIZE = 3
    archived = 0
    with _open_aged_engine(url, days) as engine:
        gate.wait(LONGEST_SECONDS)
        is_complete = False
        while not is_complete:  # no limit on tries: while the other process has the lease, a try does nothing
            done = engine.namespace(TENANT).consolidate(max_batches=1)
            archived += done.memories_archived
            is_complete = done.is_complete
    with open(report, "w") as file:  # noqa: PTH123 - a name that was handed over
        file.write(str(archived))


def create_clock(days: float) -> FrozenClock:
    """A clock that stands some days behind the one that tests begin with."""
    clock = FrozenClock()
    clock.advance(timedelta(days=days))
    return clock


def _open_aged_engine(url: str, days: float) -> MemoryEngine:
    config = EngineConfig(optimizer=OptimizerConfig(lease_seconds=LEASE_SECONDS), learning=LearningConfig())
    return MemoryEngine(url, embedder=None, clock=create_clock(days), config=config)


def _die_at(store: Any, name: str, step: int, *, after: bool) -> None:
    real, calls = getattr(store, name), 0

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == step and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(store, name, dying)
