"""The frame of a retrieval benchmark: its command line, its engine, its tables."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from benchmarks.baselines import STEMS
from benchmarks.haystacks import EMBEDDERS, Memory, UnusableError, create_embedder
from benchmarks.retrieval import bootstrap_interval, wilson_interval
from langmem_tiers import LangmemTiersError, MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.retrieval import Interval

BASELINES = ("bm25", "dense", "recency")


@dataclass(frozen=True, slots=True)
class Options:
    """Settings from the command line."""

    data: Path
    embedder: str = "offline"
    backend: str | None = None
    json: bool = False

    @property
    def dialect(self) -> str:
        """The kind of database and nothing else of its URL."""
        scheme = urlsplit(self.backend or "sqlite://").scheme.partition("+")[0]
        return "postgresql" if scheme == "postgres" else scheme

    @contextlib.contextmanager
    def memory(self) -> Iterator[Memory]:
        """An engine on that database, or on a fresh SQLite file; what it ingests is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="langmem-tiers-bench-") as folder:
            url = self.backend or f"sqlite:///{Path(folder) / 'memory.db'}"
            try:
                engine = MemoryEngine(url, embedder=create_embedder(self.embedder))
            except LangmemTiersError as error:
                raise UnusableError(str(error)) from error
            with engine:
                memory = Memory(engine)
                try:
                    yield memory
                finally:
                    if self.backend:
                        memory.clear()


def run(
    about: str,
    data: str,
    measure: Callable[[Options], dict[str, Any]],
    show: Callable[[dict[str, Any], Console], None],
) -> None:
    """Read the command line, measure and print; exit code 2 for what cannot be used."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help=data)
    parser.add_argument("--embedder", choices=EMBEDDERS, default="offline", help="none: by words alone")
    parser.add_argument("--backend", metavar="URL", help="a fresh SQLite file, if left out")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = Options(**vars(parser.parse_args()))
    report(parser.prog, lambda: measure(options), show, as_json=options.json)


def report(
    command: str,
    measure: Callable[[], dict[str, Any]],
    show: Callable[[dict[str, Any], Console], None],
    *,
    as_json: bool,
) -> None:
    """Measure and print; exit code 2 for what cannot be used."""
    try:
        results = measure()
    except UnusableError as error:
        print(f"{command}: {error}", file=sys.stderr)
        sys.exit(2)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        show(results, Console())


def mean_by(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The mean under each key."""
    return {key: statistics.fmean(some) for key, some in values.items()}


def bootstrap_by(values: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """The interval of the mean under each key."""
    return {key: bootstrap_interval(some) for key, some in values.items()}


def wilson_by(values: Mapping[str, Sequence[bool]]) -> dict[str, Interval]:
    """The interval of the rate under each key."""
    return {key: wilson_interval(some) for key, some in values.items()}


def build_baseline_results(baselines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results of each baseline (None if it was not run), and whether BM25 stemmed its words."""
    results: dict[str, Any] = {name: baselines.get(name) for name in BASELINES}
    return {"baselines": {**results, "bm25": {**results["bm25"], "stemmed": STEMS}}}


def heading(benchmark: str, results: Mapping[str, Any]) -> str:
    """Description of the run: data, software and machine."""
    run_with = f"embedder {results['embedder']}, {results['backend']}"
    return f"{benchmark}, {results['questions']:,} questions, {run_with}"


def build_comparison_table(title: str, results: Mapping[str, Any], parts: Mapping[str, str]) -> Table:
    """Return a table of the engine with its intervals and the baselines, one line per key of each part.

    Args:
        title: Above the table.
        results: Results of the benchmark.
        parts: How a line is named, for each key of the results that is a part: ``{"recall": "recall@{}"}``.
    """
    table = empty_table(title, ("measure", "ours", "95 %", *BASELINES))
    table.caption = None if STEMS else "bm25 by plain words: snowballstemmer is not installed"
    for part, name in parts.items():
        for key, value in results[part].items():
            low, high = results["interval"][part][key]
            baselines = (results["baselines"][baseline] for baseline in BASELINES)
            cells = ("" if other is None else f"{other[part][key]:.3f}" for other in baselines)
            table.add_row(name.format(key), f"{value:.3f}", f"{low:.3f} to {high:.3f}", *cells)
        table.add_section()
    return table


def build_breakdown_table(title: str, groups: Mapping[str, Mapping[str, Any]], part: str) -> Table:
    """Return a table with one line per group of questions, with the keys of one part of the results."""
    keys = list(next(iter(groups.values()))[part])
    table = empty_table(title, ("group", "questions", *keys))
    for group, results in groups.items():
        table.add_row(group, f"{results['questions']:,}", *(f"{results[part][key]:.3f}" for key in keys))
    return table


def format_costs(results: Mapping[str, Any]) -> str:
    """Durations of recall and ingestion."""
    latency, ingest = results["latency_ms"], results["ingest"]
    return (
        f"recall: {latency['p50']:.1f} ms (p50), {latency['p95']:.1f} ms (p95). Ingest: "
        f"{results['ingest_per_second']:,.0f} messages/s with embedding; of {ingest['messages']:,} messages, "
        f"storing took {ingest['store_seconds']:.1f} s and embedding {ingest['embed_seconds']:.1f} s."
    )


def empty_table(title: str, headings: Sequence[str]) -> Table:
    """An empty one: names on the left, numbers on the right."""
    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table
