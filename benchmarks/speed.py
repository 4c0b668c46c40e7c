"""Benchmark of storing and reading messages compared with bare ``sqlite3`` in the same run.

The baseline writes *the same rows* into the same tables under the same pragmas with the
standard library's driver and nothing else: no ids made, no tokens counted, no checks, no
count of the session kept, no report. The full-text index is part of those rows; what they
cost without it is printed too, as ``no index``. Machines are noisy, so the sides take
turns and their medians are compared: read the ratios, not the milliseconds.

    python -m benchmarks.speed            a table
    python -m benchmarks.speed --json     one JSON object
    python -m benchmarks.speed --only recall    or storage, middleware, llamaindex
    python -m benchmarks.speed --only tenants   1,000 namespaces, 15 minutes
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.table import Table

from benchmarks import llamaindex_speed, middleware_speed, recall_speed
from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, MessageDraft, Session
from langmem_tiers.config import Durability

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
TEXT = (
    "We decided to move the ticket queue from Celery to PostgreSQL because the Redis box ran out of "
    "memory twice; the notes are at https://example.com/adr/{n} and Jonas deploys it on Thursday, port {n}."
)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measurement and its baseline."""

    unit: str
    ours: float
    baseline: float | None = None
    """Bare ``sqlite3`` with the same rows."""
    no_index: float | None = None
    """Bare ``sqlite3`` with the same rows, less the full-text index."""
    ratio: float | None = None
    """Ratio of the engine to the baseline."""
    ratio_no_index: float | None = None
    """Ratio of the engine, which keeps the index, to rows without an index."""
    limit: float | None = None
    """Limit of the ratio, or of the value itself if there is no baseline."""

    @property
    def ok(self) -> bool:
        """True if the limit is met."""
        return self.limit is None or (self.ours if self.ratio is None else self.ratio) <= self.limit


_ADAPTERS = {"middleware": middleware_speed, "llamaindex": llamaindex_speed}


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    parser.add_argument(
        "--only",
        choices=("storage", *_ADAPTERS, *recall_speed.PARTS),
        help="measure one part",
    )
    options = parser.parse_args()
    measures, recall, agents = {}, {}, dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="langmem-tiers-bench-") as folder:
        if options.only in (None, "storage"):
            measures = measure(Path(folder), 0.1 if options.quick else 1.0)
        if options.only in (None, *recall_speed.PARTS):
            recall = recall_speed.measure(Path(folder), only=options.only, quick=options.quick)
        for name, adapter in _ADAPTERS.items():
            if options.only in (None, name):
                agents[f"{name}_ms"] = adapter.measure(Path(folder), quick=options.quick)
    if options.json:
        print(json.dumps(_as_json(measures) | recall | agents, indent=2))
    else:
        _print(measures, recall, agents)
    if not all(m.ok for m in measures.values()) or not recall_speed.is_ok(recall | agents):
        sys.exit("a limit was exceeded")


def _print(measures: dict[str, Measure], recall: dict[str, Any], agents: dict[str, Any]) -> None:
    if measures:
        _show(measures)
    if recall:
        recall_speed.show(recall)
    for name, adapter in _ADAPTERS.items():
        if f"{name}_ms" in agents:
            adapter.show(agents[f"{name}_ms"])


def measure(folder: Path, scale: float) -> dict[str, Measure]:
    """Run all measurements."""
    few, many, long = (int(n * scale) for n in (200, 10_000, 100_000))
    session = _long_session(folder, long)
    return {
        "durable_add": _add_one_by_one(folder, few, Durability.FULL, limit=2.5),
        "normal_add": _add_one_by_one(folder, few, Durability.NORMAL, limit=None),
        "bulk_add": _add_bulk(folder, many, limit=3.0),
        "latest_30_cold": _read_latest(session, CacheConfig(max_characters=0)),
        "latest_30_cached": _read_latest(session, CacheConfig()),
    }


def _add_one_by_one(folder: Path, count: int, durability: Durability, limit: float | None) -> Measure:
    with _Sides(folder / f"one-{durability}", durability) as sides:
        return sides.compare(
            ours=lambda: [sides.session.add("user", _text(n)) for n in range(count)],
            bare=lambda side, rows: side.insert_one_by_one(rows),
            count=count,
            unit=("µs", 1e6 / count),
            limit=limit,
        )


def _add_bulk(folder: Path, count: int, limit: float) -> Measure:
    drafts = [MessageDraft("user", _text(n)) for n in range(count)]
    with _Sides(folder / "bulk", Durability.FULL) as sides:
        return sides.compare(
            ours=lambda: sides.session.add_many(drafts),
            bare=lambda side, rows: side.insert_many(rows),
            count=count,
            unit=("ms", 1e3),
            limit=limit,
        )


