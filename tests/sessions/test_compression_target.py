"""When a session is large enough for compression, and whether compression can reduce it."""

from __future__ import annotations

import pytest

from langmem_tiers.common.entries import ViewItem
from langmem_tiers.common.messages import SUMMARY_PREFIX
from langmem_tiers.sessions.compression_target import CompressionTarget, SessionLoad
from langmem_tiers.sessions.session_view import SessionView
from tests.messages import COUNTER, message

TARGET = CompressionTarget(
    trigger_tokens=50,
    target_tokens=40,
    ceiling_tokens=50,
    floor_tokens=30,
    min_saving_tokens=10,
    summary_token_range=(100, 200),
)


@pytest.mark.parametrize(("words", "is_needed"), [(60, False), (600, True)])
def test_beside_the_window_only_the_excess_of_a_summary_can_be_saved(words: int, *, is_needed: bool) -> None:
    summary = message(f"{SUMMARY_PREFIX}\n" + "boat " * words, "system")
    items = [ViewItem(number, each) for number, each in enumerate([summary, message("yes"), message("no")])]
    load = SessionLoad(SessionView.from_items(items, window=2), COUNTER)
    assert load.summary_tokens > TARGET.trigger_tokens
    assert load.older_tokens == 0
    assert load.needs_compression(TARGET) is is_needed
