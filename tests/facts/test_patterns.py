from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_texts import EXTRACTION_UNITS
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.facts.extraction import find_proper_names
from langmem_tiers.facts.patterns import (
    EXTRA_PATTERNS,
    EXTRACTION_PATTERNS,
    GERMAN_PATTERNS,
    REFERRING_WORDS,
    ExtractionPattern,
)
from langmem_tiers.long_term.models import EntryKind

ALL = (*EXTRACTION_PATTERNS, *EXTRA_PATTERNS)


def kind_of(sentence: str, rows: tuple[ExtractionPattern, ...] = EXTRACTION_PATTERNS) -> str | None:
    return next((row.kind for row in rows if row.pattern.search(sentence)), None)


def test_the_table_has_the_kinds_and_numbers_of_the_design_document() -> None:
    assert {str(row.kind): row.confidence for row in EXTRACTION_PATTERNS} == {
        "decision": 0.8,
        "preference": 0.7,
        "constraint": 0.7,
        "goal": 0.8,
    }
    assert len(EXTRACTION_PATTERNS) == 4


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("We decided to use Rust", "decision"),
        ("We chose Rust", "decision"),
        ("We selected Rust", "decision"),
        ("We went with Rust", "decision"),
        ("I prefer Rust", "preference"),
        ("I like Rust", "preference"),
        ("I want Rust", "preference"),
        ("I need Rust", "preference"),
        ("It must be Rust", "constraint"),
        ("It should be Rust", "constraint"),
        ("It cannot be Rust", "constraint"),
        ("It can't be Rust", "constraint"),
        ("I need to use Rust", "constraint"),
        ("The goal is Rust", "goal"),
        ("The objective is Rust", "goal"),
        ("We aim for Rust", "goal"),
        ("The target is Rust", "goal"),
    ],
)
def test_every_word_of_the_design_document_is_found(sentence: str, kind: str) -> None:
    assert kind_of(sentence) == kind
    assert kind_of(sentence.upper()) == kind
    assert kind_of(sentence.lower()) == kind


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("The team decides on Rust", "decision"),
        ("We are deciding on Rust", "decision"),
        ("Rust was chosen", "decision"),
        ("We choose Rust", "decision"),
        ("She selects Rust", "decision"),
        ("We're going with Rust", "decision"),
        ("She prefers Rust", "preference"),
        ("They preferred Rust", "preference"),
        ("Anna likes Rust", "preference"),
        ("We liked Rust", "preference"),
        ("I’m liking Rust", "preference"),
        ("He wants Rust", "preference"),
        ("They wanted Rust", "preference"),
        ("The app needs Rust", "preference"),
        ("You mustn’t use Rust", "constraint"),
        ("We can’t use Rust", "constraint"),
        ("We can not use Rust", "constraint"),
        ("We shouldn't use Rust", "constraint"),
        ("The app needs to be fast", "constraint"),
        ("My goals are clear", "goal"),
        ("Two objectives: speed and size", "goal"),
        ("We are aiming for speed", "goal"),
        ("She aims high", "goal"),
        ("The targets are speed and size", "goal"),
        ("The release targets May", "goal"),
        ("We are targeting May", "goal"),
    ],
)
def test_inflections_count_like_their_word(sentence: str, kind: str) -> None:
    assert kind_of(sentence) == kind


