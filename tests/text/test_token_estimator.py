from __future__ import annotations

import pytest

from langmem_tiers.text.token_counting import ContentType, TokenEstimator


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [(ContentType.TEXT, 250), (ContentType.CODE, 286), (ContentType.JSON, 334), (ContentType.HTML, 400)],
)
def test_characters_per_token_depend_on_the_content_type(kind: ContentType, tokens: int) -> None:
    estimate = TokenEstimator.estimate("x" * 1000, kind)
    assert (estimate.tokens, estimate.content_type, estimate.confidence) == (tokens, kind, 1.0)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("We walked along the shore.", "text"),
        ('{"a": [1, 2], "b": "c"}', "json"),
        ("<html><body><p>Hello</p></body></html>", "html"),
        ("def f(x):\n    y = x + 1\n    return y\n\nclass A:\n    z = 3\n", "code"),
    ],
)
def test_the_content_type_is_detected(text: str, kind: str) -> None:
    estimate = TokenEstimator.estimate(text)
    assert estimate.content_type.value == kind
    assert 0 <= estimate.confidence <= 1


def test_the_content_type_can_be_a_string() -> None:
    assert TokenEstimator.estimate("xxxxx", "HTML").tokens == 2


def test_messages_are_counted_with_frames_names_calls_and_the_reply_opening() -> None:
    assert TokenEstimator.estimate_messages([]) == 3
    plain = {"role": "user", "content": "abcd" * 10}
    assert TokenEstimator.estimate_messages([plain]) == 3 + 4 + 10
    assert TokenEstimator.estimate_messages([plain | {"name": "anna"}]) == 3 + 4 + 10 + 2
    parts = {"role": "user", "content": [{"type": "text", "text": "abcd" * 10}, {"type": "image"}]}
    assert TokenEstimator.estimate_messages([parts]) >= 3 + 4 + 10
    called = plain | {"tool_calls": [{"name": "search", "arguments": "{}"}]}
    assert TokenEstimator.estimate_messages([called]) > TokenEstimator.estimate_messages([plain])
    assert TokenEstimator.estimate_messages([{"role": "user"}, object()]) == 3 + 8
