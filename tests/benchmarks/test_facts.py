from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from benchmarks import facts
from benchmarks.facts import Pair
from langmem_tiers.long_term.conflicts.comparison import Verdict
from langmem_tiers.recall.embedders.vectors import WordSimilarity
from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.soak
def test_the_facts_benchmark_prints_figures_with_baselines() -> None:
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
    pairs = facts.load_pairs(facts.FOLDER / "tuned.jsonl")
    counts = Counter(pair.verdict for pair in pairs)
    assert counts[Verdict.SAME] >= 80
    assert counts[Verdict.CONTRADICTS] >= 70
    assert counts[Verdict.DIFFERENT] >= 110
    assert len({(pair.old, pair.new) for pair in pairs}) == len(pairs)


def check_tuned_set(name: str, judge: Callable[[Pair], Verdict]) -> None:
    pairs = facts.load_pairs(facts.FOLDER / "tuned.jsonl")
    verdicts = [judge(pair) for pair in pairs]
    wrong = [
        (pair.old, pair.new, verdict)
        for pair, verdict in zip(pairs, verdicts, strict=True)
        if verdict is not (Verdict.DIFFERENT if name in pair.missed else pair.verdict)
    ]
    assert wrong == []
    found = facts.score(pairs, verdicts)
    assert found["dedupe"]["precision"] >= facts.LIMITS["dedupe_precision"]
    assert found["dedupe"]["recall"] >= 0.85
    assert found["contradiction"]["recall"] >= 0.85
    assert found["contradiction"]["precision"] >= facts.LIMITS["contradiction_precision"]


def test_every_tuned_pair_is_judged_right_by_tables_unless_it_is_marked_as_missed() -> None:
    check_tuned_set("ours", facts.judge_statements)


def test_every_tuned_pair_is_judged_right_by_near_words_unless_it_is_marked_as_missed() -> None:
    check_tuned_set(
        "offline words", facts.build_word_judge(WordSimilarity(OfflineEmbedder().embed_documents))
    )


def test_wrong_verdicts_on_the_checked_set_are_only_different() -> None:
    pairs = facts.load_pairs(facts.FOLDER / "checked.jsonl")
    for judge in (
        facts.judge_statements,
        facts.build_word_judge(WordSimilarity(OfflineEmbedder().embed_documents)),
    ):
        wrong = [
            (pair.old, pair.new, found)
            for pair in pairs
            if (found := judge(pair)) not in {pair.verdict, Verdict.DIFFERENT}
        ]
        assert wrong == []


def test_no_pair_is_in_two_of_our_own_sets() -> None:
    tuned, checked = (
        {(pair.old, pair.new) for pair in facts.load_pairs(facts.FOLDER / f"{name}.jsonl")}
        for name in ("tuned", "checked")
    )
    assert not tuned & checked


def test_scores_count_right_found_and_existing_pairs() -> None:
    pairs = [
        Pair("a", "b", verdict, "made up") for verdict in (Verdict.SAME, Verdict.SAME, Verdict.DIFFERENT)
    ]
    found = facts.score(pairs, [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME])["dedupe"]
    assert (found["right"], found["found"], found["there"]) == (1, 2, 2)
    assert found["precision"] == found["recall"] == pytest.approx(0.5)
