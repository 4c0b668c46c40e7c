from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import InvalidNameError
from langmem_tiers.common.namespaces import (
    MAX_NAME_BYTES,
    build_archived_name,
    build_namespace_key,
    check_entry_id,
    check_name,
    check_namespace,
    escape,
    is_archived_name,
    parse_namespace_key,
    unescape,
)
from langmem_tiers.knowledge.models import id_from_name

MOMENT = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
# All characters, also those that databases refuse, and many of those that have a meaning somewhere.
names = st.text(
    st.one_of(st.characters(codec=None), st.sampled_from("%_*.':/\0\ud83d\ude00")), min_size=1, max_size=20
)


@given(names)
def test_a_name_survives_a_round_trip_to_its_stored_form(name: str) -> None:
    stored = escape(name)
    assert unescape(stored) == name
    stored.encode("utf-8")
    assert "\0" not in stored


@given(st.lists(names, min_size=1, max_size=4).map(tuple))
def test_a_namespace_survives_a_round_trip_to_its_stored_form(path: tuple[str, ...]) -> None:
    assert parse_namespace_key(build_namespace_key(path)) == path


@given(st.lists(names, min_size=1, max_size=3).map(tuple), st.lists(names, min_size=1, max_size=3).map(tuple))
def test_two_namespaces_never_share_a_stored_form(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (build_namespace_key(one) == build_namespace_key(other)) == (one == other)


def test_plain_names_are_stored_readably() -> None:
    assert build_namespace_key(("acme", "alice@example.com")) == "acme/alice@example.com"
    assert escape("user:agent:123") == "user:agent:123"


@pytest.mark.parametrize("labels", [(), ("",), ("a", ""), (1,), (None,)])
def test_a_namespace_without_a_proper_label_is_refused_by_its_value(labels: tuple[str, ...]) -> None:
    with pytest.raises(InvalidNameError, match="must|needs"):
        check_namespace(labels)


def test_an_empty_session_name_is_refused() -> None:
    with pytest.raises(InvalidNameError, match=r"session name must not be empty, got ''"):
        check_name("")


def test_a_name_too_long_to_be_indexed_is_refused_with_its_size() -> None:
    check_name("x" * MAX_NAME_BYTES)
    with pytest.raises(InvalidNameError, match=f"takes {MAX_NAME_BYTES + 1}"):
        check_name("x" * (MAX_NAME_BYTES + 1))
    with pytest.raises(InvalidNameError, match="at most"):
        check_namespace(["å" * 400, "b" * 400])


def test_a_single_string_is_one_label() -> None:
    assert check_namespace("acme") == ("acme",)


@pytest.mark.parametrize("name", ["s", "s (until ", "é" * 400, "x" * 1000, "%" * 300, "a\0", "s (until now)"])
def test_archived_names_are_recognized_and_valid(name: str) -> None:
    aside = build_archived_name(name, MOMENT), build_archived_name(name, MOMENT, 2)
    assert len(set(aside)) == 2
    for archived in aside:
        assert check_name(archived) == archived
        assert is_archived_name(archived)
        assert is_archived_name(archived, original=name)
        assert not is_archived_name(archived, original=f"{name}x")
        assert is_archived_name(build_archived_name(archived, MOMENT), original=archived)
    assert not is_archived_name(name)


def test_archived_names_of_long_names_with_the_same_prefix_are_distinct() -> None:
    one, other = "x" * 1000, "x" * 999 + "y"
    assert not is_archived_name(build_archived_name(one, MOMENT), original=other)


@pytest.mark.parametrize("name", ["/" * 1024, "%" * 341, "\0" * 341, "\ud800" * 170, "é" * 512])
def test_every_id_of_knowledge_is_an_entry_id(name: str) -> None:
    known = id_from_name(check_name(name), check_name(name))
    assert check_entry_id(known) == known


def test_a_too_long_entry_id_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="at most 6145 bytes"):
        check_entry_id("x" * 6146)
