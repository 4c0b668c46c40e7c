from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import loops as benchmark
from benchmarks.loop_runs import made_up_runs
from benchmarks.loop_runs_held_out import HELD_OUT
from benchmarks.loop_runs_tuned import TUNED
from langmem_tiers.tasks.loop_detection.detector import (
    DEFAULT_LOOP_THRESHOLD,
    Loop,
    LoopKind,
    LoopTracker,
    Step,
    find_loops,
)
from langmem_tiers.tasks.models import AgentAction
from tests.hypothesis_settings import examples
from tests.work_counters import count_function_calls

if TYPE_CHECKING:
    from pathlib import Path

HERE = "http://shop.test/cart"
SAME_ACTION = {LoopKind.EXACT, LoopKind.UNCHANGED, LoopKind.FAILURE}


def build_steps(*actions: str, url: str = HERE, observation: str = "", failed: bool = False) -> list[Step]:
    return [Step.of(action, url=url, observation=observation, failed=failed) for action in actions]


def build_page(words: str) -> str:
    return "\n".join(
        f"[{index}] link '{words} {letter}'" for index, letter in enumerate("abcdefghijklmnopqrst")
    )


def list_kinds(run: list[Step]) -> set[LoopKind]:
    return {loop.kind for loop in find_loops(run).loops}


def find_loop(run: list[Step], kind: LoopKind) -> Loop:
    return next(loop for loop in find_loops(run).loops if loop.kind is kind)


# ---- Actions as they are written -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "tool", "parameters"),
    [
        ("click('a51')", "click", {"0": "a51"}),
        ("fill('237', 'red shoes')", "fill", {"0": "237", "1": "red shoes"}),
        ("fill(bid='237', value='it\\'s')", "fill", {"bid": "237", "value": "it's"}),
        ("scroll(0, -500.5)", "scroll", {"0": 0, "1": -500.5}),
        ("goto('https://a.test/?q=(x)')", "goto", {"0": "https://a.test/?q=(x)"}),
        ("noop()", "noop", {}),
        ("```click('a51')```", "click", {"0": "a51"}),
        ("page.click(target)", "page.click", {"0": "target"}),
        ("click [1234]", "click", {"0": "1234"}),
        ("type [164] [restaurants near me] [1]", "type", {"0": "164", "1": "restaurants near me", "2": "1"}),
        ("scroll [down]", "scroll", {"0": "down"}),
        ('{"action": "click", "element": 5}', "click", {"element": 5}),
        ('{"name": "search", "arguments": "{\\"q\\": \\"x\\"}"}', "search", {"q": "x"}),
        ("ls -la   /tmp", "ls", {"text": "-la /tmp"}),
        ("???", "text", {"text": "???"}),
        ("click('a51'", "text", {"text": "click('a51'"}),
        ("", "text", {"text": ""}),
    ],
)
def test_actions_are_parsed_in_the_forms_that_agents_write(
    written: str, tool: str, parameters: dict[str, Any]
) -> None:
    step = Step.of(written)
    assert (step.tool, dict(step.parameters)) == (tool, parameters)


def test_agent_actions_and_mappings_are_accepted() -> None:
    assert Step.of(AgentAction("click", {"selector": "#a"})) == Step(
        tool="click", parameters={"selector": "#a"}
    )
    assert Step.of({"tool": "click", "parameters": {"selector": "#a"}}).parameters == {"selector": "#a"}


@given(st.text() | st.none() | st.integers() | st.dictionaries(st.text(), st.text() | st.none()))
def test_any_action_is_accepted(action: Any) -> None:
    assert find_loops([Step.of(action)] * 3).loops


@pytest.mark.parametrize(
    "parameters", [{"a": object()}, {"a": {1, 2}}, {"a": 10**5000}, {1: {2: [b"x"]}}, {"a": float("nan")}]
)
def test_parameters_unknown_to_json_are_compared(parameters: dict[Any, Any]) -> None:
    step = Step(tool="call", parameters=parameters, url="http://[bad", observation="\ud800")
    assert find_loop([step] * 4, LoopKind.UNCHANGED).count == 4


