"""Growth of CPU time with the size of the input, on inputs that provoke slow code.

Each case is measured at a size n and at 4n. The growth exponent is log4 of the ratio of both times: 0 for
constant, 1 for linear and 2 for quadratic time. A case is flagged if its exponent exceeds its limit and the
time at 4n is long enough to be meaningful. The exit code is 1 if a case is flagged.

    python -m benchmarks.growth                 one row per group: the input that grows fastest
    python -m benchmarks.growth --json          one JSON object with every input
    python -m benchmarks.growth --only recall_query   one group, with a row per input
    python -m benchmarks.growth --scale 0.1     smaller inputs
"""

from __future__ import annotations

import argparse
import gc
import math
import platform
import sys
import time
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from benchmarks.growth_engines import EngineWork, engine_cases
from benchmarks.growth_lists import list_cases
from benchmarks.growth_texts import text_cases
from benchmarks.reporting import empty_table, report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from benchmarks.growth_cases import Case

    Timer = Callable[[Case[Any], int], float]

FACTOR = 4
TRIES = 3
ENOUGH_SECONDS = 0.2
"""A case is not run again after it took this long, with the time to build its input."""
MEANINGFUL_SECONDS = 0.05
"""Shorter times at 4n are noise and fixed costs: such a case is never flagged."""
SHORTEST_SECONDS = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case at both sizes."""

    name: str
    detail: str
    size: int
    unit: str
    seconds: float
    """CPU time at the size."""
    seconds_at_4n: float
    limit: float

    @property
    def ratio(self) -> float:
        """Time at 4n divided by time at n."""
        return max(self.seconds_at_4n, SHORTEST_SECONDS) / max(self.seconds, SHORTEST_SECONDS)

    @property
    def exponent(self) -> float:
        """The power of the size with which the time grows."""
        return math.log(self.ratio, FACTOR)

    @property
    def is_flagged(self) -> bool:
        """True if the time grows too fast."""
        return self.seconds_at_4n >= MEANINGFUL_SECONDS and self.exponent > self.limit

    @property
    def microseconds_per_item(self) -> float:
        """Time per character, entry or call at 4n."""
        return self.seconds_at_4n / (FACTOR * self.size) * 1e6


def all_cases() -> list[Case[Any]]:
    """Return every case, grouped by name."""
    cases = [*text_cases(), *list_cases(), *engine_cases()]
    places = {name: index for index, name in enumerate(dict.fromkeys(case.name for case in cases))}
    return sorted(cases, key=lambda case: places[case.name])


def measure_case(case: Case[Any], scale: float = 1.0, timer: Timer | None = None) -> CaseResult:
    """Measure one case at both sizes. A flagged result is measured again before it counts.

    Args:
        case: The function and its input.
        scale: Factor on the size.
        timer: Returns the seconds that a case takes at a size. Default: the best CPU time of a few runs.
    """
    seconds = timer or best_cpu_seconds
    size = max(1, round(case.size * scale))
    found = _build_result(case, size, seconds(case, size), seconds(case, FACTOR * size))
    if found.is_flagged:
        again = _build_result(case, size, seconds(case, size), seconds(case, FACTOR * size))
        found = min(found, again, key=lambda result: result.exponent)
    return found


def _build_result(case: Case[Any], size: int, small: float, large: float) -> CaseResult:
    return CaseResult(
        name=case.name,
        detail=case.detail,
        size=size,
        unit=case.unit,
        seconds=small,
        seconds_at_4n=large,
        limit=case.limit,
    )


def best_cpu_seconds(case: Case[Any], size: int) -> float:
    """Return the shortest CPU time of a few runs."""
    best, start = math.inf, time.thread_time()
    for _ in range(TRIES):
        best = min(best, cpu_seconds(case, size))
        if time.thread_time() - start > ENOUGH_SECONDS:
            break
    return best


def cpu_seconds(case: Case[Any], size: int) -> float:
    """Return the CPU time of one run, without garbage collection."""
    work_input = case.build(size)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.thread_time()
        case.call(work_input)
        return time.thread_time() - start
    finally:
        if was_enabled:
            gc.enable()
        if isinstance(work_input, EngineWork):
            work_input.close()


def measure(cases: Sequence[Case[Any]], scale: float = 1.0, timer: Timer | None = None) -> dict[str, Any]:
    """Measure all cases. The arguments are those of `measure_case`."""
    rows = [measure_case(case, scale, timer) for case in cases]
    return {
        "python": platform.python_version(),
        "scale": scale,
        "cases": [as_row(row) for row in rows],
        "flagged": [f"{row.name}: {row.detail}" for row in rows if row.is_flagged],
    }


def as_row(result: CaseResult) -> dict[str, Any]:
    """Return a measured case with its derived values."""
    names = ("ratio", "exponent", "microseconds_per_item", "is_flagged")
    return asdict(result) | {name: getattr(result, name) for name in names}


def find_worst_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row that grows fastest among those with a meaningful time, or else the slowest row."""
    meaningful = [row for row in rows if row["seconds_at_4n"] >= MEANINGFUL_SECONDS]
    if meaningful:
        return max(meaningful, key=lambda row: (row["is_flagged"], row["exponent"]))
    return max(rows, key=lambda row: row["seconds_at_4n"])


def main() -> None:
    """Measure and print. The exit code is 1 if a case is flagged."""
    cases = all_cases()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--only",
        choices=tuple(dict.fromkeys(case.name for case in cases)),
        metavar="NAME",
        help="measure one group",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all sizes. Default: 1")
    options = parser.parse_args()
    chosen = [case for case in cases if options.only in (None, case.name)]
    results = measure(chosen, options.scale)
    report(
        parser.prog,
        lambda: results,
        lambda found, console: _show(found, console, is_whole=bool(options.only)),
        as_json=options.json,
    )
    sys.exit(1 if results["flagged"] else 0)


def _show(results: dict[str, Any], console: Console, *, is_whole: bool) -> None:
    headings = (
        "case",
        "inputs",
        "worst input",
        "n",
        "s at n",
        "s at 4n",
        "ratio",
        "exponent",
        "limit",
        "µs per item",
    )
    table = empty_table("Growth of CPU time from n to 4n", headings)
    for name, group in groupby(results["cases"], key=lambda row: row["name"]):
        rows = list(group)
        for row in rows if is_whole else [find_worst_row(rows)]:
            table.add_row(name, str(len(rows)), *_cells(row))
    console.print(table)
    flagged = results["flagged"]
    console.print("\n".join(["Flagged:", *flagged]) if flagged else "Nothing is flagged.", markup=False)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    is_meaningful = row["seconds_at_4n"] >= MEANINGFUL_SECONDS
    exponent = f"{row['exponent']:.2f}" if is_meaningful else f"({row['exponent']:.2f})"
    return (
        row["detail"].replace("[", "\\["),
        f"{row['size']:,} {row['unit']}",
        f"{row['seconds']:.4f}",
        f"{row['seconds_at_4n']:.4f}",
        f"{row['ratio']:.2f}",
        f"[red]{exponent}[/red]" if row["is_flagged"] else exponent,
        f"{row['limit']:g}",
        f"{row['microseconds_per_item']:.3f}",
    )


if __name__ == "__main__":
    main()
