"""Benchmark of long-term memory: consolidation, storing with comparison, search, learning from messages.

The baseline of consolidation is a plain JSON file: all memories are read, the decay
of each is computed and stored, old entries of low importance are marked, and the file is written again.

    python -m benchmarks.long_term            a table
    python -m benchmarks.long_term --json     one JSON object
    python -m benchmarks.long_term --quick    fewer memories

Each measurement runs in its own process. The exit code is 1 if a limit was missed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from langmem_tiers import EntryDraft, EntryKind, MemoryEngine
from langmem_tiers.common.decay import compute_decay_since
from langmem_tiers.testing import FrozenClock

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = 100, 100_000
FEW_MS, MANY_SECONDS = 100.0, 30.0
FLAT_MEGABYTES = 30.0
"""Maximum growth of peak memory when ten times as many entries are consolidated."""
FIND_MS = 5.0
OLD_DAYS = 50.0
"""Age of the older half; the other half is half as old, and too young to be archived."""
_AT_ONCE = 2000
_WORDS = (
    "alder basin cedar delta ember fjord grove harbour inlet jetty kiln lagoon meadow nectar orchard prairie quarry "
    "ridge summit tundra upland valley willow xylem yarrow zephyr anchor beacon canyon drift estuary forest glacier"
).split()


def statements(number: int) -> list[EntryDraft]:
    """Return facts, decisions and goals about things with distinct names."""
    rng = random.Random(11)  # noqa: S311 - repeatable on purpose
    kinds = list(EntryKind)
    return [
        EntryDraft(
            content=f"The {rng.choice(_WORDS)} {rng.choice(_WORDS)} service {index} takes {rng.randint(2, 900)} "
            f"{rng.choice(_WORDS)} units from {rng.choice(_WORDS)}.",
            kind=rng.choice(kinds),
            importance=round(rng.random(), 2),
        )
        for index in range(number)
    ]


def build_filled_engine(folder: Path, number: int, clock: FrozenClock) -> MemoryEngine:
    """Return an engine with a number of entries, half of them old."""
    engine = MemoryEngine(folder / "memory.db", clock=clock, embedder=None)
    drafts, long_term = statements(number), engine.namespace("bench").long_term
    for half in (drafts[: number // 2], drafts[number // 2 :]):
        for start in range(0, len(half), _AT_ONCE):
            long_term.store_many(half[start : start + _AT_ONCE], compared=True, trusted=True)
        clock.advance(days=OLD_DAYS / 2)
    return engine


def consolidate(number: int) -> dict[str, float]:
    """Measure the seconds of one consolidation and the growth of the process's memory."""
    with tempfile.TemporaryDirectory() as folder:
        clock = FrozenClock()
        with build_filled_engine(Path(folder), number, clock) as engine:
            before = _peak()
            began = time.perf_counter()
            report = engine.namespace("bench").consolidate()
            seconds = time.perf_counter() - began
            return {
                "seconds": seconds,
                "archived": report.memories_archived,
                "looked_at": report.looked_at,
                "megabytes_more": _peak() - before,
            }


def consolidate_file(number: int) -> dict[str, float]:
    """Baseline that reads and writes one JSON file."""
    clock = FrozenClock()
    now = clock.now()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long-term-memory.json"
        path.write_text(
            json.dumps(
                [_as_json(draft, index, number, now) for index, draft in enumerate(statements(number))]
            )
        )
        before = _peak()
        began = time.perf_counter()
        memories = json.loads(path.read_text())
        archived = 0
        for memory in memories:
            last = datetime.fromisoformat(memory["lastAccessedAt"])
            memory["decayFactor"] = compute_decay_since(last, memory["accessCount"], now)
            if last < now - timedelta(days=30) and memory["importance"] * memory["decayFactor"] < 0.3:
                memory["validUntil"] = now.isoformat()
                archived += 1
        path.write_text(json.dumps(memories))
        return {
            "seconds": time.perf_counter() - began,
            "archived": archived,
            "looked_at": number,
            "megabytes_more": _peak() - before,
        }


