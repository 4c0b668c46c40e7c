"""Compressed text is never longer and reports every lost fact, for any text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import CharCounter, Compressor, ContentAwareCounter, Summarizer
from langmem_tiers.compression import FactFinder
from langmem_tiers.compression.digest import Digest
from tests.hypothesis_settings import examples
from tests.messages import message

pieces = st.sampled_from(
    [
        "https://example.com/a?b=c",
        "user@example.com",
        "Error: it broke",
        "#login-form",
        'class="btn"',
        'id="x"',
        "192.168.1.100",
        "9100",
        "mia_li_3668",
        "/srv/app/main.py",
        "2025-03-01T10:00:00Z",
        "May 20th",
        "3:45 PM",
        "\n$ git push --force\n",
        "`code`",
        "v1.2.3",
        "$30",
        "do not ever do it again please",
        "instead of MySQL we take it",
        "plain words and more of them",
        "\n",
        "\n\n",
        "   ",
        "😀",
        "漢字",
        "\0",
    ]
)
texts = st.lists(pieces | st.text(max_size=30), max_size=60).map(" ".join) | st.text(max_size=600)
counters = st.sampled_from([CharCounter(), ContentAwareCounter()])
finder = FactFinder()


@given(texts, counters)
def test_a_compressed_text_is_never_longer_and_contains_every_fact(text: str, counter: CharCounter) -> None:
    done = Compressor(counter).compress(text, "tool")
    assert len(done.text) <= len(text)
    assert done.tokens_after == counter.count(done.text) <= done.tokens_before
    assert done.missing == ()
    assert all(fact.text in done.text for fact in finder.find(text))


@given(texts, counters, st.integers(0, 200))
def test_under_a_limit_each_fact_is_kept_or_reported_missing(
    text: str, counter: CharCounter, limit: int
) -> None:
    done = Compressor(counter).compress(text, max_tokens=limit)
    assert counter.count(done.text) <= max(limit, 0)
    assert len(done.text) <= len(text)
    lost = {fact.text for fact in done.missing}
    assert all(fact.text in done.text or fact.text in lost for fact in finder.find(text))


@examples(60)
@given(st.lists(texts, max_size=12), counters, st.integers(16, 400))
def test_a_digest_respects_its_limit_and_each_fact_is_kept_or_reported(
    said: list[str], counter: CharCounter, limit: int
) -> None:
    messages = [message(text, ("user", "assistant")[n % 2]) for n, text in enumerate(said)]
    done = Digest.from_messages(messages, finder).render(counter, limit)
    assert counter.count(done.text) <= limit
    named = "\n".join(fact.text for fact in done.missing)
    for text in said:
        for fact in finder.find(text.strip()):
            assert fact.text in done.text or fact.text in named


@examples(40)
@given(st.lists(texts, max_size=12), counters, st.integers(16, 400))
def test_an_extractive_summary_respects_its_target(
    said: list[str], counter: CharCounter, target: int
) -> None:
    messages = [message(text) for text in said]
    report = Summarizer(counter).summarize(messages, strategy="extractive", target_tokens=target)
    assert counter.count(report.text) == report.tokens <= target
    assert report == Summarizer(counter).summarize(messages, strategy="extractive", target_tokens=target)


@given(texts, texts)
def test_fact_spans_match_their_text(before: str, after: str) -> None:
    text = before + after
    for place in finder.find_spans(text):
        assert text[place.start : place.end] == place.fact.text
