from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from langmem_tiers import InvalidMessageError, MemoryEngine, MessageDraft, MessageToolCall, Role
from langmem_tiers.common.json_values import is_same_json, to_json
from langmem_tiers.display.tables import to_cell


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_the_four_roles_are_known(role: str) -> None:
    assert MessageDraft(role, "x").role is Role(role)


@pytest.mark.parametrize("role", ["human", "User", "", None, 7])
def test_an_unknown_role_is_refused_with_the_known_ones(role: Any) -> None:
    with pytest.raises(
        InvalidMessageError, match=r"unknown role .*use one of user, assistant, system, tool"
    ) as caught:
        MessageDraft(role, "x")
    assert repr(role) in str(caught.value)


def test_a_text_passed_as_role_is_not_quoted() -> None:
    with pytest.raises(InvalidMessageError, match="unknown role of type str: use one of user") as caught:
        MessageDraft("my secret is long enough", "user")
    assert "secret" not in str(caught.value)


def test_a_role_of_another_type_is_named_only_by_its_type() -> None:
    with pytest.raises(InvalidMessageError, match="unknown role of type dict") as caught:
        MessageDraft({"content": "secret"}, "x")  # type: ignore[arg-type] # that is the case
    assert "secret" not in str(caught.value)


def test_a_naive_time_is_refused_by_its_value() -> None:
    with pytest.raises(InvalidMessageError, match=r"datetime\.datetime\(2025, 1, 1, 0, 0\) has no time zone"):
        MessageDraft("user", "x", created_at=datetime(2025, 1, 1))


def test_an_aware_time_becomes_utc() -> None:
    given = datetime(2025, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert MessageDraft("user", "x", created_at=given).created_at == datetime(
        2024, 12, 31, 23, 30, tzinfo=UTC
    )


def test_a_time_that_utc_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="years 1 to 9999"):
        MessageDraft("user", "x", created_at=datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))))


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": {"b": [1, {2, 3}]}}, r"payload\['a'\]\['b'\]\[1\] is a set"),
        ({1: "x"}, r"payload has the key 1, which is not a str"),
        ({"t": (1, 2)}, r"payload\['t'\] is a tuple"),
        ({"when": datetime(2025, 1, 1, tzinfo=UTC)}, r"payload\['when'\] is a datetime"),
        (object(), "payload is a object"),
        (b"bytes", "payload is a bytes"),
        ({"n": 10**5000}, "cannot be serialized as JSON"),
        ({"p": [float("nan")]}, r"payload\['p'\]\[0\] is nan"),
    ],
)
def test_a_payload_that_json_would_change_is_refused_with_its_path(payload: object, where: str) -> None:
    with pytest.raises(InvalidMessageError, match=where):
        MessageDraft("user", "x", payload=payload)


def test_a_cyclic_or_too_deep_payload_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidMessageError, match="nested deeper"):
        MessageDraft("user", "x", payload=loop)


def test_a_payload_is_a_snapshot() -> None:
    payload = {"a": [1]}
    draft = MessageDraft("user", "x", payload=payload)
    payload["a"].append(2)
    assert draft.payload_json == '{"a":[1]}'


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", None),
        ("content", b"x"),
        ("id", ""),
        ("id", 7),
        ("name", 7),
        ("tool_call_id", 7),
        ("tool_calls", [{"name": "x"}]),
        ("token_count", -1),
        ("token_count", 1.5),
        ("token_count", True),
        ("token_count", 2**31),
        ("created_at", "2025-01-01"),
    ],
)
def test_a_field_of_another_type_is_refused(field: str, value: object) -> None:
    fields: dict[str, Any] = {"content": "x", field: value}
    with pytest.raises(ValueError, match="must|got"):
        MessageDraft("user", fields.pop("content"), **fields)


def test_arguments_of_a_tool_call_are_text() -> None:
    with pytest.raises(InvalidMessageError, match=r"json\.dumps"):
        MessageToolCall("c1", "search", {"q": 1})  # type: ignore[arg-type] # that is the case


def test_a_draft_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        MessageDraft("user", "x").content = "y"  # type: ignore[misc] # that is the case


def test_json_is_compared_by_meaning() -> None:
    assert is_same_json('{"a":1,"b":2}', '{"b":2,"a":1}')
    assert not is_same_json('{"a":1}', '{"a":2}')
    assert not is_same_json('{"a":1}', '{"a":true}')
    assert not is_same_json('{"a":1}', '{"a":1.0}')
    assert is_same_json(None, None)
    assert not is_same_json(None, "null")
    assert to_json(None, "payload") == "null"


def test_a_message_in_a_list_is_one_line_with_its_role_and_calls() -> None:
    with MemoryEngine(embedder=None) as engine:
        calls = (MessageToolCall("c", "look", '{"for": "boats"}'),)
        report = engine.session("acme", "s").add(MessageDraft("assistant", "One moment.", tool_calls=calls))
    assert str(to_cell(report.message)).split() == 'assistant: One moment. look({"for": "boats"})'.split()
