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


def build_cycle(
    action: AgentAction = SUBMIT,
    *,
    url: str = CART,
    observation: str | None = None,
    outcome: ExecutionOutcome = ExecutionOutcome.SUCCESS,
) -> Cycle:
    return Cycle(
        entry_id="e",
        timestamp=0.0,
        thought=Thought(),
        action=action,
        observation=None if observation is None else Observation(observation),
        outcome=outcome,
        url=url,
    )


def observe_levels(guard: Guard, entry: Cycle, times: int) -> list[AdviceLevel | None]:
    found = [guard.observe(entry) for _ in range(times)]
    return [advice.level if advice else None for advice in found]


def create_blocked_guard() -> Guard:
    guard = Guard()
    assert observe_levels(guard, build_cycle(), 7)[-1] is AdviceLevel.BLOCK
    return guard


def require_advice(advice: GuardAdvice | None) -> GuardAdvice:
    assert advice is not None
    return advice


# ---- How it gets firmer --------------------------------------------------------------------------------


def test_a_loop_gets_two_warnings_and_then_a_block() -> None:
    warning, block = AdviceLevel.WARNING, AdviceLevel.BLOCK
    assert observe_levels(Guard(), build_cycle(), 8) == [
        None,
        None,
        warning,
        None,
        warning,
        None,
        block,
        block,
    ]


def test_the_second_warning_names_the_attempts_and_suggests_another_approach() -> None:
    guard = Guard()
    observe_levels(guard, build_cycle(), 4)
    message = require_advice(guard.observe(build_cycle())).message
    assert "Tried so far: click(#submit)" in message
    assert "different approach" in message


def test_a_block_requires_an_answer_and_contains_its_loop() -> None:
    guard = Guard()
    observe_levels(guard, build_cycle(), 6)
    advice = require_advice(guard.observe(build_cycle()))
    assert advice.must_answer
    assert advice.loop is not None
    assert (advice.loop.kind, advice.loop.count) == (LoopKind.EXACT, 7)


def test_a_block_applies_only_to_its_action_and_page() -> None:
    guard = create_blocked_guard()
    advice = require_advice(guard.check(SUBMIT, CART))
    assert (advice.level, advice.must_answer) == (AdviceLevel.BLOCK, True)
    assert require_advice(guard.check(SUBMIT)).level is AdviceLevel.BLOCK
    assert guard.check(AgentAction("click", {"selector": "#cancel"}), CART) is None
    assert guard.check(SUBMIT, "http://shop.test/other") is None


def test_checking_an_action_does_not_count_as_doing_it() -> None:
    guard = Guard()
    for _ in range(20):
        assert guard.check(SUBMIT, CART) is None
    assert guard.frequency("click", {"selector": "#submit"}) == 0


def test_an_answer_lifts_the_block_and_is_quoted_in_the_next_block() -> None:
    guard = create_blocked_guard()
    assert guard.answer("the page was still loading")
    assert guard.check(SUBMIT, CART) is None
    assert guard.observe(build_cycle()) is None
    again = require_advice(guard.observe(build_cycle()))
    assert again.level is AdviceLevel.BLOCK
    assert '"the page was still loading"' in again.message
    assert '"the page was still loading"' in require_advice(guard.check(SUBMIT, CART)).message


@pytest.mark.parametrize("reason", ["", "  ", "because", "not now", None])
def test_a_reason_of_less_than_three_words_does_not_lift_the_block(reason: Any) -> None:
    guard = create_blocked_guard()
    assert not guard.answer(reason)
    assert require_advice(guard.check(SUBMIT, CART)).level is AdviceLevel.BLOCK


def test_an_answer_without_a_block_is_rejected() -> None:
    assert not Guard().answer("I know what I do")


ELSEWHERE = AgentAction("goto", {"url": "http://shop.test/help"})


