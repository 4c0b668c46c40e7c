from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import CharCounter, ContentAwareCounter, InvalidConfigError, LangmemTiersError
from langmem_tiers.compression.tool_output.budget import ExtractionBudget, fit_extractions, keep_head_and_tail
from langmem_tiers.compression.tool_output.context_window import (
    ContextSection,
    SectionKind,
    handle_large_context,
)

CHARS = CharCounter()
COUNTERS = st.sampled_from([CharCounter(), ContentAwareCounter()])
texts = st.one_of(st.text(max_size=300), st.text("ab \n{}<>:;", max_size=3000))


def test_the_limits_are_those_of_the_design() -> None:
    limits = ExtractionBudget()
    assert (limits.max_percent, limits.max_tokens, limits.max_single_chars) == (0.20, 4000, 8000)
    assert limits.compute_token_limit(10_000) == 2000
    assert limits.compute_token_limit(20_000) == 4000
    assert limits.compute_token_limit(64_000) == 4000
    assert limits.compute_token_limit(-5) == 0


@pytest.mark.parametrize("wrong", [{"max_percent": 1.5}, {"max_tokens": -1}, {"max_single_chars": "8"}])
def test_invalid_limits_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(LangmemTiersError):
        ExtractionBudget(**wrong)  # type: ignore[arg-type] # wrong on purpose


def test_a_long_text_keeps_whole_lines_at_both_ends_and_states_the_omission() -> None:
    text = "\n".join(f"line number {number:04d}" for number in range(1000))
    short = keep_head_and_tail(text, 1000)
    head, note, tail = short.partition("\n[... ")
    left_out, _, tail = tail.partition(" characters left out ...]\n")
    assert note
    assert head.endswith(tuple(f"line number {number:04d}" for number in range(1000)))
    assert tail.startswith("line number ")
    assert tail.endswith("line number 0999")
    assert int(left_out) == len(text) - len(head) - len(tail)
    assert 900 < len(short) <= 1000


def test_a_line_without_end_is_truncated_between_words() -> None:
    short = keep_head_and_tail("word " * 1000, 500)
    assert short.partition("\n")[0].endswith("word")
    assert short.rpartition("\n")[2].startswith("word")


def test_a_short_text_is_unchanged() -> None:
    assert keep_head_and_tail("abc", 3) == "abc"


@given(text=texts, size=st.integers(-5, 400))
def test_head_and_tail_never_exceeds_its_size(text: str, size: int) -> None:
    short = keep_head_and_tail(text, size)
    assert len(short) <= max(0, size)
    assert short == text or len(text) > size


@given(
    extractions=st.lists(st.tuples(st.text(max_size=10), texts), max_size=6),
    remaining=st.integers(-10, 3000),
    counter=COUNTERS,
)
def test_extractions_never_take_more_than_their_share(
    extractions: list[tuple[str, str]], remaining: int, counter: CharCounter
) -> None:
    fitted = fit_extractions(extractions, remaining, counter)
    assert counter.count(fitted.text) == fitted.tokens <= max(0, remaining) * 0.20
    assert len(fitted.texts) + len(fitted.left_out_labels) == len(extractions)


def test_extractions_never_take_more_than_4000_tokens_nor_8000_characters_each() -> None:
    fitted = fit_extractions([(f"page {number}", "word " * 4000) for number in range(5)], 1_000_000, CHARS)
    assert 3500 < fitted.tokens <= 4000
    assert all(len(text) <= 8000 for _, text in fitted.texts)
    assert fitted.truncated_labels == ("page 3", "page 4")
    assert fitted.left_out_labels == ("page 0", "page 1", "page 2")


def test_the_newest_extractions_have_priority_and_keep_their_order() -> None:
    fitted = fit_extractions([("old", "a" * 4000), ("mid", "b" * 400), ("new", "c" * 400)], 1100, CHARS)
    assert fitted.texts == (("mid", "b" * 400), ("new", "c" * 400))
    assert fitted.left_out_labels == ("old",)
    assert fitted.text == f"### mid\n{'b' * 400}\n\n### new\n{'c' * 400}"


def test_an_extraction_too_long_for_the_rest_is_truncated() -> None:
    fitted = fit_extractions([("old", "word " * 400), ("new", "c" * 400)], 1500, CHARS)
    assert fitted.truncated_labels == ("old",)
    assert "characters left out" in fitted.texts[0][1]
    assert fitted.texts[1] == ("new", "c" * 400)


