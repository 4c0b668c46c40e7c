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
from tests.tasks.test_patterns import LOGIN, list_ids
from tests.work_counters import count_function_calls

NUMBERS = count()


def record(
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
        record("click", selector="#login-btn"),
        record("type", selector="#email", text=email),
        record("type", selector="#password", text=password),
        record("click", selector="#submit"),
    ]


def click(name: str) -> Cycle:
    return record("click", selector=f"#{name}")


def clicks(names: str) -> list[Cycle]:
    return [click(name) for name in names]


def list_selectors(patterns: list[LearnedPattern]) -> list[str]:
    return ["".join(step["selector"][1:] for step in pattern.steps) for pattern in patterns]


def test_a_login_that_worked_twice_is_the_pattern_of_the_design() -> None:
    first, second = login("a@example.com", "hunter2!"), login("b@example.com", "secret3!")
    (found,) = propose_patterns([first, second])
    assert found.steps == LOGIN.steps
    assert (found.pattern_type, found.domain, found.success_count) == ("login_flow", "example.com", 2)
    assert found.description.startswith("Login flow for example.com")
    assert found.last_used == second[-1].timestamp
    assert found.failure_count == 0


def test_a_sequence_repeated_in_one_run_is_learned_and_ids_ignore_typed_texts() -> None:
    (first,) = propose_patterns([*login("a@b.example", "x1"), click("other"), *login("c@d.example", "y2")])
    (second,) = propose_patterns([login("e@f.example", "z3"), login("g@h.example", "w4")])
    assert first.pattern_id == second.pattern_id
    assert first.steps == second.steps


def test_a_sequence_done_once_is_not_a_pattern() -> None:
    assert propose_patterns(login("a@b.example", "x")) == []
    assert propose_patterns([]) == []


def test_a_failed_cycle_is_not_part_of_a_pattern() -> None:
    runs = [clicks("abcd"), clicks("abcd")]
    runs[1][1] = replace(runs[1][1], outcome=ExecutionOutcome.FAILURE)
    assert list_selectors(propose_patterns(runs)) == ["cd"]


def test_a_pattern_belongs_to_one_site() -> None:
    runs = [
        [*clicks("ab"), *(replace(entry, url="https://other.example") for entry in clicks("cd"))]
        for _ in "12"
    ]
    found = propose_patterns(runs)
    assert [(pattern.domain, steps) for pattern, steps in zip(found, list_selectors(found), strict=True)] == [
        ("example.com", "ab"),
        ("other.example", "cd"),
    ]


def test_cycles_without_a_site_give_a_pattern_without_a_domain() -> None:
    runs = [
        [
            record("write_file", at="", path="notes.md", content=f"text {number}"),
            record("run_command", at="", command="make test"),
        ]
        for number in range(2)
    ]
    (found,) = propose_patterns(runs)
    assert (found.domain, found.pattern_type) == ("", "tool_flow")
    assert found.description == "Tool flow: write_file, run_command"
    assert found.steps[0] == {"tool": "write_file", "path": "notes.md", "content": "{content}"}
    at_site = [[replace(entry, url="https://a.example") for entry in run] for run in runs]
    assert {pattern.domain for pattern in propose_patterns([*runs, *at_site])} == {"", "a.example"}
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
def test_secrets_in_commands_are_never_stored(command: str) -> None:
    run = [record("bash", at="", command=command), record("bash", at="", command="make")]
    (found,) = propose_patterns([run, run])
    assert found.steps == ({"tool": "bash", "command": "{command}"}, {"tool": "bash", "command": "make"})
    assert "plainword" not in repr(find_sequences(run)[0].steps)
    assert propose_patterns([run[:1] * 2, run[:1] * 2]) == []  # nothing but secrets is no pattern


def test_plain_commands_have_no_placeholders() -> None:
    run = [
        record("bash", at="", command=command)
        for command in ("git log --author x", "pytest --passed", "mysql shop")
    ]
    (found,) = propose_patterns([run, run])
    assert find_placeholders(found) == []


def test_a_goto_sets_the_site_of_the_pattern() -> None:
    run = [
        record("goto", at="https://start.example", url="https://www.shop.example"),
        record("click", at="", selector="#a"),
    ]
    (found,) = propose_patterns([run, run])
    assert (found.domain, found.pattern_type) == ("shop.example", "navigation")


