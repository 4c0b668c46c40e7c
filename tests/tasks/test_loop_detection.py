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


def steps(*actions: str, url: str = HERE, observation: str = "", failed: bool = False) -> list[Step]:
    return [Step.of(action, url=url, observation=observation, failed=failed) for action in actions]


def page(words: str) -> str:
    return "\n".join(f"[{at}] link '{words} {letter}'" for at, letter in enumerate("abcdefghijklmnopqrst"))


def kinds(run: list[Step]) -> set[LoopKind]:
    return {loop.kind for loop in find_loops(run).loops}


def strongest(run: list[Step], kind: LoopKind) -> Loop:
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
def test_actions_are_read_in_the_forms_that_agents_write(
    written: str, tool: str, parameters: dict[str, Any]
) -> None:
    step = Step.of(written)
    assert (step.tool, dict(step.parameters)) == (tool, parameters)


def test_an_action_and_a_mapping_are_read_as_well() -> None:
    assert Step.of(AgentAction("click", {"selector": "#a"})) == Step(
        tool="click", parameters={"selector": "#a"}
    )
    assert Step.of({"tool": "click", "parameters": {"selector": "#a"}}).parameters == {"selector": "#a"}


@given(st.text() | st.none() | st.integers() | st.dictionaries(st.text(), st.text() | st.none()))
def test_no_action_is_refused(action: Any) -> None:
    assert find_loops([Step.of(action)] * 3).loops


@pytest.mark.parametrize(
    "parameters", [{"a": object()}, {"a": {1, 2}}, {"a": 10**5000}, {1: {2: [b"x"]}}, {"a": float("nan")}]
)
def test_parameters_that_are_no_json_are_compared_as_well_as_can_be(parameters: dict[Any, Any]) -> None:
    step = Step(tool="call", parameters=parameters, url="http://[bad", observation="\ud800")
    assert strongest([step] * 4, LoopKind.UNCHANGED).count == 4


# ---- What is a loop ------------------------------------------------------------------------------------


def test_the_same_click_three_times_at_one_address_is_an_exact_loop() -> None:
    report = find_loops(steps("click('1')", "click('5')", "click('5')", "click('5')"))
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


def test_twice_is_no_loop() -> None:
    assert not find_loops(steps("click('5')", "click('5')")).loops


def test_the_same_at_another_address_is_something_else() -> None:
    run = [Step.of("click('5')", url=f"http://shop.test/list?p={at}") for at in range(6)]
    assert not find_loops(run, threshold=DEFAULT_LOOP_THRESHOLD).is_loop
    assert kinds(run) == {LoopKind.NEAR}


def test_a_place_on_the_page_is_no_other_address_but_a_route_is() -> None:
    moved = [Step.of("click('5')", url=f"http://map.test/#map=7/{at}/3") for at in range(3)]
    routed = [Step.of("click('5')", url=f"http://mail.test/#/inbox/{at}") for at in range(3)]
    assert find_loops(moved).is_loop
    assert not find_loops(routed).is_loop


def test_repeats_that_change_nothing_weigh_more_than_those_that_change_the_page() -> None:
    still = steps(*["click('5')"] * 3, observation=page("cart"))
    changing = [Step.of("click('5')", url=HERE, observation=page(words)) for words in ("one", "two", "three")]
    assert kinds(still) == {LoopKind.UNCHANGED}
    assert find_loops(still).score > find_loops(steps(*["click('5')"] * 3)).score > find_loops(changing).score
    assert not find_loops(changing).is_loop


def test_a_page_whose_elements_are_numbered_anew_is_the_same_page() -> None:
    run = [Step.of("click('5')", observation=page("cart").replace("[", f"[{at}")) for at in (1, 2, 3)]
    assert kinds(run) == {LoopKind.UNCHANGED}


def test_what_is_opened_and_shut_in_turn_is_a_loop() -> None:
    run = [Step.of("click('5')", url=HERE, observation=page(("open", "shut")[at % 2])) for at in range(5)]
    assert find_loops(run).is_loop