def _as_json(draft: EntryDraft, index: int, number: int, now: datetime) -> dict[str, Any]:
    then = now - timedelta(days=OLD_DAYS if index < number // 2 else OLD_DAYS / 2)
    return {
        "id": f"{index}",
        "type": draft.kind,
        "content": draft.content,
        "importance": draft.importance,
        "accessCount": 0,
        "lastAccessedAt": then.isoformat(),
        "validUntil": None,
    }


def store(number: int) -> dict[str, float]:
    """Measure milliseconds to store and compare one more entry, and to find one."""
    with tempfile.TemporaryDirectory() as folder:
        clock = FrozenClock()
        with build_filled_engine(Path(folder), number, clock) as engine:
            space = engine.namespace("bench")
            more = [draft.content.replace("service", "depot") for draft in statements(300)]
            space.long_term.store(more[0])  # this call loads the in-memory index
            stored = [_timed(partial(space.long_term.store, text)) for text in more[1:200]]
            found = [_timed(partial(space.long_term.search, text)) for text in more[200:]]
            return {"store_ms": statistics.median(stored), "find_ms": statistics.median(found)}


def learn(number: int) -> dict[str, float]:
    """Measure milliseconds per message, to store it and to store it and learn from it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryEngine(Path(folder) / "memory.db", embedder=None) as engine,
    ):
        alone, learning = engine.session("bench", "alone"), engine.session("bench", "learning")
        texts = [draft.content for draft in statements(number)]
        plain = [_timed(partial(alone.add, "user", text)) for text in texts]
        began = time.perf_counter()
        for index, text in enumerate(texts):
            learning.add("user", f"We decided: {text}" if index % 5 == 0 else text)
            learning.learn()
        return {
            "add_ms": statistics.mean(plain),
            "learn_ms": (time.perf_counter() - began) * 1000 / number,
        }


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


PARTS: dict[str, Callable[[int], dict[str, float]]] = {
    "consolidate": consolidate,
    "consolidate_file": consolidate_file,
    "store": store,
    "learn": learn,
}


def measure_in_process(part: str, number: int) -> dict[str, float]:
    """Run one measurement in its own process."""
    command = [sys.executable, "-m", "benchmarks.long_term", "--part", part, "--number", str(number)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
    found: dict[str, float] = json.loads(process.stdout)
    return found


def run(few: int, many: int) -> dict[str, Any]:
    """Run all measurements and check the limits."""
    result: dict[str, Any] = {
        f"{part}_{number}": measure_in_process(part, number)
        for number in (few, many // 10, many)
        for part in ("consolidate", "consolidate_file")
    }
    result |= {f"store_{number}": measure_in_process("store", number) for number in (few * 10, many // 10)}
    result["learn_500"] = measure_in_process("learn", 500)
    grown = (
        result[f"consolidate_{many}"]["megabytes_more"]
        - result[f"consolidate_{many // 10}"]["megabytes_more"]
    )
    result["megabytes_grown"] = grown
    result["limits"] = {
        "as many archived as by the file": all(
            result[f"consolidate_{number}"]["archived"] == result[f"consolidate_file_{number}"]["archived"]
            for number in (few, many // 10, many)
        ),
        f"{few} memories under {FEW_MS:g} ms": result[f"consolidate_{few}"]["seconds"] * 1000 < FEW_MS,
        f"{many} memories under {MANY_SECONDS:g} s": result[f"consolidate_{many}"]["seconds"] < MANY_SECONDS,
        "memory flat": grown < FLAT_MEGABYTES,
        f"finding among {few * 10} under {FIND_MS:g} ms": result[f"store_{few * 10}"]["find_ms"] < FIND_MS,
    }
    return result


def show(result: dict[str, Any]) -> None:
    """Print the results as a table."""
    table = Table(title="Long-term memory")
    for heading in ("measure", "results"):
        table.add_column(heading)
    for name, value in result.items():
        if name != "limits":
            values = value if isinstance(value, dict) else {"": value}
            table.add_row(name, "  ".join(f"{key} {number:.4g}" for key, number in values.items()))
    for name, holds in result["limits"].items():
        table.add_row(name, "holds" if holds else "MISSED")
    Console().print(table)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer memories")
    parser.add_argument("--part", choices=sorted(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=FEW, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        sys.stdout.write(json.dumps(PARTS[options.part](options.number)))
        return 0
    result = run(FEW, MANY // 20 if options.quick else MANY)
    if options.json:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        show(result)
    return 0 if all(result["limits"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
