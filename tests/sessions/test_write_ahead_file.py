"""Reports of unsaved messages: read back equal, and refused when damaged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import InvalidInputError, Message, MessageToolCall, Role, StorageUnavailableError
from langmem_tiers.sessions import UnsavedMessages
from langmem_tiers.sessions.write_ahead_file import open_unsaved_file, read_unsaved_file

if TYPE_CHECKING:
    from pathlib import Path

any_text = st.text(st.characters(codec=None), max_size=20)
names = st.text(st.characters(codec=None), min_size=1, max_size=20)
messages = st.builds(
    Message,
    id=names,
    role=st.sampled_from(Role),
    content=any_text,
    created_at=st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)),
    token_count=st.integers(0, 2**31 - 1),
    token_counter=any_text,
    name=st.none() | any_text,
    tool_calls=st.lists(st.builds(MessageToolCall, any_text, any_text, any_text), max_size=2).map(tuple),
    tool_call_id=st.none() | any_text,
    payload_json=st.none() | any_text,
)
entries = st.builds(
    UnsavedMessages,
    st.lists(names, min_size=1, max_size=3).map(tuple),
    names,
    st.lists(messages, max_size=3).map(tuple),
    st.none() | any_text,
)


@given(appended=st.lists(entries, max_size=4), replaced=st.lists(entries, max_size=3), cut=st.integers(1, 40))
def test_written_messages_are_read_back_equal(
    appended: list[UnsavedMessages],
    replaced: list[UnsavedMessages],
    cut: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("unsaved") / "file.jsonl"
    file = open_unsaved_file(path)
    for entry in appended:
        file.append(entry)
    if appended:
        assert read_unsaved_file(path) == tuple(appended)
        whole = path.read_bytes()
        last = len(whole.split(b"\n")[-2]) + 1
        path.with_name("cut").write_bytes(whole[: -min(cut, last)])  # a line that was being written
        assert read_unsaved_file(path.with_name("cut")) == tuple(appended[:-1])
    file.replace(replaced)
    file.append(UnsavedMessages(("a",), "s", ()))
    assert read_unsaved_file(path) == (*replaced, UnsavedMessages(("a",), "s", ()))
    file.replace(())
    file.close()
    assert not path.exists()


def _lines(path: Path) -> list[bytes]:
    file = open_unsaved_file(path)
    for name in ("s", "t"):
        file.append(UnsavedMessages(("a",), name, ()))
    lines = path.read_bytes().split(b"\n")
    file.close()
    return lines


def _with(line: bytes, **changed: Any) -> bytes:
    return json.dumps({**json.loads(line), **changed}).encode()


@pytest.mark.parametrize(
    ("place", "line", "said"),
    [
        (0, b"{}", "not a report of unsaved messages"),
        (0, b'{"format":"langmem-tiers unsaved messages","version":2}', "version 2"),
        (1, b'{"namespace":["a"]', "line 2"),
        (1, b"[]", "line 2"),
        (1, b"{}", "line 2"),
        (2, b'{"namespace":["a"],"session":"s","problem":null,"messages":[{"id":"x"}]}', "line 3"),
        (2, b'{"namespace":[],"session":"s","problem":null,"messages":[]}', "line 3"),
    ],
)
def test_a_damaged_file_is_refused_completely(tmp_path: Path, place: int, line: bytes, said: str) -> None:
    path = tmp_path / "file.jsonl"
    lines = _lines(path)
    lines[place] = line
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InvalidInputError, match=said):
        read_unsaved_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError, match="nothing.jsonl"):
        read_unsaved_file(tmp_path / "nothing.jsonl")


def test_a_report_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    file = open_unsaved_file(path)
    file.append(UnsavedMessages(("a",), "s", ()))
    assert path.stat().st_mode & 0o777 == 0o600
    file.replace([UnsavedMessages(("a",), "s", ())])
    assert path.stat().st_mode & 0o777 == 0o600
    file.close()