# ---- What is a loop ------------------------------------------------------------------------------------


def test_the_same_click_three_times_at_one_address_is_an_exact_loop() -> None:
    report = find_loops(build_steps("click('1')", "click('5')", "click('5')", "click('5')"))
    assert report.is_loop
    found = report.loops[0]
    assert (found.kind, found.tool, found.count, found.first, found.last) == (
        LoopKind.EXACT,
        "click",
        3,
        1,
        3,
    )
    assert found.message == "click(5) occurred 3 times in steps 2 to 4"


def test_an_action_done_twice_is_not_a_loop() -> None:
    assert not find_loops(build_steps("click('5')", "click('5')")).loops


def test_the_same_action_at_other_urls_is_not_an_exact_loop() -> None:
    run = [Step.of("click('5')", url=f"http://shop.test/list?p={index}") for index in range(6)]
    assert not find_loops(run, threshold=DEFAULT_LOOP_THRESHOLD).is_loop
    assert list_kinds(run) == {LoopKind.NEAR}


def test_a_url_fragment_is_ignored_unless_it_is_a_route() -> None:
    moved = [Step.of("click('5')", url=f"http://map.test/#map=7/{index}/3") for index in range(3)]
    routed = [Step.of("click('5')", url=f"http://mail.test/#/inbox/{index}") for index in range(3)]
    assert find_loops(moved).is_loop
    assert not find_loops(routed).is_loop


def test_repeats_without_a_change_score_higher_than_repeats_that_change_the_page() -> None:
    unchanged = build_steps(*["click('5')"] * 3, observation=build_page("cart"))
    changing = [
        Step.of("click('5')", url=HERE, observation=build_page(words)) for words in ("one", "two", "three")
    ]
    assert list_kinds(unchanged) == {LoopKind.UNCHANGED}
    assert (
        find_loops(unchanged).score
        > find_loops(build_steps(*["click('5')"] * 3)).score
        > find_loops(changing).score
    )
    assert not find_loops(changing).is_loop


def test_a_page_with_renumbered_elements_is_the_same_page() -> None:
    run = [
        Step.of("click('5')", observation=build_page("cart").replace("[", f"[{index}")) for index in (1, 2, 3)
    ]
    assert list_kinds(run) == {LoopKind.UNCHANGED}


def test_opening_and_closing_in_turn_is_a_loop() -> None:
    run = [
        Step.of("click('5')", url=HERE, observation=build_page(("open", "shut")[index % 2]))
        for index in range(5)
    ]
    assert find_loops(run).is_loop


def test_repeated_failures_score_higher() -> None:
    failed = build_steps(*["click('5')"] * 3, failed=True)
    assert list_kinds(failed) == {LoopKind.FAILURE}
    assert find_loops(failed).score > find_loops(build_steps(*["click('5')"] * 3)).score


def test_rephrased_searches_are_near_repeats() -> None:
    words = ["red shoes", "red shoes women", "shoes red", "red running shoes", "red shoes sale", "shoes, red"]
    run = build_steps(*(f"fill('237', '{query}')" for query in words))
    assert find_loops(run).is_loop
    assert find_loop(run, LoopKind.NEAR).count == 6


def test_a_counter_alone_is_reported_but_is_not_a_loop() -> None:
    run = build_steps(*(f"read_page({number})" for number in range(30)), url="")
    assert list_kinds(run) == {LoopKind.NEAR}
    assert not find_loops(run).is_loop


def test_a_counter_on_an_unchanged_page_is_a_loop() -> None:
    run = build_steps(*(f"click_at({number})" for number in range(8)), observation=build_page("still"))
    assert find_loops(run).is_loop


