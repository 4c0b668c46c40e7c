"""Benchmark of compression on real agent runs: saved tokens and surviving facts.

Each message is compressed by itself, and each whole run is put into 20 % and 35 % of its tokens. A
fact survives if the compressed text contains it verbatim. Two tables of facts are used: the
engine's own, and a plain one that this file spells out for itself, so that a blind spot of the
first shows in the second. The baseline in the same run is the usual way out: the newest text that
fits.

    python -m benchmarks.compression --data DIR            tables
    python -m benchmarks.compression --data DIR --json     one JSON object
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.trajectories import Run, load_runs
from langmem_tiers import Compressor, ContentAwareCounter, EngineConfig, MemoryEngine, TokenBudget
from langmem_tiers.compression import FactFinder
from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.message_text import message_to_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers import Message

SHARES = (0.20, 0.35)
# What others would look for, written without a look at the engine's table.
PLAIN_FACTS = {
    "plain url": re.compile(r"https?://[\w./?=&%#:-]*\w"),
    "plain path": re.compile(r"(?<![\w:/<])/\w[\w.-]*(?:/[\w.-]*\w)+"),
    "plain file": re.compile(r"\b[\w-]+\.(?:py|json|md|txt|toml|yaml|parquet)\b"),
    "plain number": re.compile(r"\d{2,}"),
    "plain date": re.compile(r"\b\d{4}-\d\d-\d\d\b"),
    "plain money": re.compile(r"\$\d[\d,.]*\d"),
    "plain email": re.compile(r"[\w.]+@\w+\.\w+"),
    "plain error": re.compile(r"\b[A-Z]\w*(?:Error|Exception): [^\r\n`]{1,60}(?<=\w)"),
    "plain command": re.compile(r"(?m)^command: ((?:cd|python|pip|grep|find|git|ls|rm|pytest) [^\n]{1,150})"),
    "plain code": re.compile(r"(?<!`)(?:``[^`\n]{1,80}``|`[^`\n]{1,80}`)(?!`)"),
    "plain not": re.compile(r"\b(?:not|never|cannot) \w+ \w+"),
}


class Survival:
    """Counts, for each class, the facts there were and those that are left."""

    def __init__(self) -> None:
        self._there: Counter[str] = Counter()
        self._left: Counter[str] = Counter()

    def add(self, facts: Iterable[tuple[str, str]], text: str) -> None:
        """Count which of the facts the text holds."""
        for kind, fact in facts:
            self._there[kind] += 1
            self._left[kind] += fact in text

    def summarize(self) -> dict[str, dict[str, float]]:
        """For each class, how many there were and which share survived."""
        return {
            kind: {"facts": count, "survived": self._left[kind] / count}
            for kind, count in sorted(self._there.items())
        }


class Bench:
    """The engine's parts at work on runs."""

    def __init__(self) -> None:
        self.counter = ContentAwareCounter()
        self.finder = FactFinder()
        self.compressor = Compressor(self.counter, self.finder)

    def facts(self, text: str) -> list[tuple[str, str]]:
        """The facts of a text by both tables."""
        ours = [(str(fact.kind), fact.text) for fact in self.finder.find(text)]
        plain = {
            (kind, match[pattern.groups and 1])
            for kind, pattern in PLAIN_FACTS.items()
            for match in pattern.finditer(text)
        }
        return [*ours, *sorted(plain)]

    def per_message(self, runs: list[list[Message]]) -> dict[str, Any]:
        """Each message by itself."""
        messages = [message for run in runs for message in run]
        start = time.perf_counter()
        short = [self.compressor.compress_message(message) for message in messages]
        seconds = time.perf_counter() - start
        survival, baseline = Survival(), Survival()
        for before, after in zip(messages, short, strict=True):
            text, facts = message_to_text(after), self.facts(message_to_text(before))
            survival.add(facts, text)
            baseline.add(facts, self.newest(message_to_text(before), after.token_count))
        return {
            "messages": len(messages),
            "tokens_before": sum(message.token_count for message in messages),
            "tokens_after": sum(message.token_count for message in short),
            "longer_than_before": sum(
                len(message_to_text(after)) > len(message_to_text(before))
                for before, after in zip(messages, short, strict=True)
            ),
            "milliseconds_per_message": seconds / len(messages) * 1000,
            "survival": survival.summarize(),
            "baseline_survival": baseline.summarize(),
        }

    def whole_runs(self, runs: list[list[Message]], share: float) -> dict[str, Any]:
        """Each run in one text of that share of its tokens."""
        survival, baseline = Survival(), Survival()
        before = after = over = missing = 0
        seconds = 0.0
        for run in runs:
            tokens = sum(message.token_count for message in run)
            limit = int(tokens * share)
            start = time.perf_counter()
            summary = Digest.from_messages(run, self.finder).render(self.counter, limit)
            seconds += time.perf_counter() - start
            facts = list(
                dict.fromkeys(fact for message in run for fact in self.facts(message_to_text(message)))
            )
            survival.add(facts, summary.text)
            baseline.add(facts, self.newest("\n".join(message_to_text(message) for message in run), limit))
            before, after = before + tokens, after + summary.tokens
            over += summary.tokens > limit
            missing += len(summary.missing)
        return {
            "runs": len(runs),
            "share": share,
            "tokens_before": before,
            "tokens_after": after,
            "runs_over_the_limit": over,
            "facts_reported_missing": missing,
            "milliseconds_per_message": seconds / sum(map(len, runs)) * 1000,
            "survival": survival.summarize(),
            "baseline_survival": baseline.summarize(),
        }

    def newest(self, text: str, tokens: int) -> str:
        """Return the end of the text that fits the tokens."""
        low, high = 0, len(text)
        while low < high:
            middle = (low + high) // 2
            if self.counter.count(text[middle:]) > tokens:
                low = middle + 1
            else:
                high = middle
        return text[low:]