def test_what_failed_again_is_a_failure_and_weighs_more() -> None:
    failed = steps(*["click('5')"] * 3, failed=True)
    assert kinds(failed) == {LoopKind.FAILURE}
    assert find_loops(failed).score > find_loops(steps(*["click('5')"] * 3)).score


def test_searches_in_other_words_are_near_repeats() -> None:
    words = ["red shoes", "red shoes women", "shoes red", "red running shoes", "red shoes sale", "shoes, red"]
    run = steps(*(f"fill('237', '{query}')" for query in words))
    assert find_loops(run).is_loop
    assert strongest(run, LoopKind.NEAR).count == 6


def test_a_counter_alone_is_told_of_but_is_no_loop() -> None:
    run = steps(*(f"read_page({number})" for number in range(30)), url="")
    assert kinds(run) == {LoopKind.NEAR}
    assert not find_loops(run).is_loop


def test_a_counter_on_a_page_that_stands_still_is_a_loop() -> None:
    run = steps(*(f"click_at({number})" for number in range(8)), observation=page("still"))
    assert find_loops(run).is_loop


@pytest.mark.parametrize("period", [2, 3, 4, 6])
def test_cycles_are_found_with_their_period(period: int) -> None:
    turn = [Step.of(f"goto('http://a.test/{letter}')") for letter in "abcdef"[:period]]
    run = turn * 3
    found = strongest(run, LoopKind.OSCILLATION)
    assert (found.period, found.count, found.first) == (period, 3 * period, 0)
    assert find_loops(run).is_loop


def test_a_cycle_through_two_pages_is_found_although_ids_drift() -> None:
    run = []
    for at in range(6):
        run += [
            Step.of(f"click('{at}')", url="http://a.test"),
            Step.of(f"click('{at + 50}')", url="http://b.test"),
        ]
    assert strongest(run, LoopKind.OSCILLATION).count == 12
    assert find_loops(run).is_loop


# ---- What is none --------------------------------------------------------------------------------------


def test_scrolling_a_few_times_is_no_loop_but_scrolling_on_and_on_is() -> None:
    answer = steps("send_msg_to_user('It says 4.')")
    start = steps("click('1')", "click('2')")
    assert not find_loops(start + steps(*["scroll(0, 500)"] * 4) + answer).is_loop
    assert find_loops(start + steps(*["scroll(0, 500)"] * 8)).is_loop
    assert find_loops(start + steps(*["scroll(0, 500)", "scroll(0, -500)"] * 4)).is_loop


def test_waiting_for_a_page_is_no_loop() -> None:
    assert not find_loops(steps("click('1')", "noop()", "noop()", "noop()", "click('2')")).is_loop


def test_walking_a_list_is_no_loop_but_opening_the_same_item_is() -> None:
    walk, same = [], []
    for at in range(5):
        walk += [Step.of(f"click('{at}')", url=HERE), Step.of("go_back()", url=f"http://shop.test/{at}")]
        same += [Step.of("click('7')", url=HERE), Step.of("go_back()", url="http://shop.test/7")]
    assert not find_loops(walk).is_loop
    assert find_loops(same).is_loop


def test_the_same_choice_in_every_row_is_no_loop() -> None:
    assert not find_loops(steps(*(f"select_option('a{row}', 'Yes')" for row in range(15)))).is_loop


@pytest.mark.parametrize("moved", ["x", "y"])
def test_like_texts_are_near_repeats_at_the_same_coordinates_only(moved: str) -> None:
    here = [
        Step(tool="type_text", parameters={"x": 10, "y": 10, "text": f"box of red {name}"}, url=HERE)
        for name in ("bolts", "paint", "wires", "nails")
    ]
    there = [
        replace(step, parameters={**step.parameters, moved: 10 + 40 * at}) for at, step in enumerate(here)
    ]
    assert kinds(here) == {LoopKind.NEAR}
    assert kinds(there) == set()


