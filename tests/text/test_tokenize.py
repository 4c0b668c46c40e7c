"""Any text becomes indexable terms, and forms of one word become one term."""

from __future__ import annotations

import random
import re
import string
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers.text.stop_words import (
    CHINESE_STOP_WORDS,
    JAPANESE_STOP_WORDS,
    KOREAN_STOP_PIECES,
    STOP_WORDS,
)
from langmem_tiers.text.tokenize import MAX_TERMS, _to_term, count_words, extract_name_terms, extract_terms

LONGEST = 64
ASCII_MARK_OR_SPACE = re.compile(rf"[{re.escape(string.punctuation)}\s\x00-\x20\x7f]")
ANY_TEXT = st.text(st.characters())  # with lone surrogates, NUL and marks of all scripts
WORDY_TEXT = st.text(
    st.sampled_from(
        "aAsStTdD've0’'_-\"*:\\|&!() \n\t\0éÉßñо犬東京のカ한글ไทยहिन्दीक्षاعم\u0301\u200d\ud83d😀ﬁﷺ²Ⅷ"
    )
)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("run runs running", "run"),
        ("paint paints painted painting", "paint"),
        ("city cities", "citi"),
        ("hope hopes hoped hoping", "hope"),
        ("Zanzibar ZANZIBAR zanzibar's", "zanzibar"),
    ],
)
def test_forms_of_a_word_share_a_stem(text: str, term: str) -> None:
    assert set(extract_terms(text)) == {term}


def test_terms_keep_their_order_and_repetitions() -> None:
    assert extract_terms("Red fish, blue fish, red fish!") == ["red", "fish", "blue", "fish", "red", "fish"]


def test_stop_words_are_ignored() -> None:
    assert extract_terms(" ".join(sorted(STOP_WORDS))) == []
    assert extract_terms("What did you tell me about the narwhal?") == ["narwhal"]
    assert extract_terms("Yeah, wow, oh hey hi, yes") == []


def test_words_that_become_stop_words_by_stemming_are_kept() -> None:
    assert extract_terms("others doings") == ["other", "do"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("it's don't we'll I'm they've he'd you're", []),
        ("Maria's dog’s", ["maria", "dog"]),
        ("O'Neil O’Neil o'neil's", ["oneil", "oneil", "oneil"]),
        ("'quoted' ''twice''", ["quot", "twice"]),
        ("rock'n'roll", ["rocknrol"]),
        ("' '' ’ '’'", []),
    ],
)
def test_apostrophes_are_removed(text: str, terms: list[str]) -> None:
    assert extract_terms(text) == terms


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("café", "cafe"),
        ("cafe\u0301", "cafe"),
        ("CAFÉ", "cafe"),
        ("naïve", "naive"),
        ("Straße", "strasse"),
        ("ﬁnland", "finland"),
        ("İstanbul", "istanbul"),
        ("Ａｌｐｈａ", "alpha"),
    ],
)
def test_accents_and_letter_variants_are_normalized(text: str, plain: str) -> None:
    assert extract_terms(text) == extract_terms(plain) != []


def test_punctuation_separates_terms() -> None:
    assert extract_terms("src/app.py user_name a-b@c.org #42") == [
        "src", "app", "py", "user", "name", "b", "c", "org", "42",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("犬", ["犬"]),
        ("东京", ["东", "东京", "京"]),
        ("东京湾", ["东", "东京", "京", "京湾", "湾"]),
        ("ひらがな", ["ひら", "らが", "がな"]),
        ("の", []),
        ("食べる", ["食", "食べ", "べる"]),
        ("한국어", ["한국", "국어"]),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", ["한국"]),  # the same, taken apart
        ("ไทย", ["ไท", "ทย"]),
        ("我的猫", ["的猫", "猫"]),
        ("AI东京tokyo", ["ai", "东", "东京", "京", "tokyo"]),
        ("东京 大阪", ["东", "东京", "京", "大", "大阪", "阪"]),
    ],
)
def test_scripts_without_spaces_are_split_into_pairs_and_chinese_also_into_characters(
    text: str, terms: list[str]
) -> None:
    assert extract_terms(text) == terms


@pytest.mark.parametrize("text", sorted(CHINESE_STOP_WORDS | {"我的", "你呢", "是的", "都有吗", "谁", "的"}))
def test_chinese_stop_words_are_ignored(text: str) -> None:
    assert extract_terms(text) == []
    assert extract_terms(f"{text}犬") in (["犬"], [f"{text[-1]}犬", "犬"])


@pytest.mark.parametrize(
    ("traditional", "simple"),
    [
        ("東京灣", "东京湾"),
        ("我對貓過敏", "我对猫过敏"),
        ("什麼時候結婚", "什么时候结婚"),
        ("陳曉麗", "陈晓丽"),
    ],
)
def test_traditional_and_simplified_characters_are_the_same(traditional: str, simple: str) -> None:
    assert extract_terms(traditional) == extract_terms(simple) != []
    assert extract_name_terms(traditional) == extract_name_terms(simple) == [simple]


@pytest.mark.parametrize("text", sorted(JAPANESE_STOP_WORDS | KOREAN_STOP_PIECES))
def test_japanese_and_korean_stop_words_are_ignored(text: str) -> None:
    assert extract_terms(text) == []


