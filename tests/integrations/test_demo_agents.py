"""The two agents of the demo, with and without memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers.cli.demo.command import Framework, load_assistant_factory
from langmem_tiers.cli.demo.conversation import StoryClock, load_chapters, load_questions
from langmem_tiers.integration_kit.demo import UNKNOWN_ANSWER
from langmem_tiers_llamaindex.demo import ExtractiveLLM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.integration_kit import Assistants

MARA = ("tidepool", "mara")
DASHBOARDS = load_questions()[8]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of LlamaIndex's agents


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine(clock=StoryClock()) as opened:
        for chapter in load_chapters():
            opened.session(MARA, chapter.session).add_many(chapter.messages)
        yield opened


@pytest.fixture(params=Framework)
def framework(request: pytest.FixtureRequest) -> Framework:
    """Framework of the assistants."""
    return Framework(request.param)


@pytest.fixture
def assistants(engine: MemoryEngine, framework: Framework) -> Assistants:
    return load_assistant_factory(framework)(engine, MARA, 3000)


@pytest.mark.sample(1)
def test_in_new_threads_only_memory_brings_the_facts_into_the_prompt(assistants: Assistants) -> None:
    replies = [
        (question.fact, agent.ask(question.text, f"new-{n}"))
        for agent in (assistants.without_memory, assistants.with_memory)
        for n, question in enumerate(load_questions())
    ]
    without, with_memory = replies[: len(load_questions())], replies[len(load_questions()) :]
    assert {reply.text for _, reply in without} == {UNKNOWN_ANSWER}
    assert [fact for fact, reply in without if fact in reply.prompt] == []
    assert sum(fact in reply.prompt for fact, reply in with_memory) >= 0.9 * len(load_questions())
    assert max(reply.prompt_tokens for _, reply in with_memory) <= 3000


def test_both_agents_know_the_facts_of_the_current_thread(assistants: Assistants) -> None:
    for agent in (assistants.without_memory, assistants.with_memory):
        assert DASHBOARDS.fact in agent.ask(DASHBOARDS.text, "01-kickoff").text


def test_memory_of_another_user_is_not_used(engine: MemoryEngine, framework: Framework) -> None:
    stranger = load_assistant_factory(framework)(engine, ("tidepool", "jonas"), 3000)
    reply = stranger.with_memory.ask(DASHBOARDS.text, "new")
    assert (reply.text, DASHBOARDS.fact in reply.prompt) == (UNKNOWN_ANSWER, False)


def test_the_model_of_llamaindex_is_asked_by_chat_and_with_tools() -> None:
    metadata = ExtractiveLLM().metadata
    assert (metadata.is_chat_model, metadata.is_function_calling_model) == (True, True)
