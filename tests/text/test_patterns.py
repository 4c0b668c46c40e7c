"""Facts that are kept verbatim, and texts that are not facts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_texts import FACT_SHAPES
from langmem_tiers import InvalidInputError
from langmem_tiers.text import FACT_PATTERNS, FactKind, FactPattern
from tests.hypothesis_settings import examples

SHA512 = (
    "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
    "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e"
)


def facts(kind: str, text: str) -> list[str]:
    return [text[a:b] for pattern in FACT_PATTERNS if pattern.kind == kind for a, b in pattern.spans(text)]


TAKEN: dict[FactKind, list[tuple[str, list[str]]]] = {
    FactKind.URL: [
        ("See https://example.com/login.", ["https://example.com/login"]),
        ("Is it http://localhost:9100/x?a=1&b=2#top, or", ["http://localhost:9100/x?a=1&b=2#top"]),
        ("<https://a.example/b> and `https://c.example`", ["https://a.example/b", "https://c.example"]),
        ("It is postgresql://app:pw@db:5432/app now", ["postgresql://app:pw@db:5432/app"]),
        ("wss://example.com/live and s3://bucket/key.csv", ["wss://example.com/live", "s3://bucket/key.csv"]),
        ("https://en.wikipedia.org/wiki/Gate_(door)", ["https://en.wikipedia.org/wiki/Gate_(door)"]),
        ("(see https://example.com/a)", ["https://example.com/a"]),
        ("[docs](https://example.com/a) and more", ["https://example.com/a"]),
        ("HTTPS://EXAMPLE.COM/LOGIN", ["HTTPS://EXAMPLE.COM/LOGIN"]),
    ],
    FactKind.EMAIL: [
        ("Write to user@example.com.", ["user@example.com"]),
        ("first.last+tag@mail.example.co.uk, please", ["first.last+tag@mail.example.co.uk"]),
        ("<a@b.com> and mailto:c@d.org", ["a@b.com", "c@d.org"]),
    ],
    FactKind.ERROR: [
        ("Error: element not found", ["Error: element not found"]),
        ("It said\nTypeError: x is not a function\nand stopped", ["TypeError: x is not a function"]),
        ("java.lang.NullPointerException: null", ["java.lang.NullPointerException: null"]),
        ("It failed to load the page. Then", ["failed to load the page"]),
        ("Login failed with code 500; retry", ["failed with code 500"]),
        ("FATAL: no room left", ["FATAL: no room left"]),
    ],
    FactKind.SELECTOR: [
        ("use selector: '#login-form'", ["selector: '#login-form'", "#login-form"]),
        ('css="div > a" there', ['css="div > a"']),
        ("click #submit-button now", ["#submit-button"]),
        ("the .btn-primary one", [".btn-primary"]),
        (".btn-primary is the one", [".btn-primary"]),
        ("try\n.btn-primary", [".btn-primary"]),
        ('use [data-testid="save"]', ['[data-testid="save"]']),
        ("//button[text()='Log in'] opens", ["//button[text()='Log in']"]),
        ("then //div//span", ["//div//span"]),
    ],
    FactKind.CLASS_NAME: [
        ('<div class="btn-primary big">', ['class="btn-primary big"']),
        ("<div className='big'>", ["className='big'"]),
    ],
    FactKind.ELEMENT_ID: [
        ('<a id="submit-button">', ['id="submit-button"']),
        ("<a id='top'>", ["id='top'"]),
    ],
    FactKind.IP_ADDRESS: [
        ("at 192.168.1.100.", ["192.168.1.100"]),
        ("10.0.0.1:8080 and 10.0.0.0/24", ["10.0.0.1:8080", "10.0.0.0/24"]),
        ("from fe80::1 to 2001:db8::ff00:42:8329", ["fe80::1", "2001:db8::ff00:42:8329"]),
        ("2001:0db8:85a3:0000:0000:8a2e:0370:7334", ["2001:0db8:85a3:0000:0000:8a2e:0370:7334"]),
    ],
    FactKind.NUMBER: [
        ("port 9100, or 120000 ms", ["9100", "120000"]),
        ("it is 12,345.67 or 1_000_000", ["12,345.67", "1_000_000"]),
        ("3.14 of 99% and 0.5%", ["3.14", "99%", "0.5%"]),
        ("at -40 or +15.", ["-40", "+15"]),
        ("(42)", ["42"]),
    ],
    FactKind.IDENTIFIER: [
        ("ORDER-12345 of user42", ["ORDER-12345", "user42"]),
        ("550e8400-e29b-41d4-a716-446655440000", ["550e8400-e29b-41d4-a716-446655440000"]),
        ("A12, B34.", ["A12", "B34"]),
        (f"the hash is {SHA512}.", [SHA512]),
    ],
    FactKind.PATH: [
        ("see /etc/hosts, ~/notes/a.txt", ["/etc/hosts", "~/notes/a.txt"]),
        ("./run.sh or ../lib/x", ["./run.sh", "../lib/x"]),
        ("in src/app/main.py.", ["src/app/main.py"]),
        ("in `src/a.py` (or main.py)", ["src/a.py", "main.py"]),
        ("C:\\Users\\me\\a.txt", ["C:\\Users\\me\\a.txt"]),
        ("package.json and docker-compose.yml", ["package.json", "docker-compose.yml"]),
        ("GET /api/v1/users", ["/api/v1/users"]),
    ],
    FactKind.DATE: [
        ("on 2024-03-15.", ["2024-03-15"]),
        ("at 2024-03-15T10:30:00Z and 2024-03-15 10:30", ["2024-03-15T10:30:00Z", "2024-03-15 10:30"]),
        ("2024-03-15T10:30:00.123+02:00", ["2024-03-15T10:30:00.123+02:00"]),
        ("3/15/2024 or 15.03.2024", ["3/15/2024", "15.03.2024"]),
        ("March 15, 2024 or March 15th", ["March 15, 2024", "March 15th"]),
        ("15 March 2024 or 15th of March", ["15 March 2024", "15th of March"]),
        ("Mar. 3, Sept 9, in May 2025", ["Mar. 3", "Sept 9", "May 2025"]),
    ],
    FactKind.TIME: [
        ("at 10:30, 9:05 am or 10:30:15", ["10:30", "9:05 am", "10:30:15"]),
        ("3pm or 3 PM or 3:15 PM EST", ["3pm", "3 PM", "3:15 PM EST"]),
        ("00:00 UTC.", ["00:00 UTC"]),
    ],
    FactKind.COMMAND: [
        ("Run:\n$ pip install example\nThen", ["pip install example"]),
        ("git push origin main", ["git push origin main"]),
        ("❯ uv sync", ["uv sync"]),
        ("  docker ps -a  ", ["docker ps -a"]),
        ("sudo apt-get install nginx", ["sudo apt-get install nginx"]),
        ("command: ls -la", ["ls -la"]),
        ("command:  ls -la", ["ls -la"]),
        ("make test", ["make test"]),
        ("git commit -m 'a b'", ["git commit -m 'a b'"]),
        ("curl https://example.com/a", ["curl https://example.com/a"]),
        ("git add .", ["git add ."]),
        ("$ docker build -t app .", ["docker build -t app ."]),
        ("cd ..", ["cd .."]),
    ],
    FactKind.CODE: [
        ("use `foo()` or `bar.`", ["`foo()`", "`bar.`"]),
        ("``a`` is code", ["``a``"]),
    ],
    FactKind.VERSION: [
        ("v1.2.3 or 2.0.0-rc.1, not v2", ["v1.2.3", "2.0.0-rc.1", "v2"]),
        ("Python 3.11 and numpy 1.26.", ["Python 3.11", "numpy 1.26"]),
        (">=1.2, ==2.0.1 and ~=1.4", [">=1.2", "==2.0.1", "~=1.4"]),
        ("1.0.0+build.5", ["1.0.0+build.5"]),
    ],
    FactKind.MONEY: [
        ("$500, €99 and £5m", ["$500", "€99", "£5m"]),
        ("$1,234.56 or $3 million.", ["$1,234.56", "$3 million"]),
        ("500 USD, USD 400 or 20 euros", ["500 USD", "USD 400", "20 euros"]),
        ("1,000 € or 5 pounds", ["1,000 €", "5 pounds"]),
    ],
    FactKind.DECISION: [
        ("We decided to use Fjordpay.", ["We decided to use Fjordpay"]),
        ("Decision: Fjordpay replaces Stripe.", ["Decision: Fjordpay replaces Stripe"]),
        ("So let's use PostgreSQL, then", ["So let's use PostgreSQL"]),
    ],
    FactKind.PERSONAL: [
        ("Hi, my name is Alice and I am here.", ["my name is Alice and I am here"]),
        ("I prefer tabs.", ["I prefer tabs"]),
        ("Remember that I am allergic to nuts", ["Remember that I am allergic to nuts"]),
    ],
    FactKind.NEGATION: [
        ("do not use Redis.", ["do not use Redis"]),
        ("never deploy on Friday", ["never deploy on Friday"]),
        ("We don't want tabs", ["We don't want tabs"]),
        ("It isn’t ready", ["It isn’t ready"]),
        ("Use SQLite instead of Postgres", ["Use SQLite instead of Postgres"]),
        ("It ran without a password", ["It ran without a password"]),
        ("no longer supported", ["no longer supported"]),
        ("do NOT touch it", ["do NOT touch it"]),
    ],
}

LEFT: dict[FactKind, list[str]] = {
    FactKind.URL: ["example.com", "http is old", "http:// and", "nothttp://x", "mailto:a@b.com", "a://b"],
    FactKind.EMAIL: ["@mention", "a@b", "user@localhost", "user@@example.com", "a @ b.com"],
    FactKind.ERROR: ["no errors today", "error", "terror: no", "An error occurred"],
    FactKind.SELECTOR: [
        "issue #42",
        "C# code",
        "// remark",
        "## Title",
        "&#39;",
        "https://x/#top",
        "file.my-name",
    ],
    FactKind.CLASS_NAME: ["class Gate:", "subclass='x'", 'class=""', "classes"],
    FactKind.ELEMENT_ID: ["grid='x'", "id=5", 'id=""', "idea"],
    FactKind.IP_ADDRESS: ["1.2.3", "1.2.3.4.5", "12:34:56", "std::vector", "v1.2.3.4"],
    FactKind.NUMBER: ["7 gates", "a1b2", "v10", "no digits", "8"],
    FactKind.IDENTIFIER: ["TICKET-7", "x1y2", "gate", "a1"],
    FactKind.PATH: [
        "e.g. this",
        "i.e. that",
        "and/or",
        "etc.",
        "1/2",
        "3.14",
        "</div>",
        "n/a",
        "end.Next",
        "TCP/IP",
    ],
    FactKind.DATE: ["1/2", "in May", "12.5.3", "12345-01-01", "it may be", "1.2"],
    FactKind.TIME: ["16:9", "10:60", "1:2", "spam", "12:34:56:78", "I am", "10.30"],
    FactKind.COMMAND: [
        "make sure that you",
        "make sure that you lock it",
        "find out what happened",
        "go to the store",
        "which is better",
        "please run git status",
        "Go ahead",
        "git",
        "$ 5",
        "$100 is a lot",
    ],
    FactKind.CODE: ["`open", "`a\nb`", "``", "it's"],
    FactKind.VERSION: ["3.14", "Python", "x1.2.3", "v", "version two"],
    FactKind.MONEY: ["$", "$PATH", "10 centuries", "5 eurosystems", "100 gates"],
    FactKind.DECISION: ["It is undecided", "The chosen"],
    FactKind.PERSONAL: ["His name is long", "like this"],
    FactKind.NEGATION: [
        "a note about it",
        "notebook is open",
        "The knot is tied",
        "nothing",
        "rather nice",
        "not",
    ],
}


def test_every_kind_has_a_pattern_and_every_pattern_a_kind() -> None:
    assert {pattern.kind for pattern in FACT_PATTERNS} == set(FactKind) == TAKEN.keys() == LEFT.keys()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [(kind, text, expected) for kind, rows in TAKEN.items() for text, expected in rows],
)
def test_each_fact_is_found_verbatim(kind: FactKind, text: str, expected: list[str]) -> None:
    found = facts(kind, text)
    assert [fact for fact in expected if fact not in found] == []


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in LEFT.items() for text in texts])
def test_text_that_resembles_a_fact_is_ignored(kind: FactKind, text: str) -> None:
    assert facts(kind, text) == []


@pytest.mark.parametrize(
    ("example_of", "kind"),
    [
        ("https://example.com/login", FactKind.URL),
        ("user@example.com", FactKind.EMAIL),
        ("Error: element not found", FactKind.ERROR),
        ("selector: '#login-form'", FactKind.SELECTOR),
        ('class="btn-primary"', FactKind.CLASS_NAME),
        ('id="submit-button"', FactKind.ELEMENT_ID),
        ("192.168.1.100", FactKind.IP_ADDRESS),
        ("9100", FactKind.NUMBER),
        ("120000", FactKind.NUMBER),
    ],
)
@pytest.mark.parametrize("frame", ["{}", "It was {}", "{}\nThen it went on.", "First:\n\n{}\n"])
def test_each_example_of_the_design_document_is_found(example_of: str, kind: FactKind, frame: str) -> None:
    assert example_of in facts(kind, frame.format(example_of))


def covered(text: str) -> set[int]:
    return {n for pattern in FACT_PATTERNS for a, b in pattern.spans(text) for n in range(a, b)}


@examples(300)
@given(st.text(st.sampled_from("abZ019-_.,:;/ $%'\"()\n#@=+"), max_size=50))
def test_every_number_of_several_digits_is_in_some_fact(text: str) -> None:
    inside = covered(text)
    for number in re.finditer(r"\d{2,}", text):
        assert set(range(*number.span())) <= inside


@pytest.mark.parametrize("length", [30, 60, 61, 100, 200])
def test_a_number_at_the_end_of_a_long_word_is_in_some_fact(length: int) -> None:
    text = f"see {'a' * length}9100 now"
    assert {4 + length, 4 + length + 3} <= covered(text)


# Pieces that stand at the beginning and the end of facts, and between them.
PIECES = """
    https://example.com user@example.com Error: failed selector: ' " # .btn-primary [data-x] //div[1] class=" id='
    10.0.0.1 fe80::1 2001:0db8:85a3:0000:0000:8a2e:0370:7334 a:b:c:d:e:f:1:2 9100 -40 ORDER-12 /etc/hosts ~/x ./y a.py
    C:\\a\\b 2024-03-15 May 5 15 March 10:30 pm $5 EUR dollars v1.2 python 3.11 >=1 $ git push ` not don't n’t never
    avoid no longer MARCH İ ſ command: make
    """.split()
pieces = st.sampled_from([*PIECES, " ", "\n", "\t", "(", ")"])


@pytest.mark.parametrize(
    "text",
    [text for rows in TAKEN.values() for text, _ in rows] + [text for rows in LEFT.values() for text in rows],
)
def test_needles_only_skip_searches_without_a_match(text: str) -> None:
    for pattern in FACT_PATTERNS:
        assert list(pattern.spans(text)) == list(replace(pattern, needles=()).spans(text))


@examples(300)
@given(st.lists(pieces, max_size=12).map("".join))
def test_needles_skip_no_match(text: str) -> None:
    for pattern in FACT_PATTERNS:
        assert list(pattern.spans(text)) == list(replace(pattern, needles=()).spans(text))


@given(st.lists(pieces, max_size=12).map("".join))
@example("not x" + "\u0130" * 5)
@example("command:  ls -la")
def test_a_fact_is_within_its_text_without_surrounding_space(text: str) -> None:
    for pattern in FACT_PATTERNS:
        for start, end in pattern.spans(text):
            assert 0 <= start < end <= len(text)
            assert text[start:end] == text[start:end].strip()


@given(st.lists(pieces, max_size=12).map("".join))
def test_a_given_lowercase_text_changes_nothing(text: str) -> None:
    for pattern in FACT_PATTERNS:
        assert list(pattern.spans(text, text.lower())) == list(pattern.spans(text))


@pytest.mark.parametrize(("head", "piece"), FACT_SHAPES)
def test_facts_of_a_repeated_piece_are_parts_of_it_in_their_order(head: str, piece: str) -> None:
    text = repeat_to_size(piece, 2_000, head, "!")
    for pattern in FACT_PATTERNS:
        spans = list(pattern.spans(text))
        assert spans == sorted(spans)
        assert all(0 <= start < end <= len(text) for start, end in spans)


def test_a_custom_pattern_finds_its_facts() -> None:
    pattern = FactPattern("gate", re.compile(r"gate [A-Z]\d"), 40)
    text = "From gate A1, to gate B2."
    assert [text[a:b] for a, b in pattern.spans(text)] == ["gate A1", "gate B2"]
    assert (pattern.kind, pattern.priority) == ("gate", 40)


def test_group_1_is_the_fact() -> None:
    pattern = FactPattern("gate", re.compile(r"gate ([A-Z]\d)(, please)?"))
    assert list(pattern.spans("From gate A1, please")) == [(10, 12)]


def test_a_match_without_group_1_is_not_a_fact() -> None:
    pattern = FactPattern("gate", re.compile(r"gate(?: ([A-Z]\d))?"))
    assert list(pattern.spans("A gate and gate B2")) == [(16, 18)]


def test_trailing_punctuation_is_not_part_of_a_fact() -> None:
    pattern = FactPattern("gate", re.compile(r"gate\S*\s*"))
    text = "gate; gate! gate?! gate... gate"
    assert [text[a:b] for a, b in pattern.spans(text)] == ["gate"] * 5


def test_a_match_of_only_punctuation_is_not_a_fact() -> None:
    assert list(FactPattern("dots", re.compile(r"\.+")).spans("so ... what")) == []


def test_a_pattern_with_needles_searches_only_texts_with_a_needle() -> None:
    pattern = FactPattern("gate", re.compile(r"(?i:gate|door)"), needles=("gate",))
    assert list(pattern.spans("a DOOR")) == []
    assert list(pattern.spans("a DOOR, a GATE")) == [(2, 6), (10, 14)]


def test_words_before_a_match_belong_to_the_fact_on_request() -> None:
    pattern = FactPattern("gate", re.compile(r"gate"), words_before=2)
    text = "Paint the old green gate. The gate"
    assert [text[a:b] for a, b in pattern.spans(text)] == ["old green gate", "The gate"]


@pytest.mark.parametrize(
    "pattern",
    [
        "gate",
        rb"gate",
        None,
        5,
        re.compile(rb"gate"),
        re.compile(r""),
        re.compile(r"x*"),
        re.compile(r"a|b?"),
        re.compile(r"$"),
    ],
    ids=repr,
)
def test_an_invalid_fact_pattern_is_refused(pattern: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"compiled text pattern|matches the empty text"):
        FactPattern("gate", pattern)


def test_the_refusal_names_the_pattern_that_matches_the_empty_text() -> None:
    with pytest.raises(InvalidInputError, match=r"'x\*' matches the empty text"):
        FactPattern("gate", re.compile("x*"))
