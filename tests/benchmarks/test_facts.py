from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks import facts
from benchmarks.facts import Pair
from langmem_tiers.retrieval.kinship import Kinship
from langmem_tiers.retrieval.offline import OfflineEmbedder
from langmem_tiers.scoring.statements import Verdict


@pytest.mark.soak
def test_the_benchmark_prints_figures_beside_their_baselines() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.facts", "--json"], capture_output=True, text=True, check=False
    )
    assert child.returncode in (0, 1), child.stderr
    figures = json.loads(child.stdout)
    assert {"tuned", "checked", "all"} <= set(figures["sets"])
    assert set(figures["learned_from"]) == set(figures["sets"]) - {"all"}
    for found in figures["sets"].values():
        for judge in facts.JUDGES:
            for part in ("dedupe", "contradiction"):
                assert 0 <= found[judge][part]["precision"] <= 1
                assert found[judge][part]["right"] <= found[judge][part]["there"]
        assert found["ours"]["dedupe"]["recall"] > found["jaccard"]["dedupe"]["recall"]
    assert child.returncode == (0 if all(figures["ok"].values()) else 1)


def test_the_tuned_set_is_large_and_varied() -> None:
    pairs = facts.pairs_in(facts.FOLDER / "tuned.jsonl")
    counts = Counter(pair.verdict for pair in pairs)
    assert counts[Verdict.SAME] >= 80
    assert counts[Verdict.CONTRADICTS] >= 70
    assert counts[Verdict.DIFFERENT] >= 110
    assert len({(pair.old, pair.new) for pair in pairs}) == len(pairs)


def test_the_tuned_set_is_mostly_told_apart_and_never_at_the_cost_of_precision() -> None:
    pairs = facts.pairs_in(facts.FOLDER / "tuned.jsonl")
    found = facts.score(pairs, [facts.ours(pair) for pair in pairs])
    assert found["dedupe"]["precision"] >= facts.LIMITS["dedupe_precision"]
    # It holds pairs that nothing tells apart yet, to show what is missing.
    assert found["dedupe"]["recall"] >= 0.85
    assert found["contradiction"]["recall"] >= 0.85
    assert found["contradiction"]["precision"] >= facts.LIMITS["contradiction_precision"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["tuned", "checked"])
def test_no_verdict_on_our_own_sets_is_worse_than_different(name: str) -> None:
    pairs = facts.pairs_in(facts.FOLDER / f"{name}.jsonl")
    kin = Kinship(OfflineEmbedder().embed_documents)
    for judge in (facts.ours, facts.by_words(kin)):
        wrong = [
            (pair.old, pair.new, found)
            for pair in pairs
            if (found := judge(pair)) not in {pair.verdict, Verdict.DIFFERENT}
        ]
        assert wrong == []


def test_no_pair_stands_in_two_of_our_own_sets() -> None:
    tuned, checked = (
        {(pair.old, pair.new) for pair in facts.pairs_in(facts.FOLDER / f"{name}.jsonl")}
        for name in ("tuned", "checked")
    )
    assert not tuned & checked


def test_scores_count_what_is_right_what_is_found_and_what_is_there() -> None:
    pairs = [
        Pair("a", "b", verdict, "made up") for verdict in (Verdict.SAME, Verdict.SAME, Verdict.DIFFERENT)
    ]
    found = facts.score(pairs, [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME])["dedupe"]
    assert (found["right"], found["found"], found["there"]) == (1, 2, 2)
    assert found["precision"] == found["recall"] == pytest.approx(0.5)