@pytest.mark.parametrize(
    ("entry", "is_lifted"),
    [
        (build_cycle(ELSEWHERE, url="http://shop.test/help"), True),
        (build_cycle(ELSEWHERE, url="http://shop.test/help", outcome=ExecutionOutcome.FAILURE), False),
        (build_cycle(ELSEWHERE, url=CART), False),
        (build_cycle(ELSEWHERE, url=""), False),
    ],
    ids=["elsewhere", "failed", "same page", "unknown"],
)
def test_only_a_different_successful_action_on_another_page_lifts_the_block(
    entry: Cycle,
    is_lifted: bool,  # noqa: FBT001 - a column of the table
) -> None:
    guard = create_blocked_guard()
    guard.observe(entry)
    assert (guard.check(SUBMIT, CART) is None) == is_lifted


def test_without_urls_another_observation_counts_as_another_page() -> None:
    guard = Guard()
    observe_levels(guard, build_cycle(url="", observation="no results"), 7)
    assert guard.check(SUBMIT) is not None
    guard.observe(build_cycle(ELSEWHERE, url="", observation="no results"))
    assert guard.check(SUBMIT) is not None
    guard.observe(build_cycle(AgentAction("reload"), url="", observation="three results"))
    assert guard.check(SUBMIT) is None


def test_both_sides_of_an_oscillation_are_blocked_and_neither_lifts_the_other() -> None:
    guard = Guard()
    go_there, go_back = AgentAction("goto", {"url": "a"}), AgentAction("goto", {"url": "b"})
    for _ in range(8):
        guard.observe(build_cycle(go_there, url="http://b.test"))
        guard.observe(build_cycle(go_back, url="http://a.test"))
    assert require_advice(guard.check(go_there, "http://b.test")).level is AdviceLevel.BLOCK
    assert require_advice(guard.check(go_back, "http://a.test")).level is AdviceLevel.BLOCK


def test_an_oscillation_gets_two_more_rounds_between_warnings() -> None:
    guard = Guard()
    sides = [
        build_cycle(AgentAction("a"), url="http://a.test"),
        build_cycle(AgentAction("b"), url="http://b.test"),
    ]
    levels = [level for _ in range(8) for side in sides for level in observe_levels(guard, side, 1)]
    warned = [(index, level) for index, level in enumerate(levels) if level and level is not AdviceLevel.NOTE]
    (first, _), (second, _), (third, last) = warned[:3]
    assert (second - first, third - second, last) == (4, 4, AdviceLevel.BLOCK)


def test_similar_searches_are_warned_of_and_then_blocked() -> None:
    guard = Guard()
    queries = ["red shoes", "red shoes women", "shoes red", "red running shoes"] * 4
    levels = [
        advice.level
        if (advice := guard.observe(build_cycle(AgentAction("search", {"query": query}))))
        else None
        for query in queries
    ]
    assert AdviceLevel.BLOCK in levels
    assert levels.index(AdviceLevel.WARNING) < levels.index(AdviceLevel.BLOCK)


def test_scrolling_a_few_times_gets_no_advice() -> None:
    assert observe_levels(Guard(), build_cycle(AgentAction("scroll", {"direction": "down"})), 4) == [None] * 4


def test_different_actions_get_no_advice() -> None:
    guard = Guard()
    assert not [
        advice
        for index in range(200)
        if (advice := guard.observe(build_cycle(AgentAction("click", {"element": index}))))
    ]


# ---- Failures, frequency and warnings, as in the design ------------------------------------------------


def test_failures_are_counted_by_signature() -> None:
    guard = Guard()
    signature = compute_action_signature(SUBMIT, CART)
    assert not guard.has_failed(signature)
    guard.observe(build_cycle(outcome=ExecutionOutcome.FAILURE))
    guard.observe(build_cycle(outcome=ExecutionOutcome.TIMEOUT))
    guard.observe(build_cycle(outcome=ExecutionOutcome.SUCCESS))
    guard.observe(build_cycle(url="http://other.test", outcome=ExecutionOutcome.FAILURE))
    assert guard.has_failed(signature)
    assert guard.failures(signature) == 2


