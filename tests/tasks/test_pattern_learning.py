from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_lists import LEARNING_UNITS
from langmem_tiers.tasks.action_sequences import find_sequences, sequence_from_dict, sequence_to_dict
from langmem_tiers.tasks.models import AgentAction, Cycle, ExecutionOutcome, LearnedPattern, Thought
from langmem_tiers.tasks.pattern_learning import (
    LearningResult,
    learn_from_sequences,
    matches_step,
    propose_patterns,
)
from langmem_tiers.tasks.patterns import (
    PatternMemory,
    escape_placeholders,
    fill_placeholders,
    find_placeholders,
)
from tests.hypothesis_settings import examples
from tests.tasks.test_patterns import LOGIN, ids
from tests.work_counters import count_function_calls

NUMBERS = count()


def did(
    tool: str, /, *, thought: str = "", at: str = "https://www.example.com/x", **parameters: Any
) -> Cycle:
    number = next(NUMBERS)
    return Cycle(
        entry_id=f"e{number}",
        timestamp=float(number),
        thought=Thought(thought),
        action=AgentAction(tool, parameters),
        url=at,
    )


def login(email: str, password: str) -> list[Cycle]:
    return [
        did("click", selector="#login-btn"),
        did("type", selector="#email", text=email),
        did("type", selector="#password", text=password),
        did("click", selector="#submit"),
    ]


def click(name: str) -> Cycle:
    return did("click", selector=f"#{name}")


def clicks(names: str) -> list[Cycle]:
    return [click(name) for name in names]


def told(patterns: list[LearnedPattern]) -> list[str]:
    return ["".join(step["selector"][1:] for step in one.steps) for one in patterns]


def test_a_login_that_worked_twice_is_the_pattern_of_the_design() -> None:
    first, second = login("a@example.com", "hunter2!"), login("b@example.com", "secret3!")
    (found,) = propose_patterns([first, second])
    assert found.steps == LOGIN.steps
    assert (found.pattern_type, found.domain, found.success_count) == ("login_flow", "example.com", 2)
    assert found.description.startswith("Login flow for example.com")
    assert found.last_used == second[-1].timestamp
    assert found.failure_count == 0


def test_one_run_can_repeat_itself_and_ids_do_not_depend_on_what_was_typed() -> None:
    (one,) = propose_patterns([*login("a@b.example", "x1"), click("other"), *login("c@d.example", "y2")])
    (two,) = propose_patterns([login("e@f.example", "z3"), login("g@h.example", "w4")])
    assert one.pattern_id == two.pattern_id
    assert one.steps == two.steps


def test_what_worked_once_is_no_pattern() -> None:
    assert propose_patterns(login("a@b.example", "x")) == []
    assert propose_patterns([]) == []


def test_what_failed_in_between_is_no_part_of_a_pattern() -> None:
    runs = [clicks("abcd"), clicks("abcd")]
    runs[1][1] = replace(runs[1][1], outcome=ExecutionOutcome.FAILURE)
    assert told(propose_patterns(runs)) == ["cd"]


def test_a_pattern_stays_at_one_site() -> None:
    runs = [
        [*clicks("ab"), *(replace(one, url="https://other.example") for one in clicks("cd"))] for _ in "12"
    ]
    found = propose_patterns(runs)
    assert [(one.domain, steps) for one, steps in zip(found, told(found), strict=True)] == [
        ("example.com", "ab"),
        ("other.example", "cd"),
    ]


def test_what_worked_at_no_site_is_a_pattern_of_none() -> None:
    runs = [
        [
            did("write_file", at="", path="notes.md", content=f"text {number}"),
            did("run_command", at="", command="make test"),
        ]
        for number in range(2)
    ]
    (found,) = propose_patterns(runs)
    assert (found.domain, found.pattern_type) == ("", "tool_flow")
    assert found.description == "Tool flow: write_file, run_command"
    assert found.steps[0] == {"tool": "write_file", "path": "notes.md", "content": "{content}"}
    at_site = [[replace(one, url="https://a.example") for one in run] for run in runs]
    assert {one.domain for one in propose_patterns([*runs, *at_site])} == {"", "a.example"}
    memory = PatternMemory()
    memory.learn(found)
    assert memory.get_patterns_for_domain("") == [found]
    assert memory.get_patterns_for_domain("a.example") == []