def test_the_longest_sequences_of_up_to_eight_steps_are_learned() -> None:
    assert list_selectors(propose_patterns([clicks("abcde"), clicks("xabcde")])) == ["abcde"]
    assert list_selectors(propose_patterns([clicks("abcdefghijkl"), clicks("abcdefghijkl")])) == [
        "abcdefgh",
        "ijkl",
    ]
    assert list_selectors(propose_patterns([clicks("abcdefghi"), clicks("abcdefghi")])) == [
        "abcdefgh"
    ]  # one alone is none
    assert list_selectors(propose_patterns([clicks("abxcd"), clicks("cdyab")])) == ["ab", "cd"]


def test_a_repeated_loop_is_learned_as_one_round() -> None:
    assert list_selectors(propose_patterns(clicks("abc" * 6))) == ["abc"]
    assert list_selectors(propose_patterns(clicks("ab" * 20))) == ["ab"]
    assert propose_patterns(clicks("a" * 40)) == []
    assert list_selectors(propose_patterns([clicks("abcaxy"), clicks("zabca")])) == ["abca"]


def test_scrolling_and_waiting_are_not_a_pattern() -> None:
    run = [record("scroll_page", direction="down"), record("wait", seconds=2), record("take_screenshot")]
    assert propose_patterns([run, run]) == []
    assert len(propose_patterns([[*run, click("a")]] * 2)) == 1


def test_different_selectors_urls_or_keys_are_different_steps() -> None:
    assert propose_patterns([clicks("ab"), clicks("cd")]) == []
    for name in ("url", "key", "index"):
        steps: list[dict[str, Any]] = [{name: number} for number in range(4)]
        runs = [[record("act", **step) for step in steps[:2]], [record("act", **step) for step in steps[2:]]]
        assert propose_patterns(runs) == []


def search(words: str) -> list[Cycle]:
    return [record("type", selector="input[name='q']", text=words), record("press", key="Enter")]


def test_different_texts_become_placeholders_and_equal_texts_do_not() -> None:
    (found,) = propose_patterns([search("red shoes"), search("blue hats")])
    assert (found.steps[0]["text"], found.pattern_type) == ("{q}", "search")
    (same,) = propose_patterns([search("red shoes"), search("red shoes")])
    assert same.steps[0]["text"] == "red shoes"
    assert same.pattern_id == found.pattern_id


def test_placeholders_are_named_after_their_fields() -> None:
    def run(suffix: str) -> list[Cycle]:
        return [
            record("type", selector="form .first-name", text=f"Ann {suffix}"),
            record("fill", label="Last name", value=f"Lee {suffix}"),
            record("fill", index=7, value=f"x {suffix}"),
            record("fill", index=8, value=f"y {suffix}"),
            record("fill_form", fields={"city": f"Bonn {suffix}", "zip": f"1 {suffix}"}),
            record("fill_all", fields=[{"selector": "#street", "value": f"Way {suffix}"}]),
            record("search", query=f"map {suffix}"),
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


def test_braces_in_constant_parameters_are_not_placeholders() -> None:
    run = [record("evaluate", script="() => {return}"), click("a")]
    (found,) = propose_patterns([run, run])
    assert find_placeholders(found) == []
    assert fill_placeholders(found, {})[0] == {"tool": "evaluate", "script": "() => {return}"}


SECRET = "Tr0ub4dor&3"


@pytest.mark.parametrize(
    "parameters",
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
def test_constant_secrets_are_never_stored(
    parameters: dict[str, Any],
) -> None:
    thought = "Now I enter the password" if "index" in parameters else ""
    run = [record("act", thought=thought, **parameters), click("submit")]
    (found,) = propose_patterns([run, run])
    dump = json.dumps([found.steps, found.description, found.pattern_id])
    for secret in ("plainword", SECRET, "1234", "sk-abc", "eyJhbG", "4111", "ann@example"):
        assert secret not in dump
    assert find_placeholders(found)


def test_the_word_password_as_a_password_becomes_a_placeholder() -> None:
    (found,) = propose_patterns([login("ann", "password"), login("ann", "password")])
    assert found.steps == LOGIN.steps


def test_a_secret_repeated_in_another_field_is_not_stored() -> None:
    run = [*login("ann", "hunter2x"), record("type", selector="#again", text="it is hunter2x")]
    (found,) = propose_patterns([run, run])
    assert "hunter2x" not in json.dumps(found.steps)
    run = [*login("ann", "hunter2x"), record("click", selector="text=hunter2x")]
    assert "hunter2x" not in json.dumps([pattern.steps for pattern in propose_patterns([run, run])])


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40), st.text(min_size=6, max_size=12)
)
def test_no_pattern_contains_a_password(steps: list[tuple[str, bool]], password: str) -> None:
    mark = f"7#{password}"
    entries = [
        record("type", selector="#password", text=mark) if is_password else click(name)
        for name, is_password in steps
    ]
    for found in propose_patterns(entries):
        assert all(mark not in str(value) for step in found.steps for value in step.values())
        assert 2 <= len(found.steps) <= 8
        assert found.success_count >= 2


