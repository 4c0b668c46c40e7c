"""Comparison and serialization of tool calls."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import AgentAction, InvalidInputError, Thought
from langmem_tiers.tasks import Cycle, Observation
from langmem_tiers.tasks.models import compute_action_signature

_TEXT = st.text(max_size=12)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(_TEXT.filter(bool), st.dictionaries(_TEXT, _VALUE, max_size=4), _TEXT)
def test_an_action_from_plain_json_equals_a_constructed_one(
    tool: str, parameters: dict[str, Any], url: str
) -> None:
    restored, constructed = AgentAction.from_plain_json(tool, parameters), AgentAction(tool, parameters)
    assert restored == constructed
    assert restored.parameters_json == constructed.parameters_json
    assert compute_action_signature(restored, url) == compute_action_signature(constructed, url)
    assert repr(restored) == repr(constructed)


def test_parameters_json_reflects_the_current_parameters() -> None:
    parameters = {"n": 1}
    action = AgentAction("click", parameters)
    first = action.parameters_json
    parameters["n"] = 2
    assert (first, action.parameters_json) == ('{"n": 1}', '{"n": 2}')


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class UppercaseText(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


def normalize(value: object) -> Any:
    """Return a value as it is serialized in the parameters of a call."""
    return json.loads(AgentAction("click", {"value": value}).parameters_json)["value"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (2**1000 - 1, 2**1000 - 1),
        (2**1000, "<a number of 1001 bits>"),
        (UppercaseText("text"), "text"),
        (b"x", "b'x'"),
        ((1, [2]), [1, [2]]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({2, 1}), [1, 2]),
        ({(1, 2): {None: 3}}, {"(1, 2)": {"None": 3}}),
        (Unprintable(), "<Unprintable>"),
        ({Unprintable(): 1}, {"<Unprintable>": 1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parameters_unknown_to_json_are_written_as_text(value: object, plain: object) -> None:
    assert normalize(value) == plain


def test_parameters_are_written_50_levels_deep_and_without_cycles() -> None:
    nested: list[Any] = []
    for _ in range(60):
        nested = [nested]
    assert str(normalize(nested)) == "[" * 49 + "'...'" + "]" * 49  # the parameters are the first level
    twice: dict[str, Any] = {"a": 1}
    cycle: dict[str, Any] = {"first": twice, "second": twice}
    cycle["third"] = cycle
    assert normalize(cycle) == {"first": twice, "second": twice, "third": "..."}


def test_at_most_20000_values_of_the_parameters_are_written() -> None:
    assert normalize(list(range(30_000))) == list(range(19_998))  # the parameters and the list count too
    assert normalize([[*range(19_996)], [1], [2]]) == [[*range(19_996)], "..."]


@pytest.mark.parametrize("name", ["", None, 7])
def test_an_action_requires_the_name_of_its_tool(name: Any) -> None:
    with pytest.raises(InvalidInputError, match="needs the name of its tool"):
        AgentAction(name)


def test_the_parameters_of_an_action_must_be_a_mapping() -> None:
    with pytest.raises(InvalidInputError, match="parameters of 'click' must be a mapping, got list"):
        AgentAction("click", [("n", 1)])  # type: ignore[arg-type]


def test_the_default_signature_of_a_cycle_comes_from_its_action_and_url() -> None:
    action = AgentAction("click", {"n": 1})
    computed = Cycle(entry_id="e", timestamp=1.0, thought=Thought(), action=action, url="https://a.b")
    assert (
        computed.action_signature
        == compute_action_signature(action, "https://a.b")
        != compute_action_signature(action)
    )
    explicit = Cycle(entry_id="e", timestamp=1.0, thought=Thought(), action=action, action_signature="s")
    assert explicit.action_signature == "s"


def test_the_text_of_an_observation_is_its_summary_or_its_output() -> None:
    assert [Observation("whole").text, Observation("whole", "short").text, Observation("whole", "").text] == [
        "whole",
        "short",
        "whole",
    ]