@pytest.mark.parametrize(
    "command",
    [
        "curl -u ann:plainword https://a.example",
        "export DB_PASSWORD=plainword",
        "mysql -uroot -pplainword shop",
        "sshpass -p plainword ssh host",
        "deploy --token plainword",
        "curl -H 'Authorization: plainword' https://a.example",
        "git clone https://ann:plainword@a.example/x",
        "git config user.email plainword@a.example",
    ],
)
def test_what_looks_like_a_secret_in_a_command_is_never_stored(command: str) -> None:
    run = [did("bash", at="", command=command), did("bash", at="", command="make")]
    (found,) = propose_patterns([run, run])
    assert found.steps == ({"tool": "bash", "command": "{command}"}, {"tool": "bash", "command": "make"})
    assert "plainword" not in repr(find_sequences(run)[0].steps)
    assert propose_patterns([run[:1] * 2, run[:1] * 2]) == []  # nothing but secrets is no pattern


def test_plain_commands_are_steps_as_they_are() -> None:
    run = [did("bash", at="", command=one) for one in ("git log --author x", "pytest --passed", "mysql shop")]
    (found,) = propose_patterns([run, run])
    assert find_placeholders(found) == []


def test_who_goes_to_an_address_is_at_its_site() -> None:
    run = [
        did("goto", at="https://start.example", url="https://www.shop.example"),
        did("click", at="", selector="#a"),
    ]
    (found,) = propose_patterns([run, run])
    assert (found.domain, found.pattern_type) == ("shop.example", "navigation")


def test_the_longest_sequences_win_up_to_eight_steps() -> None:
    assert told(propose_patterns([clicks("abcde"), clicks("xabcde")])) == ["abcde"]
    assert told(propose_patterns([clicks("abcdefghijkl"), clicks("abcdefghijkl")])) == ["abcdefgh", "ijkl"]
    assert told(propose_patterns([clicks("abcdefghi"), clicks("abcdefghi")])) == [
        "abcdefgh"
    ]  # one alone is none
    assert told(propose_patterns([clicks("abxcd"), clicks("cdyab")])) == ["ab", "cd"]


def test_what_goes_round_in_circles_is_learned_once_round() -> None:
    assert told(propose_patterns(clicks("abc" * 6))) == ["abc"]
    assert told(propose_patterns(clicks("ab" * 20))) == ["ab"]
    assert propose_patterns(clicks("a" * 40)) == []
    assert told(propose_patterns([clicks("abcaxy"), clicks("zabca")])) == ["abca"]


def test_scrolling_and_waiting_is_no_pattern() -> None:
    run = [did("scroll_page", direction="down"), did("wait", seconds=2), did("take_screenshot")]
    assert propose_patterns([run, run]) == []
    assert len(propose_patterns([[*run, click("a")]] * 2)) == 1


def test_other_selectors_addresses_or_keys_are_other_steps() -> None:
    assert propose_patterns([clicks("ab"), clicks("cd")]) == []
    for name in ("url", "key", "index"):
        steps: list[dict[str, Any]] = [{name: number} for number in range(4)]
        runs = [[did("act", **one) for one in steps[:2]], [did("act", **one) for one in steps[2:]]]
        assert propose_patterns(runs) == []


def search(words: str) -> list[Cycle]:
    return [did("type", selector="input[name='q']", text=words), did("press", key="Enter")]


def test_what_was_typed_differently_is_a_placeholder_and_what_was_the_same_is_not() -> None:
    (found,) = propose_patterns([search("red shoes"), search("blue hats")])
    assert (found.steps[0]["text"], found.pattern_type) == ("{q}", "search")
    (same,) = propose_patterns([search("red shoes"), search("red shoes")])
    assert same.steps[0]["text"] == "red shoes"
    assert same.pattern_id == found.pattern_id


