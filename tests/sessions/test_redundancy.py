"""Duplicates of newer texts are redundant; texts that only look similar are kept."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_lists import FRAME, REDUNDANT
from benchmarks.growth_texts import FINGERPRINT_UNITS
from langmem_tiers import InvalidConfigError
from langmem_tiers.sessions import find_redundant
from langmem_tiers.sessions.redundancy import are_duplicates, compute_fingerprint
from tests.hypothesis_settings import examples
from tests.work_counters import count_function_calls


def jaccard(one: str, other: str) -> float:
    """As in the design document: shared words by all words."""
    words, others = (set(re.findall(r"[\w'’]+", text.lower())) for text in (one, other))
    return len(words & others) / len(words | others)


def differ(first: str, second: str) -> tuple[str, str]:
    return FRAME.format(first), FRAME.format(second)


DIFFERENT = {
    "number": ("the limit is 40 items", "the limit is 50 items"),
    "digit": ("the limit is 4 items", "the limit is 5 items"),
    "thousands": ("the limit is 5,000 items", "the limit is 50,000 items"),
    "decimal": ("the factor is 1.5 here", "the factor is 15 here"),
    "decimal without zero": ("the factor is .5 here", "the factor is 5 here"),
    "ISO date": ("it ships on 2025-03-14", "it ships on 2025-03-15"),
    "slashed date": ("it ships on 3/14/2025", "it ships on 4/14/2025"),
    "day of a month": ("it ships on March 14", "it ships on March 15"),
    "weekday": ("it ships on Monday", "it ships on Friday"),
    "short weekday": ("it ships on Mon", "it ships on Fri"),
    "weekdays": ("it ships on Mondays", "it ships on Fridays"),
    "weekday's": ("Monday's build ships", "Friday's build ships"),
    "month": ("it ships in June", "it ships in July"),
    "short month": ("it ships in Jun", "it ships in Jul"),
    "day": ("it ships today", "it ships tomorrow"),
    "clock": ("it ships at 10:30", "it ships at 11:30"),
    "am and pm": ("it ships at 9 am", "it ships at 9 pm"),
    "joined am and pm": ("it ships at 9am", "it ships at 9pm"),
    "noon": ("it ships at noon", "it ships at midnight"),
    "span": ("it takes 3 days", "it takes 3 weeks"),
    "minus": ("the offset is -5 degrees", "the offset is 5 degrees"),
    "plus": ("the offset is +5 degrees", "the offset is -5 degrees"),
    "typographic minus": ("the offset is −5 degrees", "the offset is 5 degrees"),
    "minus apart": ("the offset is x - 5 degrees", "the offset is x + 5 degrees"),
    "currency sign": ("it costs $500 a month", "it costs €500 a month"),
    "currency code": ("it costs 500 USD", "it costs 500 EUR"),
    "currency word": ("it costs 500 dollars", "it costs 500 euros"),
    "percent": ("the fee is 5% extra", "the fee is 5 extra"),
    "spelled-out number": ("it needs three trucks", "it needs four trucks"),
    "spelled-out tens": ("it needs twenty trucks", "it needs thirty trucks"),
    "ordinal": ("the first truck waits", "the second truck waits"),
    "higher ordinal": ("the eleventh truck waits", "the twelfth truck waits"),
    "once": ("it runs once", "it runs twice"),
    "order of numbers": ("it goes between 5 and 7", "it goes between 7 and 5"),
    "order of spelled-out numbers": ("it needs two vans or six trucks", "it needs six vans or two trucks"),
    "not": ("the gate is locked", "the gate is not locked"),
    "never": ("the gate is always locked", "the gate is never locked"),
    "no": ("there is fuel", "there is no fuel"),
    "cannot": ("the gate can open", "the gate cannot open"),
    "without": ("it ships with labels", "it ships without labels"),
    "no longer": ("the gate is locked", "the gate is no longer locked"),
    "n't": ("they did lock it", "they didn't lock it"),
    "typographic n't": ("they did lock it", "they didn’t lock it"),
    "n't without apostrophe": ("they do lock it", "they dont lock it"),
    "object of a negation": ("it uses not vans but trucks", "it uses not trucks but vans"),
    "object of n't": ("they don't want vans but want trucks", "they don't want trucks but want vans"),
    "object of no": ("there are no vans waiting but trucks", "there are no trucks waiting but vans"),
    "subject of a negation": ("vans are not ready but trucks are", "trucks are not ready but vans are"),
    "place of a negation": ("it must not fail and must stop", "it must fail and must not stop"),
    "true": ("the flag is true", "the flag is false"),
    "valid": ("the key is valid", "the key is invalid"),
    "valid and invalid": ("the key is valid, the seal invalid", "the key is invalid, the seal valid"),
    "supported": ("trucks are supported", "trucks are unsupported"),
    "possible": ("it is possible", "it is impossible"),
    "enabled": ("logging is enabled", "logging is disabled"),
    "enable": ("to enable logging", "to disable logging"),
    "order of opposites": ("logs are enabled, alarms disabled", "logs are disabled, alarms enabled"),
    "allowed": ("trucks are allowed", "trucks are denied"),
    "before": ("check it before loading", "check it after loading"),
    "more": ("it needs more trucks", "it needs fewer trucks"),
    "direction": ("move it from Oslo to Bergen", "move it to Oslo from Bergen"),
    "version": ("it needs v2.10.3 now", "it needs v2.10.4 now"),
    "major version": ("it needs Python 3.11 now", "it needs Python 3.12 now"),
    "pre-release": ("it needs 2.0.0-rc1 now", "it needs 2.0.0-rc2 now"),
    "identifier": ("see ticket PROJ-118 now", "see ticket PROJ-119 now"),
    "joined identifier": ("see user42 now", "see user43 now"),
    "address": ("see 10.0.0.1:80 now", "see 10.0.0.1:81 now"),
    "identifier in a long address": (
        "see https://example.com/warehouse/robots/shipping/planning/meeting/notes/page-7",
        "see https://example.com/warehouse/robots/shipping/planning/meeting/notes/page-8",
    ),
    "comparison": ("width < height there", "width > height there"),
    "comparison or equal": ("width <= height there", "width >= height there"),
    "typographic comparison": ("width ≤ height there", "width ≥ height there"),
    "equality": ("width == height there", "width != height there"),
    "comparison with a number": ("width<5 there", "width>5 there"),
    "joined comparison": ("width<height there", "width>height there"),
    "joined equality": ("width==height there", "width!=height there"),
    "comparison on a new line": ("width\n< height there", "width\n> height there"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_text_with_the_opposite_meaning_is_not_a_duplicate(name: str) -> None:
    older, newer = differ(*DIFFERENT[name])
    assert len(set(re.findall(r"[\w'’]+", older.lower()))) >= 20
    assert jaccard(older, newer) >= 0.9, "too different to prove anything"
    assert not are_duplicates(compute_fingerprint(older), compute_fingerprint(newer))
    assert not are_duplicates(compute_fingerprint(newer), compute_fingerprint(older))
    assert find_redundant([older, newer]) == {}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        differ("the gate is locked", "the gate is locked"),
        differ("the gate is locked", "THE GATE IS LOCKED"),
        differ("the gate is locked", "the gate, is: locked!"),
        differ("the gate is locked", "the   gate\n\tis locked"),
        differ("the gate is locked", "the gate is closely locked"),  # a word more of 24
        differ("the gate is locked", "the door is locked"),  # another word of 24
        differ("it needs 40 trucks", "it needs 40, trucks"),
        differ("it needs 40 trucks (not 50)", "it needs 40 trucks, not 50"),
        differ("they don't lock it", "they don’t lock it"),
        ("ok", "OK!"),
        ("Привет, мир", "привет мир"),
    ],
)
def test_a_text_with_the_same_meaning_is_redundant(older: str, newer: str) -> None:
    assert find_redundant([older, newer]) == {0: 1}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("the gate is green", "the gate is blue"),
        ("the gate is green", "some robots sing at night"),
        ("one two three four", "four three two one"),  # numbers, in another order
        ("ok", "fine"),
    ],
)
def test_a_text_with_another_meaning_is_not_redundant(older: str, newer: str) -> None:
    assert find_redundant([older, newer]) == {}


@pytest.mark.parametrize(
    ("shared", "more", "is_redundant"),
    [
        (9, 1, True),  # 9 of 10: exactly 0.9
        (18, 2, True),
        (27, 3, True),
        (8, 1, False),  # 8 of 9
        (17, 2, False),
        (90, 10, True),
        (89, 10, False),
    ],
)
def test_the_threshold_of_0_9_is_met_exactly(shared: int, more: int, *, is_redundant: bool) -> None:
    words = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(shared + more)]
    older, newer = " ".join(words[:shared]), " ".join(words)
    assert bool(find_redundant([older, newer])) is is_redundant
    assert bool(find_redundant([newer, older])) is is_redundant


@pytest.mark.parametrize(
    ("threshold", "is_redundant"), [(0.1, True), (0.59, True), (0.6, True), (0.61, False), (1.0, False)]
)
def test_the_threshold_can_be_set(threshold: float, *, is_redundant: bool) -> None:
    # 3 of 5 words are shared
    assert bool(find_redundant(["red gate green door", "red gate green hat"], threshold)) is is_redundant


def test_at_a_threshold_of_1_only_the_same_words_are_duplicates() -> None:
    texts = ["red gate green door", "red gate green", "green GATE red"]
    assert find_redundant(texts, 1.0) == {1: 2}
    assert find_redundant(texts, 1) == {1: 2}


def test_the_older_of_two_duplicates_is_redundant() -> None:
    older, newer = differ("the gate is locked", "the gate is closely locked")
    assert find_redundant([older, newer]) == {0: 1}
    assert find_redundant([newer, older]) == {0: 1}


def test_only_the_newest_of_several_duplicates_is_kept() -> None:
    texts = ["red gate", "blue hat", "Red gate!", "red gate", "blue hat", "green door"]
    assert find_redundant(texts).keys() == {0, 1, 2}


def test_each_duplicate_names_a_newer_one() -> None:
    texts = ["red gate", "blue hat", "Red gate!", "red gate", "blue hat"]
    found = find_redundant(texts)
    assert found[0] in {2, 3}
    assert (found[1], found[2]) == (4, 3)


@pytest.mark.parametrize(
    "texts", [[], [""], ["", ""], ["", "words"], ["...", "..."], ["!?", "!?", " \n"], ["👍", "👍"]]
)
def test_texts_without_words_are_never_redundant(texts: list[str]) -> None:
    assert find_redundant(texts) == {}


@pytest.mark.parametrize(
    "threshold",
    [0, 0.0, -0.1, 1.1, 2, math.nan, math.inf, True, False, "0.9", None, 10**400],
    ids=lambda value: repr(value)[:20],
)
@pytest.mark.parametrize("texts", [[], ["red gate", "red gate"]])
def test_an_invalid_threshold_is_refused(threshold: Any, texts: list[str]) -> None:
    with pytest.raises(InvalidConfigError, match="threshold") as caught:
        find_redundant(texts, threshold)
    assert (repr(threshold) if threshold else "0") in str(caught.value)


vocabulary = st.sampled_from(
    "red green gate door hat robot valid invalid not never 5 7 -5 two three monday friday < > isn't no".split()
)
# Whole texts and, so that near-duplicates are common, texts with a word changed, gone or added.
texts_of_few_words = st.lists(vocabulary, max_size=8)


@st.composite
def families(draw: st.DrawFn) -> list[str]:
    texts = draw(st.lists(texts_of_few_words, min_size=1, max_size=4))
    for _ in range(draw(st.integers(0, 10))):
        relative = list(draw(st.sampled_from(texts)))
        place = draw(st.integers(0, len(relative)))
        relative[place : place + draw(st.integers(0, 1))] = draw(st.lists(vocabulary, max_size=1))
        texts.append(relative)
    return [" ".join(words) for words in draw(st.permutations(texts))]


def marked_by_all_pairs(texts: list[str], threshold: float) -> set[int]:
    prints = [compute_fingerprint(text) for text in texts]
    return {
        older
        for older in range(len(texts))
        for newer in range(older + 1, len(texts))
        if are_duplicates(prints[older], prints[newer], threshold)
    }


@examples(250)
@given(families(), st.sampled_from([0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0]))
def test_the_index_finds_the_same_duplicates_as_all_pairs(texts: list[str], threshold: float) -> None:
    found = find_redundant(texts, threshold)
    assert found.keys() == marked_by_all_pairs(texts, threshold)


@examples(100)
@given(families(), st.sampled_from([0.5, 0.7, 0.9, 1.0]))
def test_each_redundant_text_has_a_newer_duplicate(texts: list[str], threshold: float) -> None:
    prints = [compute_fingerprint(text) for text in texts]
    for older, newer in find_redundant(texts, threshold).items():
        assert older < newer
        assert are_duplicates(prints[older], prints[newer], threshold)


@given(families(), st.sampled_from([0.5, 0.7, 0.9, 1.0]))
def test_each_redundant_text_reaches_the_similarity_threshold(texts: list[str], threshold: float) -> None:
    for older, newer in find_redundant(texts, threshold).items():
        words, others = (set(re.findall(r"\w+(?:'\w+)*", texts[n].lower())) for n in (older, newer))
        assert len(words & others) >= threshold * len(words | others) - 1e-9


@given(families())
def test_duplicates_are_symmetric(texts: list[str]) -> None:
    for first, second in pairwise(map(compute_fingerprint, texts)):
        assert are_duplicates(first, second, 0.5) == are_duplicates(second, first, 0.5)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("texts", "redundant"),
    [
        ("identical", 999),
        ("one word differs", 999),
        ("one number differs", 0),
        ("words of a language", 0),
        ("300 common words", 0),
    ],
)
def test_twice_as_many_texts_take_twice_as_many_calls(texts: str, redundant: int) -> None:
    many = REDUNDANT[texts](1_000)
    assert len(find_redundant(many)) == redundant
    half = count_function_calls(lambda: find_redundant(many[:500]))
    assert count_function_calls(lambda: find_redundant(many)) < 2.2 * half


@pytest.mark.parametrize("piece", FINGERPRINT_UNITS)
def test_a_fingerprint_of_a_piece_repeated_to_20000_characters_has_at_most_one_word(piece: str) -> None:
    found = compute_fingerprint(repeat_to_size(piece, 20_000))
    assert len(found.words) == piece[0].isalnum()
    assert bool(found.meaning_markers) == (piece in {"1", "a1", "not ", "n't", "<", " <"})


@pytest.mark.parametrize("distance", [3, 4, 5, 6])
def test_the_order_of_the_four_words_on_each_side_of_a_negation_counts(distance: int) -> None:
    words = "ant bee cow dog elk fox gnu".split()
    swapped = [*words]
    swapped[distance - 1], swapped[distance] = words[distance], words[distance - 1]
    one, other = (compute_fingerprint(" ".join(["not", *order])) for order in (words, swapped))
    assert are_duplicates(one, other) is (distance > 4)
    one, other = (compute_fingerprint(" ".join([*reversed(order), "not"])) for order in (words, swapped))
    assert are_duplicates(one, other) is (distance > 4)
