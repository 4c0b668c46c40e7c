"""Long texts: cut in lists, and whole where one memory is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from langmem_tiers import AgentAction, AgentMemory, MessageDraft
from tests.server.asking import ALICE, Asker

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine


def test_a_long_text_is_cut_in_lists_and_whole_as_an_entry(ask: Asker, memory: MemoryEngine) -> None:
    text = "é" * 5000
    added = memory.session(("acme", "alice"), "monday").add("user", text).message
    listed = ask.all("/sessions/monday/messages", namespace=ALICE)[-1]
    assert (len(listed["text"]), listed["cut"]) == (2000, True)
    assert ask.told(f"/entries/{added.id}", namespace=ALICE)["text"] == text


def test_a_long_value_is_cut_in_lists_and_whole_as_an_entry(ask: Asker, memory: MemoryEngine) -> None:
    value = "é" * 5000
    known = memory.namespace(("acme", "alice")).knowledge
    known.store("domain", "a/b", value)
    known.store("domain", "short", "red")
    long, short = ask.all("/knowledge", namespace=ALICE)
    assert (long["value"], long["cut"]) == (value[:2000], True)
    assert (short["value"], short["cut"]) == ("red", False)
    (found,) = ask.told("/knowledge", namespace=ALICE, query="red")["items"]
    assert found["cut"] is False
    assert value in ask.told(f"/entries/{quote(long['id'], safe='')}", namespace=ALICE)["text"]


def test_a_step_of_a_task_can_be_read_whole(ask: Asker, memory: MemoryEngine) -> None:
    thought, text, page, error = "I think. " * 500, "typed " * 500, "page " * 10_000, "trace " * 500
    with AgentMemory(engine=memory, namespace=("acme", "alice"), task="t") as agent:
        agent.record_cycle(thought, AgentAction("type", {"text": text}), page)
        agent.record_cycle("Again", AgentAction("type", {"text": "a"}), "", "failure", error_message=error)
        agent.record_cycle(thought, AgentAction("look"), "short")
        agent.record_cycle("Short", AgentAction("look"), "short")
    steps = ask.all("/tasks/t/cycles", namespace=ALICE)
    assert [one["cut"] for one in steps] == [True, True, True, False]
    whole = [ask.told(f"/entries/{one['id']}", namespace=ALICE, session="t") for one in steps]
    assert [one["result"] for one in whole] == [page, error, "short", "short"]
    assert thought in whole[0]["text"]
    assert text in whole[0]["text"]


def test_a_payload_that_only_looks_like_a_step_is_none(ask: Asker, memory: MemoryEngine) -> None:
    mine = MessageDraft("user", "My bike.", id="m", payload={"cycle": {"wheels": 2}})
    memory.session(("acme", "alice"), "monday").add(mine)
    found = ask.told("/entries/m", namespace=ALICE)
    assert (found["text"], found["result"]) == ("My bike.", None)
