from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.guard import AdviceLevel, Guard, GuardAdvice
from langmem_tiers.tasks.loop_detection.detector import LoopKind
from langmem_tiers.tasks.models import (
    AgentAction,
    Cycle,
    ExecutionOutcome,
    Observation,
    Thought,
    compute_action_signature,
)

SUBMIT = AgentAction("click", {"selector": "#submit"})
CART = "http://shop.test/cart"


def cycle(
    action: AgentAction = SUBMIT,
    *,
    url: str = CART,
    seen: str | None = None,
    outcome: ExecutionOutcome = ExecutionOutcome.SUCCESS,
) -> Cycle:
    return Cycle(
        entry_id="e",
        timestamp=0.0,
        thought=Thought(),
        action=action,
        observation=None if seen is None else Observation(seen),
        outcome=outcome,
        url=url,
    )


def told(guard: Guard, entry: Cycle, times: int) -> list[AdviceLevel | None]:
    found = [guard.observe(entry) for _ in range(times)]
    return [advice.level if advice else None for advice in found]


def blocked_guard() -> Guard:
    guard = Guard()
    assert told(guard, cycle(), 7)[-1] is AdviceLevel.BLOCK
    return guard


def given_advice(advice: GuardAdvice | None) -> GuardAdvice:
    assert advice is not None
    return advice


# ---- How it gets firmer --------------------------------------------------------------------------------


def test_a_loop_is_warned_of_then_urged_against_then_blocked() -> None:
    warning, block = AdviceLevel.WARNING, AdviceLevel.BLOCK
    assert told(Guard(), cycle(), 8) == [None, None, warning, None, warning, None, block, block]


def test_the_second_warning_names_what_was_tried_and_asks_for_another_approach() -> None:
    guard = Guard()
    told(guard, cycle(), 4)
    message = given_advice(guard.observe(cycle())).message
    assert "Tried so far: click(#submit)" in message
    assert "different approach" in message


def test_a_block_must_be_answered_and_carries_its_loop() -> None:
    guard = Guard()
    told(guard, cycle(), 6)
    advice = given_advice(guard.observe(cycle()))
    assert advice.must_answer
    assert advice.loop is not None
    assert (advice.loop.kind, advice.loop.count) == (LoopKind.EXACT, 7)


def test_only_exactly_that_action_at_that_place_is_blocked() -> None:
    guard = blocked_guard()
    advice = given_advice(guard.check(SUBMIT, CART))
    assert (advice.level, advice.must_answer) == (AdviceLevel.BLOCK, True)
    assert given_advice(guard.check(SUBMIT)).level is AdviceLevel.BLOCK
    assert guard.check(AgentAction("click", {"selector": "#cancel"}), CART) is None
    assert guard.check(SUBMIT, "http://shop.test/other") is None


def test_to_check_counts_for_nothing() -> None:
    guard = Guard()
    for _ in range(20):
        assert guard.check(SUBMIT, CART) is None
    assert guard.frequency("click", {"selector": "#submit"}) == 0


def test_an_answer_lifts_the_block_and_is_quoted_in_the_next_which_comes_after_two_repeats() -> None:
    guard = blocked_guard()
    assert guard.answer("the page was still loading")
    assert guard.check(SUBMIT, CART) is None
    assert guard.observe(cycle()) is None
    again = given_advice(guard.observe(cycle()))
    assert again.level is AdviceLevel.BLOCK
    assert '"the page was still loading"' in again.message
    assert '"the page was still loading"' in given_advice(guard.check(SUBMIT, CART)).message


@pytest.mark.parametrize("reason", ["", "  ", "because", "not now", None])
def test_a_reason_of_less_than_three_words_lifts_nothing(reason: Any) -> None:
    guard = blocked_guard()
    assert not guard.answer(reason)
    assert given_advice(guard.check(SUBMIT, CART)).level is AdviceLevel.BLOCK


def test_without_a_block_there_is_nothing_to_answer() -> None:
    assert not Guard().answer("I know what I do")


ELSEWHERE = AgentAction("goto", {"url": "http://shop.test/help"})