def test_a_chinese_stop_word_ends_a_run() -> None:
    assert extract_terms("下雨因为刮风") == [*extract_terms("下雨"), *extract_terms("刮风")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("犬", 1),
        ("东京", 1),
        ("昨天下午去公园跑步", 5),
        ("ひらがなです", 2),
        ("한국어 공부", 2),
        ("我在Google上班", 2),
        ("café 3 km", 3),
        ("Red fish, blue fish", 4),
    ],
)
def test_two_characters_without_spaces_are_as_long_as_a_word(text: str, words: int) -> None:
    assert count_words(extract_terms(text)) == words


@pytest.mark.parametrize("word", ["हिन्दी", "நன்றி", "తెలుగు", "বাংলা", "ਪੰਜਾਬੀ"])
def test_an_indic_word_is_one_term_with_its_vowel_marks(word: str) -> None:
    (term,) = extract_terms(word)
    assert extract_terms(f"{word}, ({word})।") == [term, term]
    assert extract_terms(word[0]) != [term]


@pytest.mark.parametrize("word", ["Москва", "Αθήνα", "שלום", "سلام", "Երևան"])
def test_words_of_other_scripts_are_lowercased_and_kept(word: str) -> None:
    assert len(extract_terms(word)) == 1
    assert extract_terms(word.upper()) == extract_terms(word.lower()) == extract_terms(word)


def test_numbers_are_terms() -> None:
    assert extract_terms("42 1984 3.5 v2") == ["42", "1984", "3", "5", "v2"]


@pytest.mark.parametrize("letter", ["x", "é", "ж", "犬"])
def test_the_beginning_of_a_long_message_is_indexed(letter: str) -> None:
    text = " ".join(f"{letter}{number}" for number in range(30_000))
    terms = extract_terms(text)
    assert len(terms) == MAX_TERMS
    assert (
        extract_terms(" ".join(text.split()[:100]))
        == terms[: len(extract_terms(" ".join(text.split()[:100])))]
    )


def test_words_after_many_stop_words_are_still_indexed() -> None:
    assert extract_terms("the " * 20_000 + "narwhal") == ["narwhal"]


@pytest.mark.parametrize("letter", ["x", "7", "ж", "क"])
def test_a_very_long_word_is_found_by_its_beginning(letter: str) -> None:
    (term,) = extract_terms(letter * 500)
    assert term == letter * LONGEST
    assert extract_terms(letter * 500) == extract_terms(letter * 499 + "y")


@given(ANY_TEXT | WORDY_TEXT)
def test_no_term_of_any_text_can_break_an_index(text: str) -> None:
    for term in extract_terms(text):
        assert 0 < len(term) <= LONGEST
        assert not ASCII_MARK_OR_SPACE.search(term)
        assert len(term.split()) == 1
        assert term.encode("utf-8").decode("utf-8") == term  # a database takes it


@given(ANY_TEXT | WORDY_TEXT)
def test_no_term_of_any_name_can_break_an_index(name: str) -> None:
    for term in extract_name_terms(name):
        assert term
        assert not ASCII_MARK_OR_SPACE.search(term)
        assert len(term.split()) == 1
        assert term.encode("utf-8").decode("utf-8") == term


@given(ANY_TEXT | WORDY_TEXT)
def test_the_same_text_has_the_same_terms(text: str) -> None:
    first = extract_terms(text)
    first.append("changed by the caller")
    assert extract_terms(text) == first[:-1]


@given(st.text(st.sampled_from(string.printable)))
def test_ascii_text_has_the_same_terms_next_to_non_ascii_text(text: str) -> None:
    assert extract_terms(f"{text} ж") == [*extract_terms(text), "ж"]


@given(WORDY_TEXT, WORDY_TEXT)
def test_terms_of_joined_texts_are_the_joined_terms(one: str, other: str) -> None:
    assert extract_terms(f"{one} | {other}") == [*extract_terms(one), *extract_terms(other)]


def test_a_name_keeps_stop_words() -> None:
    assert extract_name_terms("The Will of Can") == ["the", "will", "of", "can"]
    assert extract_name_terms("José Núñez-Gómez") == ["jose", "nunez", "gomez"]
    assert extract_name_terms("") == extract_name_terms("!?") == []


def test_a_name_is_not_truncated_like_a_text() -> None:
    assert extract_name_terms("李小龙") == ["李小龙"]
    assert extract_name_terms("田中 さくら") == ["田中", "さくら"]
    assert extract_name_terms("Lily 陈") == [*extract_name_terms("Lily"), "陈"]


@pytest.mark.parametrize("name", ["Who's", "Don't", "it’s"])
def test_a_name_of_stop_words_has_no_apostrophe(name: str) -> None:
    (term,) = extract_name_terms(name)
    assert term.isalpha()


@pytest.mark.parametrize("name", ["Maria", "O'Neil", "Renée", "Андрей", "हिन्दी"])
def test_a_name_in_a_text_is_found_by_the_name(name: str) -> None:
    assert set(extract_name_terms(name)) & set(extract_terms(f"I met {name} there"))


def test_concurrent_stemming_gives_the_same_stems() -> None:
    starts = [
        f"{stem}{ending}"
        for stem in ("nation", "relat", "happ", "organ")
        for ending in string.ascii_lowercase
    ]
    words = [
        start + end for start in starts for end in ("alizations", "fulness", "ingly", "icated", "ousness")
    ]
    alone = {word: extract_terms(word) for word in words}
    _to_term.cache_clear()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work() -> None:
        mine = random.sample(words, len(words))
        assert [extract_terms(word) for word in mine] == [alone[word] for word in mine]

    try:
        run_in_threads(8, work)
    finally:
        sys.setswitchinterval(before)
