"""A long conversation under a small budget, with the optimizer on.

Three thousand messages go into a session with 8,000 tokens for its context, which is built after
every message. The optimizer runs every two minutes of the conversation's own clock. Half-way the
engine is closed and opened again. The baseline in the same run is what the whole conversation
would take.

    python -m benchmarks.replay                  a table
    python -m benchmarks.replay --json           one JSON object
    python -m benchmarks.replay --plot FILE      a picture of it (needs matplotlib)
    python -m benchmarks.replay --data DIR       real agent runs, one after the other
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.conversations import MadeUpConversation
from benchmarks.trajectories import load_runs
from langmem_tiers import ContentAwareCounter, EngineConfig, MemoryEngine, MessageDraft, TokenBudget
from langmem_tiers.testing import FrozenClock
from langmem_tiers.text.token_counting import count_draft
from langmem_tiers.tuning.models import RELEVANCE_RANGE, TRIGGER_RANGE, WINDOW_RANGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers import MemoryContext
    from langmem_tiers.tuning import TuningSnapshot

TOKENS = 8000
MESSAGES = 3000
SECONDS_PER_MESSAGE = 6
RUN_EVERY = 20  # messages: two minutes
BAND = (0.55, 0.75)


@dataclass
class Replay:
    """Observations by message and by run."""

    usage: list[float] = field(default_factory=list)
    total_tokens: list[int] = field(default_factory=list)
    snapshots: list[TuningSnapshot] = field(default_factory=list)
    context_seconds: list[float] = field(default_factory=list)
    over_budget: int = 0
    continued: bool = False
    """True if the parameters did not change with the restart."""

    def play(self, drafts: Iterable[MessageDraft], folder: Path, tokens: int = TOKENS) -> None:
        """Play the conversation with a restart in the middle."""
        todo = list(drafts)
        clock = FrozenClock()
        half = len(todo) // 2 // RUN_EVERY * RUN_EVERY
        config = EngineConfig(budget=TokenBudget.of(tokens))
        url = folder / "replay.db"
        with MemoryEngine(url, config=config, clock=clock) as engine:
            self._part(engine, clock, todo[:half], tokens)
            learned = engine.optimizer.parameters("replay")
        with MemoryEngine(url, config=config, clock=clock) as engine:
            self.continued = engine.optimizer.parameters("replay") == learned
            self._part(engine, clock, todo[half:], tokens)

    def _part(
        self, engine: MemoryEngine, clock: FrozenClock, drafts: list[MessageDraft], tokens: int
    ) -> None:
        session = engine.session("replay", "long")
        for number, draft in enumerate(drafts, start=1):
            added = session.add(draft)
            clock.advance(seconds=SECONDS_PER_MESSAGE)
            start = time.perf_counter()
            context = session.build_context(recall=False)
            self.context_seconds.append(time.perf_counter() - start)
            self.usage.append(context.usage)
            self.total_tokens.append((self.total_tokens[-1] if self.total_tokens else 0) + added.tokens)
            self.over_budget += _recount_tokens(context) > tokens
            if number % RUN_EVERY == 0:
                snapshot = engine.optimizer.run("replay")
                if snapshot is None:
                    sys.exit("another optimizer holds the lease on a database of our own")
                self.snapshots.append(snapshot)

    def summarize(self) -> dict[str, Any]:
        """The result in numbers."""
        usage = [snapshot.usage_after for snapshot in self.snapshots]
        outside = [index for index, value in enumerate(usage) if not BAND[0] <= value <= BAND[1]]
        settled = outside[-1] + 1 if outside else 0
        parameters = [snapshot.parameters for snapshot in self.snapshots]
        turns = sorted(self.context_seconds)
        return {
            "messages": len(self.usage),
            "runs": len(self.snapshots),
            "tokens_of_all_messages": self.total_tokens[-1],
            "over_budget": self.over_budget,
            "runs_in_band_once_reached": _share_in_band(usage),
            "settled_after_runs": settled,
            "usage_once_settled": [min(usage[settled:]), max(usage[settled:])]
            if settled < len(usage)
            else None,
            "in_range": all(
                TRIGGER_RANGE[0] <= p.compression_trigger <= TRIGGER_RANGE[1]
                and WINDOW_RANGE[0] <= p.full_message_window <= WINDOW_RANGE[1]
                and RELEVANCE_RANGE[0] <= p.min_relevance <= RELEVANCE_RANGE[1]
                for p in parameters
            ),
            "continued_after_restart": self.continued,
            "reverted": sum(snapshot.is_reverted for snapshot in self.snapshots),
            "parameters": asdict(parameters[-1]),
            "milliseconds_per_context": {
                "median": turns[len(turns) // 2] * 1000,
                "p95": turns[len(turns) * 95 // 100] * 1000,
            },
        }


def _recount_tokens(context: MemoryContext) -> int:
    # From the texts themselves, not from what was stored or claimed.
    counter = ContentAwareCounter()
    return 3 + sum(4 + count_draft(counter, message) for message in context.messages)


def _share_in_band(usage: list[float]) -> float:
    inside = [BAND[0] <= value <= BAND[1] for value in usage]
    first = inside.index(True) if True in inside else len(inside)
    return sum(inside[first:]) / max(1, len(inside) - first)


def plot(replay: Replay, target: Path) -> None:
    """Usage and parameters along the conversation."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - only for the picture
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install 'langmem-tiers[notebook]'")
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - after the choice of backend

    runs = [(index + 1) * RUN_EVERY for index in range(len(replay.snapshots))]
    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 6.4), sharex=True, height_ratios=(3, 2))
    above.axhspan(*BAND, color="#2a9d8f", alpha=0.13, label="target 0.65 ± 0.10")
    above.plot(replay.usage, color="#264653", linewidth=0.7, label="context, after each message")
    above.plot(
        runs,
        [s.usage_before for s in replay.snapshots],
        color="#e76f51",
        linewidth=1.0,
        label="as it would stand with the window asked for",
    )
    above.axhline(1.0, color="#9d0208", linewidth=1.0, linestyle="--", label="the budget: 8,000 tokens")
    above.set_ylim(0, 1.25)
    above.set_ylabel("share of the budget")
    total = replay.total_tokens[-1]
    above.set_title(f"{len(replay.usage):,} messages ({total:,} tokens) in a context of {TOKENS:,} tokens")
    above.legend(loc="lower right", fontsize=8, ncols=2)
    below.plot(
        runs, [s.parameters.compression_trigger for s in replay.snapshots], label="compression trigger"
    )
    below.plot(runs, [s.parameters.min_relevance for s in replay.snapshots], label="minimum relevance")
    below.set_ylim(0, 1)
    below.set_ylabel("trigger, relevance")
    right_axes = below.twinx()
    right_axes.plot(
        runs,
        [s.parameters.full_message_window for s in replay.snapshots],
        color="#6a4c93",
        label="messages shown in full (right)",
    )
    right_axes.set_ylim(0, 55)
    right_axes.set_ylabel("messages")
    lines = [*below.get_lines(), *right_axes.get_lines()]
    below.legend(lines, [str(line.get_label()) for line in lines], loc="upper right", fontsize=8, ncols=3)
    below.set_xlabel("messages")
    for axes in (above, below):
        axes.axvline(len(replay.usage) // 2, color="#888888", linewidth=0.8, linestyle=":")
    above.text(len(replay.usage) // 2, 1.17, " restart", fontsize=8, color="#666666")
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def main() -> None:
    """Replay and print; exit code 1 if the promise is not kept."""
    parser = argparse.ArgumentParser(description="A long conversation under a small budget.")
    parser.add_argument(
        "--data", type=Path, help="folder with *.jsonl, a run a line, in place of a made-up one"
    )
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument(
        "--length", type=float, default=1.0, help="how long made-up messages are, as a factor"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--plot", type=Path, help="write a picture (PNG)")
    options = parser.parse_args()
    if options.data is None:
        drafts: Iterable[MessageDraft] = MadeUpConversation(length=options.length).messages()
    else:
        drafts = (draft for run in load_runs(options.data) for draft in run.drafts)
    replay = Replay()
    with tempfile.TemporaryDirectory() as folder:
        replay.play(islice(drafts, options.messages), Path(folder))
    results = replay.summarize()
    if options.plot is not None:
        plot(replay, options.plot)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        _show(results)
    kept = not results["over_budget"] and results["in_range"] and results["continued_after_restart"]
    sys.exit(0 if kept and results["usage_once_settled"] is not None else 1)


def _show(results: dict[str, Any]) -> None:
    table = Table(title=f"A conversation under a budget of {TOKENS:,} tokens", show_header=False)
    for name, value in results.items():
        table.add_row(name.replace("_", " "), json.dumps(value))
    Console().print(table)


if __name__ == "__main__":
    main()
