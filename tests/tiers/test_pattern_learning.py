from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_tiers.core.tasks import Action, ExecutionOutcome, LearnedPattern, MemoryEntry, Thought
from langmem_tiers.tiers.task.pattern_learning import propose_patterns
from langmem_tiers.tiers.task.patterns import LongTermMemory, filled, placeholders_of
from tests.tiers.test_patterns import LOGIN, ids

NUMBERS = count()


def did(
    tool: str, /, *, thought: str = "", at: str = "https://www.example.com/x", **parameters: Any
) -> MemoryEntry:
    number = next(NUMBERS)
    return MemoryEntry(
        entry_id=f"e{number}",
        timestamp=float(number),
        thought=Thought(thought),
        action=Action(tool, parameters),
        url=at,
    )


def login(email: str, password: str) -> list[MemoryEntry]:
    return [
        did("click", selector="#login-btn"),
        did("type", selector="#email", text=email),
        did("type", selector="#password", text=password),
        did("click", selector="#submit"),
    ]


def click(name: str) -> MemoryEntry:
    return did("click", selector=f"#{name}")


def clicks(names: str) -> list[MemoryEntry]:
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
    assert propose_patterns([[replace(one, url="") for one in clicks("ab")]] * 2) == []


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


def search(words: str) -> list[MemoryEntry]:
    return [did("type", selector="input[name='q']", text=words), did("press", key="Enter")]


def test_what_was_typed_differently_is_a_placeholder_and_what_was_the_same_is_not() -> None:
    (found,) = propose_patterns([search("red shoes"), search("blue hats")])
    assert (found.steps[0]["text"], found.pattern_type) == ("{q}", "search")
    (same,) = propose_patterns([search("red shoes"), search("red shoes")])
    assert same.steps[0]["text"] == "red shoes"
    assert same.pattern_id == found.pattern_id


def test_placeholders_are_named_after_their_fields() -> None:
    def run(end: str) -> list[MemoryEntry]:
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
    assert placeholders_of(found) == [
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
    assert placeholders_of(found) == []
    assert filled(found, {})[0] == {"tool": "evaluate", "script": "() => {return}"}


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
    assert placeholders_of(found)


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


@settings(max_examples=60)
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
    assert propose_patterns(other, known=[fixed]) == [free]
    assert propose_patterns(same, known=[free]) == []
    by_hand = replace(free, pattern_id="by hand", domain="www.example.com")
    assert propose_patterns(other, known=[by_hand]) == []


def test_what_is_proposed_can_be_learned_and_filled() -> None:
    memory = LongTermMemory()
    for one in propose_patterns(
        [login("a@b.example", "x1"), login("c@d.example", "y2")], known=memory.patterns
    ):
        memory.learn(one)
    (found,) = memory.get_patterns_for_domain("www.example.com")
    assert filled(found, {"email": "e@f.example", "password": "z"})[2]["text"] == "z"


def test_odd_cycles_do_not_break_learning() -> None:
    run = [
        did("act", what=object, some={1, 2}, text=None, url=5),
        did("act", at="http://[broken", tool="hammer", deep=[[[{"text": ["x"]}]]]),
        click("a"),
    ]
    (found,) = propose_patterns([run, run])
    assert found.steps[1]["parameters"]["tool"] == "hammer"
    LongTermMemory().learn(found)


@pytest.mark.parametrize(("kinds", "size"), [(2, 3_000), (5_000, 10_000)])
def test_ten_thousand_cycles_are_learned_from_in_about_a_second(kinds: int, size: int) -> None:
    entries = [did("type", selector=f"#{(n * n + n // 7) % kinds}", text=f"words {n}") for n in range(size)]
    started = time.perf_counter()
    propose_patterns(entries)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("piece", ["?token", "a", "@a", "a@", "1 ", "password", "{a}", "?;", "sk-a", "://a:"])
def test_hostile_texts_do_not_slow_learning_down(piece: str) -> None:
    text = (piece * 2_000)[:2_000]
    run = [did("type", thought=text, selector=text, text=text), click("a")]
    started = time.perf_counter()
    propose_patterns([run] * 4)
    assert time.perf_counter() - started < 2