def _long_session(folder: Path, count: int) -> str:
    url = f"sqlite:///{folder / 'long.db'}"
    with MemoryEngine(url, config=EngineConfig(durability=Durability.NORMAL)) as engine:
        session = engine.session("bench", "long")
        for start in range(0, count, 10_000):
            stop = min(start + 10_000, count)
            session.add_many(MessageDraft("user", _text(n)) for n in range(start, stop))
    return url


def _read_latest(url: str, cache: CacheConfig) -> Measure:
    with MemoryEngine(url, config=EngineConfig(cache=cache)) as engine:
        session = engine.session("bench", "long")
        session.latest(30)
        samples = [_seconds(lambda: session.latest(30)) for _ in range(100)]
    return Measure(unit="ms", ours=statistics.median(samples) * 1e3, limit=2.0)


class _Sides:
    """The engine, and bare drivers on tables like its own."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        folder.mkdir()
        config = EngineConfig(durability=durability)
        self._engine = MemoryEngine(f"sqlite:///{folder / 'ours.db'}", config=config)
        self.session = self._engine.session("bench", "ours")
        self._bare = [_Bare(folder / f"bare-{n}.db", durability) for n in range(2)]
        self._bare[1].drop_full_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()
        for side in self._bare:
            side.close()

    def compare(
        self,
        *,
        ours: Callable[[], object],
        bare: Callable[[_Bare, list[_Row]], object],
        count: int,
        unit: tuple[str, float],
        limit: float | None,
    ) -> Measure:
        name, scale = unit
        seconds: list[list[float]] = [[], [], []]
        for turn in range(ROUNDS + 1):
            taken = [_seconds(ours)]
            for side in self._bare:
                rows = side.rows(count)
                taken.append(_seconds(lambda side=side, rows=rows: bare(side, rows)))  # type: ignore[misc] # bound now
            if turn:  # the first one warms up
                for samples, sample in zip(seconds, taken, strict=True):
                    samples.append(sample)
        mine, baseline, no_index = (statistics.median(samples) * scale for samples in seconds)
        return Measure(
            unit=name,
            ours=mine,
            baseline=baseline,
            no_index=no_index,
            ratio=mine / baseline,
            ratio_no_index=mine / no_index,
            limit=limit,
        )


_Row = tuple[object, ...]


class _Bare:
    """The standard library's driver on a database that the engine made."""

    def __init__(self, path: Path, durability: Durability) -> None:
        with MemoryEngine(f"sqlite:///{path}") as engine:
            session = engine.session("bench", "bare")
            self._like = _row_of(path, session)
            self._key = session.info().key
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute(f"PRAGMA synchronous = {durability.name}")
        columns = list(self._like)
        self._insert = (
            f"INSERT INTO lmt_messages ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        )
        self._made = 0

    def drop_full_text(self) -> None:
        self._db.execute("DROP TRIGGER lmt_messages_terms_add")

    def rows(self, count: int) -> list[_Row]:
        """Rows such as the engine writes, each with an id of its own."""
        rows = []
        for n in range(count):
            self._made += 1
            own = {
                "session_pk": self._key,
                "position": self._made * 2 + 2,
                "id": f"0{self._made:08}-{self._made * 7919:016x}",
                "content": _text(n),
            }
            rows.append(tuple({**self._like, **own}.values()))
        return rows

    def insert_one_by_one(self, rows: list[_Row]) -> None:
        for row in rows:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(self._insert, row)
            self._db.execute("COMMIT")

    def insert_many(self, rows: list[_Row]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(self._insert, rows)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


def _row_of(path: Path, session: Session) -> dict[str, object]:
    session.add("user", _text(0))
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    row = dict(db.execute("SELECT * FROM lmt_messages").fetchone())
    db.close()
    del row["pk"]
    return row


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _text(n: int) -> str:
    return TEXT.format(n=n)


def _as_json(measures: dict[str, Measure]) -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "measures": {name: {**asdict(m), "ok": m.ok} for name, m in measures.items()},
    }


def _show(measures: dict[str, Measure]) -> None:
    table = Table(
        title="langmem-tiers compared with bare sqlite3, the same rows in the same run",
        caption="no index: bare and without full text, and how many times that ours is",
    )
    for heading in ("measure", "unit", "ours", "bare", "ratio", "limit", "no index"):
        table.add_column(heading, justify="left" if heading in {"measure", "unit"} else "right", no_wrap=True)
    for name, m in measures.items():
        limit = "" if m.limit is None else f"{m.limit:g}{' x' if m.ratio else ''}"
        table.add_row(
            name,
            m.unit,
            f"{m.ours:,.2f}",
            "" if m.baseline is None else f"{m.baseline:,.2f}",
            "" if m.ratio is None else f"{m.ratio:.2f}",
            limit if m.ok else f"[red]{limit}[/red]",
            "" if m.no_index is None else f"{m.no_index:,.2f} ({m.ratio_no_index:.1f} x)",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
