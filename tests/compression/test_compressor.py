from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from langmem_tiers import CharCounter, Compressor, InvalidConfigError, InvalidInputError, MessageToolCall
from langmem_tiers.compression import FactFinder
from langmem_tiers.text import FACT_PATTERNS, FactPattern
from tests.messages import COUNTER, message

compressor = Compressor(COUNTER)
FILLER = "We walked along the shore and talked about nothing in particular for a while. "


def long_text(*lines: str) -> str:
    return "\n".join([lines[0], *[FILLER * 3] * 4, *lines[1:]])


def test_a_compressed_text_keeps_first_line_last_line_and_facts() -> None:
    text = "\n".join(
        [
            "I opened the login page.",
            FILLER * 3 + "It was https://example.com/login and selector: '#login-form' was there.",
            FILLER * 3 + "Then it said Error: element not found",
            "I will try again.",
        ]
    )
    done = compressor.compress(text, "assistant")
    assert done.text == (
        "[assistant] I opened the login page.\n"
        "... I will try again.\n"
        "[preserved: https://example.com/login, selector: '#login-form', Error: element not found]"
    )
    assert done.missing == ()
    assert done.tokens_after < done.tokens_before


@pytest.mark.parametrize("length", [0, 1, 199, 200])
def test_a_text_of_up_to_200_characters_is_unchanged(length: int) -> None:
    text = ("word " * 50)[:length]
    assert compressor.compress(text).text == text


def test_a_text_of_201_characters_is_compressed() -> None:
    text = "Head\n" + "x " * 89 + "\nTail of the text."
    assert len(text) == 201
    assert compressor.compress(text).text == "[user] Head\n... Tail of the text."


def test_long_lines_are_truncated_to_200_characters() -> None:
    text = "a" * 500 + "\n" + FILLER * 5 + "\n" + "b" * 500
    assert compressor.compress(text).text == f"[user] {'a' * 200}\n... {'b' * 200}"


def test_a_single_long_line_has_no_last_line() -> None:
    assert compressor.compress("word " * 100).text == "[user] " + ("word " * 40).strip()


@pytest.mark.parametrize(
    ("kind", "fact"),
    [
        ("url", "https://example.com/login"),
        ("email", "user@example.com"),
        ("error", "Error: element not found"),
        ("selector", "selector: '#login-form'"),
        ("class_name", 'class="btn-primary"'),
        ("element_id", 'id="submit-button"'),
        ("ip_address", "192.168.1.100"),
        ("number", "9100"),
        ("number", "120000"),
        ("path", "/etc/nginx/nginx.conf"),
        ("date", "2025-03-01"),
        ("time", "14:35"),
        ("command", "git commit -m 'x'"),
        ("code", "`retry(3)`"),
        ("version", "v2.14.1"),
        ("money", "$1,299.50"),
        ("negation", "we do not deploy on Fridays"),
        ("negation", "use PostgreSQL instead of MySQL"),
    ],
)
def test_each_class_of_facts_survives(kind: str, fact: str) -> None:
    text = long_text("The beginning.", fact, FILLER * 3, "The end.")
    done = compressor.compress(text)
    assert fact in done.text
    assert len(done.text) < len(text)
    assert kind in {found.kind for found in done.facts}
    assert done.missing == ()


def test_a_fact_split_by_truncation_is_listed_completely() -> None:
    text = "x" * 190 + " https://example.com/a/very/long/address\n" + FILLER * 6 + "\nend"
    assert "[preserved: https://example.com/a/very/long/address]" in compressor.compress(text).text


def test_a_fact_in_the_kept_lines_is_not_listed_again() -> None:
    text = long_text("See https://example.com/a first.", "Done with port 9100.")
    assert compressor.compress(text).text.count("https://example.com/a") == 1
    assert "[preserved" not in compressor.compress(text).text


def test_a_text_of_facts_only_is_unchanged() -> None:
    text = "\n".join(f"https://example.com/{n}" for n in range(40))
    done = compressor.compress(text)
    assert done.text == text
    assert done.tokens_after == done.tokens_before


def test_a_limit_is_respected_and_missing_facts_are_reported() -> None:
    text = long_text("Start.", *[f"https://example.com/page/{n} costs ${n}.50" for n in range(60)], "End.")
    done = compressor.compress(text, max_tokens=100)
    assert done.tokens_after <= 100
    assert done.missing
    listed = set(re.split(r", |\]", done.text.partition("[preserved: ")[2]))
    lost = {fact.text for fact in done.missing}
    prices = {f"${n}.50" for n in range(60)}
    assert listed & prices
    assert prices - listed == lost & prices
    assert {f"https://example.com/page/{n}" for n in range(60)} - listed <= lost


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_the_smallest_limits_are_respected(limit: int) -> None:
    assert compressor.compress(long_text("Start", "9100"), max_tokens=limit).tokens_after <= limit


@pytest.mark.parametrize("limit", [-1, 1.5, True, "9"])
def test_an_invalid_limit_is_refused(limit: object) -> None:
    with pytest.raises(InvalidConfigError, match="max_tokens"):
        compressor.compress(long_text("Start", "end"), max_tokens=limit)  # type: ignore[arg-type]


