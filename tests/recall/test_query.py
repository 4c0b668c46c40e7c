"""Speakers are found in a query and removed from its terms, with and without spaces."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from langmem_tiers.recall.query import MAX_TERMS, Speakers, parse_query
from langmem_tiers.text.tokenize import extract_name_terms, extract_terms

NOW = datetime(2023, 12, 25, tzinfo=UTC)


def speakers_of(*names: str) -> Speakers:
    speakers = Speakers()
    for name in names:
        speakers.get_or_add_number(" ".join(extract_name_terms(name)))
    return speakers


def numbers_in(question: str, *names: str) -> set[int]:
    speakers = speakers_of(*names)
    return speakers.find_numbers(parse_query(question, NOW).find_speaker_names(speakers))


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ("王芳上个月去了哪里？", {1}),
        ("上个月王强和王芳吵架了吗？", {1, 2}),
        ("谁给芳芳寄了腊肉？", {1}),
        ("强强的店在哪", {2}),
        ("老王家的狗叫什么？", {1, 2}),
        ("国王的芳香很强", set()),
        ("When did 王芳 move?", {1}),
    ],
)
def test_speakers_with_the_same_surname_are_distinguished(question: str, numbers: set[int]) -> None:
    assert numbers_in(question, "王芳", "王强") == numbers


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("小明上个月去了哪里？", "李小明"),
        ("李小明上个月去了哪里？", "小明"),
        ("雪去了哪里？", "雪"),
        ("陳雪去了哪裡？", "陈雪"),
        ("陈雪去了哪里？", "陳雪"),
        ("田中さんはどこへ行きましたか", "田中 太郎"),
        ("민수는 어디에 갔어요?", "김민수"),
        ("ﾏｲｸはどこですか", "マイク"),
        ("Lily是做什么的？", "Lily Chen"),
        ("What does lily's 店 sell?", "Lily"),
    ],
)
def test_a_speaker_is_found_by_common_forms_of_the_name(question: str, name: str) -> None:
    assert numbers_in(question, name, "Zoe") == {1}


@pytest.mark.parametrize(("question", "name"), [("他带了行李", "李 小明"), ("天气明朗", "李小明")])
def test_a_single_character_of_a_longer_name_matches_no_speaker(question: str, name: str) -> None:
    assert numbers_in(question, name) == set()


def test_a_full_name_wins_over_a_nickname_of_another_speaker() -> None:
    assert numbers_in("明明在哪", "李小明", "明明") == {2}


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("王芳的猫叫什么？", "的猫叫什么?"),
        ("谁送了王芳一只猫", "谁送了一只猫"),
        ("Lily是做什么的？", "是做什么的?"),
        ("What did Lily tell 王芳 about cats?", "What did tell about cats?"),
    ],
)
def test_names_are_removed_from_terms_and_text(question: str, left: str) -> None:
    speakers, query = speakers_of("王芳", "Lily"), parse_query(question, NOW)
    names = query.find_speaker_names(speakers)
    assert "".join(query.get_text_without(names).split()) == "".join(left.split())
    assert not {"王芳", "王", "芳", "芳的", "lili"} & set(query.get_terms_without(names))
    assert {"猫", "cat"} & set(query.get_terms_without(names)) == {"猫", "cat"} & set(extract_terms(left))


def test_a_query_without_known_names_is_unchanged() -> None:
    query = parse_query("When did  Ann paint it?", NOW)
    assert query.get_terms_without(set()) == list(query.terms) == ["ann", "paint"]
    assert query.get_text_without({"ann"}) == "When did paint it?"
    assert parse_query("王芳？", NOW).get_text_without({"王芳"}) == "?"
    assert parse_query("王芳", NOW).get_text_without({"王芳"}) == parse_query("王芳", NOW).text == "王芳"
    assert parse_query("ﾏｲｸ？", NOW).text == "ﾏｲｸ？"


def test_a_long_query_is_limited_to_the_maximum_of_terms_in_every_script() -> None:
    assert len(parse_query(" ".join(f"w{n}" for n in range(100)), NOW).terms) == MAX_TERMS
    chinese = parse_query("爷爷的膝盖后来恢复得怎么样，孙子孙女分别为他老人家准备买过哪些合适礼物", NOW)
    assert {"礼物", "膝盖"} <= set(chinese.terms)