@pytest.mark.parametrize(
    "sentence",
    [
        "That is unlikely",
        "Likewise, it rains",
        "The mustard is gone",
        "A needle in a haystack",
        "A needless remark",
        "The goalkeeper sleeps",
        "He was unwanted",
        "It is undecided",
        "Maimed and claimed",
        "It looks like rain",
        "It sounds like a plan",
        "Something like that",
        "Do it like this",
        "I feel like a walk",
        "Whatever you like",
        "If you like",
        "Tools like ruff and mypy",
        "The post got 20 likes",
        "We have not decided",
        "It is to be decided",
        "The selected text is blue",
        "I went with my sister",
        "SELECT id FROM users",
        "There is no need for it",
        "You don't need to restart",
        "Restart it if needed",
        "It must have been the wind",
        "It should be fine",
        "It should have been longer",
        "That should work",
        "I can't wait",
        "I cannot find it",
        "He scored a goal",
        "Be objective",
        "Objective-C is old",
        "An objective measure",
    ],
)
def test_other_words_and_other_uses_do_not_count(sentence: str) -> None:
    assert kind_of(sentence) is None


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("We need to ship and want to sleep", "constraint"),
        ("We decided that the goal must be what users want", "decision"),
        ("Our goal is what users want", "goal"),
        ("We want to reach the target of 5 ms", "goal"),
        ("The target host must have a name", "constraint"),
    ],
)
def test_the_first_matching_pattern_determines_the_kind(sentence: str, kind: str) -> None:
    assert kind_of(sentence) == kind


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("My name is Ana", "entity"),
        ("Ana Lima is our lawyer", "entity"),
        ("Our cat is called Momo", "entity"),
        ("To deploy, run make ship", "procedure"),
        ("In order to release the app, push a tag", "procedure"),
        ("The way to log in is by key", "procedure"),
        ("I live in Oslo", "fact"),
        ("I work at Volvo", "fact"),
        ("I work as a nurse", "fact"),
        ("My car is a Volvo", "fact"),
        ("We use Postgres", "fact"),
        ("The site runs on Debian", "fact"),
        ("The tool is written in Go", "fact"),
        ("We settled on Go", "decision"),
        ("I love Go", "preference"),
    ],
)
def test_the_extra_patterns_find_kinds_the_design_document_names_without_a_pattern(
    sentence: str, kind: str
) -> None:
    assert kind_of(sentence, ALL) == kind
    assert {row.confidence for row in EXTRA_PATTERNS} == {0.65}


@pytest.mark.parametrize(
    "sentence",
    [
        "This is my car",
        "My build is broken",
        "Our tests are failing",
        "My question is another one",
        "It runs fast",
        "To be honest, it rains",
    ],
)
def test_the_extra_patterns_ignore_temporary_statements(sentence: str) -> None:
    assert kind_of(sentence, ALL) is None


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("Wir haben uns für Rust entschieden", "decision"),
        ("Ich bevorzuge Rust", "preference"),
        ("Das Programm muss schnell sein", "constraint"),
        ("Unser Ziel ist Tempo", "goal"),
        ("Es regnet", None),
    ],
)
def test_patterns_for_another_language_can_be_added(sentence: str, kind: str | None) -> None:
    assert kind_of(sentence, GERMAN_PATTERNS) == kind
    assert {row.language for row in GERMAN_PATTERNS} == {"de"} <= set(REFERRING_WORDS)


def test_german_is_not_used_by_default() -> None:
    assert {row.language for row in ALL} == {"en"}


@pytest.mark.parametrize("wrong", ["decided", re.compile(b"decided"), None])
def test_a_pattern_accepts_only_compiled_text_patterns(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="compiled text pattern"):
        ExtractionPattern(wrong, "decision", 0.8)


def test_a_row_must_not_match_the_empty_text() -> None:
    with pytest.raises(InvalidInputError, match="empty text"):
        ExtractionPattern(re.compile("x*"), "decision", 0.8)


def test_a_row_has_a_confidence_from_zero_to_one() -> None:
    with pytest.raises(InvalidInputError, match="confidence"):
        ExtractionPattern(re.compile("x"), EntryKind.DECISION, 80)


@pytest.mark.parametrize("unit", EXTRACTION_UNITS)
def test_repeated_parts_of_a_pattern_are_not_a_statement(unit: str) -> None:
    assert kind_of(repeat_to_size(unit, 5_000), ALL) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("We met Anna Schmidt in New York on Friday.", ["Anna Schmidt", "New York", "Friday"]),
        ("Anna prefers PostgreSQL over MySQL.", ["Anna", "PostgreSQL", "MySQL"]),
        ("My dentist is Dr. Okafor.", ["Dr. Okafor"]),
        ("Tea is what Ludwig van Beethoven's cat drinks.", ["Tea", "Ludwig van Beethoven"]),
        ("Deploying takes long.", []),
        ("Never mind, I can wait.", []),
        ("WE LIKE TEA", []),
        ("", []),
        ("我们喜欢茶", []),
    ],
)
def test_names_are_found_by_their_capitals(text: str, names: list[str]) -> None:
    assert [text[start:end] for start, end in find_proper_names(text)] == names


@given(st.text())
def test_names_are_within_the_text_in_order(text: str) -> None:
    spans = find_proper_names(text)
    assert spans == sorted(spans)
    assert all(0 <= start < end <= len(text) for start, end in spans)
