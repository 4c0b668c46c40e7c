from __future__ import annotations

import pytest

from benchmarks.growth_cases import repeat_to_size
from benchmarks.growth_texts import KEY_FACT_UNITS
from langmem_tiers.text.facts import KEY_FACTS, find_key_facts


def test_the_six_classes_of_the_design_document_exist() -> None:
    assert [fact.name for fact in KEY_FACTS] == ["url", "error", "selector", "api", "credential", "step"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Go to https://example.com now", ["url"]),
        ("Go to http://example.com now", ["url"]),
        ("HTTPS://EXAMPLE.COM", ["url"]),
        ("An error occurred", ["error"]),
        ("It failed twice", ["error"]),
        ("An Exception was raised", ["error"]),
        ("TypeError in line nine", ["error"]),
        ("The selector is green", ["selector"]),
        ("Use the XPath of the button", ["selector"]),
        ("A CSS rule hides it", ["selector"]),
        ("Click #submit-button", ["selector"]),
        ('<a class="btn">', ["selector"]),
        ("<a className='btn'>", ["selector"]),
        ('<a id="top">', ["selector"]),
        ("//button[text()='Go']", ["selector"]),
        ("The API answers", ["api"]),
        ("Both APIs answer", ["api"]),
        ("That endpoint is slow", ["api"]),
        ("It calls GET /users first", ["api"]),
        ("then POST /users", ["api"]),
        ("then DELETE /users", ["api"]),
        ("The password is on paper", ["credential"]),
        ("Ask for credentials", ["credential"]),
        ("The client secret is gone", ["credential"]),
        ("Bearer token needed", ["credential"]),
        ("an access_token and more", ["credential"]),
        ("Now step 1 is done", ["step"]),
        ("Phase 2 begins", ["step"]),
        ("STEP #3 of it", ["step"]),
    ],
)
def test_each_class_is_found(text: str, names: list[str]) -> None:
    assert list(find_key_facts(text)) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The garden gate was painted green",
        "http is a protocol",
        "https:// and then nothing",
        "To err is human, to fail is too",
        "We had a class about classes",
        "She is number #1 and wears # 5",
        "Full access to the house",
        "// a remark",
        "The capital has a rapid train",
        "Get going and post it / send it",
        "The keyboard and the piano key",
        "The secretary passed by",
        "It used nine tokens",
        "Take steps, phase it out",
        "A footstep 1 metre long",
        "The steps 1 and 2",
        "one step at a time",
    ],
)
def test_text_that_resembles_a_key_fact_is_not_one(text: str) -> None:
    assert find_key_facts(text) == ()


def test_all_classes_of_a_text_are_named_in_the_order_of_the_table() -> None:
    text = "Step 1: POST /login with the password at https://example.com, else error in #form"
    assert find_key_facts(text) == ("url", "error", "selector", "api", "credential", "step")


@pytest.mark.parametrize("text", ["api key", "API-Key", "api_keys"])
def test_an_api_key_is_a_credential(text: str) -> None:
    assert "credential" in find_key_facts(text)


@pytest.mark.parametrize("piece", KEY_FACT_UNITS)
def test_a_fragment_repeated_to_20000_characters_has_only_the_facts_of_one(piece: str) -> None:
    facts = {"#a-": ("selector",), "api ": ("api",)}
    assert find_key_facts(repeat_to_size(piece, 20_000)) == facts.get(piece, ())
