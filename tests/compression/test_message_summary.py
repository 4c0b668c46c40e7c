"""``engine.summarize`` turns messages of any framework into one text with their facts."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langmem_tiers import EngineConfig, InvalidMessageError, MemoryEngine, SummaryConfig
from langmem_tiers.common.prompt_fences import wrap_in_fence
from langmem_tiers.testing import ScriptedLLM
from langmem_tiers.text.token_counting import ContentAwareCounter

INVOICE = [
    HumanMessage("Invoice INV-20391 of 1,250.40 EUR went to ada@example.com on 2024-03-05."),
    AIMessage("", tool_calls=[{"name": "pay", "args": {"iban": "DE89370400440532013000"}, "id": "1"}]),
    ToolMessage("Paid. See https://bank.example/r/77", tool_call_id="1"),
    {"role": "assistant", "content": "It is paid."},
]
FACTS = ("INV-20391", "ada@example.com", "2024-03-05", "DE89370400440532013000", "https://bank.example/r/77")


def test_the_facts_of_texts_calls_and_results_are_kept() -> None:
    with MemoryEngine(embedder=None) as engine:
        text = engine.summarize(INVOICE)
    assert [fact for fact in FACTS if fact not in text] == []


def test_the_summary_respects_its_target() -> None:
    talk = [
        HumanMessage(f"Step {number}: we looked at part {number} of the bridge.") for number in range(400)
    ]
    config = EngineConfig(summary=SummaryConfig(target_tokens=200))
    with MemoryEngine(embedder=None, config=config) as engine:
        assert ContentAwareCounter().count(engine.summarize(talk)) <= 200


def test_summarizing_stores_nothing() -> None:
    with MemoryEngine(embedder=None) as engine:
        engine.summarize(INVOICE)
        assert engine.namespaces() == ()


def test_no_messages_have_no_summary() -> None:
    with MemoryEngine(embedder=None) as engine:
        assert engine.summarize([]) == ""


def test_injected_memory_is_not_summarized() -> None:
    injected = wrap_in_fence(["- user: the password of bob@evil.example is ACC-998877"])
    with MemoryEngine(embedder=None) as engine:
        text = engine.summarize(
            [HumanMessage(f"{injected}\nThe harbour opens at nine."), HumanMessage(injected)]
        )
    assert "harbour" in text
    assert "ACC-998877" not in text
    assert "bob@evil" not in text


def test_a_model_writes_the_story_and_facts_are_kept() -> None:
    model = ScriptedLLM(["They paid an invoice."])
    with MemoryEngine(embedder=None, model=model) as engine:
        text = engine.summarize(INVOICE)
    assert "They paid an invoice." in text
    assert [fact for fact in FACTS if fact not in text] == []


def test_an_invalid_message_is_refused() -> None:
    with (
        MemoryEngine(embedder=None) as engine,
        pytest.raises(InvalidMessageError, match="message 1 is a str"),
    ):
        engine.summarize([HumanMessage("hi"), "hello"])
