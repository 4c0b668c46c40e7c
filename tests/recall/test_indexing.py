"""Index rows of messages: length, question flag and speaker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from langmem_tiers.recall.indexing import Indexer
from langmem_tiers.sessions.analysis import IMPORTANCE_SCORER
from tests.messages import message

index = Indexer(IMPORTANCE_SCORER)


@pytest.mark.parametrize(
    "text",
    ["Is it?", "是吗？", "你去吗", "你在哪儿", "在干什么~", "真的吗？😂", "多少", "どこですか。", "هل هذا؟"],
)
def test_a_question_is_recognized_by_its_mark_or_its_last_word(text: str) -> None:
    assert index(message(text)).is_question


@pytest.mark.parametrize("text", ["It is.", "是啊。", "我去了哈尔滨", "在忙呢", "明日です。", "", "Why ask"])
def test_a_statement_is_not_a_question(text: str) -> None:
    assert not index(message(text)).is_question


def test_a_speaker_is_indexed_by_words_and_a_chinese_name_is_one_word() -> None:
    assert index(replace(message("Hi"), name="Ann Lee")).speaker == "ann lee"
    assert index(replace(message("Hi"), name="王小芳")).speaker == "王小芳"
    assert index(message("Hi")).speaker is None


def test_length_is_counted_in_words_in_every_script() -> None:
    assert index(message("We walked to the old harbour")).length == 3
    assert index(message("昨天下午去公园跑步")).length == 5