def test_checking_a_failed_action_gives_a_note_and_after_two_failures_a_warning() -> None:
    guard = Guard()
    guard.observe(build_cycle(outcome=ExecutionOutcome.FAILURE))
    once = require_advice(guard.check(SUBMIT, CART))
    guard.observe(build_cycle(outcome=ExecutionOutcome.FAILURE))
    twice = require_advice(guard.check(SUBMIT, CART))
    assert (once.level, twice.level) == (AdviceLevel.NOTE, AdviceLevel.WARNING)
    assert twice.message == "click(#submit) failed 2 times before: try something else"
    assert not twice.must_answer


def test_frequency_ignores_the_order_of_keys_and_the_url() -> None:
    guard = Guard()
    guard.observe(build_cycle(AgentAction("scroll_page", {"direction": "down", "by": 1}), url="a"))
    guard.observe(build_cycle(AgentAction("scroll_page", {"by": 1, "direction": "down"}), url="b"))
    assert guard.frequency("scroll_page", {"direction": "down", "by": 1}) == 2
    assert guard.frequency("scroll_page", {"direction": "up"}) == 0


def test_warnings_have_the_form_of_the_design() -> None:
    guard = Guard()
    for index in range(6):
        guard.observe(build_cycle(AgentAction("read", {"page": f"p{index}"})))
    observe_levels(guard, build_cycle(), 4)
    assert guard.warnings() == ["Warning: click(#submit) repeated 4 times in last 10 actions!"]
    assert guard.warnings(threshold=5) == []


def test_warnings_cover_only_the_last_ten_actions() -> None:
    guard = Guard()
    observe_levels(guard, build_cycle(), 4)
    for index in range(8):
        guard.observe(build_cycle(AgentAction(f"tool_{index}")))
    assert guard.warnings() == []
    assert guard.frequency("click", {"selector": "#submit"}) == 4


# ---- Restarts ------------------------------------------------------------------------------------------


def test_reset_clears_the_state() -> None:
    guard = create_blocked_guard()
    guard.reset()
    assert guard.state() == Guard().state()
    assert guard.check(SUBMIT, CART) is None


ENTRIES = st.builds(
    lambda tool, value, url, seen, outcome: build_cycle(
        AgentAction(tool, {"q": value}), url=url, observation=seen, outcome=outcome
    ),
    st.sampled_from(["click", "search", "scroll", "go_back"]),
    st.sampled_from(["red shoes", "red shoes women", "5"]),
    st.sampled_from(["", CART, "http://shop.test/list"]),
    st.sampled_from([None, "", "ok", "x\n" * 200]),
    st.sampled_from(list(ExecutionOutcome)),
)


