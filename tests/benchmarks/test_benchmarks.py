from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import growth, recall_speed
from benchmarks.conversations import MadeUpConversation
from benchmarks.growth_cases import CONSTANT, LINEAR, Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEASURES = {"durable_add", "normal_add", "bulk_add", "latest_30_cold", "latest_30_cached"}


@pytest.mark.soak
def test_the_speed_benchmark_prints_figures_with_baselines() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", "--json", "--quick", "--only", "storage"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode in (0, 1), child.stderr  # 1: over a limit, which a busy machine may be
    printed = json.loads(child.stdout)
    assert "recall" not in printed
    figures = printed["measures"]
    assert set(figures) == MEASURES
    for figure in figures.values():
        assert figure["ours"] > 0
    for name in ("durable_add", "bulk_add"):
        figure = figures[name]
        assert figure["ratio"] == pytest.approx(figure["ours"] / figure["baseline"])
        assert figure["ok"] == (figure["ratio"] <= figure["limit"])


def run(*arguments: str) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-m", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert child.returncode in (0, 1), child.stderr
    figures: dict[str, Any] = json.loads(child.stdout)
    return figures


@pytest.mark.soak
def test_the_middleware_benchmark_measures_calls_that_remember() -> None:
    figures = run("benchmarks.speed", "--quick", "--only", "middleware")["middleware_ms"]
    assert (figures["remembered"], figures["calls"]) == (1_000, 60)
    assert min(figures["recall_p50"], figures["p50"]) > 0


@pytest.mark.soak
def test_the_llamaindex_benchmark_measures_turns_that_recall_once() -> None:
    figures = run("benchmarks.speed", "--quick", "--only", "llamaindex")["llamaindex_ms"]
    assert figures["stored"] == 1_000
    for part in (figures["across"], figures["within"]):
        assert (part["recalls_per_turn"], part["views_per_turn"]) == (1, 3)
        assert min(part["again_p50"], part["p50"]) > 0


@pytest.mark.soak
def test_the_recall_benchmark_prints_figures_with_baselines() -> None:
    figures = run("benchmarks.speed", "--quick", "--only", "recall")
    assert not figures["measures"]
    assert set(figures["recall"]) == {"1000"}
    size = figures["recall"]["1000"]
    assert size["bare_ms"] > 0
    assert 0 < size["p50_ms"] <= size["p95_ms"]
    assert size["ratio"] == pytest.approx(size["p50_ms"] / size["bare_ms"])
    assert figures["build_context_ms"]["p50"] > 0
    assert figures["memory_mb"]["before"] < figures["memory_mb"]["peak"]
    assert figures["tenants"]["same_ranking"]
    assert figures["memory_mb"]["peak"] < figures["memory_mb"]["limit"]


@pytest.mark.soak
def test_the_largest_number_of_tenants_is_measured_separately() -> None:
    figures = run("benchmarks.speed", "--quick", "--only", "tenants")
    assert figures["tenants"]["namespaces"] == 10
    assert figures["tenants"]["same_ranking"]
    assert "recall" not in figures


def test_recall_over_a_limit_is_not_ok() -> None:
    kept = {"recall": {"1000": {"ok": True}}, "memory_mb": {"peak": 1.0, "ok": True}}
    assert recall_speed.is_ok(kept)
    assert not recall_speed.is_ok({**kept, "tenants": {"ok": False}})


def test_generated_questions_differ_and_are_deterministic() -> None:
    asked = recall_speed.questions("one", 100, seed=1)
    assert len(set(asked)) == recall_speed.QUESTIONS
    assert asked == recall_speed.questions("one", 100, seed=1)
    assert not set(asked) & set(recall_speed.questions("one", 100, seed=2))