def test_placeholders_are_named_after_their_fields() -> None:
    def run(end: str) -> list[Cycle]:
        return [
            did("type", selector="form .first-name", text=f"Ann {end}"),
            did("fill", label="Last name", value=f"Lee {end}"),
            did("fill", index=7, value=f"x {end}"),
            did("fill", index=8, value=f"y {end}"),
            did("fill_form", fields={"city": f"Bonn {end}", "zip": f"1 {end}"}),
            did("fill_all", fields=[{"selector": "#street", "value": f"Way {end}"}]),
            did("search", query=f"map {end}"),
        ]

    (found,) = propose_patterns([run("one"), run("two")])
    assert find_placeholders(found) == [
        "first_name",
        "last_name",
        "value",
        "value_2",
        "city",
        "zip",
        "street",
        "query",
    ]
    assert found.pattern_type == "form_fill"
    assert found.steps[5] == {"tool": "fill_all", "fields": [{"selector": "#street", "value": "{street}"}]}


def test_braces_in_what_stays_are_no_placeholders() -> None:
    run = [did("evaluate", script="() => {return}"), click("a")]
    (found,) = propose_patterns([run, run])
    assert find_placeholders(found) == []
    assert fill_placeholders(found, {})[0] == {"tool": "evaluate", "script": "() => {return}"}


SECRET = "Tr0ub4dor&3"


@pytest.mark.parametrize(
    "typed",
    [
        {"selector": "#password", "text": "plainword"},
        {"selector": "input[type=password]", "value": "plainword"},
        {"selector": "#f7", "text": SECRET},
        {"index": 3, "text": "plainword"},
        {"selector": "#pin", "text": "1234"},
        {"selector": "#f7", "text": "sk-abcdefghijklmnopqrstuvwx"},
        {"selector": "#f7", "text": "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0"},
        {"selector": "#f7", "text": "4111 1111 1111 1111"},
        {"selector": "#mail", "text": "ann@example.com"},
        {"password": "plainword"},
        {"userPassword": "plainword"},
        {"headers": {"Authorization": "plainword"}},
        {"api_key": "plainword"},
        {"pin": 1234},
        {"fields": {"login": "ann", "passwd": "plainword"}},
        {"fields": [{"name": "password", "value": "plainword"}]},
        {"url": "https://www.example.com/in?token=plainword"},
        {"url": "https://ann:plainword@www.example.com/"},
        {"text": "plainword" * 300},
        {"element": "Passwort", "text": "plainword"},
    ],
)
def test_what_looks_like_a_secret_is_never_stored_even_if_it_is_always_the_same(
    typed: dict[str, Any],
) -> None:
    thought = "Now I enter the password" if "index" in typed else ""
    run = [did("act", thought=thought, **typed), click("submit")]
    (found,) = propose_patterns([run, run])
    written = json.dumps([found.steps, found.description, found.pattern_id])
    for secret in ("plainword", SECRET, "1234", "sk-abc", "eyJhbG", "4111", "ann@example"):
        assert secret not in written
    assert find_placeholders(found)


def test_a_password_may_be_the_word_itself() -> None:
    (found,) = propose_patterns([login("ann", "password"), login("ann", "password")])
    assert found.steps == LOGIN.steps


def test_a_secret_that_is_typed_again_elsewhere_is_not_stored_there() -> None:
    run = [*login("ann", "hunter2x"), did("type", selector="#again", text="it is hunter2x")]
    (found,) = propose_patterns([run, run])
    assert "hunter2x" not in json.dumps(found.steps)
    run = [*login("ann", "hunter2x"), did("click", selector="text=hunter2x")]
    assert "hunter2x" not in json.dumps([one.steps for one in propose_patterns([run, run])])


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40), st.text(min_size=6, max_size=12)
)
def test_no_password_gets_into_any_pattern(steps: list[tuple[str, bool]], password: str) -> None:
    mark = f"7#{password}"
    entries = [
        did("type", selector="#password", text=mark) if typed else click(name) for name, typed in steps
    ]
    for found in propose_patterns(entries):
        assert all(mark not in str(one) for step in found.steps for one in step.values())
        assert 2 <= len(found.steps) <= 8
        assert found.success_count >= 2


