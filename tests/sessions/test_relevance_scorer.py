"""Relevance as in the design document, from a start of 0.5."""

from __future__ import annotations

import pytest

from langmem_tiers import Role
from langmem_tiers.common.scorer import build_word_signal
from langmem_tiers.recall import Score, Scorer, Signal, Subject
from langmem_tiers.sessions import RELEVANCE_SIGNALS
from langmem_tiers.sessions.analysis import RELEVANCE_SCORER

PLAIN = "The garden gate was painted green."
"""Says nothing that counts, at any length."""

# At 20 hours of age the recency adds 0.1, so a text without signals scores 0.6.
AGE_HOURS = 20.0


def test_a_text_without_signals_is_scored_by_recency_only() -> None:
    assert RELEVANCE_SCORER.score(Subject(PLAIN, Role.USER, AGE_HOURS)) == Score(
        0.6, 0.5, (("recency", 0.1),)
    )


@pytest.mark.parametrize(
    ("age_hours", "value", "points"),
    [
        (0.0, 0.7, 0.2),
        (0.5, 0.7, 0.2),
        (1.0, 0.7, 0.2),
        (1.001, 0.6, 0.1),
        (12.0, 0.6, 0.1),
        (24.0, 0.6, 0.1),
        (24.001, 0.4, -0.1),
        (10_000.0, 0.4, -0.1),
    ],
)
def test_recency_is_by_hour_and_day(age_hours: float, value: float, points: float) -> None:
    assert RELEVANCE_SCORER.score(Subject(PLAIN, age_hours=age_hours)) == Score(
        value, 0.5, (("recency", points),)
    )


@pytest.mark.parametrize(
    ("text", "signal", "value"),
    [
        ("The garden gate reported an error.", "error", 0.75),
        ("The painting of the gate failed again.", "error", 0.75),
        ("The page is http://example.com/gate now.", "url", 0.7),
        ("The page is https://example.com/gate now.", "url", 0.7),
        ("The selector of the gate is painted green.", "selector", 0.7),
        ("The xpath of the gate is painted green.", "selector", 0.7),
        ("The password of the gate is painted on it.", "credential", 0.8),
        ("The credentials of the gate are gone.", "credential", 0.8),
        ("It is important that the gate is green.", "stressed", 0.75),
        ("It is critical that the gate is green.", "stressed", 0.75),
    ],
)
def test_each_content_signal_adds_its_points_alone(text: str, signal: str, value: float) -> None:
    score = RELEVANCE_SCORER.score(Subject(text, Role.USER, AGE_HOURS))
    assert score.value == value
    assert [name for name, _ in score.parts] == ["recency", signal]


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("The painting of the gate FAILED again.", "error"),
        ("The page is HTTPS://EXAMPLE.COM/GATE now.", "url"),
        ("The XPath of the gate is painted green.", "selector"),
        ("The PASSWORD of the gate is painted on it.", "credential"),
        ("It is Critical that the gate is green.", "stressed"),
        ("OK then we paint the gate green tomorrow.", "small talk"),
    ],
)
def test_case_is_ignored(text: str, signal: str) -> None:
    names = [name for name, _ in RELEVANCE_SCORER.score(Subject(text, Role.USER, AGE_HOURS)).parts]
    assert names == ["recency", signal]


@pytest.mark.parametrize(
    "text",
    [
        "The gate err and the fail of painting it.",
        "The http protocol of the gate is painted.",
        "The pass word of the garden gate is green.",
        "We select the path to the garden gate.",
    ],
)
def test_a_text_that_only_resembles_a_signal_gets_no_points(text: str) -> None:
    assert RELEVANCE_SCORER.score(Subject(text, Role.USER, AGE_HOURS)).parts == (("recency", 0.1),)


def test_a_signal_counts_once_however_often_its_words_occur() -> None:
    text = "An error, an error, and it failed, failed, failed with an error."
    assert RELEVANCE_SCORER.score(Subject(text, Role.USER, AGE_HOURS)).value == 0.75


@pytest.mark.parametrize(
    ("length", "value"),
    [(0, 0.4), (1, 0.4), (19, 0.4), (20, 0.6), (21, 0.6)],
)
def test_a_text_under_20_characters_loses_a_fifth(length: int, value: float) -> None:
    assert RELEVANCE_SCORER.score(Subject("x" * length, Role.USER, AGE_HOURS)).value == value


def test_surrounding_space_does_not_count_as_length() -> None:
    assert RELEVANCE_SCORER.score(Subject("   short one" + " " * 30, Role.USER, AGE_HOURS)).value == 0.4


@pytest.mark.parametrize("word", ["ok", "yes", "no", "sure", "thanks", "hi", "hello"])
@pytest.mark.parametrize(
    "rest", [" paint the gate green", ", paint the gate green", "! Paint the gate green"]
)
def test_a_text_that_starts_with_small_talk_loses_three_tenths(word: str, rest: str) -> None:
    score = RELEVANCE_SCORER.score(Subject(word + rest, Role.USER, AGE_HOURS))
    assert score == Score(0.3, 0.5, (("recency", 0.1), ("small talk", -0.3)))


