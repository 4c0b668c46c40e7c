"""Benchmark of loop detection compared with the rule "the same action three times".

    python -m benchmarks.loops [--data DIR] [--runs FILE] [--json]

The labeled runs are synthetic (`benchmarks.loop_runs`): they show that the rules work as intended, not how
people would judge. ``--runs FILE`` measures your own labeled runs, one JSON object per
line: {"steps": [{"action": "click('a51')", "url": "...", "observation": "...", "failed": false}], "loops": true}.
``--data DIR`` replays real runs without labels and checks that every action done three times in a row is found.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.loop_runs import LabeledRun, made_up_runs
from benchmarks.loop_runs_held_out import HELD_OUT
from benchmarks.loop_runs_tuned import TUNED
from benchmarks.trajectories import Run, load_runs
from langmem_tiers.tasks.loop_detection.detector import Loop, LoopKind, Step, find_loops
from langmem_tiers.tasks.loop_detection.step_keys import build_step_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = tuple[str, int, int]
"""A tool, and the first and the last step of its repeats."""
SEED = 8
KINDS_OF_ONE_ACTION = {LoopKind.EXACT, LoopKind.NEAR, LoopKind.UNCHANGED, LoopKind.FAILURE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Agreement of a judge with the labels."""

    runs: int
    loops: int
    precision: float
    recall: float
    f1: float
    wrong: tuple[str, ...]
    """Names of the runs judged otherwise; ``+`` before those wrongly called loops."""


def judge_with_guard(steps: Sequence[Step]) -> bool:
    """The judge that is measured."""
    return find_loops(steps).is_loop


def judge_by_repeats(steps: Sequence[Step]) -> bool:
    """The baseline: the same action three times anywhere in the run, wherever it was done."""
    return max(Counter(build_step_key(step).action for step in steps).values(), default=0) >= 3


def compute_scores(judge: Callable[[Sequence[Step]], bool], runs: Sequence[LabeledRun]) -> Scores:
    """Compute the scores of a judge on labeled runs."""
    verdicts = [(run, judge(run.steps)) for run in runs]
    right = sum(1 for run, loops in verdicts if loops and run.loops)
    called = sum(1 for _, loops in verdicts if loops)
    loops = sum(1 for run in runs if run.loops)
    precision = right / called if called else 0.0
    recall = right / loops if loops else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    wrong = tuple(
        ("+" if called_loop else "-") + run.name for run, called_loop in verdicts if called_loop != run.loops
    )
    return Scores(runs=len(runs), loops=loops, precision=precision, recall=recall, f1=f1, wrong=wrong)


def load_labeled_runs(path: Path) -> list[LabeledRun]:
    """Load your own labeled runs; exit with a clear message if the file is invalid."""
    runs = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            read = json.loads(line)
            steps = tuple(_own_step(step) for step in read["steps"])
            runs.append(LabeledRun(str(read.get("id", number)), steps, bool(read["loops"])))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            sys.exit(
                f"line {number} of {str(path)!r} is no labelled run ({error!r}): see --help for the form"
            )
    return runs


def _own_step(step: dict[str, Any]) -> Step:
    return Step.of(
        step["action"],
        url=step.get("url") or "",
        observation=step.get("observation") or "",
        failed=bool(step.get("failed")),
    )


def steps_of(run: Run) -> list[Step]:
    """The tool calls of a real run with what each of them gave back."""
    steps: list[Step] = []
    waiting: list[Any] = []
    for draft in run.drafts:
        if draft.tool_calls:
            waiting = list(draft.tool_calls)
        elif draft.role == "tool" and waiting:  # by order: some of these runs use an id twice
            call = waiting.pop(0)
            arguments = {"name": call.name, "arguments": call.arguments}
            steps.append(Step.of(arguments, observation=str(draft.content)))
    return steps


def rows_of_three(steps: Sequence[Step]) -> list[Row]:
    """Each action done three times or more in a row, by brute force."""
    rows, at = [], 0
    for _, group in groupby(steps, key=_as_text):
        many = len(members := list(group))
        if many >= 3:
            rows.append((members[0].tool, at, at + many - 1))
        at += many
    return rows


def three_anywhere(steps: Sequence[Step]) -> list[Row]:
    """Each action done three times or more, in a row or not, by brute force."""
    places: dict[str, list[int]] = {}
    for at, step in enumerate(steps):
        places.setdefault(_as_text(step), []).append(at)
    return [(steps[found[0]].tool, found[0], found[-1]) for found in places.values() if len(found) >= 3]


def _as_text(step: Step) -> str:
    return json.dumps([step.tool, dict(step.parameters)], sort_keys=True)


def replay_runs(folder: Path) -> dict[str, Any]:
    """Return the findings in real runs, which have no labels."""
    runs = [steps_of(run) for run in load_runs(folder)]
    rows = repeated = missed = flagged = 0
    for steps in runs:
        report = find_loops(steps)
        flagged += report.is_loop
        in_a_row, anywhere = rows_of_three(steps), three_anywhere(steps)
        rows, repeated = rows + len(in_a_row), repeated + len(anywhere)
        missed += sum(
            1 for row in [*in_a_row, *anywhere] if not any(_covers(loop, row) for loop in report.loops)
        )
    return {
        "runs": len(runs),
        "steps": sum(len(steps) for steps in runs),
        "in_a_row": rows,
        "anywhere": repeated,
        "missed": missed,
        "flagged": flagged,
    }


def _covers(loop: Loop, row: Row) -> bool:
    tool, first, last = row
    return (
        loop.tool == tool and loop.first <= first and last <= loop.last and loop.kind in KINDS_OF_ONE_ACTION
    )


def compare_judges(runs: Sequence[LabeledRun]) -> dict[str, Scores]:
    """Compare the guard with the baseline on the same runs."""
    return {
        "guard": compute_scores(judge_with_guard, runs),
        "three_times": compute_scores(judge_by_repeats, runs),
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the results; return 1 if a row of equal actions in real runs was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with real runs as *.jsonl")
    parser.add_argument("--runs", type=Path, help="JSON Lines with labelled runs of your own")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    parts = {
        "made up, tuned on": compare_judges(list(made_up_runs(TUNED, SEED))),
        "made up, held out": compare_judges(list(made_up_runs(HELD_OUT, SEED))),
    }
    if options.runs:
        parts["your own"] = compare_judges(load_labeled_runs(options.runs))
    replay = replay_runs(options.data) if options.data else None
    if options.json:
        plain = {
            part: {judge: asdict(scores) for judge, scores in both.items()} for part, both in parts.items()
        }
        print(json.dumps({"figures": plain, "replay": replay}, indent=1))
    else:
        _print(parts, replay)
    return 1 if replay and replay["missed"] else 0


def _print(parts: dict[str, dict[str, Scores]], replay: dict[str, Any] | None) -> None:
    print("The labelled runs are synthetic unless they are your own: no person judged them.\n")
    for part, both in parts.items():
        for judge, scores in both.items():
            print(
                f"{part:18} {judge:12} {scores.runs:4} runs, {scores.loops:3} loops: "
                f"precision {scores.precision:.3f} recall {scores.recall:.3f} F1 {scores.f1:.3f}"
            )
    if replay:
        print(
            f"\nReal runs: {replay['runs']} with {replay['steps']} tool calls. The same call three times or more: "
            f"{replay['in_a_row']} in a row, {replay['anywhere']} anywhere; {replay['missed']} of them missed. "
            f"{replay['flagged']} runs flagged as loops."
        )


if __name__ == "__main__":
    raise SystemExit(main())