@pytest.mark.parametrize("period", [2, 3, 4, 6])
def test_cycles_are_found_with_their_period(period: int) -> None:
    turn = [Step.of(f"goto('http://a.test/{letter}')") for letter in "abcdef"[:period]]
    run = turn * 3
    found = find_loop(run, LoopKind.OSCILLATION)
    assert (found.period, found.count, found.first) == (period, 3 * period, 0)
    assert f"the same {period} steps" in found.message
    assert "occurred 3 times in steps 1 to" in found.message
    assert find_loops(run).is_loop


def test_a_cycle_through_two_pages_is_found_despite_changing_ids() -> None:
    run = []
    for index in range(6):
        run += [
            Step.of(f"click('{index}')", url="http://a.test"),
            Step.of(f"click('{index + 50}')", url="http://b.test"),
        ]
    assert find_loop(run, LoopKind.OSCILLATION).count == 12
    assert find_loops(run).is_loop


# ---- What is none --------------------------------------------------------------------------------------


def test_scrolling_a_few_times_is_not_a_loop_and_scrolling_often_is() -> None:
    answer = build_steps("send_msg_to_user('It says 4.')")
    start = build_steps("click('1')", "click('2')")
    assert not find_loops(start + build_steps(*["scroll(0, 500)"] * 4) + answer).is_loop
    assert find_loops(start + build_steps(*["scroll(0, 500)"] * 8)).is_loop
    assert find_loops(start + build_steps(*["scroll(0, 500)", "scroll(0, -500)"] * 4)).is_loop


def test_waiting_for_a_page_is_not_a_loop() -> None:
    assert not find_loops(build_steps("click('1')", "noop()", "noop()", "noop()", "click('2')")).is_loop


def test_opening_each_item_of_a_list_is_not_a_loop_and_opening_the_same_item_is() -> None:
    walk, same = [], []
    for index in range(5):
        walk += [
            Step.of(f"click('{index}')", url=HERE),
            Step.of("go_back()", url=f"http://shop.test/{index}"),
        ]
        same += [Step.of("click('7')", url=HERE), Step.of("go_back()", url="http://shop.test/7")]
    assert not find_loops(walk).is_loop
    assert find_loops(same).is_loop


def test_the_same_choice_in_every_row_is_not_a_loop() -> None:
    assert not find_loops(build_steps(*(f"select_option('a{row}', 'Yes')" for row in range(15)))).is_loop


@pytest.mark.parametrize("moved", ["x", "y"])
def test_similar_texts_are_near_repeats_only_at_the_same_coordinates(moved: str) -> None:
    same_place = [
        Step(tool="type_text", parameters={"x": 10, "y": 10, "text": f"box of red {name}"}, url=HERE)
        for name in ("bolts", "paint", "wires", "nails")
    ]
    other_places = [
        replace(step, parameters={**step.parameters, moved: 10 + 40 * index})
        for index, step in enumerate(same_place)
    ]
    assert list_kinds(same_place) == {LoopKind.NEAR}
    assert list_kinds(other_places) == set()


@pytest.mark.parametrize("moved", ["x", "y"])
def test_scrolling_is_the_same_action_only_at_the_same_coordinates(moved: str) -> None:
    same_place = [
        Step(tool="scroll_at", parameters={"x": 10, "y": 10, "direction": way})
        for way in ("down", "up", "left", "right", "down", "up", "left", "right")
    ]
    other_places = [
        replace(step, parameters={**step.parameters, moved: 10 + 40 * index})
        for index, step in enumerate(same_place)
    ]
    assert LoopKind.NEAR in list_kinds(same_place)
    assert LoopKind.NEAR not in list_kinds(other_places)


def test_a_repeated_button_between_new_inputs_is_not_a_loop() -> None:
    rows = [f"fill('{name}', '{name} of the order')" for name in ("bolts", "paint", "ladder")]
    run = [action for row in rows for action in ("click('add')", row)]
    assert not find_loops(build_steps(*run), threshold=DEFAULT_LOOP_THRESHOLD).is_loop


