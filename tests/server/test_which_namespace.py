"""Which namespace is meant, and whether it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.server.asking import ALICE, Asker, kind_of

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine


def test_where_there_is_one_namespace_it_is_meant_if_none_is_named(ask: Asker, memory: MemoryEngine) -> None:
    assert kind_of(ask.get("/learning/optimizer/status")) == "invalid"
    memory.forget(namespace="bob")
    assert ask.told("/learning/optimizer/status") == ask.told("/learning/optimizer/status", namespace=ALICE)
    assert ask.done("/recall", query="cat")["hits"]
    memory.items.put(("langmem-tiers: context files", "acme", "alice"), "k", {"of": "alice"})
    assert ask.done("/recall", query="cat")["hits"]
    for number in range(150):  # sorted before the other namespace
        memory.items.put(("langmem-tiers: context files", f"{number}"), "k", {})
    memory.items.put("zoe", "k", {"text": "hers"})  # another who holds nothing but items
    assert kind_of(ask.post("/recall", query="cat")) == "invalid"
    memory.forget(namespace="zoe")
    memory.forget(namespace=("acme", "alice"))
    assert kind_of(ask.get("/learning/optimizer/status")) == "invalid"


def test_a_namespace_that_holds_nothing_but_items_is_told_and_forgotten(
    ask: Asker, memory: MemoryEngine
) -> None:
    memory.items.put(("carol", "notes"), "k", {"text": "tea"})
    assert ask.get("/overview", namespace="carol").status_code == 404
    assert ask.told("/overview", namespace="carol/notes")["messages"] == 0
    assert ask.told("/sessions", namespace="carol/notes")["items"] == []
    refused = ask.post("/forget", namespace="carol/notes", whole=True)
    assert kind_of(refused) == "not_confirmed"
    assert "would erase 'carol/notes' with its items" in refused.json()["error"]["message"]
    assert ask.done("/forget", namespace="carol/notes", whole=True, confirm=True)["counts"] == {"items": 1}
    assert ask.get("/overview", namespace="carol/notes").status_code == 404