GOAL = ContextSection("Goal", "Find the price of the red lamp.", "essential")
PAGE = ContextSection("Current page", "https://shop.example/lamps", SectionKind.ESSENTIAL)


def extraction(length: int) -> ContextSection:
    return ContextSection("Extracted", "data " * (length // 5), "extraction")


def history(entries: int) -> ContextSection:
    return ContextSection(
        "History", "\n".join(f"{number}. clicked on it" for number in range(entries)), "history"
    )


def test_a_context_that_fits_is_unchanged() -> None:
    done = handle_large_context([GOAL, PAGE], 1000, CHARS)
    assert done.text == f"## Goal\n{GOAL.text}\n\n## Current page\n{PAGE.text}"
    assert (done.tokens, done.dropped_sections, done.truncated_sections) == (CHARS.count(done.text), (), ())


def test_extractions_are_truncated_before_history_is_pruned() -> None:
    done = handle_large_context([GOAL, PAGE, extraction(8000), history(20)], 500, CHARS)
    assert done.truncated_sections == ("Extracted",)
    assert history(20).text in done.text
    assert "characters left out" in done.text
    assert done.tokens <= 500


def test_the_oldest_history_is_dropped_next_and_essential_sections_stay() -> None:
    done = handle_large_context([GOAL, PAGE, extraction(8000), history(200)], 300, CHARS)
    assert GOAL.text in done.text
    assert PAGE.text in done.text
    assert "199. clicked on it" in done.text
    assert "\n0. clicked on it" not in done.text
    assert "older entries were left out]" in done.text
    assert set(done.truncated_sections) == {"Extracted", "History"}
    assert done.tokens <= 300


def test_a_history_entry_is_dropped_completely() -> None:
    lines = ContextSection(
        "History", "\n".join(f"{n}. click\n   Result: {n} done" for n in range(50)), "history"
    )
    done = handle_large_context([lines], 40, CHARS)
    assert done.text.startswith("## History\n[")
    assert done.text.partition("left out]\n")[2].partition("\n")[0].endswith(". click")
    parts = ContextSection("History", "\n\n".join(f"Action {n}\nResult {n}" for n in range(50)), "history")
    done = handle_large_context([parts], 40, CHARS)
    assert done.text.partition("left out]\n\n")[2].startswith("Action ")
    assert done.text.endswith("Action 49\nResult 49")


class _CountingCounter(CharCounter):
    calls = 0

    def count(self, text: str) -> int:
        self.calls += 1
        return super().count(text)


def test_extractions_that_do_not_fit_are_not_counted() -> None:
    calls = []
    for size in (1_000, 2_000):
        counter = _CountingCounter()
        many = [(f"page {number:04d}", "word " * 100) for number in range(size)]
        done = fit_extractions(many, 64_000, counter)
        assert len(done.texts) + len(done.left_out_labels) == size
        assert done.texts[-1] == many[-1]
        calls.append(counter.calls)
    assert calls[0] == calls[1] < 100


def test_other_sections_are_dropped_last() -> None:
    other = ContextSection("Notes", "n" * 200)
    done = handle_large_context([GOAL, other, extraction(8000), history(200)], 80, CHARS)
    assert other.text in done.text
    assert set(done.dropped_sections) == {"Extracted", "History"}
    done = handle_large_context([GOAL, other, extraction(8000), history(200)], 20, CHARS)
    assert set(done.dropped_sections) == {"Notes", "Extracted", "History"}
    assert GOAL.text in done.text


def test_a_too_large_essential_section_is_truncated_with_a_note() -> None:
    done = handle_large_context(
        [ContextSection("Goal", "word " * 1000 + "at the end", "essential")], 100, CHARS
    )
    assert done.text.startswith("## Goal\nword")
    assert "characters left out" in done.text
    assert done.text.endswith("at the end")
    assert done.truncated_sections == ("Goal",)


section = st.builds(
    ContextSection, st.text(max_size=8), texts, st.sampled_from([*SectionKind, "history", "unheard of"])
)


@given(sections=st.lists(section, max_size=6), limit=st.integers(-3, 600), counter=COUNTERS)
def test_a_context_is_never_larger_than_its_limit(
    sections: list[ContextSection], limit: int, counter: CharCounter
) -> None:
    done = handle_large_context(sections, limit, counter)
    assert done.tokens == counter.count(done.text) <= max(0, limit)


def test_invalid_limits_are_configuration_errors() -> None:
    with pytest.raises(InvalidConfigError):
        ExtractionBudget(max_percent=-0.1)