@pytest.mark.parametrize("moved", ["x", "y"])
def test_scrolling_is_the_same_action_at_the_same_coordinates_only(moved: str) -> None:
    here = [
        Step(tool="scroll_at", parameters={"x": 10, "y": 10, "direction": way})
        for way in ("down", "up", "left", "right", "down", "up", "left", "right")
    ]
    there = [
        replace(step, parameters={**step.parameters, moved: 10 + 40 * at}) for at, step in enumerate(here)
    ]
    assert LoopKind.NEAR in kinds(here)
    assert LoopKind.NEAR not in kinds(there)


def test_a_button_between_new_work_is_no_loop() -> None:
    rows = [f"fill('{name}', '{name} of the order')" for name in ("bolts", "paint", "ladder")]
    run = [one for row in rows for one in ("click('add')", row)]
    assert not find_loops(steps(*run), threshold=DEFAULT_LOOP_THRESHOLD).is_loop


def test_a_run_that_moved_on_is_less_of_a_loop_than_one_that_ended_in_it() -> None:
    start, repeats = steps("click('1')", "click('2')"), steps(*["click('5')"] * 3)
    after = steps(*(f"click('b{at}')" for at in range(8)))
    assert find_loops(start + repeats + after).score < find_loops(start + repeats).score


def test_the_threshold_decides() -> None:
    run = steps(*["click('5')"] * 3)
    assert not find_loops(run, threshold=0.99).is_loop
    assert find_loops(steps(*["noop()"] * 3), threshold=0.1).is_loop


# ---- Invariants ----------------------------------------------------------------------------------------

ACTIONS = st.sampled_from(
    "click('1') click('2') fill('3','red_shoes') fill('3','red_shoe') scroll(0,500) scroll(0,-500) go_back() "
    "noop() goto('http://a.test') goto('http://b.test') send_msg_to_user('done') stop() press('3','Enter')".split()
)
STEPS = st.builds(
    lambda action, url, seen, failed: Step.of(action, url=url, observation=seen, failed=failed),
    ACTIONS,
    st.sampled_from(["", "http://a.test", "http://b.test"]),
    st.sampled_from(["", "ok", page("one"), page("two")]),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=40), st.data())
def test_following_a_run_gives_what_the_whole_gives_at_every_step(
    run: list[Step], data: st.DataObject
) -> None:
    tracker = LoopTracker()
    looked = data.draw(st.sets(st.integers(0, 40)))
    for at, step in enumerate(run):
        tracker.add(step)
        if at in looked:
            assert tracker.report() == find_loops(run[: at + 1])
    assert tracker.report() == find_loops(run)


@given(st.lists(STEPS, max_size=40))
def test_scores_lie_between_0_and_1_and_loops_within_the_run(run: list[Step]) -> None:
    report = find_loops(run)
    assert 0 <= report.score <= 1
    for loop in report.loops:
        assert 0 <= loop.score <= 1
        assert 0 <= loop.first < loop.last < len(run)
        assert loop.count <= loop.last - loop.first + 1


@given(st.lists(STEPS, max_size=12), STEPS, st.integers(3, 12), st.lists(STEPS, max_size=12))
def test_the_same_action_in_a_row_at_one_address_is_always_found(
    before: list[Step], step: Step, many: int, after: list[Step]
) -> None:
    loops = find_loops([*before, *[step] * many, *after]).loops
    first, last = len(before), len(before) + many - 1
    assert any(
        loop.kind in SAME_ACTION and loop.tool == step.tool and loop.first <= first and last <= loop.last
        for loop in loops
    )


@given(st.lists(STEPS, max_size=30))
def test_every_action_done_three_times_is_told_of(run: list[Step]) -> None:
    loops = find_loops(run).loops
    for row in [*benchmark.rows_of_three(run), *benchmark.three_anywhere(run)]:
        assert any(benchmark._covers(loop, row) for loop in loops)


