from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.chunks.text import ChunkText, merge_chunk_summaries, summarize_chunk
from langmem_tiers.common.prompt_fences import wrap_in_fence
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.config import SummaryConfig, SummaryStrategy
from langmem_tiers.errors import InvalidConfigError
from langmem_tiers.testing import ScriptedLLM
from langmem_tiers.text.token_counting import CharCounter, ContentAwareCounter
from tests.hypothesis_settings import examples
from tests.messages import COUNTER, message

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message

TALK = [
    message("Which database should we use for bookings?"),
    message("I recommend PostgreSQL, because the bookings need transactions.", "assistant"),
    message("We decided to use PostgreSQL for bookings. It runs at db.example.com:5432."),
    message("Noted. " + "The weather in Malmö is fine today. " * 30, "assistant"),
]


def test_without_a_model_a_chunk_is_summarized_by_its_own_sentences() -> None:
    chunk = summarize_chunk(TALK, Summarizer(COUNTER))
    assert "User: We decided to use PostgreSQL for bookings." in chunk.summary
    assert "[Summary of" not in chunk.summary
    assert COUNTER.count(chunk.summary) <= 150
    assert "bookings" in chunk.topics
    assert "PostgreSQL" in chunk.topics
    assert chunk.problems == ()


def test_a_model_answer_is_the_summary() -> None:
    model = ScriptedLLM(["They chose PostgreSQL for bookings."])
    chunk = summarize_chunk(TALK, Summarizer(COUNTER, model))
    assert chunk.summary.startswith("They chose PostgreSQL for bookings.")
    assert chunk.problems == ()
    assert len(model.prompts) == 1


def test_a_model_may_write_16_times_the_target_because_its_answer_is_shortened() -> None:
    limits: list[int] = []

    class Recorder(ScriptedLLM):
        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
            limits.append(max_tokens)
            return super().complete(prompt, system=system, max_tokens=max_tokens)

    model, config = Recorder(["They chose PostgreSQL."]), SummaryConfig(strategy=SummaryStrategy.SIMPLE)
    summarize_chunk(TALK, Summarizer(COUNTER, model, config=config), 100)
    assert limits == [1600]


def test_a_failing_model_is_reported_and_the_chunk_summarized_without_it() -> None:
    chunk = summarize_chunk(TALK, Summarizer(COUNTER, ScriptedLLM([RuntimeError("down")])))
    assert "We decided to use PostgreSQL" in chunk.summary
    assert chunk.problems == ("the model raised RuntimeError",)


def test_many_facts_do_not_displace_the_story() -> None:
    figures = ", ".join(f"{number}.5 ms at /srv/app/run{number}.log" for number in range(100, 200))
    messages = [
        message("We decided to cache the slots."),
        message(figures, "tool"),
        message(f"I see {figures}."),
    ]
    chunk = summarize_chunk(messages, Summarizer(COUNTER))
    assert "User: We decided to cache the slots." in chunk.summary
    assert "Key facts: " in chunk.summary
    told = summarize_chunk(
        messages, Summarizer(COUNTER, ScriptedLLM(["They decided to cache. It was slow."]))
    )
    assert told.summary.startswith("They decided to cache. It was slow.\nKey facts: ")


def test_a_long_model_answer_is_truncated_at_a_sentence_end() -> None:
    model = ScriptedLLM(["They spoke of the kiosk for a very long time. " * 30])
    chunk = summarize_chunk([message("The kiosk is slow.")], Summarizer(COUNTER, model))
    assert chunk.summary.endswith("long time.")
    assert 100 <= COUNTER.count(chunk.summary) <= 150


@pytest.mark.parametrize("target", [0, 15, True])
def test_a_target_without_room_for_a_sentence_is_refused(target: int) -> None:
    with pytest.raises(InvalidConfigError, match="target_tokens"):
        summarize_chunk(TALK, Summarizer(COUNTER), target)


def test_no_messages_have_an_empty_summary() -> None:
    assert summarize_chunk([], Summarizer(COUNTER)) == ChunkText(summary="", topics=())


@pytest.mark.parametrize(
    "messages",
    [
        [message("")],
        [message("  \n "), message("", "assistant")],
        [message("x" * 5000)],
        [message("?")],
        [message(wrap_in_fence(["We decided on Kafka."]))],
        [message("漢字" * 900)],
        [message("ERROR 1 " * 2000, "tool")],
    ],
)
@pytest.mark.parametrize("target", [16, 150])
def test_a_chunk_summary_is_never_empty_and_within_its_target(messages: list[Message], target: int) -> None:
    chunk = summarize_chunk(messages, Summarizer(COUNTER), target)
    assert chunk.summary.strip()
    assert COUNTER.count(chunk.summary) <= target
    assert "Kafka" not in chunk.summary