@pytest.mark.parametrize(
    "text",
    [
        "notes about the garden gate",
        "Nobody painted the garden gate",
        "yesterday the gate was green",
        "history of the garden gate",
        "surely the gate will be green",
        "okra grows by the garden gate",
        "The answer for the gate is no",
        "We say hello to the garden gate",
    ],
)
def test_a_text_that_does_not_start_with_the_word_has_no_penalty(text: str) -> None:
    assert RELEVANCE_SCORER.score(Subject(text, Role.USER, AGE_HOURS)).value == 0.6


def test_space_before_small_talk_is_ignored() -> None:
    assert RELEVANCE_SCORER.score(Subject("\n  ok, paint the gate green", Role.USER, AGE_HOURS)).value == 0.3


@pytest.mark.parametrize(
    ("role", "value", "parts"),
    [
        (Role.USER, 0.6, ["recency"]),
        (Role.ASSISTANT, 0.6, ["recency"]),
        (None, 0.6, ["recency"]),
        (Role.SYSTEM, 0.7, ["recency", "role"]),
        (Role.TOOL, 0.75, ["recency", "role"]),
    ],
)
def test_systems_and_tools_count_more(role: Role | None, value: float, parts: list[str]) -> None:
    score = RELEVANCE_SCORER.score(Subject(PLAIN, role, AGE_HOURS))
    assert (score.value, [name for name, _ in score.parts]) == (value, parts)


def test_a_recent_url_reaches_the_promotion_threshold_exactly() -> None:
    assert RELEVANCE_SCORER.score(Subject("See https://example.com/login for it", Role.USER)).value == 0.8


@pytest.mark.parametrize(("age_hours", "value"), [(0.0, 0.2), (20.0, 0.1), (48.0, 0.0)])
def test_an_ok_is_below_the_minimum_relevance(age_hours: float, value: float) -> None:
    assert RELEVANCE_SCORER.score(Subject("ok", Role.USER, age_hours)).value == value


def test_a_score_is_at_most_1() -> None:
    everything = "Critical error: the password and the selector of https://example.com are gone"
    score = RELEVANCE_SCORER.score(Subject(everything, Role.TOOL))
    assert score.value == 1.0
    assert score.parts == (
        ("recency", 0.2),
        ("error", 0.15),
        ("url", 0.1),
        ("selector", 0.1),
        ("credential", 0.2),
        ("stressed", 0.15),
        ("role", 0.15),
    )


def test_a_score_is_at_least_0() -> None:
    score = RELEVANCE_SCORER.score(Subject("thanks", Role.USER, 100.0))
    assert score == Score(0.0, 0.5, (("recency", -0.1), ("short", -0.2), ("small talk", -0.3)))


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (Subject("See https://example.com/login for it"), "0.80 = 0.50 +0.20 recency +0.10 url"),
        (Subject("ok"), "0.20 = 0.50 +0.20 recency -0.20 short -0.30 small talk"),
        (Subject(PLAIN, Role.TOOL, 30.0), "0.55 = 0.50 -0.10 recency +0.15 role"),
    ],
)
def test_a_score_lists_its_parts(subject: Subject, text: str) -> None:
    assert str(RELEVANCE_SCORER.score(subject)) == text


def test_a_scorer_accepts_custom_signals() -> None:
    mine = Signal("shouting", lambda subject: 0.05 if subject.content.isupper() else 0.0)
    scorer = Scorer((*RELEVANCE_SIGNALS, mine))
    loud = scorer.score(Subject(PLAIN.upper(), Role.USER, AGE_HOURS))
    assert loud == Score(0.65, 0.5, (("recency", 0.1), ("shouting", 0.05)))
    assert scorer.score(Subject(PLAIN, Role.USER, AGE_HOURS)).value == 0.6


def test_a_signal_can_be_built_from_words() -> None:
    scorer = Scorer((build_word_signal("garden", 0.25, "gate", "hedge"),))
    assert scorer.score(Subject("The GATE")) == Score(0.75, 0.5, (("garden", 0.25),))
    assert scorer.score(Subject("The house")) == Score(0.5, 0.5, ())


def test_a_custom_scorer_does_not_change_the_default_signals() -> None:
    Scorer((*RELEVANCE_SIGNALS, build_word_signal("garden", 0.25, "gate")))
    assert RELEVANCE_SCORER.score(Subject(PLAIN, Role.USER, AGE_HOURS)).value == 0.6


@pytest.mark.parametrize(("base", "value"), [(0.0, 0.1), (0.3, 0.4), (0.95, 1.0), (-0.5, 0.0), (1.0, 1.0)])
def test_a_score_starts_at_a_custom_base(base: float, value: float) -> None:
    score = Scorer(RELEVANCE_SIGNALS, base=base).score(Subject(PLAIN, Role.USER, AGE_HOURS))
    assert score == Score(value, base, (("recency", 0.1),))


def test_a_scorer_without_signals_returns_its_base() -> None:
    assert Scorer((), base=0.25).score(Subject("anything")) == Score(0.25, 0.25, ())