@pytest.mark.parametrize(
    ("entry", "is_lifted"),
    [
        (cycle(ELSEWHERE, url="http://shop.test/help"), True),
        (cycle(ELSEWHERE, url="http://shop.test/help", outcome=ExecutionOutcome.FAILURE), False),
        (cycle(ELSEWHERE, url=CART), False),
        (cycle(ELSEWHERE, url=""), False),
    ],
    ids=["elsewhere", "failed", "same page", "unknown"],
)
def test_only_something_else_that_succeeds_on_another_page_lifts_the_block(
    entry: Cycle,
    is_lifted: bool,  # noqa: FBT001 - a column of the table
) -> None:
    guard = blocked_guard()
    guard.observe(entry)
    assert (guard.check(SUBMIT, CART) is None) == is_lifted


def test_another_observation_is_another_page_where_there_are_no_addresses() -> None:
    guard = Guard()
    told(guard, cycle(url="", seen="no results"), 7)
    assert guard.check(SUBMIT) is not None
    guard.observe(cycle(ELSEWHERE, url="", seen="no results"))
    assert guard.check(SUBMIT) is not None
    guard.observe(cycle(AgentAction("reload"), url="", seen="three results"))
    assert guard.check(SUBMIT) is None


def test_both_sides_of_a_to_and_fro_are_blocked_and_neither_lifts_the_other() -> None:
    guard = Guard()
    there, back = AgentAction("goto", {"url": "a"}), AgentAction("goto", {"url": "b"})
    for _ in range(8):
        guard.observe(cycle(there, url="http://b.test"))
        guard.observe(cycle(back, url="http://a.test"))
    assert given_advice(guard.check(there, "http://b.test")).level is AdviceLevel.BLOCK
    assert given_advice(guard.check(back, "http://a.test")).level is AdviceLevel.BLOCK


def test_a_to_and_fro_gets_two_more_rounds_after_each_word() -> None:
    guard = Guard()
    sides = [cycle(AgentAction("a"), url="http://a.test"), cycle(AgentAction("b"), url="http://b.test")]
    levels = [level for _ in range(8) for side in sides for level in told(guard, side, 1)]
    spoken = [(at, level) for at, level in enumerate(levels) if level and level is not AdviceLevel.NOTE]
    (first, _), (second, _), (third, last) = spoken[:3]
    assert (second - first, third - second, last) == (4, 4, AdviceLevel.BLOCK)


def test_searches_that_are_only_alike_get_firmer_words_too() -> None:
    guard = Guard()
    queries = ["red shoes", "red shoes women", "shoes red", "red running shoes"] * 4
    levels = [
        advice.level if (advice := guard.observe(cycle(AgentAction("search", {"query": query})))) else None
        for query in queries
    ]
    assert AdviceLevel.BLOCK in levels
    assert levels.index(AdviceLevel.WARNING) < levels.index(AdviceLevel.BLOCK)


def test_reading_on_is_not_spoken_of() -> None:
    assert told(Guard(), cycle(AgentAction("scroll", {"direction": "down"})), 4) == [None] * 4


def test_different_actions_are_never_spoken_of() -> None:
    guard = Guard()
    assert not [
        one for at in range(200) if (one := guard.observe(cycle(AgentAction("click", {"element": at}))))
    ]


# ---- Failures, frequency and warnings, as in the design ------------------------------------------------


def test_failures_are_counted_by_signature() -> None:
    guard = Guard()
    signature = compute_action_signature(SUBMIT, CART)
    assert not guard.has_failed(signature)
    guard.observe(cycle(outcome=ExecutionOutcome.FAILURE))
    guard.observe(cycle(outcome=ExecutionOutcome.TIMEOUT))
    guard.observe(cycle(outcome=ExecutionOutcome.SUCCESS))
    guard.observe(cycle(url="http://other.test", outcome=ExecutionOutcome.FAILURE))
    assert guard.has_failed(signature)
    assert guard.failures(signature) == 2


def test_what_failed_before_is_noted_and_then_warned_of_before_it_is_done_again() -> None:
    guard = Guard()
    guard.observe(cycle(outcome=ExecutionOutcome.FAILURE))
    once = given_advice(guard.check(SUBMIT, CART))
    guard.observe(cycle(outcome=ExecutionOutcome.FAILURE))
    twice = given_advice(guard.check(SUBMIT, CART))
    assert (once.level, twice.level) == (AdviceLevel.NOTE, AdviceLevel.WARNING)
    assert twice.message == "click(#submit) failed 2 times before: try something else"
    assert not twice.must_answer


def test_frequency_counts_a_call_whatever_the_order_of_its_keys_and_its_address() -> None:
    guard = Guard()
    guard.observe(cycle(AgentAction("scroll_page", {"direction": "down", "by": 1}), url="a"))
    guard.observe(cycle(AgentAction("scroll_page", {"by": 1, "direction": "down"}), url="b"))
    assert guard.frequency("scroll_page", {"direction": "down", "by": 1}) == 2
    assert guard.frequency("scroll_page", {"direction": "up"}) == 0


