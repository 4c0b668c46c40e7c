"""The extractive model of the demo and the notebooks, which quotes its prompt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_tiers.common.prompt_fences import wrap_in_fence
from langmem_tiers.integration_kit.demo import NO_QUESTION_ANSWER, UNKNOWN_ANSWER
from langmem_tiers_langchain.demo import ExtractiveChat, quote_from_prompt

FACT = "The print bridge listens on port 9410."
QUESTION = "Which port does the bridge listen on?"


@pytest.mark.parametrize(
    "prompt",
    [
        [SystemMessage(f"Be brief. {FACT}"), HumanMessage(QUESTION)],
        [HumanMessage(f"Hello. {FACT} Bye."), AIMessage("Noted."), HumanMessage(QUESTION)],
        [HumanMessage(f"{wrap_in_fence(['2025-03-18:', f'user: {FACT} We use it daily.'])}\n\n{QUESTION}")],
        [
            HumanMessage(
                f"{wrap_in_fence(['x'])}\n{wrap_in_fence([f'- domain | bridge. {FACT}'])}\n\n{QUESTION}  "
            )
        ],
        [HumanMessage([{"type": "text", "text": wrap_in_fence([FACT])}, {"type": "text", "text": QUESTION}])],
        [
            HumanMessage(QUESTION),
            AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}]),
            ToolMessage(FACT, tool_call_id="c1"),
        ],
    ],
)
def test_the_answer_is_found_anywhere_in_the_prompt(prompt: list[BaseMessage]) -> None:
    assert ExtractiveChat().invoke(prompt).text == FACT


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        [SystemMessage(FACT)],
        [HumanMessage(QUESTION)],
        [HumanMessage("Where are the dashboards?"), AIMessage(UNKNOWN_ANSWER), HumanMessage(QUESTION)],
        [HumanMessage(QUESTION), AIMessage(UNKNOWN_ANSWER), HumanMessage(QUESTION)],
        [HumanMessage(f"{wrap_in_fence(['user: Jonas noticed the new port in Malmö.'])}\n\n{QUESTION}")],
        [HumanMessage(f"{wrap_in_fence([f'user: {QUESTION}'])}\n\n{QUESTION}")],
    ],
)
def test_a_fact_outside_the_prompt_is_unknown(prompt: list[BaseMessage]) -> None:
    assert quote_from_prompt(prompt) == UNKNOWN_ANSWER


def test_the_shorter_of_two_equally_good_sentences_is_quoted() -> None:
    answer = (
        "The freeze is near. Your rule says never deploy on Fridays and that holds. Never deploy on Fridays."
    )
    assert (
        quote_from_prompt([AIMessage(answer), HumanMessage("May we deploy on Fridays?")])
        == "Never deploy on Fridays."
    )


def test_a_statement_gets_the_no_question_answer() -> None:
    assert (
        quote_from_prompt([AIMessage(FACT), HumanMessage("The bridge listens on another port now.")])
        == NO_QUESTION_ANSWER
    )


def test_the_model_is_stateless() -> None:
    model = ExtractiveChat()
    model.invoke([AIMessage(FACT), HumanMessage(QUESTION)])
    assert model.invoke(QUESTION).text == UNKNOWN_ANSWER


def test_the_model_reports_the_tokens_of_its_prompt() -> None:
    model = ExtractiveChat()
    short, long = (model.invoke([SystemMessage("word " * n), HumanMessage(QUESTION)]) for n in (10, 1000))
    assert isinstance(short, AIMessage)
    assert isinstance(long, AIMessage)
    assert short.usage_metadata is not None
    assert long.usage_metadata is not None
    assert 10 < short.usage_metadata["input_tokens"] < 60
    assert 900 < long.usage_metadata["input_tokens"] < 1500


def test_the_model_accepts_tools_and_calls_none() -> None:
    tool: dict[str, Any] = {"type": "function", "function": {"name": "look", "parameters": {}}}
    answer = ExtractiveChat().bind_tools([tool]).invoke([AIMessage(FACT), HumanMessage(QUESTION)])
    assert (answer.text, answer.tool_calls) == (FACT, [])


WORDS = st.sampled_from(
    "port bridge listens harbour 9410 the on Fridays? deploy. Never - | why? I don't know.".split()
)
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)


@given(TEXTS, st.lists(TEXTS, max_size=5), TEXTS)
def test_an_answer_is_always_quoted_from_the_prompt(before: str, memories: list[str], question: str) -> None:
    prompt = [AIMessage(before), HumanMessage(f"{wrap_in_fence(memories)}\n\n{question}")]
    answer = quote_from_prompt(prompt)
    assert answer in (UNKNOWN_ANSWER, NO_QUESTION_ANSWER) or any(
        answer in text for text in (before, *memories)
    )
    assert quote_from_prompt([HumanMessage(question)]) in (UNKNOWN_ANSWER, NO_QUESTION_ANSWER)


class TypeRecorder(BaseCallbackHandler):
    """Callback that records the type of the model, as a tracer does."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def on_chat_model_start(self, *_: Any, **details: Any) -> None:
        self.types.append(details["invocation_params"]["_type"])


def test_traces_name_the_type_of_the_model() -> None:
    recorder = TypeRecorder()
    ExtractiveChat().invoke([HumanMessage(QUESTION)], {"callbacks": [recorder]})
    assert recorder.types == ["extractive"]