@examples(60)
@given(st.lists(st.sampled_from("abcdef"), max_size=60).map("".join))
def test_success_counts_are_correct_and_patterns_do_not_overlap(names: str) -> None:
    found = propose_patterns(clicks(names))
    assert list_ids(found) == list_ids(propose_patterns(clicks(names)))
    for pattern, steps in zip(found, list_selectors(found), strict=True):
        assert names.count(steps) >= pattern.success_count >= 2
    assert sum(pattern.success_count * len(pattern.steps) for pattern in found) <= len(names)
    assert len({pattern.pattern_id for pattern in found}) == len(found)


def test_a_known_pattern_is_proposed_again_only_with_more_placeholders() -> None:
    same, other = [search("red shoes"), search("red shoes")], [search("red shoes"), search("blue hats")]
    (fixed,) = propose_patterns(same)
    (free,) = propose_patterns(other)
    assert propose_patterns(same, known=[fixed]) == []
    assert propose_patterns(other, known=[fixed]) == [replace(free, success_count=4)]
    assert propose_patterns([search("blue hats")], known=[fixed])[0].steps == free.steps
    assert propose_patterns(same, known=[free]) == []
    custom = replace(free, pattern_id="by hand", domain="www.example.com")
    assert propose_patterns(other, known=[custom]) == []


def learn(
    known: list[LearnedPattern], *runs: list[Cycle], old: tuple[list[Cycle], ...] = ()
) -> LearningResult:
    before = [sequence for run in old for sequence in find_sequences(run)]
    for sequence in before:
        sequence.is_fresh = False
    return learn_from_sequences(
        [*before, *(sequence for run in runs for sequence in find_sequences(run))], known
    )


def fail_last(run: list[Cycle], outcome: ExecutionOutcome = ExecutionOutcome.FAILURE) -> list[Cycle]:
    return [*run[:-1], replace(run[-1], outcome=outcome)]


def count_uses(found: LearningResult) -> dict[str, tuple[int, int]]:
    return {
        name: (pattern.success_count, pattern.failure_count) for name, pattern in found.used_patterns.items()
    }


def test_a_custom_pattern_is_used_with_any_placeholder_values() -> None:
    found = learn([LOGIN], login("a@b.example", "x1"), [click("other"), *login("c", "d"), click("more")])
    assert count_uses(found) == {LOGIN.pattern_id: (2, 0)}
    assert (found.new_patterns, found.widened_ids) == ([], [])
    fixed = replace(LOGIN, steps=({"tool": "type", "selector": "#country", "text": "Peru"}, LOGIN.steps[0]))
    chosen = [record("type", selector="#country", text="Peru"), click("login-btn")]
    other = [record("type", selector="#country", text="Chad"), click("login-btn")]
    assert count_uses(learn([fixed], chosen, other)) == {LOGIN.pattern_id: (1, 0)}
    elsewhere = [replace(entry, url="https://other.example") for entry in login("a", "b")]
    assert count_uses(learn([LOGIN], elsewhere)) == {}
    below = [replace(entry, url="https://shop.example.com") for entry in login("a", "b")]
    assert count_uses(learn([LOGIN], below)) == {LOGIN.pattern_id: (1, 0)}


