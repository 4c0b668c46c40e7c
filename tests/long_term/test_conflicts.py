from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_texts import STATEMENT_UNITS
from langmem_tiers.long_term.conflicts.comparison import Comparison, Verdict, compare
from langmem_tiers.long_term.conflicts.statement import read_statement

if TYPE_CHECKING:
    from collections.abc import Callable


def judged(old: str, new: str) -> Comparison:
    return compare(read_statement(old), read_statement(new))


def phrases_at(cosine: float) -> Callable[[str, str], float]:
    """A nearness of words that knows phrases only: all are equally near."""
    return lambda one, other: cosine if " " in f"{one}{other}" else 0.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("We use PostgreSQL.", "we use   postgresql"),
        ("We don't deploy on Fridays", "We do not deploy on Fridays"),
        ("My favourite colour is grey", "My favorite color is gray"),
        ("PostgreSQL was chosen as the database", "We chose PostgreSQL as our database"),
        ("I prefer dark mode", "The user prefers dark mode"),
        ("I prefer dark mode", "My preference is dark mode"),
        ("The deadline is 2024-03-05", "The due date is March 5, 2024"),
        ("The timeout is thirty seconds", "timeout: 30s"),
        ("The talk takes 1 hour and 30 minutes", "The talk takes 90 min"),
        ("The app runs in k8s", "The application runs in Kubernetes"),
        ("Run the tests before deploying", "Deploy after running the tests"),
        ("Pets are not allowed", "Pets are forbidden"),
        ("Alice lives in Zürich", "Alice lives in Zurich"),
        ("A bus leaves at 9:00", "Bus leaves at 9:00"),
        ("The owner is A", "A is the owner"),
        ("I have a son who sings", "My son sings"),
        ("I have a son named Tom", "My son is named Tom"),
        ("There are two rooms in the flat", "The flat has two rooms"),
        ("Ann is younger than Bob", "Bob is older than Ann"),
        ("The user goes to school on foot", "The user walks to school"),
        ("The user gave the vase back", "The user gave back the vase"),
        ("The user's dentist is Dr. Weber", "The user's dentist is Weber"),
        ("The user says the hotel is clean", "The hotel is clean"),
        ("The user finds the hotel clean", "The hotel is clean"),
        ("The price is EUR 20", "The price is 20 euros"),
        ("The oven is set to 200 °C", "The oven is set to 200 degrees Celsius"),
    ],
)
def test_paraphrases_are_the_same(old: str, new: str) -> None:
    found = judged(old, new)
    assert found.verdict is Verdict.SAME, found.reason
    assert found.similarity == 1.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The deadline is March 5", "The deadline is March 12"),
        ("The deadline is March 5", "The deadline was moved to March 12"),
        ("We use PostgreSQL as the database", "We use MySQL as the database"),
        ("We decided to use PostgreSQL.", "We decided to use MySQL instead of PostgreSQL."),
        ("We use PostgreSQL", "We switched from PostgreSQL to MySQL"),
        ("Alice lives in Berlin", "Alice moved to Munich"),
        ("Bob is still the owner", "Ann is still the owner"),
        ("Use tabs", "Do not use tabs"),
        ("We deploy on Fridays", "We do not deploy"),
        ("The user prefers dark mode", "The user prefers light mode"),
        ("The user prefers tea over coffee", "The user prefers coffee over tea"),
        ("Bob works at SAP", "Bob no longer works at SAP"),
        ("The offsite is on June 12", "The offsite was cancelled"),
        ("The repository is public", "The repository is private"),
        ("A depends on B", "A does not depend on B"),
        ("Anna has a son who plays chess", "Anna's son does not play chess"),
        ("The user is looking for a flat", "The user found a flat"),
        ("The user is unemployed", "The user was hired"),
        ("The user is on holiday", "The user is back from holiday"),
        ("We use PostgreSQL", "We use MySQL now"),
        ("The user is vegan", "The user eats cheese"),
        ("The user eats cheese", "The user is vegan"),
        ("The oven is set to 200 °C", "The oven is set to 180 °C"),
        ("The office was moved to Munich", "The office is in Berlin"),
        ("The user smokes", "The user does not smoke -"),
        ("The user smokes", "The user does not smoke — "),
    ],
)
def test_statements_that_cannot_both_be_valid_contradict(old: str, new: str) -> None:
    found = judged(old, new)
    assert found.verdict is Verdict.CONTRADICTS, found.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Alice likes tea", "Alice likes coffee"),
        ("Alice reports to Bob", "Bob reports to Alice"),
        ("I owe Bob 50 euros", "Bob owes me 50 euros"),
        ("Bob was mentored by Alice", "Bob mentored Alice"),
        ("The staging timeout is 30 seconds", "The production timeout is 60 seconds"),
        ("Ticket 12 is open", "Ticket 13 is open"),
        ("Alice lives in Germany", "Alice lives in Berlin"),
        ("We use PostgreSQL", "We use PostgreSQL 16"),
        ("We use PostgreSQL", "We also use MySQL"),
        ("We use PostgreSQL", "We use MySQL"),
        ("We use PostgreSQL as the database", "We use MySQL as the database too"),
        ("A depends on B", "It depends on B"),
        ("A depends on B", "B depends on A"),
        ("Service A depends on B", "Service depends on B"),
        ("The user is vegan", "The user may eat cheese"),
        ("We should use tabs", "We use tabs"),
        ("The user might want a dog", "The user wants a dog"),
        ("The user is not musical", "The user is tall"),
        ("The user is vegan", "Bob eats cheese"),
        ("The user is looking for a flat", "Bob found a flat"),
        ("Bob is unemployed", "The user was hired"),
        ("The user is in Rome", "Bob is back from Rome"),
        ("The user is in Rome", "The user is back from Oslo"),
        ("The oven is set to 200 °C", "The oven is set to 200 °F"),
        ("The office was in Berlin", "The office is in Munich"),
        ("The budget is 20 EUR", "The currency is EUR"),
        ("We use PostgreSQL as the database", "Should we use MySQL as the database?"),
        ("The user might move to Spain", "The user will move to Spain"),
        ("You must not merge", "You do not have to merge"),
        ("We deploy", "We do not deploy on Fridays"),
        ("The user met Bob on Monday", "The user met Bob on Friday"),
        ("Alice likes tea. Bob likes milk.", "Alice likes milk. Bob likes tea."),
        ("The invoice is 10000000000000000000000001", "The invoice is 10000000000000000000000002x"),
    ],
)
def test_statements_that_can_both_be_valid_are_different(old: str, new: str) -> None:
    found = judged(old, new)
    assert found.verdict is Verdict.DIFFERENT, found.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The user bakes sourdough", "The user bakes fermented bread"),
        ("The user bakes fermented rye bread", "The user bakes sourdough"),
        ("The user bakes sourdough loaves", "The user bakes fermented bread"),
    ],
)
def test_phrases_near_in_meaning_are_the_same(old: str, new: str) -> None:
    one, other = read_statement(old), read_statement(new)
    assert compare(one, other, phrases_at(0.45)).verdict is Verdict.SAME
    assert compare(one, other, phrases_at(0.44)).verdict is Verdict.DIFFERENT
    assert compare(one, other).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The user bakes dark fermented rye bread", "The user bakes sourdough"),  # four words
        ("The user bakes dark bread", "The user bakes light pastry"),  # opposites
        ("The user bakes red bread", "The user bakes blue sourdough"),  # colors
        ("The user bakes Gugelhupf", "The user bakes marble cake"),  # a name
        ("Fermented bread", "Sourdough"),  # nothing in common
    ],
)
def test_contradicting_phrases_are_different_even_if_similar(old: str, new: str) -> None:
    assert compare(read_statement(old), read_statement(new), phrases_at(1.0)).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("The database is PostgreSQL", "The database is MySQL", ("PostgreSQL", "MySQL", "same position")),
        ("The limit is 5", "The limit is 10", ("5", "10")),
        ("Use tabs", "Do not use tabs", ("negates",)),
        ("We use Redis", "We use Redis in production", ("production",)),
        ("Alice manages Bob", "Bob manages Alice", ("Alice", "Bob", "are swapped")),
    ],
)
def test_the_reason_names_the_words_that_decided(old: str, new: str, words: tuple[str, ...]) -> None:
    reason = judged(old, new).reason
    assert all(word in reason for word in words), reason