def test_a_run_that_left_a_loop_scores_lower_than_one_that_ended_in_it() -> None:
    start, repeats = build_steps("click('1')", "click('2')"), build_steps(*["click('5')"] * 3)
    after = build_steps(*(f"click('b{index}')" for index in range(8)))
    assert find_loops(start + repeats + after).score < find_loops(start + repeats).score


def test_the_threshold_determines_whether_a_run_is_a_loop() -> None:
    run = build_steps(*["click('5')"] * 3)
    assert not find_loops(run, threshold=0.99).is_loop
    assert find_loops(build_steps(*["noop()"] * 3), threshold=0.1).is_loop


# ---- Invariants ----------------------------------------------------------------------------------------

ACTIONS = st.sampled_from(
    "click('1') click('2') fill('3','red_shoes') fill('3','red_shoe') scroll(0,500) scroll(0,-500) go_back() "
    "noop() goto('http://a.test') goto('http://b.test') send_msg_to_user('done') stop() press('3','Enter')".split()
)
STEPS = st.builds(
    lambda action, url, seen, failed: Step.of(action, url=url, observation=seen, failed=failed),
    ACTIONS,
    st.sampled_from(["", "http://a.test", "http://b.test"]),
    st.sampled_from(["", "ok", build_page("one"), build_page("two")]),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=40), st.data())
def test_tracking_a_run_step_by_step_gives_the_result_of_the_whole_run(
    run: list[Step], data: st.DataObject
) -> None:
    tracker = LoopTracker()
    checked_steps = data.draw(st.sets(st.integers(0, 40)))
    for index, step in enumerate(run):
        tracker.add(step)
        if index in checked_steps:
            assert tracker.report() == find_loops(run[: index + 1])
    assert tracker.report() == find_loops(run)


@given(st.lists(STEPS, max_size=40))
def test_scores_are_between_0_and_1_and_loops_within_the_run(run: list[Step]) -> None:
    report = find_loops(run)
    assert 0 <= report.score <= 1
    for loop in report.loops:
        assert 0 <= loop.score <= 1
        assert 0 <= loop.first < loop.last < len(run)
        assert loop.count <= loop.last - loop.first + 1


@given(st.lists(STEPS, max_size=12), STEPS, st.integers(3, 12), st.lists(STEPS, max_size=12))
def test_consecutive_equal_actions_at_one_url_are_always_found(
    before: list[Step], step: Step, count: int, after: list[Step]
) -> None:
    loops = find_loops([*before, *[step] * count, *after]).loops
    first, last = len(before), len(before) + count - 1
    assert any(
        loop.kind in SAME_ACTION and loop.tool == step.tool and loop.first <= first and last <= loop.last
        for loop in loops
    )


@given(st.lists(STEPS, max_size=30))
def test_every_action_done_three_times_is_reported(run: list[Step]) -> None:
    loops = find_loops(run).loops
    for row in [*benchmark.rows_of_three(run), *benchmark.three_anywhere(run)]:
        assert any(benchmark._covers(loop, row) for loop in loops)


@examples(30)
@given(st.integers(1, 300), st.sampled_from(["", HERE]))
def test_a_run_of_different_actions_is_not_a_loop_at_any_length(count: int, url: str) -> None:
    names = [f"{number:b}".translate({48: "ba", 49: "cu"}) for number in range(count)]
    assert not find_loops(build_steps(*(f"click('{index}')" for index in range(count)), url=url)).is_loop
    assert not find_loops(build_steps(*(f"{name}()" for name in names), url=url)).is_loop
    assert not find_loops(build_steps(*(f"fill('{name}', '{name}')" for name in names), url=url)).is_loop


VALUES = st.recursive(
    st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=5
)