def test_a_run_that_fails_at_a_later_step_counts_as_a_failure_of_the_pattern() -> None:
    for length in (2, 3, 4):
        for outcome in (ExecutionOutcome.FAILURE, ExecutionOutcome.TIMEOUT):
            found = learn([LOGIN], fail_last(login("a", "b")[:length], outcome))
            assert count_uses(found) == {LOGIN.pattern_id: (0, 1)}
    assert count_uses(learn([LOGIN], fail_last(login("a", "b")[:1]))) == {}  # it did not begin
    assert count_uses(learn([LOGIN], login("a", "b")[:3])) == {}  # it did not fail
    assert count_uses(learn([LOGIN], fail_last(login("a", "b")[:3], ExecutionOutcome.PARTIAL))) == {}
    assert count_uses(learn([LOGIN], fail_last([*login("a", "b")[:2], click("other")]))) == {}
    assert count_uses(learn([LOGIN], fail_last([*login("a", "b"), click("login-btn")]))) == {
        LOGIN.pattern_id: (1, 0)
    }
    elsewhere = replace(login("a", "b")[2], url="https://other.example")
    assert count_uses(learn([LOGIN], fail_last([*login("a", "b")[:2], elsewhere]))) == {}
    success_and_failure = fail_last([*login("a", "b"), *login("c", "d")])
    assert count_uses(learn([LOGIN], success_and_failure)) == {LOGIN.pattern_id: (1, 1)}


def test_a_use_counts_for_the_longest_pattern_only() -> None:
    (short,) = propose_patterns([clicks("ab"), clicks("ab")])
    (long,) = propose_patterns([clicks("abc"), clicks("abc")])
    assert count_uses(learn([short, long], clicks("abc"))) == {long.pattern_id: (3, 0)}
    assert count_uses(learn([short, long], clicks("abcab"))) == {
        long.pattern_id: (3, 0),
        short.pattern_id: (3, 0),
    }
    assert count_uses(learn([short, long], fail_last(clicks("abc")))) == {long.pattern_id: (2, 1)}
    grown = learn([short], clicks("abc"), old=(clicks("abc"),))
    assert (list_selectors(grown.new_patterns), count_uses(grown)) == (["abc"], {})


def test_a_pattern_of_older_sequences_only_is_not_learned() -> None:
    assert learn([], clicks("xy"), old=(clicks("ab"), clicks("ab"))).new_patterns == []
    assert list_selectors(learn([], clicks("ab"), old=(clicks("ab"),)).new_patterns) == ["ab"]


def test_split_unlearned_returns_the_steps_outside_patterns() -> None:
    sequences = [*find_sequences(clicks("xyabz")), *find_sequences(clicks("abpq"))]
    assert list_selectors(learn_from_sequences(sequences).new_patterns) == ["ab"]
    unlearned = [
        [step.parameters["selector"] for step in rest.steps]
        for sequence in sequences
        for rest in sequence.split_unlearned()
    ]
    assert unlearned == [["#x", "#y"], ["#p", "#q"]]
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
def test_a_cycle_is_part_of_at_most_one_use_or_pattern(runs: list[tuple[str, bool]], old: list[str]) -> None:
    known = propose_patterns([clicks("abca"), clicks("xabca"), clicks("bd"), clicks("bd")])
    entries = [fail_last(clicks(names)) if fails and names else clicks(names) for names, fails in runs]
    found = learn(known, *entries, old=tuple(map(clicks, old)))
    sizes = {pattern.pattern_id: len(pattern.steps) for pattern in known}
    before = {pattern.pattern_id: pattern.success_count for pattern in known}
    successes = sum(
        (pattern.success_count - before[name]) * sizes[name] for name, pattern in found.used_patterns.items()
    )
    failures = sum(pattern.failure_count for pattern in found.used_patterns.values())
    learned = sum(pattern.success_count * len(pattern.steps) for pattern in found.new_patterns)
    assert successes + failures + learned <= sum(map(len, entries)) + sum(map(len, old))
    assert failures <= sum(fails for _, fails in runs)
    assert not {pattern.pattern_id for pattern in found.new_patterns} & before.keys()


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
def test_a_sequence_comes_back_equal_from_json_and_its_pattern_is_used(
    steps: list[dict[str, Any]],
) -> None:
    run = [record("act", **parameters) for parameters in steps]
    for sequence in find_sequences(run):
        data = json.loads(json.dumps(sequence_to_dict(sequence)))
        restored = sequence_from_dict(data)
        assert (restored.site, restored.steps, restored.is_fresh) == (sequence.site, sequence.steps, False)
        assert sequence_to_dict(restored) == data
    known = propose_patterns([run, run])
    again = learn(known, run, run)
    assert count_uses(again) == {pattern.pattern_id: (pattern.success_count * 2, 0) for pattern in known}
    assert (again.new_patterns, again.widened_ids) == ([], [])


