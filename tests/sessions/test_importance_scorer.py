"""Importance as in the design document: base 0.5, content, tool results, recency and access."""

from __future__ import annotations

import pytest

from langmem_tiers import Role
from langmem_tiers.recall import Score, Subject
from langmem_tiers.sessions.analysis import IMPORTANCE_SCORER

PLAIN = "The garden gate was painted green."
OLD_HOURS = 1000.0  # no recency left


def test_an_old_text_without_signals_has_the_base_score() -> None:
    assert IMPORTANCE_SCORER.score(Subject(PLAIN, Role.USER, OLD_HOURS)) == Score(0.5, 0.5, ())


@pytest.mark.parametrize(
    ("text", "signal", "value"),
    [
        ("Hello, my name is Ada.", "about the user", 0.8),
        ("I prefer green gates.", "about the user", 0.8),
        ("Remember that the gate is green.", "about the user", 0.8),
        ("MY NAME IS ADA", "about the user", 0.8),
        ("I will paint the gate.", "decision", 0.7),
        ("Let's do the gate first.", "decision", 0.7),
        ("Let’s do the gate first.", "decision", 0.7),
        ("We decided on green.", "decision", 0.7),
    ],
)
def test_each_content_signal_adds_its_points_alone(text: str, signal: str, value: float) -> None:
    score = IMPORTANCE_SCORER.score(Subject(text, Role.USER, OLD_HOURS))
    assert score.value == value
    assert [name for name, _ in score.parts] == [signal]


@pytest.mark.parametrize(
    "text",
    [
        "The name of the gate",
        "He prefers green",
        "Do you remember it?",
        "She will paint",
        "Let us do it",
        "Decide!",
    ],
)
def test_a_text_that_only_resembles_a_signal_gets_no_points(text: str) -> None:
    assert IMPORTANCE_SCORER.score(Subject(text, Role.USER, OLD_HOURS)).parts == ()


def test_a_signal_counts_once_however_often_its_words_occur() -> None:
    text = "My name is Ada, I prefer tea, remember that my name is Ada"
    assert IMPORTANCE_SCORER.score(Subject(text, Role.USER, OLD_HOURS)).value == 0.8


@pytest.mark.parametrize(
    ("role", "value"),
    [(Role.TOOL, 0.6), (Role.USER, 0.5), (Role.ASSISTANT, 0.5), (Role.SYSTEM, 0.5), (None, 0.5)],
)
def test_a_tool_result_counts_a_tenth_more(role: Role | None, value: float) -> None:
    assert IMPORTANCE_SCORER.score(Subject(PLAIN, role, OLD_HOURS)).value == value


@pytest.mark.parametrize(
    ("age_hours", "value"),
    [(0.0, 0.7), (6.0, 0.675), (12.0, 0.65), (24.0, 0.6), (36.0, 0.55), (48.0, 0.5), (1000.0, 0.5)],
)
def test_recency_decreases_by_a_tenth_per_day_to_0(age_hours: float, value: float) -> None:
    assert IMPORTANCE_SCORER.score(Subject(PLAIN, Role.USER, age_hours)).value == value


def test_a_text_from_the_future_is_as_recent_as_now() -> None:
    assert IMPORTANCE_SCORER.score(Subject(PLAIN, Role.USER, -100.0)).value == 0.7


@pytest.mark.parametrize(
    ("access_count", "value"),
    [(0, 0.5), (1, 0.52), (2, 0.54), (3, 0.56), (4, 0.58), (5, 0.6), (6, 0.6), (1_000_000, 0.6)],
)
def test_accesses_add_a_tenth_at_most(access_count: int, value: float) -> None:
    assert IMPORTANCE_SCORER.score(Subject(PLAIN, Role.USER, OLD_HOURS, access_count)).value == value


def test_the_signals_add_up() -> None:
    score = IMPORTANCE_SCORER.score(Subject("We decided on green.", Role.TOOL, 36.0, 2))
    assert score.value == 0.89
    assert str(score) == "0.89 = 0.50 +0.20 decision +0.10 tool result +0.05 recency +0.04 access"


def test_a_score_is_at_most_1() -> None:
    score = IMPORTANCE_SCORER.score(Subject("My name is Ada and I will paint it.", Role.TOOL, 0.0, 9))
    assert score.value == 1.0
    assert [name for name, _ in score.parts] == [
        "about the user",
        "decision",
        "tool result",
        "recency",
        "access",
    ]


def test_relevance_signals_do_not_change_the_importance() -> None:
    text = "Critical error: the password and the selector of https://example.com failed"
    assert IMPORTANCE_SCORER.score(Subject(text, Role.USER, OLD_HOURS)).value == 0.5