@examples(60)
@given(st.lists(st.sampled_from("abcdef"), max_size=60).map("".join))
def test_patterns_worked_as_often_as_they_say_and_no_cycle_is_in_two(names: str) -> None:
    found = propose_patterns(clicks(names))
    assert ids(found) == ids(propose_patterns(clicks(names)))
    for one, steps in zip(found, told(found), strict=True):
        assert names.count(steps) >= one.success_count >= 2
    assert sum(one.success_count * len(one.steps) for one in found) <= len(names)
    assert len({one.pattern_id for one in found}) == len(found)


def test_what_is_known_is_proposed_again_only_with_more_placeholders() -> None:
    same, other = [search("red shoes"), search("red shoes")], [search("red shoes"), search("blue hats")]
    (fixed,) = propose_patterns(same)
    (free,) = propose_patterns(other)
    assert propose_patterns(same, known=[fixed]) == []
    assert propose_patterns(other, known=[fixed]) == [replace(free, success_count=4)]
    assert propose_patterns([search("blue hats")], known=[fixed])[0].steps == free.steps
    assert propose_patterns(same, known=[free]) == []
    by_hand = replace(free, pattern_id="by hand", domain="www.example.com")
    assert propose_patterns(other, known=[by_hand]) == []


def lessons(
    known: list[LearnedPattern], *runs: list[Cycle], old: tuple[list[Cycle], ...] = ()
) -> LearningResult:
    before = [one for run in old for one in find_sequences(run)]
    for one in before:
        one.is_fresh = False
    return learn_from_sequences([*before, *(one for run in runs for one in find_sequences(run))], known)


def failed(run: list[Cycle], outcome: ExecutionOutcome = ExecutionOutcome.FAILURE) -> list[Cycle]:
    return [*run[:-1], replace(run[-1], outcome=outcome)]


def uses(found: LearningResult) -> dict[str, tuple[int, int]]:
    return {name: (one.success_count, one.failure_count) for name, one in found.used_patterns.items()}


def test_a_pattern_written_by_hand_is_used_whatever_its_placeholders_stand_for() -> None:
    found = lessons([LOGIN], login("a@b.example", "x1"), [click("other"), *login("c", "d"), click("more")])
    assert uses(found) == {LOGIN.pattern_id: (2, 0)}
    assert (found.new_patterns, found.widened_ids) == ([], [])
    fixed = replace(LOGIN, steps=({"tool": "type", "selector": "#country", "text": "Peru"}, LOGIN.steps[0]))
    chosen = [did("type", selector="#country", text="Peru"), click("login-btn")]
    other = [did("type", selector="#country", text="Chad"), click("login-btn")]
    assert uses(lessons([fixed], chosen, other)) == {LOGIN.pattern_id: (1, 0)}
    elsewhere = [replace(one, url="https://other.example") for one in login("a", "b")]
    assert uses(lessons([LOGIN], elsewhere)) == {}
    below = [replace(one, url="https://shop.example.com") for one in login("a", "b")]
    assert uses(lessons([LOGIN], below)) == {LOGIN.pattern_id: (1, 0)}


def test_what_begins_like_a_pattern_and_fails_at_one_of_its_steps_is_a_failure_of_it() -> None:
    for length in (2, 3, 4):
        for outcome in (ExecutionOutcome.FAILURE, ExecutionOutcome.TIMEOUT):
            found = lessons([LOGIN], failed(login("a", "b")[:length], outcome))
            assert uses(found) == {LOGIN.pattern_id: (0, 1)}
    assert uses(lessons([LOGIN], failed(login("a", "b")[:1]))) == {}  # it did not begin
    assert uses(lessons([LOGIN], login("a", "b")[:3])) == {}  # it did not fail
    assert uses(lessons([LOGIN], failed(login("a", "b")[:3], ExecutionOutcome.PARTIAL))) == {}
    assert uses(lessons([LOGIN], failed([*login("a", "b")[:2], click("other")]))) == {}
    assert uses(lessons([LOGIN], failed([*login("a", "b"), click("login-btn")]))) == {
        LOGIN.pattern_id: (1, 0)
    }
    elsewhere = replace(login("a", "b")[2], url="https://other.example")
    assert uses(lessons([LOGIN], failed([*login("a", "b")[:2], elsewhere]))) == {}
    both = failed([*login("a", "b"), *login("c", "d")])
    assert uses(lessons([LOGIN], both)) == {LOGIN.pattern_id: (1, 1)}


