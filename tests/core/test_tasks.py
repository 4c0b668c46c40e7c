"""A call of a tool, as it is compared and written down."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import AgentAction
from langmem_tiers.core.tasks import action_signature

_TEXT = st.text(max_size=12)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(_TEXT.filter(bool), st.dictionaries(_TEXT, _VALUE, max_size=4), _TEXT)
def test_a_settled_call_is_the_call(tool: str, parameters: dict[str, Any], url: str) -> None:
    settled, fresh = AgentAction.settled(tool, parameters), AgentAction(tool, parameters)
    assert settled == fresh
    assert settled.parameters_json == fresh.parameters_json
    assert action_signature(settled, url) == action_signature(fresh, url)
    assert repr(settled) == repr(fresh)


def test_a_call_says_what_its_parameters_are_now() -> None:
    parameters = {"n": 1}
    action = AgentAction("click", parameters)
    first = action.parameters_json
    parameters["n"] = 2
    assert (first, action.parameters_json) == ('{"n": 1}', '{"n": 2}')
