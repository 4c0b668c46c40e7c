from __future__ import annotations

import json
import threading

import pytest

from langmem_tiers.compression.tool_output.compressor import ContextCompressor
from langmem_tiers.testing import ScriptedLLM
from tests.compression.tool_results import FORM, PAGE, PROSE, TRACE
from tests.waiting import LIMIT_SECONDS

compressor = ContextCompressor()
TEXT = f"The lamp costs $49.99, see https://a.b/lamp and https://a.b/terms. Order by 2025-03-01. {PROSE}"


def answer(summary: str, *facts: str) -> str:
    return "Here it is:\n```json\n" + json.dumps({"summary": summary, "key_facts": facts}) + "\n```"


def test_summary_and_facts_of_a_model_are_used() -> None:
    model = ScriptedLLM([answer("A lamp for $49.99", "It is at https://a.b/lamp")])
    done = ContextCompressor(model=model).compress(TEXT)
    assert done.summary == "A lamp for $49.99"
    assert done.key_facts[0] == "It is at https://a.b/lamp"
    assert done.problems == ()
    assert "<material>\nThe lamp costs" in model.prompts[0]


def test_inventions_of_a_model_are_dropped_and_lost_facts_restored() -> None:
    model = ScriptedLLM(
        [answer("A lamp for $12.00", "See https://evil.example/x", "See /made/up.html", "It is a lamp")]
    )
    done = ContextCompressor(model=model).compress(TEXT)
    text = done.format_for_prompt()
    assert "evil" not in text
    assert "/made/up.html" not in text
    assert "$12.00" not in text
    assert done.key_facts[0] == "It is a lamp"
    assert done.urls_mentioned == ["https://a.b/lamp", "https://a.b/terms"]
    assert "$49.99" in text
    assert done.problems == ("3 of the model's lines contained facts that are not in the material",)


def test_urls_omitted_by_a_model_stay_out_only_on_request() -> None:
    first_answer = answer("A lamp", "It is at https://a.b/lamp")
    done = ContextCompressor(model=ScriptedLLM([first_answer])).compress(
        "A lamp: https://a.b/lamp https://a.b/x", "text_content", 3, validate_urls=False
    )
    assert "https://a.b/lamp" in done.urls_mentioned
    state = answer("A page")
    done = ContextCompressor(model=ScriptedLLM([state])).compress(PAGE, "page_state", 3, validate_urls=False)
    assert len(done.urls_mentioned) == 2


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (RuntimeError("down"), "the model raised RuntimeError"),
        ("", "the model returned an empty answer"),
        ("I cannot do that.", "the model returned no object with a summary"),
        ("x" * 1_000_000, "the model returned 1000000 characters"),
    ],
)
def test_a_failing_model_is_skipped(reply: str | BaseException, problem: str) -> None:
    done = ContextCompressor(model=ScriptedLLM([reply])).compress(TEXT)
    plain = compressor.compress(TEXT)
    assert done.problems[0].startswith(problem)
    assert (done.key_facts, done.urls_mentioned) == (plain.key_facts, plain.urls_mentioned)


def test_a_model_that_hangs_is_not_waited_for() -> None:
    release = threading.Event()

    class Hanging:
        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
            release.wait(LIMIT_SECONDS)
            return ""

    done = ContextCompressor(model=Hanging(), time_limit_seconds=0.05).compress(TEXT)
    release.set()
    assert done.problems == ("no answer within 0.05 s",)
    assert done.key_facts


@pytest.mark.parametrize("data", [TRACE, FORM])
def test_a_model_is_not_called_for_errors_and_forms(data: object) -> None:
    model = ScriptedLLM([])
    assert ContextCompressor(model=model).compress(data).problems == ()
    assert model.prompts == []