def test_the_longest_pattern_has_the_use_and_no_cycle_counts_twice() -> None:
    (short,) = propose_patterns([clicks("ab"), clicks("ab")])
    (long,) = propose_patterns([clicks("abc"), clicks("abc")])
    assert uses(lessons([short, long], clicks("abc"))) == {long.pattern_id: (3, 0)}
    assert uses(lessons([short, long], clicks("abcab"))) == {
        long.pattern_id: (3, 0),
        short.pattern_id: (3, 0),
    }
    assert uses(lessons([short, long], failed(clicks("abc")))) == {long.pattern_id: (2, 1)}
    grown = lessons([short], clicks("abc"), old=(clicks("abc"),))
    assert (told(grown.new_patterns), uses(grown)) == (["abc"], {})


def test_what_only_older_stretches_show_is_not_learned() -> None:
    assert lessons([], clicks("xy"), old=(clicks("ab"), clicks("ab"))).new_patterns == []
    assert told(lessons([], clicks("ab"), old=(clicks("ab"),)).new_patterns) == ["ab"]


def test_what_nothing_was_learned_from_is_left_in_pieces() -> None:
    stretches = [*find_sequences(clicks("xyabz")), *find_sequences(clicks("abpq"))]
    assert told(learn_from_sequences(stretches).new_patterns) == ["ab"]
    left = [
        [step.parameters["selector"] for step in rest.steps]
        for one in stretches
        for rest in one.split_unlearned()
    ]
    assert left == [["#x", "#y"], ["#p", "#q"]]
    (alone,) = find_sequences([*clicks("ab"), *clicks("cd")])
    (rest,) = alone.split_unlearned(excluded_ids={alone.steps[3].cycle_id})
    assert len(rest.steps) == 3
    (known,) = propose_patterns([clicks("ab"), clicks("ab")])
    covered = find_sequences(clicks("abab"))
    learn_from_sequences(covered, [known])
    assert covered[0].split_unlearned() == []


NAMES = st.lists(st.sampled_from("abcd"), max_size=12).map("".join)


@examples(60)
@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=6), st.lists(NAMES, max_size=4))
def test_no_cycle_is_part_of_two_uses_or_patterns(runs: list[tuple[str, bool]], old: list[str]) -> None:
    known = propose_patterns([clicks("abca"), clicks("xabca"), clicks("bd"), clicks("bd")])
    done = [failed(clicks(names)) if fails and names else clicks(names) for names, fails in runs]
    found = lessons(known, *done, old=tuple(map(clicks, old)))
    sizes = {one.pattern_id: len(one.steps) for one in known}
    before = {one.pattern_id: one.success_count for one in known}
    good = sum((one.success_count - before[name]) * sizes[name] for name, one in found.used_patterns.items())
    bad = sum(one.failure_count for one in found.used_patterns.values())
    new = sum(one.success_count * len(one.steps) for one in found.new_patterns)
    assert good + bad + new <= sum(map(len, done)) + sum(map(len, old))
    assert bad <= sum(fails for _, fails in runs)
    assert not {one.pattern_id for one in found.new_patterns} & before.keys()


