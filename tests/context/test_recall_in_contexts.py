"""Selection of recalled messages for a context, and detection of repeated text."""

from __future__ import annotations

import pytest

from langmem_tiers import MemoryEngine, MessageDraft, RecallFilters, TokenBudget
from langmem_tiers.testing import FrozenClock, seeded_ids

FILLER = "lemons and tomatoes and all the other things that a kitchen needs " * 3


def test_a_context_for_a_question_never_exceeds_its_budget() -> None:
    with MemoryEngine(embedder=None) as engine:
        namespace = engine.namespace("a")
        namespace.session("s").add("user", "The red boat sails at noon.")
        for tokens in range(1, 90):
            assert namespace.build_context("red boat", budget=TokenBudget.of(tokens)).token_count <= tokens


def test_a_tag_in_source_code_is_not_a_fence() -> None:
    with MemoryEngine(embedder=None) as engine:
        namespace = engine.namespace("a")
        code = "Here is my code:\n#include <memory>\nint main() { zebra(); }\nWhy does zebra crash?"
        namespace.session("s").add("user", code)
        assert namespace.search("zebra")[0].entry.content == code
        assert "zebra" in namespace.build_context("code").messages[0].content


@pytest.mark.parametrize(
    "text",
    [
        "<memory>The customer is called Ann.</memory>",
        "<memory> is a tag that we use. Be nice to the captain.",
    ],
)
def test_a_custom_system_message_is_stored(text: str) -> None:
    with MemoryEngine(embedder=None) as engine:
        report = engine.session("a", "s").add(MessageDraft("system", text))
        assert (report.message.content, report.echoes) == (text, ())


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_injected_text_is_not_stored_for_any_role(role: str) -> None:
    with MemoryEngine(embedder=None) as engine:
        namespace = engine.namespace("a")
        namespace.session("s").add("user", "The red boat sails at noon.")
        injected = namespace.build_context("red boat").messages[0].content
        report = namespace.session("t").add(MessageDraft(role, injected))
        assert (report.stored, len(report.echoes)) == ((), 1)


@pytest.mark.sample(4)
@pytest.mark.parametrize("tokens", range(300, 1500, 50))
def test_a_context_contains_no_message_twice(tokens: int) -> None:
    with MemoryEngine(embedder=None, clock=FrozenClock(), ids=seeded_ids()) as engine:
        session = engine.session("a", "s")
        session.add(MessageDraft("user", "The code is 7741.", id="code"))
        session.add_many(MessageDraft("user", "lemons and tomatoes " * 8) for _ in range(18))
        session.add("user", "What is the code?")
        context = session.build_context(budget=TokenBudget.of(tokens))
        recalled = {hit.entry.id for hit in context.recalled}
        assert not recalled & {*context.full, *context.compressed}
        assert sum("7741" in message.content for message in context.messages) == 1


def test_a_context_considers_one_memory_for_each_12_tokens_of_a_large_budget() -> None:
    with MemoryEngine(embedder=None, ids=seeded_ids()) as engine:
        namespace = engine.namespace("a")
        namespace.session("s").add_many([MessageDraft("user", f"boat {number}") for number in range(140)])
        for tokens, count in ((1000, 100), (12 * 130, 130)):
            assert len(namespace.build_context("boat", budget=TokenBudget.of(tokens)).reasons) == count


def test_a_full_session_leaves_room_for_recalled_answers() -> None:
    with MemoryEngine(embedder=None) as engine:
        session = engine.session("a", "s")
        session.add("user", "The code of the safe is 7741.")
        session.add_many(MessageDraft("user", FILLER) for _ in range(60))
        session.add("user", "What is the code of the safe?")
        context = session.build_context(budget=TokenBudget.of(800))
        assert any("7741" in message.content for message in context.messages)
        assert context.token_count <= 800


@pytest.mark.parametrize("said", ["ok thanks", "Hello!", "yes"])
def test_small_talk_recalls_nothing(said: str) -> None:
    with MemoryEngine() as engine:
        engine.session("a", "before").add_many(
            MessageDraft("user", text) for text in ("thanks a lot, ok", "hello again", "yes yes")
        )
        session = engine.session("a", "now")
        session.add("user", said)
        assert session.build_context().recalled == ()


def test_importance_is_compared_exactly() -> None:
    with MemoryEngine(embedder=None, clock=FrozenClock()) as engine:
        namespace = engine.namespace("a")
        namespace.session("s").add("user", "we decided")
        entry = namespace.session("s").entries()[0]
        found = namespace.recall("we decided", filters=RecallFilters(min_importance=entry.importance))
        assert [hit.entry.importance for hit in found] == [entry.importance]