def test_facts_of_custom_patterns_are_kept() -> None:
    ticket = FactPattern("ticket", re.compile(r"TICKET-[A-Z]+"), 95)
    own = Compressor(CharCounter(), FactFinder((*FACT_PATTERNS, ticket)))
    done = own.compress(long_text("Start.", "It is TICKET-ABC here.", FILLER, "End."))
    assert "TICKET-ABC" in done.text
    assert "ticket" in {fact.kind for fact in done.facts}
    assert (
        "TICKET-ABC"
        not in compressor.compress(long_text("Start.", "It is TICKET-ABC here.", FILLER, "End.")).text
    )


def test_a_compressed_message_keeps_its_calls_valid_and_their_facts() -> None:
    script = "\n".join(
        ["import os", *[f"print('line {n}')" for n in range(80)], "open('/srv/app/main.py')", "done()"]
    )
    call = MessageToolCall(
        "c1", "write_file", json.dumps({"path": "/srv/app/main.py", "text": script, "mode": 644})
    )
    before = message("", "assistant", tool_calls=(call,))
    after = compressor.compress_message(before)
    arguments = json.loads(after.tool_calls[0].arguments)
    assert arguments["path"] == "/srv/app/main.py"
    assert arguments["mode"] == 644
    assert len(arguments["text"]) < len(script)
    assert after.token_count < before.token_count
    assert (after.tool_calls[0].id, after.tool_calls[0].name) == ("c1", "write_file")


@pytest.mark.parametrize("arguments", ["[" * 5000, "{not json" + "x" * 500, json.dumps(["x" * 900])])
def test_arguments_that_are_not_a_json_object_are_unchanged(arguments: str) -> None:
    before = message("", "assistant", tool_calls=(MessageToolCall("c", "t", arguments),))
    assert compressor.compress_message(before) is before


def test_a_message_that_cannot_be_shortened_is_returned_unchanged() -> None:
    before = message("short")
    assert compressor.compress_message(before) is before


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("$5", "$50"),
        ("100", "9100"),
        ("10.0.0.1", "10.0.0.12"),
        ("/etc/app", "/etc/app-old"),
        ("a77", "ba77"),
    ],
)
def test_a_fact_does_not_survive_in_a_longer_one(short: str, long: str) -> None:
    text = long_text("Start.", f"It was {short} here.", FILLER, f"It was {long} there.", FILLER, "End.")
    done = compressor.compress(text)
    assert f"{short}, {long}" in done.text
    limited = compressor.compress_batch([message(text)], max_tokens=20)
    words = limited.text.replace(",", " ").split()
    assert short in words or short in {fact.text for fact in limited.missing}


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("pip install foo", "pip install foobar"),
        ("kill -9 12", "kill -9 123"),
        ("Error: code 10", "Error: code 105"),
        ("git checkout v1", "git checkout v1.2"),
        ("rm -rf /srv/a", "rm -rf /srv/a/b"),
    ],
)
def test_a_line_does_not_survive_in_a_longer_one(short: str, long: str) -> None:
    filler = [message(f"{'x' * 400} {n}") for n in range(3)]
    done = compressor.compress_batch([message(short), message(long), *filler], max_tokens=40)
    rest = done.text.replace(long, "")
    assert short in rest or short in {fact.text for fact in done.missing}


def test_one_too_long_fact_does_not_displace_the_others() -> None:
    text = (
        "Start\n$ docker run "
        + "-e A=bbbbbbbbb " * 15
        + "img\n"
        + "words words " * 40
        + "\nsee https://e.com/a\nend"
    )
    assert "https://e.com/a" in compressor.compress(text, max_tokens=50).text


def test_many_messages_become_one_summary() -> None:
    done = compressor.compress_batch(
        [message("Open https://example.com"), message("It is open", "assistant")]
    )
    assert done.text == (
        "[Summary of 2 messages]\nActions: User: Open https://example.com\nResults: Agent: It is open"
    )


@pytest.mark.parametrize(
    "number", ['{"amount": 12345678901234567.89, ', '{"rate": 1E400, ', '{"x": "a", "x": "b", ']
)
def test_arguments_without_an_exact_json_round_trip_are_unchanged(number: str) -> None:
    arguments = f'{number}"note": "{FILLER * 9}"}}'
    before = message("", "assistant", tool_calls=(MessageToolCall("c", "t", arguments),))
    assert compressor.compress_message(before) is before


def test_all_of_a_thousand_numbers_are_kept() -> None:
    numbers = [f"{n:07d}" for n in range(1_000)]
    text = "".join(f"blah blah blah bla {number}\n" for number in numbers)
    done = compressor.compress(text)
    assert done.missing == ()
    assert re.findall(r"\d{7}", done.text) == [numbers[0], numbers[-1], *numbers[1:-1]]
    assert len(done.text) < len(text) / 2


def test_a_value_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="expects a str, got int"):
        compressor.compress(5)  # type: ignore[arg-type]


def test_a_compressed_message_has_no_original_payload() -> None:
    before = replace(message(long_text("Start.", "End.")), payload_json='{"content": "all of it"}')
    assert before.payload is not None
    assert compressor.compress_message(before).payload is None
    assert compressor.compress_message(before).id == before.id
