"""Benchmark of memory analysis: redundancy compared with all pairs, and a whole analysis with its actions.

The baseline compares the word sets of every pair, as the design document describes it, in the same
run on the same texts, and must find the same redundant ones.

    python -m benchmarks.analysis            a table; all pairs of 10,000 take a minute or two
    python -m benchmarks.analysis --json     one JSON object
    python -m benchmarks.analysis --quick    fewer texts
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import random
import resource
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.sessions import find_redundant
from langmem_tiers.sessions.redundancy import are_duplicates, compute_fingerprint
from langmem_tiers.testing import FrozenClock

THRESHOLD = 0.9
SPEED_UP = 100
SECONDS, MEGABYTES = 2.0, 300.0
FLAT = 3.0  # how much more an entry may cost among a hundred times as many


def make_texts(number: int) -> list[str]:
    """Texts of 5 to 50 words with the word statistics of a language, some said again, some nearly so."""
    rng = random.Random(7)  # noqa: S311 - repeatable on purpose
    vocabulary = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(20_000)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(vocabulary))))
    made: list[str] = []
    for _ in range(number):
        chance = rng.random()
        if made and chance < 0.1:
            made.append(rng.choice(made))
        elif made and chance < 0.2:
            words = rng.choice(made).split()
            words[rng.randrange(len(words))] = rng.choice(vocabulary)
            made.append(" ".join(words))
        else:
            made.append(" ".join(rng.choices(vocabulary, cum_weights=weights, k=rng.randint(5, 50))))
    return made


def all_pairs(some: list[str]) -> set[int]:
    """Baseline: compare every text with every newer text."""
    prints = [compute_fingerprint(text) for text in some]
    found = set()
    for older, older_print in enumerate(prints):
        words = older_print.words
        for newer in range(older + 1, len(prints)):
            newer_words = prints[newer].words
            similarity = len(words & newer_words) / len(words | newer_words)
            if similarity >= THRESHOLD and are_duplicates(older_print, prints[newer], THRESHOLD):
                found.add(older)
                break
    return found


def measure_redundancy(compared: int, sizes: list[int]) -> dict[str, Any]:
    """Compare the engine with all pairs, and measure how the cost per entry grows."""
    some = make_texts(compared)
    start = time.perf_counter()
    ours = set(find_redundant(some, THRESHOLD))
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    theirs = all_pairs(some)
    baseline = time.perf_counter() - start
    growth = {}
    for size in sizes:
        many = make_texts(size)
        start = time.perf_counter()
        find_redundant(many, THRESHOLD)
        growth[str(size)] = (time.perf_counter() - start) / size * 1e6
    return {
        "entries": compared,
        "redundant": len(ours),
        "same_answer": ours == theirs,
        "seconds": seconds,
        "all_pairs_seconds": baseline,
        "times_faster": baseline / seconds,
        "microseconds_per_entry": growth,
    }


def measure_analysis(number: int) -> dict[str, Any]:
    """Analyze a session of the given size and apply the plan, in this process."""
    clock = FrozenClock()
    with MemoryEngine(clock=clock) as engine:
        session = engine.session("benchmark", "s")
        session.add_many(MessageDraft("user", text) for text in make_texts(number))
        clock.advance(timedelta(days=2))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        plan = session.analyze()
        analyzed = time.perf_counter() - start
        session.apply(plan)
        seconds = time.perf_counter() - start
    return {
        "entries": number,
        "actions": len(plan.actions),
        "seconds_analysis": analyzed,
        "seconds": seconds,
        "megabytes_before": before / 1024,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure(*, quick: bool) -> dict[str, Any]:
    """Run all measurements; the analysis in a separate process, so that its memory is measured alone."""
    child = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-m", "benchmarks.analysis", "--only-analysis", str(1000 if quick else 10_000)],
        capture_output=True,
        text=True,
        check=True,
    )
    sizes = [1000, 4000] if quick else [1000, 10_000, 100_000]
    results = {
        "python": platform.python_version(),
        "redundancy": measure_redundancy(1000 if quick else 10_000, sizes),
        "analysis": json.loads(child.stdout),
    }
    growth = list(results["redundancy"]["microseconds_per_entry"].values())
    results["ok"] = {
        "same_answer": results["redundancy"]["same_answer"],
        "times_faster": quick or results["redundancy"]["times_faster"] >= SPEED_UP,
        "flat": max(growth) <= FLAT * min(growth),
        "analysis_seconds": results["analysis"]["seconds"] < SECONDS,
        "analysis_megabytes": results["analysis"]["megabytes"] < MEGABYTES,
    }
    return results


def main() -> None:
    """Measure and print; exit code 1 over a limit."""
    parser = argparse.ArgumentParser(description="What analysing memory costs.")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer entries")
    parser.add_argument("--only-analysis", type=int, metavar="N", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_analysis:
        print(json.dumps(measure_analysis(options.only_analysis)))
        return
    results = measure(quick=options.quick)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        _show(results)
    sys.exit(0 if all(results["ok"].values()) else 1)


def _show(results: dict[str, Any]) -> None:
    found, analysis, ok = results["redundancy"], results["analysis"], results["ok"]
    table = Table(title="Analysing memory")
    for heading in ("measure", "ours", "baseline or limit", ""):
        table.add_column(heading)
    mark = {True: "ok", False: "[red]over[/red]"}
    table.add_row(
        f"redundancy of {found['entries']:,} entries",
        f"{found['seconds']:.2f} s",
        f"all pairs {found['all_pairs_seconds']:.1f} s, {found['times_faster']:.0f} times as long",
        mark[ok["times_faster"]],
    )
    table.add_row(
        "the same redundant ones",
        f"{found['redundant']:,}",
        str(found["same_answer"]),
        mark[ok["same_answer"]],
    )
    for size, cost in found["microseconds_per_entry"].items():
        table.add_row(f"an entry among {int(size):,}", f"{cost:.0f} µs", "about flat", mark[ok["flat"]])
    table.add_row(
        f"analysis and {analysis['actions']:,} actions, {analysis['entries']:,} entries",
        f"{analysis['seconds']:.2f} s",
        f"{SECONDS:g} s",
        mark[ok["analysis_seconds"]],
    )
    table.add_row(
        "memory of that process at its peak",
        f"{analysis['megabytes']:.0f} MB",
        f"{MEGABYTES:g} MB",
        mark[ok["analysis_megabytes"]],
    )
    Console().print(table)


if __name__ == "__main__":
    main()