@pytest.mark.soak
def test_the_compression_benchmark_finds_every_fact_of_a_run_again(tmp_path: Path) -> None:
    drafts = list(islice(MadeUpConversation().messages(), 60))
    messages = [
        {
            "role": str(draft.role),
            "content": draft.content,
            "tool_calls": [
                {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
                for call in draft.tool_calls
            ],
            "tool_call_id": draft.tool_call_id,
        }
        for draft in drafts
    ]
    (tmp_path / "runs.jsonl").write_text(json.dumps({"id": "one", "messages": messages}))
    figures = run("benchmarks.compression", "--data", str(tmp_path))
    assert figures["per_message"]["messages"] == 60
    assert figures["per_message"]["longer_than_before"] == 0
    for part in (figures["per_message"], figures["whole_runs"]["35%"]):
        assert {kind: figure["survived"] for kind, figure in part["survival"].items()} == dict.fromkeys(
            part["survival"], 1.0
        )
    assert figures["whole_runs"]["20%"]["runs_over_the_limit"] == 0


@pytest.mark.soak
def test_a_folder_without_runs_is_named() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.compression", "--data", "/nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 1
    assert "'/nowhere' holds no *.jsonl files" in child.stderr


@pytest.mark.soak
def test_the_analysis_benchmark_finds_the_same_as_all_pairs() -> None:
    figures = run("benchmarks.analysis", "--quick")
    assert figures["redundancy"]["same_answer"]
    found = figures["redundancy"]
    assert found["times_faster"] == pytest.approx(found["all_pairs_seconds"] / found["seconds"])
    assert figures["analysis"]["megabytes"] < 300


@pytest.mark.soak
def test_the_replay_benchmark_respects_its_budget() -> None:
    figures = run("benchmarks.replay", "--messages", "200")
    assert figures["over_budget"] == 0
    assert figures["in_range"]


def growth_case(name: str, limit: float = LINEAR) -> Case[int]:
    return Case(name=name, detail="made up", size=1_000, build=int, call=str, limit=limit)


@pytest.mark.parametrize(
    ("seconds", "limit", "exponent", "is_flagged"),
    [
        (lambda n: n * n * 1e-7, LINEAR, 2.0, True),
        (lambda n: n * 1e-4, LINEAR, 1.0, False),
        (lambda n: n * 1e-4, CONSTANT, 1.0, True),
        (lambda _: 0.1, CONSTANT, 0.0, False),
        (lambda n: n * n * 1e-10, LINEAR, 2.0, False),  # too short to be meaningful
    ],
    ids=["quadratic", "linear", "linear instead of constant", "constant", "short"],
)
def test_the_growth_benchmark_flags_cases_above_their_limit(
    seconds: Callable[[int], float],
    limit: float,
    exponent: float,
    is_flagged: bool,  # noqa: FBT001 - a parameter
) -> None:
    figures = growth.measure([growth_case("made_up", limit)], timer=lambda _, size: seconds(size))
    (row,) = figures["cases"]
    assert row["exponent"] == pytest.approx(exponent)
    assert row["is_flagged"] is is_flagged
    assert figures["flagged"] == (["made_up: made up"] if is_flagged else [])


def test_the_growth_benchmark_measures_a_flagged_case_again() -> None:
    times = iter([0.1, 9.9, 0.1, 0.4])
    found = growth.measure_case(growth_case("noisy"), timer=lambda *_: next(times))
    assert not found.is_flagged
    assert found.ratio == pytest.approx(4)


def test_the_growth_benchmark_shows_the_flagged_input_of_a_group() -> None:
    seconds = {"slow": lambda n: n * 1e-3, "quadratic": lambda n: n * n * 1e-7}
    figures = growth.measure(
        [growth_case(name) for name in seconds], timer=lambda case, size: seconds[case.name](size)
    )
    assert growth.find_worst_row(figures["cases"])["name"] == "quadratic"


@pytest.mark.soak
def test_every_case_of_the_growth_benchmark_accepts_a_small_input() -> None:
    cases = growth.all_cases()
    assert len({(case.name, case.detail) for case in cases}) == len(cases)
    for case in cases:
        assert growth.cpu_seconds(case, max(4, case.size // 1_000)) > 0


@pytest.mark.soak
def test_the_growth_benchmark_prints_every_input_of_one_group_as_json() -> None:
    figures = run("benchmarks.growth", "--scale", "0.001", "--only", "objects_in")
    wanted = [case for case in growth.all_cases() if case.name == "objects_in"]
    assert [(row["name"], row["detail"]) for row in figures["cases"]] == [
        (case.name, case.detail) for case in wanted
    ]
    for row in figures["cases"]:
        assert (row["size"], row["unit"], row["limit"]) == (50, "characters", LINEAR)
        assert min(row["seconds"], row["seconds_at_4n"], row["ratio"]) > 0


@pytest.mark.soak
def test_the_growth_benchmark_prints_a_row_for_each_input_of_one_group() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", "--scale", "0.001", "--only", "sitemap"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert child.returncode in (0, 1), child.stderr
    assert [line.count("sitemap") for line in child.stdout.splitlines()].count(1) == 2