def test_empty_texts_differ_unless_equal() -> None:
    assert judged("", "").verdict is Verdict.SAME
    assert judged("", "We use Redis").verdict is Verdict.DIFFERENT
    assert judged("...", "!!!").verdict is Verdict.DIFFERENT


def test_other_languages_are_the_same_only_in_the_same_order() -> None:
    assert judged("我喜欢咖啡", "我喜欢咖啡!").verdict is Verdict.SAME
    assert judged("我喜欢咖啡", "我不喜欢咖啡").verdict is Verdict.DIFFERENT
    assert judged("Der Hund beißt den Mann", "Der Mann beißt den Hund").verdict is Verdict.DIFFERENT


def test_a_long_text_is_a_duplicate_only_verbatim() -> None:
    long = "the quick brown fox jumps over the lazy dog " * 2_500
    assert judged(long, long.upper()).verdict is Verdict.SAME
    assert judged(long, long + "twice").verdict is Verdict.DIFFERENT


def test_a_long_text_is_no_duplicate_of_a_short_one_with_the_same_words() -> None:
    short = "Alice likes tea. Bob likes milk. "
    for old, new in [(short * 15, short), (short, short * 15)]:
        found = judged(old, new)
        assert (found.verdict, found.reason) == (Verdict.DIFFERENT, "the word order differs")