PARAMETERS = st.dictionaries(
    st.sampled_from(["selector", "text", "password", "fields", "command", "x", "tool", "parameters"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("me@example.com"),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


@given(st.lists(PARAMETERS, min_size=1, max_size=5))
def test_a_stretch_comes_back_equal_from_json_and_what_is_learned_of_it_is_used_again(
    some: list[dict[str, Any]],
) -> None:
    run = [did("act", **one) for one in some]
    for one in find_sequences(run):
        data = json.loads(json.dumps(sequence_to_dict(one)))
        back = sequence_from_dict(data)
        assert (back.site, back.steps, back.is_fresh) == (one.site, one.steps, False)
        assert sequence_to_dict(back) == data
    known = propose_patterns([run, run])
    again = lessons(known, run, run)
    assert uses(again) == {one.pattern_id: (one.success_count * 2, 0) for one in known}
    assert (again.new_patterns, again.widened_ids) == ([], [])


@given(
    st.text(alphabet="{}ab", max_size=9),
    st.dictionaries(st.sampled_from("ab"), st.text(alphabet="{}ab", max_size=4)),
)
def test_what_a_template_is_filled_to_fits_it(text: str, values: dict[str, str]) -> None:
    one = replace(LOGIN, steps=({"tool": "go", "to": [text, 1]},))
    if set(find_placeholders(one)) <= values.keys():
        (step,) = fill_placeholders(one, values)
        assert matches_step(one.steps[0], "go", {"to": step["to"]}, ())
        assert matches_step({"tool": "go", "parameters": {"to": [text, 1]}}, "go", {"to": step["to"]}, ())
        assert not matches_step(one.steps[0], "go", {"to": [*step["to"], 1]}, ())
        assert not matches_step(one.steps[0], "go", {"to": [step["to"][0], True]}, ())
        assert not matches_step(one.steps[0], "went", {"to": step["to"]}, ())
    plain = replace(LOGIN, steps=({"tool": "go", "to": escape_placeholders(text)},))
    assert matches_step(plain.steps[0], "go", {"to": text}, ())
    assert not matches_step(plain.steps[0], "go", {"to": f"{text}x"}, ())


@pytest.mark.parametrize(
    ("step", "text", "does"),
    [
        ("/{a}/x/{b}", "/1/x/2", True),
        ("/{a}/x/{b}", "/1/y/2", False),
        ("a{b}a", "a", False),
        ("{a}b", "bb", True),
    ],
)
def test_placeholders_within_a_text_stand_for_what_is_between(step: str, text: str, does: bool) -> None:  # noqa: FBT001 - a parameter
    assert matches_step({"tool": "go", "url": step}, "go", {"url": text}, ()) is does


def test_what_is_proposed_can_be_learned_and_filled() -> None:
    memory = PatternMemory()
    for one in propose_patterns(
        [login("a@b.example", "x1"), login("c@d.example", "y2")], known=memory.patterns
    ):
        memory.learn(one)
    (found,) = memory.get_patterns_for_domain("www.example.com")
    assert fill_placeholders(found, {"email": "e@f.example", "password": "z"})[2]["text"] == "z"


def test_odd_cycles_do_not_break_learning() -> None:
    run = [
        did("act", what=object, some={1, 2}, text=None, url=5),
        did("act", at="http://[broken", tool="hammer", deep=[[[{"text": ["x"]}]]]),
        click("a"),
    ]
    (found,) = propose_patterns([run, run])
    assert found.steps[1]["parameters"]["tool"] == "hammer"
    PatternMemory().learn(found)


@pytest.mark.parametrize("kinds", [2, 5_000])
def test_twice_as_many_cycles_take_twice_as_many_calls(kinds: int) -> None:
    entries = [did("type", selector=f"#{(n * n + n // 7) % kinds}", text=f"words {n}") for n in range(400)]
    half = count_function_calls(lambda: propose_patterns(entries[:200]))
    assert count_function_calls(lambda: propose_patterns(entries)) < 2.2 * half


@pytest.mark.parametrize("piece", LEARNING_UNITS)
def test_a_pattern_is_learned_from_long_texts_unless_they_look_secret(piece: str) -> None:
    text = (piece * 2_000)[:2_000]
    run = [did("type", thought=text, selector=text, text=text), click("a")]
    assert len(propose_patterns([run] * 4)) == (piece not in {"?token", "1 ", "password"})