@given(st.dictionaries(st.text(), VALUES, min_size=2, max_size=5))
def test_the_order_of_keys_is_ignored(parameters: dict[str, Any]) -> None:
    reversed_parameters = dict(reversed(parameters.items()))
    run = [
        Step(tool="call", parameters=arguments) for arguments in (parameters, reversed_parameters, parameters)
    ]
    assert find_loops(run).loops[0].kind is LoopKind.EXACT
    assert find_loops(run).score == find_loops([run[0]] * 3).score


def test_tracking_a_long_run_uses_bounded_memory() -> None:
    tracker = LoopTracker()
    for index in range(3_000):
        tracker.add(Step.of({"tool": f"t{index}", "value": index}, url=f"http://a.test/{index}"))
        tracker.add(Step.of("click('5')", url=f"http://a.test/{index}"))
    assert len(tracker._done_once) <= 512
    assert len(tracker._done_again) <= 512
    assert len(next(iter(tracker._done_again.values())).steps_by_url) <= 16
    assert len(tracker._found_chains) <= 64


def test_the_cost_of_loop_detection_is_linear_in_the_steps() -> None:
    run = [
        Step.of(
            f"fill('{index % 97}', 'some text {index % 31}')",
            url=f"http://a.test/{index % 7}",
            observation=f"page {index % 3}",
        )
        for index in range(1_000)
    ]
    assert count_function_calls(lambda: find_loops(run)) < 2.2 * count_function_calls(
        lambda: find_loops(run[:500])
    )


# ---- The benchmark -------------------------------------------------------------------------------------


@pytest.mark.parametrize("makers", [TUNED, HELD_OUT], ids=["tuned", "held out"])
def test_the_guard_classifies_synthetic_runs_better_than_counting_to_three(makers: Any) -> None:
    runs = list(made_up_runs(makers, benchmark.SEED))
    scores = benchmark.compare_judges(runs)
    assert len(runs) >= 80
    assert sum(run.loops for run in runs) * 2 == len(runs)
    assert all(5 <= len(run.steps) <= 40 for run in runs), [run.name for run in runs if len(run.steps) < 5]
    assert scores["guard"].f1 >= 0.88 > scores["three_times"].f1
    assert scores["guard"].precision >= 0.85
    assert scores["guard"].recall >= 0.93


def test_labeled_runs_of_a_file_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.jsonl"
    looping = {"steps": [{"action": "click('a51')", "url": None, "observation": None}] * 5, "loops": True}
    fine = {"steps": [{"action": f"click('{index}')", "url": HERE} for index in range(5)], "loops": False}
    file.write_text(json.dumps(looping) + "\n\n" + json.dumps(fine) + "\n")
    assert benchmark.main(["--runs", str(file), "--json"]) == 0
    own = json.loads(capsys.readouterr().out)["figures"]["your own"]["guard"]
    assert (own["runs"], own["precision"], own["recall"]) == (2, 1.0, 1.0)


def test_an_invalid_line_of_labeled_runs_is_named(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text('{"steps": []}\n')
    with pytest.raises(SystemExit, match="line 1 of .* is no labelled run"):
        benchmark.load_labeled_runs(file)


def test_real_runs_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = {"id": "c", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    turn = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    turn += [{"role": "tool", "content": "none", "tool_call_id": "c"}]
    (tmp_path / "runs.jsonl").write_text(json.dumps({"id": "1", "messages": turn * 4}) + "\n")
    assert benchmark.main(["--data", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (
        "The same call three times or more: 1 in a row, 1 anywhere; 0 of them missed. 1 runs flagged"
        in printed
    )
    assert "synthetic" in printed


def test_a_continued_chain_is_kept_longer_than_ended_chains() -> None:
    tracker = LoopTracker()

    def add_chain(tool: str) -> None:
        for index in range(4):
            tracker.add(Step.of({"tool": tool, "value": f"text {index}"}))

    add_chain("first")
    first = next(iter(tracker._found_chains))
    for number in range(100):
        tracker.add(Step.of({"tool": "first", "value": f"text {number}"}))
        add_chain(f"other{number}")
        assert first in tracker._found_chains