def test_warnings_have_the_form_of_the_design() -> None:
    guard = Guard()
    for at in range(6):
        guard.observe(cycle(AgentAction("read", {"page": f"p{at}"})))
    told(guard, cycle(), 4)
    assert guard.warnings() == ["Warning: click(#submit) repeated 4 times in last 10 actions!"]
    assert guard.warnings(threshold=5) == []


def test_warnings_look_at_the_last_ten_actions_only() -> None:
    guard = Guard()
    told(guard, cycle(), 4)
    for at in range(8):
        guard.observe(cycle(AgentAction(f"tool_{at}")))
    assert guard.warnings() == []
    assert guard.frequency("click", {"selector": "#submit"}) == 4


# ---- Restarts ------------------------------------------------------------------------------------------


def test_reset_forgets_everything() -> None:
    guard = blocked_guard()
    guard.reset()
    assert guard.state() == Guard().state()
    assert guard.check(SUBMIT, CART) is None


ENTRIES = st.builds(
    lambda tool, value, url, seen, outcome: cycle(
        AgentAction(tool, {"q": value}), url=url, seen=seen, outcome=outcome
    ),
    st.sampled_from(["click", "search", "scroll", "go_back"]),
    st.sampled_from(["red shoes", "red shoes women", "5"]),
    st.sampled_from(["", CART, "http://shop.test/list"]),
    st.sampled_from([None, "", "ok", "x\n" * 200]),
    st.sampled_from(list(ExecutionOutcome)),
)


@given(st.lists(ENTRIES, max_size=40), st.integers(0, 40), st.booleans())
def test_a_guard_restored_from_json_goes_on_as_if_nothing_had_happened(
    entries: list[Cycle],
    cut: int,
    is_answered: bool,  # noqa: FBT001 - drawn
) -> None:
    first = Guard()
    for entry in entries[:cut]:
        first.observe(entry)
    if is_answered:
        first.answer("it is on purpose")
    second = Guard()
    second.restore(json.loads(json.dumps(first.state())))
    for entry in entries[cut:]:
        assert first.check(entry.action, entry.url) == second.check(entry.action, entry.url)
        assert first.observe(entry) == second.observe(entry)
    assert first.state() == second.state()
    assert first.report() == second.report()


GO_THERE, GO_BACK = AgentAction("goto", {"url": "a"}), AgentAction("goto", {"url": "b"})
LOOPS = {
    "one action": [cycle(seen="no results")] * 14,
    "one action that fails": [cycle(outcome=ExecutionOutcome.FAILURE)] * 14,
    "to and fro": [cycle(GO_THERE, url="http://b.test"), cycle(GO_BACK, url="http://a.test")] * 12,
    "searches that are alike": [
        cycle(AgentAction("search", {"query": query}))
        for query in ["red shoes", "red shoes women", "shoes red", "red running shoes"] * 4
    ],
}


@pytest.mark.parametrize("entries", LOOPS.values(), ids=LOOPS)
def test_a_guard_restored_in_the_middle_of_a_loop_gives_the_same_advice(entries: list[Cycle]) -> None:
    guard, levels = Guard(), list[AdviceLevel | None]()
    for entry in entries:
        restored = Guard()
        restored.restore(json.loads(json.dumps(guard.state())))
        assert restored.state() == guard.state()
        before, advice = guard.check(entry.action, entry.url), guard.observe(entry)
        assert restored.check(entry.action, entry.url) == before
        assert restored.observe(entry) == advice
        levels.append(advice.level if advice else None)
        guard.answer(f"because of reason number {len(levels)}")
    assert levels.count(AdviceLevel.BLOCK) > 1  # each answer lifted the block before it


def test_a_restored_guard_still_blocks_and_still_quotes_the_answer() -> None:
    guard = blocked_guard()
    assert guard.answer("the page was still loading")
    told(guard, cycle(), 2)
    restored = Guard()
    restored.restore(json.loads(json.dumps(guard.state())))
    advice = given_advice(restored.check(SUBMIT, CART))
    assert advice.level is AdviceLevel.BLOCK
    assert '"the page was still loading"' in advice.message
    assert not restored.answer("the page was still loading")
    assert restored.answer("the page has loaded now")
    assert restored.check(SUBMIT, CART) is None


