"""The data-flow example of the design, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers import KnowledgeCategory, MessageDraft, MessageToolCall, Tier
from langmem_tiers.common import EntryState
from langmem_tiers.sessions import PlanActionKind

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine
    from langmem_tiers.testing import FrozenClock

INSTRUCTION = "Navigate to example.com and extract the title."


def test_the_memory_flow_of_a_task(engine: MemoryEngine, tenant: str, clock: FrozenClock) -> None:
    user = engine.namespace(tenant)

    # 1. The user submits an instruction; 2. a session is created and stores it as short-term, role user.
    assert user.find_session("task-1") is None
    session = user.session("task-1")
    session.add("user", INSTRUCTION)
    (entry,) = session.entries()
    assert (entry.tier, entry.role, entry.content) == (Tier.SHORT_TERM, "user", INSTRUCTION)

    # 3. The agent responds: short-term, role assistant.
    session.add(MessageDraft("assistant", "navigating...", id="navigating"))
    assert (session.entries()[-1].tier, session.entries()[-1].role) == (Tier.SHORT_TERM, "assistant")

    # 4. Tool results, of navigation and extraction, are short-term, role tool.
    session.add_many(
        [
            MessageDraft(
                "assistant",
                "",
                tool_calls=[MessageToolCall("c1", "navigate", '{"url": "https://example.com"}')],
            ),
            MessageDraft(
                "tool", "Loaded https://example.com with status 200", id="loaded", tool_call_id="c1"
            ),
            MessageDraft(
                "assistant", "", tool_calls=[MessageToolCall("c2", "extract", '{"selector": "#page-title"}')]
            ),
            MessageDraft(
                "tool", "selector #page-title says Example Domain", id="extracted", tool_call_id="c2"
            ),
        ]
    )
    assert [entry.role for entry in session.entries() if entry.id in {"loaded", "extracted"}] == [
        "tool",
        "tool",
    ]
    assert {entry.tier for entry in session.entries()} == {Tier.SHORT_TERM}

    # 5. After 20 messages, the analyzer runs, by the optimizer's two-minute cycle.
    repeated = "The page has one heading, one paragraph and one link to more information about domains."
    session.add(MessageDraft("user", "ok", id="ok"))
    session.add(MessageDraft("assistant", repeated, id="first"))
    session.add_many(
        MessageDraft(
            "user" if n % 2 else "assistant", f"Let us also look at part {word} of the page together."
        )
        for n, word in enumerate("one two three four five six seven eight nine ten eleven".split())
    )
    session.add(MessageDraft("assistant", repeated, id="again"))
    assert session.count() == 20
    clock.advance(minutes=2)
    plan = {action.message_id: action for action in session.analyze().actions}
    snapshot = engine.optimizer.run(tenant)
    assert snapshot is not None
    entries = {entry.id: entry for entry in session.entries()}

    # 6. Low-relevance entries are compressed: "ok" at once; "navigating..." has 0.5 for its first hour by the
    # numbers of the design, and falls below the bar with its first day (see the end).
    assert entries["ok"].state is EntryState.COMPRESSED
    assert "is below 0.30" in entries["ok"].reason

    # 7. Redundant entries are compressed: the older one.
    assert entries["first"].state is EntryState.COMPRESSED
    assert entries["first"].reason == "duplicate of again"
    assert entries["again"].state is EntryState.FULL

    # 8. High-value entries, with URLs and selectors, are promoted.
    for name in ("loaded", "extracted"):
        assert plan[name].kind is PlanActionKind.PROMOTE
        assert (entries[name].tier, entries[name].relevance) == (Tier.LONG_TERM, 1.0)
    assert {entry.id for entry in user.long_term} >= {"loaded", "extracted"}
    assert snapshot.entries_compressed == sum(a.kind is PlanActionKind.COMPRESS for a in plan.values())

    # 9. What the agent learns goes into cross-session knowledge as website knowledge.
    learned = user.knowledge.store(
        KnowledgeCategory.WEBSITE_KNOWLEDGE, "example.com title", "example.com uses #page-title for its title"
    )
    assert learned.is_new
    assert learned.knowledge.confidence == 0.5

    # 10. The next session that involves example.com gets it in its context.
    clock.advance(days=1)
    next_session = user.session("task-2")
    next_session.add("user", "Go back to example.com and tell me what its title says now.")
    context = next_session.build_context()
    assert [hit.knowledge.value for hit in context.knowledge] == [
        "example.com uses #page-title for its title"
    ]
    assert "example.com uses #page-title for its title" in context.messages[0].content
    assert context.messages[-1].content.startswith("Go back to example.com")
    used = user.knowledge.get(KnowledgeCategory.WEBSITE_KNOWLEDGE, "example.com title", use=False)
    assert used is not None
    assert used.confidence == 0.55
    clock.advance(minutes=2)
    engine.optimizer.run(tenant, "task-1")
    assert {entry.id: entry for entry in session.entries()}["navigating"].state is EntryState.COMPRESSED