def live_contexts(runs: list[Run], share: float) -> dict[str, Any]:
    """Return what an agent sees at the end of each run, under a budget of that share of the run."""
    bench, survival = Bench(), Survival()
    tokens_after = over = 0
    for run in runs:
        with MemoryEngine() as measured:
            session = measured.session("benchmark", run.id)
            tokens = session.add_many(run.drafts).tokens
            messages = list(session.messages())
        budget = TokenBudget.of(max(1, int(tokens * share)))
        with MemoryEngine(config=EngineConfig(budget=budget)) as engine:
            session = engine.session("benchmark", run.id)
            session.add_many(run.drafts)
            context = session.build_context(recall=False)
        text = "\n".join(message_to_text(message) for message in context.messages)
        facts = dict.fromkeys(fact for message in messages for fact in bench.facts(message_to_text(message)))
        survival.add(facts, text)
        tokens_after += context.token_count
        over += context.token_count > budget.available
    return {
        "share": share,
        "tokens_after": tokens_after,
        "over_budget": over,
        "survival": survival.summarize(),
    }


def measure(runs: list[Run]) -> dict[str, Any]:
    """Run all measurements."""
    bench = Bench()
    with MemoryEngine() as engine:
        sealed = []
        for number, run in enumerate(runs):
            session = engine.session("benchmark", str(number))
            session.add_many(run.drafts)
            sealed.append(list(session.messages()))
    return {
        "python": platform.python_version(),
        "counter": bench.counter.name,
        "per_message": bench.per_message(sealed),
        "whole_runs": {f"{share:.0%}": bench.whole_runs(sealed, share) for share in SHARES},
        "live_contexts": {f"{share:.0%}": live_contexts(runs, share) for share in SHARES},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Fact survival of compression on real agent runs.")
    parser.add_argument("--data", type=Path, required=True, help="folder with *.jsonl, a run a line")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--runs", type=int, help="maximum number of runs per file")
    options = parser.parse_args()
    runs = load_runs(options.data)
    if options.runs:
        of_each = {
            source: [run for run in runs if run.source == source] for source in {r.source for r in runs}
        }
        runs = [run for source in sorted(of_each) for run in of_each[source][: options.runs]]
    results = measure(runs)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        _show(results)


def _show(results: dict[str, Any]) -> None:
    console = Console()
    parts: dict[str, dict[str, Any]] = {
        "each message": results["per_message"],
        **{f"whole runs at {share}": part for share, part in results["whole_runs"].items()},
    }
    table = Table(title="Facts that survive, word for word; in brackets the newest text of the same size")
    table.add_column("class")
    table.add_column("facts", justify="right")
    for name in parts:
        table.add_column(name, justify="right")
    for share in results["live_contexts"]:
        table.add_column(f"live context at {share}", justify="right")
    for kind, figure in results["per_message"]["survival"].items():
        cells = [
            f"{p['survival'][kind]['survived']:.3f} ({p['baseline_survival'][kind]['survived']:.2f})"
            for p in parts.values()
        ]
        live = [f"{p['survival'][kind]['survived']:.3f}" for p in results["live_contexts"].values()]
        table.add_row(kind, f"{figure['facts']:,}", *cells, *live)
    console.print(table)
    for name, part in parts.items():
        console.print(
            f"{name}: {part['tokens_before']:,} tokens before, {part['tokens_after']:,} after "
            f"({part['tokens_after'] / part['tokens_before']:.1%}), "
            f"{part['milliseconds_per_message']:.2f} ms a message"
        )


if __name__ == "__main__":
    main()