@given(st.lists(ENTRIES, max_size=40), st.integers(0, 40), st.booleans())
def test_a_guard_restored_from_json_behaves_like_the_original(
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
    "one action": [build_cycle(observation="no results")] * 14,
    "one action that fails": [build_cycle(outcome=ExecutionOutcome.FAILURE)] * 14,
    "to and fro": [build_cycle(GO_THERE, url="http://b.test"), build_cycle(GO_BACK, url="http://a.test")]
    * 12,
    "searches that are alike": [
        build_cycle(AgentAction("search", {"query": query}))
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
    guard = create_blocked_guard()
    assert guard.answer("the page was still loading")
    observe_levels(guard, build_cycle(), 2)
    restored = Guard()
    restored.restore(json.loads(json.dumps(guard.state())))
    advice = require_advice(restored.check(SUBMIT, CART))
    assert advice.level is AdviceLevel.BLOCK
    assert '"the page was still loading"' in advice.message
    assert not restored.answer("the page was still loading")
    assert restored.answer("the page has loaded now")
    assert restored.check(SUBMIT, CART) is None


@pytest.mark.soak
def test_the_state_of_a_long_task_is_small_and_contains_no_page_text() -> None:
    guard = Guard()
    for index in range(1_000):
        guard.observe(
            build_cycle(
                AgentAction("fill", {"text": f"secret {index} " * 1_000}), observation="page text " * 1_000
            )
        )
    dump = json.dumps(guard.state())
    assert len(dump) < 300_000
    assert "page text" not in dump


@pytest.mark.parametrize("state", [{}, {"version": 99}, [], None, {"version": 1, "marks": [[1]]}])
def test_an_invalid_state_is_rejected_and_changes_nothing(state: Any) -> None:
    guard = create_blocked_guard()
    before = guard.state()
    with pytest.raises(InvalidInputError, match="not a valid guard state"):
        guard.restore(state)
    assert guard.state() == before


# ---- Bad input -----------------------------------------------------------------------------------------


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


CYCLIC: dict[str, Any] = {}
CYCLIC["itself"] = CYCLIC


@pytest.mark.parametrize(
    "parameters",
    [
        {"a": Unprintable()},
        {"a": object},
        {"a": b"\xff"},
        {"a": "\ud800"},
        CYCLIC,
        {1: {2: 3}},
        {"a": {1, "b"}},
    ],
    ids=["unprintable", "type", "bytes", "surrogate", "cyclic", "keys", "set"],
)
@pytest.mark.parametrize("url", ["", "http://[::bad", "not a url", "\x00", "x" * 100_000])
def test_any_parameters_and_urls_are_accepted(parameters: dict[str, Any], url: str) -> None:
    guard = Guard()
    action = AgentAction("call", parameters)
    for _ in range(7):
        guard.check(action, url)
        guard.observe(build_cycle(action, url=url))
    assert guard.frequency("call", parameters) == 7
    assert require_advice(guard.check(action, url)).level is AdviceLevel.BLOCK
    json.dumps(guard.state())


class Unreadable(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def test_an_action_with_unreadable_parameters_is_ignored() -> None:
    guard, action = Guard(), AgentAction("call", Unreadable(a=1))
    for _ in range(7):
        assert guard.check(action, CART) is None
        assert guard.observe(build_cycle(action)) is None
    assert guard.frequency("call", Unreadable(a=1)) == 0
    assert guard.state() == Guard().state()


def test_invalid_cycles_are_ignored() -> None:
    guard = Guard()
    nonsense: Any = None
    assert guard.observe(nonsense) is None
    assert guard.check(nonsense, nonsense) is None
    assert guard.frequency(nonsense, nonsense) == 0
    empty: Any = build_cycle(observation="x", url=nonsense or "")
    object.__setattr__(empty.observation, "raw_output", None)
    object.__setattr__(empty, "url", None)
    assert guard.observe(empty) is None
    assert guard.frequency("click", {"selector": "#submit"}) == 1


def test_only_the_beginning_and_the_end_of_a_large_page_are_compared() -> None:
    guard = Guard()
    half = "some text on a long page\n" * 20_000
    for index in range(3):
        guard.observe(build_cycle(observation=f"{half}in the middle {index}\n{half}"))
    assert {loop.kind for loop in guard.report().loops} == {LoopKind.UNCHANGED}


@pytest.mark.parametrize(
    ("outcome", "observed"),
    [(ExecutionOutcome.FAILURE, "?"), (ExecutionOutcome.SUCCESS, "Element not clickable.")],
)
def test_actions_that_differ_only_in_a_counter_without_progress_are_blocked(
    outcome: ExecutionOutcome, observed: str
) -> None:
    guard, levels = Guard(), []
    for index in range(12):
        entry = Cycle(
            entry_id=str(index),
            timestamp=float(index),
            thought=Thought(),
            action=AgentAction("click", {"index": index}),
            observation=Observation(observed),
            outcome=outcome,
            url="http://shop.test",
        )
        advice = guard.observe(entry)
        levels.append("" if advice is None else advice.level.value)
    assert levels[-1] == "block"
    assert levels.index("warning") < levels.index("block")


def test_clicking_consecutive_elements_is_not_a_loop() -> None:
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
