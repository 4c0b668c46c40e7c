"""Session ids as file names: safe, one to one, also where case and accents do not count."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.context_files.file_store import (
    MAX_STEM_CHARACTERS,
    is_shortened_stem,
    parse_file_stem,
    to_file_stem,
)
from langmem_tiers.errors import InvalidNameError

IDS = st.text(st.characters(), min_size=1, max_size=60) | st.sampled_from(
    ["a", "A", "a ", "a.", "%41", "..", "con", "CON", "x" * 200, "X" * 200, "é", "e\u0301", "\ud83d", "a/b"]
)


@pytest.mark.parametrize(
    ("session_id", "stem"),
    [
        ("user1:agent1:123", "user1:agent1:123"),
        ("user1:agent2:456", "user1:agent2:456"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("a::b", "a::b"),
        ("Alice", "%41lice"),
        ("50%", "50%25"),
        (".", "%2E"),
        ("..", "%2E."),
        ("con", "%63on"),
        ("nul.txt", "%6Eul.txt"),
        ("console", "console"),
        ("a\\b", "a%5Cb"),
        ("é", "%C3%A9"),
        ("a\0b", "a%00b"),
        ("~", "%7E"),
    ],
)
def test_usual_ids_stay_readable_and_dangerous_ones_are_escaped(session_id: str, stem: str) -> None:
    assert to_file_stem(session_id) == stem
    assert parse_file_stem(stem) == session_id


@given(IDS, IDS)
def test_distinct_ids_have_distinct_files_on_case_insensitive_file_systems(one: str, other: str) -> None:
    names = [unicodedata.normalize("NFC", to_file_stem(name)).casefold() for name in (one, other)]
    assert (names[0] == names[1]) == (one == other)


@given(IDS)
def test_each_name_is_safe_and_reversible(session_id: str) -> None:
    stem = to_file_stem(session_id)
    assert stem.isascii()
    assert not set(stem) & set('/\\\0*?"<>| \n')
    assert not stem.startswith(".")
    assert len(stem) <= MAX_STEM_CHARACTERS
    assert is_shortened_stem(stem) or parse_file_stem(stem) == session_id


def test_very_long_ids_with_the_same_prefix_have_distinct_files() -> None:
    ids = ["x" * 1000, "x" * 999 + "y", "é" * 500, "é" * 499 + "e"]
    stems = {to_file_stem(session_id) for session_id in ids}
    assert len(stems) == 4
    assert all(
        len(stem) <= MAX_STEM_CHARACTERS and is_shortened_stem(stem) and parse_file_stem(stem) is None
        for stem in stems
    )


@pytest.mark.parametrize("stem", ["%41lice ", "Alice", "%61", "%zz", "%C3", ".x", "con", "", "%", "é"])
def test_a_file_with_a_foreign_name_belongs_to_no_session(stem: str) -> None:
    assert parse_file_stem(stem) is None


@pytest.mark.parametrize("name", ["", "x" * 1025])
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        to_file_stem(name)
