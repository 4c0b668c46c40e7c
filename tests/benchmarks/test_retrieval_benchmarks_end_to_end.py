from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine
from tests.retrieval_files import locomo_sample, longmemeval_sample

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.soak  # each test starts a process that imports the engine
LEVELS = {"all@5", "all@10", "any@5", "any@10"}


@pytest.fixture
def conversations(tmp_path: Path) -> str:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([locomo_sample()]))
    return str(path)


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "longmemeval.json.gz"
    samples = [longmemeval_sample("q1"), longmemeval_sample("q2_abs"), longmemeval_sample("q3")]
    path.write_bytes(gzip.compress(json.dumps(samples).encode()))
    return str(path)


def run(command: str, data: str, *arguments: str) -> str:
    child = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command}", "--data", data, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


def figures_of(command: str, data: str, *arguments: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(run(command, data, *arguments, "--json"))
    return figures


@pytest.mark.parametrize("embedder", ["offline", "none", pytest.param("hash", marks=pytest.mark.smoke)])
def test_the_locomo_benchmark_finds_evidence_that_shares_its_words(conversations: str, embedder: str) -> None:
    figures = figures_of("locomo", conversations, "--embedder", embedder)
    assert figures["questions"] == 3
    assert figures["recall"] == {"5": 1.0, "10": 1.0, "20": 1.0}
    assert figures["recall_any"] == figures["recall_all"] == figures["recall"]
    assert set(figures["context"]) == {"500", "1000", "2000", "4000"}
    assert figures["context"]["4000"] == 1.0
    assert {key: group["questions"] for key, group in figures["by_category"].items()} == {"1": 1, "4": 2}
    assert (figures["embedder"], figures["backend"]) == (embedder, "sqlite")
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p95"]
    assert figures["ingest_per_second"] > 0


def test_the_locomo_baselines_are_of_the_same_run(conversations: str) -> None:
    baselines = figures_of("locomo", conversations, "--embedder", "hash")["baselines"]
    assert set(baselines) == {"bm25", "dense", "recency"}
    assert baselines["bm25"]["recall"]["5"] == 1.0
    assert baselines["dense"]["recall"]["10"] == 1.0  # eight turns
    assert baselines["recency"]["recall"] == pytest.approx({"5": 1 / 3, "10": 1.0, "20": 1.0})
    assert baselines["recency"]["context"]["500"] == 1.0


def test_without_an_embedder_there_is_no_dense_baseline(conversations: str, questions: str) -> None:
    for command, data in (("locomo", conversations), ("longmemeval", questions)):
        assert figures_of(command, data, "--embedder", "none")["baselines"]["dense"] is None


@pytest.mark.parametrize("embedder", ["offline", "none", "hash"])
def test_the_longmemeval_benchmark_finds_evidence_that_shares_its_words(
    questions: str, embedder: str
) -> None:
    figures = figures_of("longmemeval", questions, "--embedder", embedder)
    assert figures["questions"] == 2
    for level in ("session", "turn"):
        assert figures[level] == dict.fromkeys(LEVELS, 1.0)
        assert figures["baselines"]["bm25"][level] == dict.fromkeys(LEVELS, 1.0)
        assert figures["baselines"]["recency"][level] == dict.fromkeys(LEVELS, 1.0)  # five turns
    assert figures["by_type"]["single-session-user"]["questions"] == 2
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p95"]


def test_a_run_on_an_existing_database_leaves_no_data(
    conversations: str, questions: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'yours.db'}"
    with MemoryEngine(url) as engine:
        engine.session("yours", "s").add("user", "Mine.")
    for command, data in (("locomo", conversations), ("longmemeval", questions)):
        printed = run(command, data, "--backend", url, "--embedder", "none", "--json")
        assert "yours.db" not in printed
    with MemoryEngine(url) as engine:
        assert engine.namespaces() == (("yours",),)


def test_the_default_output_is_a_table(conversations: str, questions: str) -> None:
    assert "recall@5" in run("locomo", conversations)
    assert "session all@5" in run("longmemeval", questions)


def test_an_unusable_database_exits_with_2(conversations: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.locomo", "--data", conversations, "--backend", "oracle://host"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 2
    assert "unknown database type 'oracle'" in child.stderr