@pytest.mark.soak
def test_the_state_of_a_long_task_stays_small_and_holds_no_pages() -> None:
    guard = Guard()
    for at in range(1_000):
        guard.observe(
            cycle(AgentAction("fill", {"text": f"secret {at} " * 1_000}), seen="page text " * 1_000)
        )
    written = json.dumps(guard.state())
    assert len(written) < 300_000
    assert "page text" not in written


@pytest.mark.parametrize("state", [{}, {"version": 99}, [], None, {"version": 1, "marks": [[1]]}])
def test_what_is_no_state_is_refused_and_changes_nothing(state: Any) -> None:
    guard = blocked_guard()
    before = guard.state()
    with pytest.raises(InvalidInputError, match="not a valid guard state"):
        guard.restore(state)
    assert guard.state() == before


# ---- Bad input -----------------------------------------------------------------------------------------


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


CYCLIC: dict[str, Any] = {}
CYCLIC["itself"] = CYCLIC


@pytest.mark.parametrize(
    "parameters",
    [
        {"a": Unspeakable()},
        {"a": object},
        {"a": b"\xff"},
        {"a": "\ud800"},
        CYCLIC,
        {1: {2: 3}},
        {"a": {1, "b"}},
    ],
    ids=["unspeakable", "type", "bytes", "surrogate", "cyclic", "keys", "set"],
)
@pytest.mark.parametrize("url", ["", "http://[::bad", "not a url", "\x00", "x" * 100_000])
def test_no_parameters_and_no_address_break_the_agents_loop(parameters: dict[str, Any], url: str) -> None:
    guard = Guard()
    action = AgentAction("call", parameters)
    for _ in range(7):
        guard.check(action, url)
        guard.observe(cycle(action, url=url))
    assert guard.frequency("call", parameters) == 7
    assert given_advice(guard.check(action, url)).level is AdviceLevel.BLOCK
    json.dumps(guard.state())


class Unreadable(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def test_an_action_whose_parameters_cannot_be_read_is_neither_advised_on_nor_counted() -> None:
    guard, action = Guard(), AgentAction("call", Unreadable(a=1))
    for _ in range(7):
        assert guard.check(action, CART) is None
        assert guard.observe(cycle(action)) is None
    assert guard.frequency("call", Unreadable(a=1)) == 0
    assert guard.state() == Guard().state()


def test_things_that_are_no_cycles_are_passed_over() -> None:
    guard = Guard()
    nonsense: Any = None
    assert guard.observe(nonsense) is None
    assert guard.check(nonsense, nonsense) is None
    assert guard.frequency(nonsense, nonsense) == 0
    empty: Any = cycle(seen="x", url=nonsense or "")
    object.__setattr__(empty.observation, "raw_output", None)
    object.__setattr__(empty, "url", None)
    assert guard.observe(empty) is None
    assert guard.frequency("click", {"selector": "#submit"}) == 1


def test_only_the_beginning_and_the_end_of_a_page_of_a_megabyte_are_compared() -> None:
    guard = Guard()
    half = "some text on a long page\n" * 20_000
    for at in range(3):
        guard.observe(cycle(seen=f"{half}in the middle {at}\n{half}"))
    assert {loop.kind for loop in guard.report().loops} == {LoopKind.UNCHANGED}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [(ExecutionOutcome.FAILURE, "?"), (ExecutionOutcome.SUCCESS, "Element not clickable.")],
)
def test_actions_that_differ_in_a_counter_and_come_to_nothing_are_blocked(
    outcome: ExecutionOutcome, said: str
) -> None:
    guard, levels = Guard(), []
    for index in range(12):
        entry = Cycle(
            entry_id=str(index),
            timestamp=float(index),
            thought=Thought(),
            action=AgentAction("click", {"index": index}),
            observation=Observation(said),
            outcome=outcome,
            url="http://shop.test",
        )
        advice = guard.observe(entry)
        levels.append("" if advice is None else advice.level.value)
    assert levels[-1] == "block"
    assert levels.index("warning") < levels.index("block")


def test_ticking_one_box_after_the_other_is_no_loop() -> None:
    guard = Guard()
    for index in range(30):
        entry = Cycle(
            entry_id=str(index),
            timestamp=float(index),
            thought=Thought(),
            action=AgentAction("click", {"index": index}),
            observation=Observation("Clicked."),
            url="http://shop.test",
        )
        assert guard.observe(entry) is None
