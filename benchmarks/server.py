"""Benchmark of the HTTP server compared with in-process calls in the same run.

A real server process is called over loopback. Recalls are sent at a fixed rate, whether earlier ones were answered or
not. Times start when a recall is due, so that waiting behind a slow one counts. The baselines are the same questions to
the engine in this process, one after the other, and ``/health`` at the same rate; for the timeline, the bare page of
the record. A real browser is timed as well, until it draws the first rows of the page.
``python -m benchmarks.server --json`` prints the results as one object.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from rich.console import Console
from rich.table import Table

from benchmarks import recall_speed
from benchmarks.browsers import open_browser
from langmem_tiers import EngineConfig, MemoryEngine
from langmem_tiers.config import Durability
from langmem_tiers.testing.threads import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

RATE, P95_MS, TIMELINE_SECONDS = 50, 100.0, 1.0
CLIENTS = 16
_SPACE = "bench"


def main() -> int:
    """Measure, print, and say by the exit code whether all limits were kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    arguments = parser.parse_args()
    part = 10 if arguments.quick else 1
    with tempfile.TemporaryDirectory() as folder:
        results = {
            "recall": recalls(Path(folder) / "recall.db", 10_000 // part, 10 // min(part, 5)),
            "timeline": timeline(Path(folder) / "timeline.db", 100_000 // part),
        }
    if arguments.json:
        print(json.dumps(results))
    else:
        _show(results)
    return 0 if all(result["ok"] for result in results.values()) else 1


def recalls(path: Path, entries: int, seconds: int) -> dict[str, Any]:
    """Measure recalls at a fixed rate, over a number of messages."""
    recall_speed.fill(path, [_SPACE], entries)
    queries = [query for seed in range(seconds) for query in recall_speed.questions(_SPACE, entries, seed)]
    queries = queries[: RATE * seconds]
    with MemoryEngine(path) as engine:
        space = engine.namespace(_SPACE)
        space.recall("the first one reads the index")
        bare = [_timed(lambda query=query: space.recall(query, limit=10)) for query in queries]  # type: ignore[misc]
    with _serve(path) as port:
        warm = _Client(port)
        warm.ask("POST", "/recall", {"namespace": _SPACE, "query": "the first one reads the index"})
        ours = _send_at_rate(
            port,
            [("POST", "/recall", {"namespace": _SPACE, "query": query, "limit": 10}) for query in queries],
        )
        health = _send_at_rate(port, [("GET", "/health", None)] * len(queries))
    p95 = _percentile(ours, 95)
    return {
        "messages": entries,
        "rate": RATE,
        "requests": len(ours),
        "p50_ms": _percentile(ours, 50),
        "p95_ms": p95,
        "max_ms": max(ours),
        "in_process_p50_ms": _percentile(bare, 50),
        "in_process_p95_ms": _percentile(bare, 95),
        "health_p95_ms": _percentile(health, 95),
        "limit_ms": P95_MS,
        "ok": p95 < P95_MS,
    }


def timeline(path: Path, messages: int) -> dict[str, Any]:
    """The first page of the timeline of one long session, asked for the first time and again."""
    with MemoryEngine(path, config=EngineConfig(durability=Durability.NORMAL), embedder=None) as engine:
        session = engine.session(_SPACE, "long")
        for number in range(messages // recall_speed.PER_SESSION):
            session.add_many(recall_speed.make_messages(_SPACE, number), expect_new=True)
        bare = [_timed(lambda: session.page(limit=50)) for _ in range(5)]
    with _serve(path) as port, open_browser() as browser:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/inspector/#/knowledge?ns={_SPACE}")
        page.get_by_role("heading", level=1).wait_for()
        seen = [
            _measure_page(page, where)
            for where in ("session?s=long&ns=", "overview?ns=", "session?s=long&ns=")
        ]
    with _serve(path) as port:
        client = _Client(port)

        def first_page(**more: str) -> float:
            target = f"/sessions/long/timeline?{urlencode({'namespace': _SPACE, **more})}"
            return _timed(lambda: client.ask("GET", target))

        cold, warm = first_page(), [first_page() for _ in range(5)]
        small = [first_page(budget="8000") for _ in range(5)]
        overview = _timed(lambda: client.ask("GET", f"/overview?namespace={_SPACE}"))
    return {
        "messages": messages,
        "first_in_browser_seconds": seen[0] / 1000,
        "again_in_browser_seconds": seen[2] / 1000,
        "first_seconds": cold / 1000,
        "again_seconds": statistics.median(warm) / 1000,
        "budget_8000_seconds": statistics.median(small) / 1000,
        "overview_seconds": overview / 1000,
        "bare_page_seconds": statistics.median(bare) / 1000,
        "limit_seconds": TIMELINE_SECONDS,
        "ok": max(cold, seen[0]) / 1000 < TIMELINE_SECONDS,
    }


def _measure_page(page: Page, where: str) -> float:
    # Milliseconds from the click on a link until what it leads to is drawn.
    drawn = "article" if where.startswith("session") else "svg"

    def follow() -> None:
        page.evaluate("where => { location.hash = `#/${where}` }", where + _SPACE)
        page.locator(f"main {drawn}").first.wait_for()

    return _timed(follow)


class _Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path} was answered {answer.status}: {content[:300]!r}")


def _send_at_rate(port: int, requests: list[tuple[str, str, dict[str, Any] | None]]) -> list[float]:
    # Milliseconds from when each was due until its answer was there.
    start, taken, lock = time.perf_counter() + 0.2, [0.0] * len(requests), threading.Lock()
    numbers = iter(range(len(requests)))

    def work() -> None:
        client = _Client(port)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            due = start + number / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            client.ask(*requests[number])
            taken[number] = 1000 * (time.perf_counter() - due)

    run_in_threads(CLIENTS, work)
    return taken


@contextmanager
def _serve(path: Path) -> Iterator[int]:
    command = [sys.executable, "-u", "-m", "langmem_tiers", "serve", "-d", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own command
        assert process.stdout is not None  # noqa: S101 - piped above
        found = re.search(r":(\d+)/", process.stdout.readline())
        if found is None:
            raise RuntimeError("the server did not start")
        try:
            yield int(found[1])
        finally:
            process.terminate()


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def _show(results: dict[str, dict[str, Any]]) -> None:
    for name, result in results.items():
        table = Table(title=name)
        table.add_column("measure")
        table.add_column("value", justify="right")
        for what, value in result.items():
            table.add_row(what, f"{value:,.3f}" if isinstance(value, float) else str(value))
        Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