@examples(30)
@given(st.integers(1, 300), st.sampled_from(["", HERE]))
def test_a_run_of_different_actions_is_no_loop_whatever_its_length(many: int, url: str) -> None:
    names = [f"{one:b}".translate({48: "ba", 49: "cu"}) for one in range(many)]
    assert not find_loops(steps(*(f"click('{at}')" for at in range(many)), url=url)).is_loop
    assert not find_loops(steps(*(f"{name}()" for name in names), url=url)).is_loop
    assert not find_loops(steps(*(f"fill('{name}', '{name}')" for name in names), url=url)).is_loop


VALUES = st.recursive(
    st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=5
)


@given(st.dictionaries(st.text(), VALUES, min_size=2, max_size=5))
def test_the_order_of_keys_never_matters(parameters: dict[str, Any]) -> None:
    turned = dict(reversed(parameters.items()))
    run = [Step(tool="call", parameters=one) for one in (parameters, turned, parameters)]
    assert find_loops(run).loops[0].kind is LoopKind.EXACT
    assert find_loops(run).score == find_loops([run[0]] * 3).score


def test_a_long_run_is_followed_in_bounded_memory() -> None:
    tracker = LoopTracker()
    for at in range(3_000):
        tracker.add(Step.of({"tool": f"t{at}", "value": at}, url=f"http://a.test/{at}"))
        tracker.add(Step.of("click('5')", url=f"http://a.test/{at}"))
    assert len(tracker._done_once) <= 512
    assert len(tracker._done_again) <= 512
    assert len(next(iter(tracker._done_again.values())).steps_by_url) <= 16
    assert len(tracker._found_chains) <= 64


def test_twice_as_many_steps_take_twice_as_many_calls() -> None:
    run = [
        Step.of(
            f"fill('{at % 97}', 'some text {at % 31}')",
            url=f"http://a.test/{at % 7}",
            observation=f"page {at % 3}",
        )
        for at in range(1_000)
    ]
    assert count_function_calls(lambda: find_loops(run)) < 2.2 * count_function_calls(
        lambda: find_loops(run[:500])
    )


# ---- The benchmark -------------------------------------------------------------------------------------


@pytest.mark.parametrize("makers", [TUNED, HELD_OUT], ids=["tuned", "held out"])
def test_made_up_runs_are_told_apart_better_than_by_counting_to_three(makers: Any) -> None:
    runs = list(made_up_runs(makers, benchmark.SEED))
    both = benchmark.compare_judges(runs)
    assert len(runs) >= 80
    assert sum(run.loops for run in runs) * 2 == len(runs)
    assert all(5 <= len(run.steps) <= 40 for run in runs), [run.name for run in runs if len(run.steps) < 5]
    assert both["guard"].f1 >= 0.88 > both["three_times"].f1
    assert both["guard"].precision >= 0.85
    assert both["guard"].recall >= 0.93


def test_labelled_runs_of_ones_own_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.jsonl"
    looping = {"steps": [{"action": "click('a51')", "url": None, "observation": None}] * 5, "loops": True}
    fine = {"steps": [{"action": f"click('{at}')", "url": HERE} for at in range(5)], "loops": False}
    file.write_text(json.dumps(looping) + "\n\n" + json.dumps(fine) + "\n")
    assert benchmark.main(["--runs", str(file), "--json"]) == 0
    own = json.loads(capsys.readouterr().out)["figures"]["your own"]["guard"]
    assert (own["runs"], own["precision"], own["recall"]) == (2, 1.0, 1.0)


def test_a_line_that_is_no_labelled_run_is_named(tmp_path: Path) -> None:
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


def test_a_chain_that_goes_on_is_remembered_longer_than_chains_that_ended() -> None:
    tracker = LoopTracker()

    def add_chain(tool: str) -> None:
        for at in range(4):
            tracker.add(Step.of({"tool": tool, "value": f"text {at}"}))

    add_chain("first")
    first = next(iter(tracker._found_chains))
    for number in range(100):
        tracker.add(Step.of({"tool": "first", "value": f"text {number}"}))
        add_chain(f"other{number}")
        assert first in tracker._found_chains
