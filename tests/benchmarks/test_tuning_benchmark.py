from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks import locomo, longmemeval, tuning
from benchmarks.haystacks import UnusableError
from benchmarks.listwise import RankingExample, fit, sort_best_first
from benchmarks.reporting import Options
from benchmarks.tuning import Settings
from langmem_tiers.recall import execution
from langmem_tiers.recall.ranking import Weights
from tests.retrieval_files import locomo_sample, longmemeval_sample

if TYPE_CHECKING:
    from pathlib import Path


def conversation(number: int) -> dict[str, Any]:
    """The same talk with another question each time, so that each asks for other weights."""
    sample = locomo_sample()
    wrong = ["D1:4", "D2:4", "D1:2"][number]
    more = {"question": "What did Ben say of the kayak?", "evidence": [wrong], "category": 4}
    return {**sample, "sample_id": f"made-up-{number}", "qa": [*sample["qa"], more]}


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def three(tmp_path: Path) -> Path:
    return written(tmp_path / "three.json", [conversation(number) for number in range(3)])


def choices_by(weights: list[float], count: int) -> list[RankingExample]:
    """Questions whose answers were drawn with the chances that these weights give."""
    rng = np.random.default_rng(5)
    made = []
    for _ in range(count):
        signals = rng.normal(size=(20, len(weights)))
        chances = np.exp(signals @ np.array(weights))
        made.append(RankingExample(signals, rng.choice(20, size=1, p=chances / chances.sum())))
    return made


def test_a_fit_recovers_the_weights_of_generated_answers() -> None:
    weights = [2.0, -1.0, 0.0]
    assert fit(choices_by(weights, 3000), 1e-6) == pytest.approx(weights, abs=0.1)


def test_large_weights_cost_more_the_larger_l2_is() -> None:
    choices = choices_by([3.0, 1.0], 200)
    sizes = [float(np.abs(fit(choices, l2)).sum()) for l2 in (1e-4, 1e-2, 1.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < sizes[0] / 2


def test_a_signal_that_explains_all_answers_stays_bounded() -> None:
    example = RankingExample(np.array([[1.0], [0.0], [0.0]]), np.array([0]))
    assert 1 < fit([example], 1e-3)[0] < 20


def test_equal_scores_are_sorted_newest_first() -> None:
    assert sort_best_first(np.array([1.0, 2.0, 1.0, 2.0])).tolist() == [3, 1, 2, 0]


def test_each_part_is_measured_with_weights_that_have_not_seen_it(three: Path, tmp_path: Path) -> None:
    two = written(tmp_path / "two.json", [conversation(0), conversation(1)])
    of_three = tuning.measure(Settings(locomo=three, embedder="none"))
    of_two = tuning.measure(Settings(locomo=two, embedder="none"))
    assert of_three["weights"]["left_out"][2] == pytest.approx(of_two["weights"]["fitted"], abs=1e-6)
    assert of_three["weights"]["left_out"][2] != pytest.approx(of_three["weights"]["fitted"], abs=1e-2)


@pytest.mark.soak
def test_the_tuning_signals_match_the_benchmark_measures(three: Path, tmp_path: Path) -> None:
    asked = written(tmp_path / "asked.json", [longmemeval_sample(f"q{n}") for n in range(4)])
    figures = tuning.measure(Settings(locomo=three, longmemeval=asked, embedder="hash"))
    recall = locomo.measure(Options(three, "hash"))["recall"]
    found = longmemeval.measure(Options(asked, "hash"))
    assert (
        figures["figures"]["code"]
        == figures["figures"]["recall"]
        == {
            **{f"LoCoMo recall@{k}": share for k, share in recall.items()},
            "LongMemEval turn all@10": found["turn"]["all@10"],
            "LongMemEval session all@5": found["session"]["all@5"],
        }
    )
    assert 0 < recall["5"] < 1
    assert figures["questions"] == {"LoCoMo": 12, "LongMemEval": 4}
    assert figures["weights"]["code"] == asdict(Weights())


def test_scores_that_differ_from_recall_are_reported(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "WEIGHTS", Weights(near=-9, wide=-9, session=-9))
    with pytest.raises(AssertionError, match="not those that recall weighs"):
        tuning.measure(Settings(locomo=three, embedder="none"))


def test_unusable_files_and_numbers_are_refused(three: Path, tmp_path: Path) -> None:
    one = written(tmp_path / "one.json", [conversation(0)])
    with pytest.raises(UnusableError, match="takes two or more"):
        tuning.measure(Settings(locomo=one))
    for share, l2 in ((0.0, 1e-3), (1.5, 1e-3), (0.5, 0.0)):
        with pytest.raises(UnusableError, match="--share"):
            tuning.measure(Settings(locomo=three, share=share, l2=l2))


@pytest.mark.soak
def test_the_command_prints_tables_and_json(three: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.tuning", "--locomo", str(three), "--embedder", "none"]
    printed = [
        subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
        for more in ([], ["--json"])
    ]
    assert "left out" in printed[0]
    assert set(json.loads(printed[1])["weights"]["fitted"]) == set(asdict(Weights()))
