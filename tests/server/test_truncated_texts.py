"""Long texts: truncated in lists, complete as single entries."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from langmem_tiers import AgentAction, AgentMemory, MessageDraft, MessageToolCall
from tests.server.api_client import ALICE, ApiClient

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine


def test_a_long_text_is_truncated_in_lists_and_complete_as_an_entry(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    text = "é" * 5000
    added = memory.session(("acme", "alice"), "monday").add("user", text).message
    listed = ask.get_all("/sessions/monday/messages", namespace=ALICE)[-1]
    assert (len(listed["text"]), listed["cut"]) == (2000, True)
    assert ask.get_json(f"/entries/{added.id}", namespace=ALICE)["text"] == text


def test_tool_calls_are_truncated_in_lists_and_complete_as_an_entry(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    calls = (
        MessageToolCall("c1", "look", '{"for": "boats"}'),
        MessageToolCall("c2", "write" * 300, "é" * 5000),
    )
    session = memory.session(("acme", "alice"), "tools")
    session.add_many(
        [
            MessageDraft("user", "Where are the boats?"),
            MessageDraft("assistant", "", id="calling", tool_calls=calls),
            MessageDraft("tool", "By the pier.", tool_call_id="c1"),
            MessageDraft("tool", "Done.", tool_call_id="c2"),
            MessageDraft("user", "Good."),
        ]
    )
    whole = [{"id": call.id, "name": call.name, "arguments": call.arguments, "cut": False} for call in calls]
    cut = [
        whole[0],
        {
            **whole[1],
            "name": f"{calls[1].name[:1024]}…",
            "arguments": "é" * (2000 - len(calls[0].arguments)),
            "cut": True,
        },
    ]
    for path in ("/sessions/tools/messages", "/sessions/tools/timeline"):
        listed = {entry["id"]: entry["calls"] for entry in ask.get_all(path, namespace=ALICE)}
        assert listed.pop("calling") == cut
        assert set(map(str, listed.values())) == {"[]"}
    assert ask.get_json("/entries/calling", namespace=ALICE)["calls"] == whole
    seen = ask.post_json("/context", namespace=ALICE, session="tools", budget=50_000)["messages"]
    assert [entry["calls"] for entry in seen if entry["id"] == "calling"] == [whole]
    small = ask.post_json("/context", namespace=ALICE, session="tools", budget=60)["left_out"]
    assert [entry["calls"] for entry in small if entry["id"] == "calling"] == [cut]


def test_a_long_value_is_truncated_in_lists_and_complete_as_an_entry(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    value = "é" * 5000
    known = memory.namespace(("acme", "alice")).knowledge
    known.store("domain", "a/b", value)
    known.store("domain", "short", "red")
    long, short = ask.get_all("/knowledge", namespace=ALICE)
    assert (long["value"], long["cut"]) == (value[:2000], True)
    assert (short["value"], short["cut"]) == ("red", False)
    (found,) = ask.get_json("/knowledge", namespace=ALICE, query="red")["items"]
    assert found["cut"] is False
    assert value in ask.get_json(f"/entries/{quote(long['id'], safe='')}", namespace=ALICE)["text"]


def test_a_task_step_can_be_read_completely(ask: ApiClient, memory: MemoryEngine) -> None:
    thought, text, page, error = "I think. " * 500, "typed " * 500, "page " * 10_000, "trace " * 500
    with AgentMemory(engine=memory, namespace=("acme", "alice"), task="t") as agent:
        agent.record_cycle(thought, AgentAction("type", {"text": text}), page)
        agent.record_cycle("Again", AgentAction("type", {"text": "a"}), "", "failure", error_message=error)
        agent.record_cycle(thought, AgentAction("look"), "short")
        agent.record_cycle("Short", AgentAction("look"), "short")
    steps = ask.get_all("/tasks/t/cycles", namespace=ALICE)
    assert [step["cut"] for step in steps] == [True, True, True, False]
    whole = [ask.get_json(f"/entries/{step['id']}", namespace=ALICE, session="t") for step in steps]
    assert [entry["result"] for entry in whole] == [page, error, "short", "short"]
    assert thought in whole[0]["text"]
    assert text in whole[0]["text"]


def test_a_payload_that_resembles_a_step_is_not_a_step(ask: ApiClient, memory: MemoryEngine) -> None:
    mine = MessageDraft("user", "My bike.", id="m", payload={"cycle": {"wheels": 2}})
    memory.session(("acme", "alice"), "monday").add(mine)
    found = ask.get_json("/entries/m", namespace=ALICE)
    assert (found["text"], found["result"]) == ("My bike.", None)