def test_topics_come_from_people_and_only_otherwise_from_tools() -> None:
    printed = message("kiosk kiosk kiosk printer printer", "tool")
    spoken = message("The invoices are late.")
    assert summarize_chunk([spoken, printed], Summarizer(COUNTER)).topics == ("invoices", "late")
    assert summarize_chunk([printed], Summarizer(COUNTER)).topics == ("kiosk", "printer")


def test_a_merged_summary_that_fits_is_verbatim() -> None:
    assert merge_chunk_summaries("One.", "Two.", COUNTER, 100) == "Earlier: One.\n\nThen: Two."
    nested = merge_chunk_summaries("Earlier: One.\n\nThen: Two.", "Three.", COUNTER, 100)
    assert nested == "Earlier: Earlier: One.\n\nThen: Two.\n\nThen: Three."


def test_a_merged_summary_that_does_not_fit_keeps_both_ends_of_the_first_part() -> None:
    middle = " ".join(f"Sentence {number} is in the middle of it." for number in range(40))
    first = f"It began with Redis. {middle} It ended with Kafka."
    text = merge_chunk_summaries(first, "Then came Rust.", COUNTER, 60)
    assert text.startswith("Earlier: It began with Redis. Sentence 0 is")
    assert " ... " in text
    assert text.endswith("It ended with Kafka.\n\nThen: Then came Rust.")
    assert COUNTER.count(text) <= 60


def test_a_truncated_sentence_ends_at_a_word() -> None:
    counter = CharCounter()
    first = "A beginning of considerable length that goes on and on. " + "An end that goes on as well. " * 3
    text = merge_chunk_summaries(first, "Two.", counter, 14)
    assert counter.count(text) <= 14
    head, _, tail = text.partition("\n\n")
    assert tail == "Then: Two."
    kept = head.removeprefix("Earlier: ").removesuffix("...")
    assert first.startswith(kept + " ")


def test_a_second_part_that_does_not_fit_is_truncated_too() -> None:
    text = merge_chunk_summaries("One.", "word " * 500, COUNTER, 30)
    assert COUNTER.count(text) <= 30
    assert text.startswith("Earlier: \n\nThen: word word")
    assert text.endswith("word...")


def test_a_repeatedly_merged_chunk_stays_bounded() -> None:
    text = "It began with Redis."
    for number in range(200):
        text = merge_chunk_summaries(text, f"Part {number} was about topic {number}.", COUNTER, 80)
        assert COUNTER.count(text) <= 80
    assert text.startswith("Earlier: It began with Redis.")
    assert text.endswith("Then: Part 199 was about topic 199.")
    assert "Part 198" in text


pieces = st.sampled_from(
    ["One.", "Earlier: ", "\n\nThen: ", " ... ", "word", "漢字。", "x" * 90, "Why? ", "\n"]
)
summaries = st.lists(pieces | st.text(max_size=9), max_size=30).map(" ".join)
counters = st.sampled_from([CharCounter(), ContentAwareCounter()])


@given(summaries, summaries, counters, st.integers(1, 120))
def test_a_merged_summary_fits_for_any_parts(
    first: str, second: str, counter: CharCounter, limit: int
) -> None:
    text = merge_chunk_summaries(first, second, counter, limit)
    assert counter.count(text) <= limit
    whole = f"Earlier: {first}\n\nThen: {second}"
    if counter.count(whole) <= limit:
        assert text == whole
    if counter.count(f"Earlier: \n\nThen: {second}") <= limit:
        assert text.startswith("Earlier: ")
        assert text.endswith(f"\n\nThen: {second}")


@examples(50)
@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), summaries), min_size=1, max_size=6),
    counters,
    st.integers(16, 200),
)
def test_a_chunk_is_never_empty_and_never_over_its_target(
    said: list[tuple[str, str]], counter: CharCounter, target: int
) -> None:
    messages = [message(text, role) for role, text in said]
    summarizer = Summarizer(counter, config=SummaryConfig(strategy=SummaryStrategy.EXTRACTIVE))
    chunk = summarize_chunk(messages, summarizer, target)
    assert chunk.summary
    assert counter.count(chunk.summary) <= target
    assert chunk == summarize_chunk(messages, summarizer, target)