@given(
    st.text(alphabet="{}ab", max_size=9),
    st.dictionaries(st.sampled_from("ab"), st.text(alphabet="{}ab", max_size=4)),
)
def test_a_filled_template_matches_its_pattern(text: str, values: dict[str, str]) -> None:
    template = replace(LOGIN, steps=({"tool": "go", "to": [text, 1]},))
    if set(find_placeholders(template)) <= values.keys():
        (step,) = fill_placeholders(template, values)
        assert matches_step(template.steps[0], "go", {"to": step["to"]}, ())
        assert matches_step({"tool": "go", "parameters": {"to": [text, 1]}}, "go", {"to": step["to"]}, ())
        assert not matches_step(template.steps[0], "go", {"to": [*step["to"], 1]}, ())
        assert not matches_step(template.steps[0], "go", {"to": [step["to"][0], True]}, ())
        assert not matches_step(template.steps[0], "went", {"to": step["to"]}, ())
    plain = replace(LOGIN, steps=({"tool": "go", "to": escape_placeholders(text)},))
    assert matches_step(plain.steps[0], "go", {"to": text}, ())
    assert not matches_step(plain.steps[0], "go", {"to": f"{text}x"}, ())


@pytest.mark.parametrize(
    ("step", "text", "is_match"),
    [
        ("/{a}/x/{b}", "/1/x/2", True),
        ("/{a}/x/{b}", "/1/y/2", False),
        ("a{b}a", "a", False),
        ("{a}b", "bb", True),
    ],
)
def test_placeholders_within_a_text_match_any_value(step: str, text: str, is_match: bool) -> None:  # noqa: FBT001 - a parameter
    assert matches_step({"tool": "go", "url": step}, "go", {"url": text}, ()) is is_match


def test_proposed_patterns_can_be_learned_and_filled() -> None:
    memory = PatternMemory()
    for pattern in propose_patterns(
        [login("a@b.example", "x1"), login("c@d.example", "y2")], known=memory.patterns
    ):
        memory.learn(pattern)
    (found,) = memory.get_patterns_for_domain("www.example.com")
    assert fill_placeholders(found, {"email": "e@f.example", "password": "z"})[2]["text"] == "z"


def test_unusual_parameters_do_not_break_learning() -> None:
    run = [
        record("act", what=object, some={1, 2}, text=None, url=5),
        record("act", at="http://[broken", tool="hammer", deep=[[[{"text": ["x"]}]]]),
        click("a"),
    ]
    (found,) = propose_patterns([run, run])
    assert found.steps[1]["parameters"]["tool"] == "hammer"
    PatternMemory().learn(found)


@pytest.mark.parametrize("kinds", [2, 5_000])
def test_the_cost_of_learning_is_linear_in_the_cycles(kinds: int) -> None:
    entries = [record("type", selector=f"#{(n * n + n // 7) % kinds}", text=f"words {n}") for n in range(400)]
    half = count_function_calls(lambda: propose_patterns(entries[:200]))
    assert count_function_calls(lambda: propose_patterns(entries)) < 2.2 * half


@pytest.mark.parametrize("piece", LEARNING_UNITS)
def test_a_pattern_is_learned_from_long_texts_unless_they_look_like_secrets(piece: str) -> None:
    text = (piece * 2_000)[:2_000]
    run = [record("type", thought=text, selector=text, text=text), click("a")]
    assert len(propose_patterns([run] * 4)) == (piece not in {"?token", "1 ", "password"})