@pytest.mark.parametrize("unit", STATEMENT_UNITS)
def test_a_repeated_unit_is_the_same_as_itself_and_differs_from_its_reverse(unit: str) -> None:
    text = repeat_to_size(unit, 1_000)
    is_symmetric = unit in {"1,", "'"}
    assert judged(text, text).verdict is Verdict.SAME
    assert judged(text, text[::-1]).verdict is (Verdict.SAME if is_symmetric else Verdict.DIFFERENT)


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_two_texts_can_be_compared(old: str, new: str) -> None:
    found = judged(old, new)
    assert 0.0 <= found.similarity <= 1.0
    assert found.reason
    assert judged(old, old).verdict is Verdict.SAME


_WORDS = "alice bob uses likes not never tea redis 5 30s from to before the a is was monday 2024-03-05 and or".split()


@given(st.lists(st.sampled_from(_WORDS), max_size=12), st.lists(st.sampled_from(_WORDS), max_size=12))
def test_the_same_verdict_is_symmetric(old: list[str], new: list[str]) -> None:
    one, other = read_statement(" ".join(old)), read_statement(" ".join(new))
    assert (compare(one, other).verdict is Verdict.SAME) == (compare(other, one).verdict is Verdict.SAME)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("My cat is red.", "Your cat is red.", "user versus you"),
        ("We can deploy.", "We must deploy.", "can versus must"),
        ("The alarm went off.", "The alarm went on.", "'off' versus 'on'"),
        ("The user's height is 180 cm", "The user is tired", "'180 cm tall' versus 'tired'"),
    ],
)
def test_a_difference_is_named(old: str, new: str, reason: str) -> None:
    found = judged(old, new)
    assert (found.verdict, found.reason) == (Verdict.DIFFERENT, reason)


def test_a_denied_alternative_after_a_comma_is_rejected() -> None:
    assert read_statement("Alice paid, not the bank.").roles["bank"] == {"instead of"}
