from __future__ import annotations

import json
import re

import pytest

from langmem_tiers import CharCounter, MessageToolCall
from langmem_tiers.common.messages import SUMMARY_PREFIX, Message, Role
from langmem_tiers.compression import FactFinder, Summary
from langmem_tiers.compression.digest import Digest
from tests.messages import COUNTER, message

finder = FactFinder()


def render_next(
    earlier: Digest | None, messages: list[Message], max_tokens: int | None = None
) -> tuple[Digest, Summary]:
    """The next summary, as the engine makes it: from what the one before carried."""
    digest = Digest.from_messages(messages, finder, earlier)
    done = digest.render(COUNTER, max_tokens)
    return Digest.from_dict(json.loads(json.dumps(digest.to_dict(done)))), done


def test_many_messages_become_actions_results_and_key_facts() -> None:
    messages = [
        message("Navigate to https://example.com"),
        message("Successfully navigated", "assistant"),
        message("Click the login button"),
        message("Clicked element, then Error: timeout", "assistant"),
    ]
    assert Digest.from_messages(messages, finder).render(COUNTER).text == (
        "[Summary of 4 messages]\n"
        "Actions: User: Navigate to https://example.com | User: Click the login button\n"
        "Results: Agent: Successfully navigated | Agent: Clicked element, then Error: timeout"
    )


def test_facts_missing_from_the_story_are_listed() -> None:
    far = "x" * 400 + " see https://example.com/far and call 9100"
    text = Digest.from_messages([message(far)], finder).render(COUNTER).text
    assert text.endswith("Key facts: https://example.com/far, 9100")


def test_a_tool_call_is_an_action_and_its_result_a_result() -> None:
    call = MessageToolCall("c1", "bash", '{"command": "pytest -q tests"}')
    messages = [
        message("", "assistant", tool_calls=(call,)),
        message("3 passed", "tool", tool_call_id="c1"),
    ]
    text = Digest.from_messages(messages, finder).render(COUNTER).text
    assert "Actions: Agent: bash command: pytest -q tests" in text
    assert "Results: Tool: 3 passed" in text


@pytest.mark.parametrize("limit", [1, 5, 20, 60, 200, 1000])
def test_any_limit_is_respected(limit: int) -> None:
    messages = [message(f"Look at https://example.com/{n} and pay ${n}00.") for n in range(50)]
    done = Digest.from_messages(messages, finder).render(COUNTER, limit)
    assert done.tokens <= limit
    words = set(re.findall(r"[^\s,]+", done.text))  # told apart here by spaces, not as the engine does it
    urls = {f"https://example.com/{n}" for n in range(50)}
    assert urls - words == {fact.text for fact in done.missing if fact.kind == "url"}


def test_facts_have_priority_over_the_story() -> None:
    messages = [
        message(f"Some long story, number one hundred, told at length, with {n}77") for n in range(40)
    ]
    done = Digest.from_messages(messages, finder).render(COUNTER, 120)
    assert done.missing == ()
    assert all(f"{n}77" in done.text for n in range(40))


def test_facts_that_fit_are_chosen_by_weight_then_recency() -> None:
    messages = [message(f"Item a{n:04}b costs $1{n:02} or 7{n:02} coins") for n in range(100)]
    done = Digest.from_messages(messages, finder).render(CharCounter(), 250)
    listed = done.text.rpartition("Key facts: ")[2].split(", ")
    money = [fact for fact in listed if fact.startswith("$")]
    assert len(money) > 80  # worth more than bare numbers of the same length
    numbers = [int(fact) for fact in listed if fact.isdigit()]
    assert all(number > 750 for number in numbers)


def test_a_summary_of_a_summary_keeps_count_facts_and_steps() -> None:
    first, _ = render_next(None, [message(f"Visit https://example.com/{n}") for n in range(5)])
    _, done = render_next(first, [message("It is not done yet", "assistant"), message("Pay $42")])
    assert done.text.startswith("[Summary of 7 messages]")
    assert all(f"https://example.com/{n}" in done.text for n in range(5))
    assert "$42" in done.text
    assert "It is not done yet" in done.text


def test_ten_repeated_summaries_lose_no_fact_that_fits() -> None:
    earlier: Digest | None = None
    for round_ in range(10):
        new = [message(f"Round {round_}: https://example.com/{round_}/{n}") for n in range(3)]
        earlier, done = render_next(earlier, new, 2000)
    assert done.text.startswith("[Summary of 30 messages]")
    for round_ in range(10):
        for n in range(3):
            assert f"https://example.com/{round_}/{n}" in done.text


def test_a_manual_summary_counts_as_a_message_and_keeps_its_facts() -> None:
    by_hand = message(f"{SUMMARY_PREFIX}\nWe chose Redis at 10.0.0.7 after all.", "system")
    digest = Digest.from_messages([by_hand, message("Next")], finder)
    assert digest.count == 2
    assert "10.0.0.7" in digest.render(COUNTER).text


def test_no_messages_give_an_empty_summary() -> None:
    assert Digest.from_messages([], finder).render(COUNTER).text == "[Summary of 0 messages]"


def test_the_roles_are_distinguished() -> None:
    text = (
        Digest.from_messages([message("be kind", "system"), message("hi", "user")], finder)
        .render(COUNTER)
        .text
    )
    assert "System: be kind" in text
    assert Role.SYSTEM.value == "system"
