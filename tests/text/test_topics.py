from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_texts import TOPIC_UNITS
from langmem_tiers.text.stop_words import STOP_WORDS
from langmem_tiers.text.topics import find_key_topics, merge_topics

POOL = [
    "The connection pool is exhausted again. Raise the connection pool in src/db/pool.py to 20.",
    "Done: connection pools now use max_overflow, see src/db/pool.py and max_overflow there.",
]


def test_phrases_and_identifiers_rank_before_single_words() -> None:
    assert find_key_topics(POOL)[:3] == ("connection pool", "src/db/pool.py", "max_overflow")


def test_a_word_in_many_texts_ranks_before_a_frequent_word_of_one_text() -> None:
    texts = ["cactus cactus and parser", "the parser", "a parser", "parser"]
    assert find_key_topics(texts)[0] == "parser"


def test_a_topic_uses_the_most_frequent_form_not_the_stem() -> None:
    assert find_key_topics(["Migrations are slow.", "Two migrations ran, one migration failed."], 1) == (
        "migrations",
    )
    assert find_key_topics(["Stripe charges us.", "We leave Stripe.", "stripe"], 1) == ("Stripe",)


def test_a_word_of_a_chosen_phrase_is_not_a_separate_topic() -> None:
    assert "pool" not in find_key_topics(POOL)


@pytest.mark.parametrize(
    "text", ["", "   ", "42 1,000 2025-01-01 3.14", "the and of it we you", "... ?!", "ok thanks yes"]
)
def test_numbers_and_stop_words_are_not_topics(text: str) -> None:
    assert find_key_topics([text]) == ()


def test_no_texts_have_no_topics_and_the_limit_is_respected() -> None:
    assert find_key_topics([]) == ()
    assert find_key_topics(POOL, 0) == ()
    assert len(find_key_topics(POOL, 2)) == 2


def test_code_is_ignored_unless_there_is_no_other_text() -> None:
    code = "```\ndef handle(request): return connection\n```"
    assert find_key_topics([f"The kiosk is slow.\n{code}"]) == ("kiosk", "slow")
    assert "connection" in find_key_topics([code])


def test_urls_and_hashes_are_not_topics() -> None:
    assert find_key_topics(["See https://example.com/abc about the kiosk, d17b6e5, d17b6e5."]) == ("kiosk",)


def test_repeated_chinese_words_are_topics() -> None:
    assert find_key_topics(["我们决定用PostgreSQL做数据库。", "数据库连接池太小了，把连接池改成五十。"])[
        :2
    ] == (
        "数据库",
        "连接池",
    )


def test_japanese_words_in_katakana_and_kanji_are_topics() -> None:
    texts = ["データベースの接続が枯渇しました。", "接続を増やしてください。データベースは東京にあります。"]
    assert find_key_topics(texts, 2) == ("データベース", "接続")


def test_korean_words_are_topics_without_their_particles() -> None:
    texts = ["데이터베이스를 옮겼습니다.", "데이터베이스는 서울에 있습니다."]
    assert find_key_topics(texts) == ("데이터베이스", "서울")


def test_topics_are_merged_in_order_ignoring_case() -> None:
    assert merge_topics(["Redis", "pool"], ["redis", "Kafka", "POOL", "kafka"]) == ("Redis", "pool", "Kafka")
    assert merge_topics([], ["a"]) == merge_topics(["a"], []) == ("a",)


@pytest.mark.parametrize("unit", TOPIC_UNITS)
def test_key_topics_of_a_unit_repeated_to_100000_characters_are_parts_of_it(unit: str) -> None:
    text = repeat_to_size(unit, 100_000)
    topics = find_key_topics([text] * 10)
    assert all(topic in text for topic in topics)
    assert bool(topics) == unit[0].isalpha()


texts = st.lists(
    st.lists(
        st.sampled_from([*"the Pool pool connection we 42 app.py 数据库 データ 連接 한국을 . ,".split()])
        | st.text(max_size=6),
        max_size=30,
    ).map(" ".join),
    max_size=6,
)


@given(texts, st.integers(0, 8))
def test_topics_occur_in_the_texts_and_are_unique(said: list[str], limit: int) -> None:
    topics = find_key_topics(said, limit)
    assert topics == find_key_topics(said, limit)
    assert len(topics) <= limit
    assert len({topic.casefold() for topic in topics}) == len(topics)
    for topic in topics:
        assert all(any(word in text for text in said) for word in topic.split())
        assert any(letter.isalpha() for letter in topic)
        assert topic.lower() not in STOP_WORDS


@given(texts, texts)
def test_merging_topics_is_idempotent(first: list[str], second: list[str]) -> None:
    united = merge_topics(first, second)
    assert merge_topics(united, second) == united == merge_topics(united, first)
    assert united[: len(merge_topics(first, []))] == merge_topics(first, [])
