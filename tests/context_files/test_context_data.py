"""The schema of a context file, its operations, and refused input."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.context_files.models import (
    ActiveTask,
    ContextData,
    HistoryEntry,
    KnownEnvironment,
    TokenUsage,
    ToolStats,
    estimate_tokens,
)
from langmem_tiers.context_files.serializer import context_from_bytes, context_to_bytes
from langmem_tiers.context_files.store_models import CompactionConfig, ContextFilesConfig
from langmem_tiers.errors import InvalidConfigError, InvalidInputError, InvalidNameError

FILE: dict[str, Any] = {
    "session_id": "user:agent:timestamp",
    "system_state": {"last_workspace": "/home/user/project", "preferences": {}},
    "facts": ["User prefers verbose output", "Project uses Rust 1.75"],
    "recent_history": [
        {"timestamp": 1708654321, "role": "user", "content": "Create a new file", "token_count": 5},
        {
            "timestamp": 1708654322,
            "role": "assistant",
            "content": "I'll create the file for you",
            "token_count": 8,
        },
        {"timestamp": 1708654323, "role": "tool", "content": '{"success": true}', "token_count": 12},
    ],
    "long_term_summary": "User requested file creation. Successfully created test.txt.",
    "active_tasks": [
        {
            "id": "task_001",
            "description": "Monitor system resources",
            "status": "Running",
            "progress": 0.5,
            "created_at": 1708654000,
            "updated_at": 1708654321,
        }
    ],
    "tool_stats": {
        "total_calls": 42,
        "by_tool": {"file_write": 15, "file_read": 20, "echo": 7},
        "failures": 2,
    },
    "last_known_environment": {
        "workspace": "/home/user/project",
        "last_update": 1708654321,
        "system_snapshot": {"memory_usage_mb": 8192, "disk_usage_percent": 45.2},
    },
    "token_usage": {"total_input": 15420, "total_output": 8930, "by_session": 24350},
}
SESSION = "user:agent:timestamp"
NOW = datetime(2024, 2, 23, 2, 12, 1, 999_999, tzinfo=UTC)


def parsed(value: object) -> ContextData:
    return context_from_bytes(json.dumps(value).encode(), SESSION)


def test_the_file_of_the_design_is_read_and_written_back_field_by_field_in_its_order() -> None:
    context = parsed(FILE)
    assert context.tool_stats == ToolStats(42, {"file_write": 15, "file_read": 20, "echo": 7}, 2)
    assert sum(context.tool_stats.by_tool.values()) == context.tool_stats.total_calls
    assert context.recent_history[2] == HistoryEntry(1708654323, "tool", '{"success": true}', 12)
    assert context.token_usage == TokenUsage(15420, 8930, 15420 + 8930)
    assert context.active_tasks[0].progress == 0.5
    assert context.tracked_tokens == 5 + 8 + 12
    assert context_to_bytes(context).decode() == json.dumps(FILE, indent=2) + "\n"


def test_a_new_context_has_every_field() -> None:
    written = json.loads(context_to_bytes(ContextData(session_id=SESSION)))
    assert list(written) == list(FILE)
    assert written["token_usage"] == {"total_input": 0, "total_output": 0, "by_session": 0}
    assert parsed({}) == ContextData(session_id=SESSION)
    assert parsed(dict.fromkeys(FILE)) == ContextData(session_id=SESSION)  # null is as good as missing


def test_unknown_fields_are_kept_at_every_level() -> None:
    file = json.loads(json.dumps(FILE))
    file["schema"] = {"version": [2, None]}
    for part in (
        file["recent_history"][0],
        file["active_tasks"][0],
        file["tool_stats"],
        file["last_known_environment"],
        file["token_usage"],
    ):
        part["theirs"] = {"deep": ["kept"]}
    changed = parsed(file).with_tool_call("echo").with_task("task_001", at=NOW, progress=1.0)
    written = json.loads(context_to_bytes(changed))
    assert written["schema"] == {"version": [2, None]}
    assert written["tool_stats"]["theirs"] == written["active_tasks"][0]["theirs"] == {"deep": ["kept"]}
    assert json.loads(context_to_bytes(parsed(file))) == file


def test_a_turn_is_counted_as_a_quarter_of_its_characters() -> None:
    assert [estimate_tokens(text) for text in ("", "abc", "Hello", "Create a file", "x" * 400)] == [
        0,
        0,
        1,
        3,
        100,
    ]
    context = ContextData(session_id="s").with_message("user", "Hello", at=NOW)
    assert context.recent_history == (HistoryEntry(1708654321, "user", "Hello", 1),)
    counted = context.with_message("assistant", "Create a file", at=1.5, token_count=4)
    assert counted.recent_history[1] == HistoryEntry(1.5, "assistant", "Create a file", 4)
    assert counted.tracked_tokens == 5
    uncounted = replace(counted, recent_history=(*counted.recent_history, HistoryEntry(2, "user", "x" * 99)))
    assert uncounted.tracked_tokens == 5  # only what somebody counted


def test_tool_calls_and_tokens_add_up() -> None:
    context = ContextData(session_id="s")
    for tool, failed in (("echo", False), ("echo", True), ("file_read", False)):
        context = context.with_tool_call(tool, failed=failed)
    assert context.tool_stats == ToolStats(3, {"echo": 2, "file_read": 1}, 1)
    context = context.with_token_usage(input_tokens=100, output_tokens=20).with_token_usage(input_tokens=1)
    assert context.token_usage == TokenUsage(101, 20, 121)


def test_a_task_records_its_start_and_changes() -> None:
    context = ContextData(session_id="s").with_task("t", "Monitor", at=100)
    assert context.active_tasks == (ActiveTask("t", "Monitor", "Running", 0.0, 100, 100),)
    done = context.with_task("t", at=200, status="Completed", progress=1.0)
    assert done.active_tasks == (ActiveTask("t", "Monitor", "Completed", 1.0, 100, 200),)
    assert done.active_tasks[0].is_completed
    assert context.active_tasks[0].status == "Running"  # what was handed out stays as it was


def test_facts_are_added_once_and_kept_if_relevant() -> None:
    context = ContextData(session_id="s").with_fact("a", "b").with_fact("a")
    assert context.facts == ("a", "b")
    assert context.keep_facts(lambda fact: fact == "b").facts == ("b",)


def test_the_environment_is_the_latest_known_one() -> None:
    context = ContextData(session_id="s").with_environment("/w", {"memory_usage_mb": 8192}, at=NOW)
    assert context.last_known_environment == KnownEnvironment("/w", 1708654321, {"memory_usage_mb": 8192})


def test_a_context_is_independent_of_its_input_objects() -> None:
    state: dict[str, Any] = {"deep": {"list": [1]}}
    context = ContextData(session_id="s", system_state=state)
    state["deep"]["list"].append(2)
    assert context.system_state == {"deep": {"list": [1]}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HistoryEntry(math.nan, "user", "x"), "timestamp must be a finite number, got nan"),
        (lambda: HistoryEntry(10**12, "user", "x"), "divide milliseconds by 1000"),
        (
            lambda: HistoryEntry(timestamp=True, role="user", content="x"),
            "timestamp must be a finite number, got bool",
        ),
        (lambda: HistoryEntry(1, "", "x"), "role must not be empty"),
        (lambda: HistoryEntry(1, "user", None), "content must be a string, got NoneType"),  # type: ignore[arg-type] # refused
        (lambda: HistoryEntry(1, "user", "x", -1), "token_count must be a whole number from 0 .*got -1"),
        (lambda: HistoryEntry(1, "user", "x", 1, {"role": "y"}), "extra contains 'role'.*set the field"),
        (lambda: ActiveTask("t", "d", progress=1.5), r"progress must be in \[0, 1\], got 1.5: scale it"),
        (lambda: ToolStats(by_tool={"x": -1}), "each count in by_tool"),
        (lambda: ToolStats(total_calls=-1), "total_calls"),
        (lambda: ToolStats(failures=-1), "failures"),
        (lambda: TokenUsage(total_input=1.5), "total_input must be a whole number"),  # type: ignore[arg-type] # refused
        (lambda: ContextData(session_id="s", system_state={"x": {1, 2}}), "contains a set"),  # type: ignore[dict-item] # refused
        (lambda: ContextData(session_id="s", system_state={1: 2}), "string keys"),  # type: ignore[dict-item] # refused
        (lambda: ContextData(session_id="s", facts="text"), "facts must be a list"),  # type: ignore[arg-type] # refused
        (
            lambda: ContextData(session_id="s", recent_history=({},)),  # type: ignore[arg-type] # refused
            r"recent_history\[0\] must be a HistoryEntry",
        ),
        (
            lambda: ContextData(session_id="s").with_message("user", "x", at=datetime(2024, 1, 1)),
            "no time zone",
        ),
    ],
)
def test_an_invalid_value_is_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize("name", ["", 5, None, "x" * 1025])
def test_a_session_id_that_cannot_be_used_is_refused(name: Any) -> None:
    with pytest.raises((InvalidNameError, InvalidInputError)):
        ContextData(session_id=name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CompactionConfig(keep_history=51), "keep_history must be at most max_history"),
        (lambda: CompactionConfig(max_history=0), "max_history"),
        (lambda: ContextFilesConfig(keep_versions=0), "keep_versions"),
        (lambda: ContextFilesConfig(compaction=None), "CompactionConfig"),  # type: ignore[arg-type] # refused
    ],
)
def test_invalid_limits_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        make()


def test_the_limits_are_those_of_the_design() -> None:
    limits = CompactionConfig()
    assert (limits.max_history, limits.keep_history, limits.max_tokens) == (50, 30, 100_000)
    assert limits.completed_hours == 24


HOSTILE = {
    "nothing": (b"", "not valid JSON"),
    "half": (b'{"facts": [', "not valid JSON at line 1"),
    "a list": (b"[]", "must be an object"),
    "not UTF-8": (b'{"facts": ["\xff"]}', "not UTF-8 at byte 12"),
    "UTF-16": ("{}".encode("utf-16"), "not UTF-8|not valid JSON"),
    "NaN": (b'{"x": NaN}', "NaN, which is not a JSON number"),
    "infinite": (b'{"x": -Infinity}', "Infinity"),
    "too large a number": (b'{"x": 1e999}', "number that is too large"),
    "too many digits": (b'{"x": ' + b"9" * 5000 + b"}", "not valid JSON"),
    "a very large number": (b'{"x": 1' + b"0" * 400 + b"}", "more than 1024 bits"),
    "a very large count": (
        b'{"token_usage": {"total_input": 1' + b"0" * 400 + b"}}",
        "got an invalid int",
    ),
    "a very late time": (
        b'{"last_known_environment": {"last_update": 1' + b"0" * 400 + b"}}",
        "more than 1024 bits",
    ),
    "doubled": (b'{"a": {"k": 1, "k": 2}}', "contains the key 'k' twice"),
    "deep": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "rather deep": (b'{"x": ' + b"[" * 150 + b"]" * 150 + b"}", "nested deeper than 100"),
    "history is a text": (b'{"recent_history": "x"}', "recent_history must be a list"),
    "an entry is a number": (b'{"recent_history": [1]}', r"recent_history\[0\] must be an object"),
    "an entry without role": (
        b'{"recent_history": [{"timestamp": 1, "content": ""}]}',
        r"\[0\] lacks 'role'",
    ),
    "an entry of wrong types": (
        b'{"recent_history": [{"timestamp": "now", "role": "user", "content": ""}]}',
        r"recent_history\[0\]: timestamp must be a finite number",
    ),
    "a fact is a number": (b'{"facts": ["x", 1]}', "a fact must be a string"),
    "facts are an object": (b'{"facts": {}}', "facts must be a list"),
    "a task without id": (b'{"active_tasks": [{"description": "x"}]}', r"active_tasks\[0\] lacks 'id'"),
    "stats of wrong types": (b'{"tool_stats": {"total_calls": "42"}}', "tool_stats: total_calls"),
    "state is a list": (b'{"system_state": []}', "system_state must be a dict"),
    "another's": (b'{"session_id": "another"}', "belongs to session 'another'"),
    "no text as id": (b'{"session_id": {}}', "session_id must be a string"),
}


@pytest.mark.parametrize(("data", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_an_invalid_file_is_refused_with_the_position(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        context_from_bytes(data, SESSION)


def test_a_byte_order_mark_is_ignored() -> None:
    assert context_from_bytes(b"\xef\xbb\xbf" + json.dumps(FILE).encode(), SESSION) == parsed(FILE)


TEXTS = st.text(st.characters(), max_size=30).map(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
FILLED = TEXTS.filter(bool)
COUNTS = st.integers(0, 2**53)
MOMENTS = st.integers(-62_135_596_800, 253_402_300_799) | st.floats(0, 2e9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
EXTRA = st.dictionaries(TEXTS.map(lambda name: f"x{name}"), VALUES, max_size=2)
CONTEXTS = st.builds(
    ContextData,
    session_id=st.just(SESSION),
    system_state=OBJECTS,
    facts=st.lists(TEXTS, max_size=4).map(tuple),
    recent_history=st.lists(
        st.builds(HistoryEntry, MOMENTS, FILLED, TEXTS, st.none() | COUNTS, EXTRA), max_size=4
    ).map(tuple),
    long_term_summary=TEXTS,
    active_tasks=st.lists(
        st.builds(ActiveTask, FILLED, TEXTS, FILLED, st.floats(0, 1), MOMENTS, MOMENTS, EXTRA), max_size=2
    ).map(tuple),
    tool_stats=st.builds(ToolStats, COUNTS, st.dictionaries(TEXTS, COUNTS, max_size=3), COUNTS, EXTRA),
    last_known_environment=st.builds(KnownEnvironment, TEXTS, MOMENTS, OBJECTS, EXTRA),
    token_usage=st.builds(TokenUsage, COUNTS, COUNTS, COUNTS, EXTRA),
    extra=EXTRA,
)


@given(CONTEXTS)
def test_any_context_survives_a_round_trip_with_identical_bytes(context: ContextData) -> None:
    data = context_to_bytes(context)
    again = context_from_bytes(data, SESSION)
    assert again == context
    assert context_to_bytes(again) == data


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_context_or_refused(data: bytes) -> None:
    try:
        context = context_from_bytes(data, SESSION)
    except InvalidInputError:
        return
    assert context_from_bytes(context_to_bytes(context), SESSION) == context
