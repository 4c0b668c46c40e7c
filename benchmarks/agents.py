"""Benchmark of task memory: recording a cycle, rendering the task for a prompt, resuming after a restart.

For comparison, the text of each cycle is also added to a session, and inserted by bare sqlite3 with one commit per
row, in turn, so that all three use the same disk.

    python -m benchmarks.agents            a table
    python -m benchmarks.agents --json     one JSON object
    python -m benchmarks.agents --quick    fewer cycles

The exit code is 1 if a limit was missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from langmem_tiers import AgentAction, AgentMemory, MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CYCLES, QUICK = 10_000, 500
RECORD_MS, FORMAT_MS = 1.0, 10.0
"""Limits of the medians."""
TASK = "bench"
HOME = "https://shop.example.com"
_FORMAT_EVERY = 50
_WORDS = (
    "lamp chair table shelf drawer basket checkout voucher delivery address payment review rating filter colour size "
    "stock price discount footer header menu search result page image gallery button dialog cookie banner login"
).split()


def cycles(number: int) -> Iterator[tuple[str, AgentAction, str]]:
    """Thought, action and observation of an agent in a shop; one in ten extracts a text."""
    rng = random.Random(7)  # noqa: S311 - repeatable on purpose
    for index in range(number):
        words = " ".join(rng.choices(_WORDS, k=12))
        seen = " ".join(rng.choices(_WORDS, k=60))
        tool, about = ("click", {"selector": f"#{words.split()[0]}-{index}"})
        if index % 10 == 0:
            tool, about = "goto", {"url": f"{HOME}/{index}"}
        elif index % 10 == 5:
            tool, about = "extract_text", {"selector": "main", "n": str(index)}
        yield f"Now the {words}", AgentAction(tool, about), f"Page {index}: {seen}"


def run(number: int) -> dict[str, Any]:
    """Run all measurements and check the limits."""
    with tempfile.TemporaryDirectory(prefix="langmem-tiers-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'memory.db'}"
        with MemoryEngine(url, embedder=None) as engine:
            recorded, format_times, prompt = _record(engine, Path(folder) / "bare.db", number)
        with MemoryEngine(url, embedder=None) as engine:
            began = time.perf_counter()
            memory = AgentMemory(engine=engine, task=TASK)
            resume_ms = (time.perf_counter() - began) * 1000
            goes_on = memory.working.cycle_count == number and memory.format_for_prompt() == prompt
    record, bare = statistics.median(recorded["record"]), statistics.median(recorded["session_add"])
    return {
        "cycles": number,
        **{f"{name}_ms": _spread(times) for name, times in recorded.items()},
        "record_to_session_add": record / bare,
        "format_ms": _spread(format_times),
        "resume_ms": resume_ms,
        "limits": {
            f"record under {RECORD_MS:g} ms": record < RECORD_MS,
            f"format_for_prompt under {FORMAT_MS:g} ms": statistics.median(format_times) < FORMAT_MS,
            "the same prompt after a restart": goes_on,
        },
    }


def _record(
    engine: MemoryEngine, bare_file: Path, number: int
) -> tuple[dict[str, list[float]], list[float], str]:
    memory, session = AgentMemory(engine=engine, task=TASK), engine.session("bench", "alone")
    memory.start_task("Find what every lamp of the shop costs, and which of them are in stock")
    times: dict[str, list[float]] = {"record": [], "session_add": [], "sqlite": []}
    format_times: list[float] = []
    bare = _open_bare_database(bare_file)
    for index, (thought, action, seen) in enumerate(cycles(number)):
        text = f"{thought}\n{action.tool_name} {action.parameters_json}\n{seen}"
        times["record"].append(_timed(partial(memory.record_cycle, thought, action, seen)))
        times["session_add"].append(_timed(partial(session.add, "assistant", text)))
        times["sqlite"].append(_timed(partial(_insert, bare, text)))
        if index % _FORMAT_EVERY == _FORMAT_EVERY - 1:
            format_times.append(_timed(memory.format_for_prompt))
    bare.close()
    return times, format_times, memory.format_for_prompt()


def _open_bare_database(path: Path) -> sqlite3.Connection:
    # As safe as ours: a row is on the disk when its commit returns.
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE cycles (pk INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    return connection


def _insert(connection: sqlite3.Connection, text: str) -> None:
    connection.execute("INSERT INTO cycles (text) VALUES (?)", (text,))
    connection.commit()


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def _spread(times: list[float]) -> dict[str, float]:
    return {"p50": statistics.median(times), "p95": statistics.quantiles(times, n=20)[-1]}


def show(result: dict[str, Any]) -> None:
    """Print the results as a table."""
    table = Table(title="The memory of an agent")
    for heading in ("measure", "results"):
        table.add_column(heading)
    for name, value in result.items():
        if name != "limits":
            values = value if isinstance(value, dict) else {"": value}
            table.add_row(name, "  ".join(f"{key} {figure:.4g}".strip() for key, figure in values.items()))
    for name, holds in result["limits"].items():
        table.add_row(name, "holds" if holds else "MISSED")
    Console().print(table)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer cycles")
    options = parser.parse_args()
    result = run(QUICK if options.quick else CYCLES)
    if options.json:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        show(result)
    return 0 if all(result["limits"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
