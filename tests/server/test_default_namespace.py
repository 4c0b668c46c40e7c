"""The default namespace of a request, and unknown namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.server.api_client import ALICE, ApiClient, get_error_kind

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine


def test_a_single_namespace_is_the_default(ask: ApiClient, memory: MemoryEngine) -> None:
    assert get_error_kind(ask.get("/learning/optimizer/status")) == "invalid"
    memory.forget(namespace="bob")
    assert ask.get_json("/learning/optimizer/status") == ask.get_json(
        "/learning/optimizer/status", namespace=ALICE
    )
    assert ask.post_json("/recall", query="cat")["hits"]
    memory.items.put(("langmem-tiers: context files", "acme", "alice"), "k", {"of": "alice"})
    assert ask.post_json("/recall", query="cat")["hits"]
    for number in range(150):  # sorted before the other namespace
        memory.items.put(("langmem-tiers: context files", f"{number}"), "k", {})
    memory.items.put("zoe", "k", {"text": "hers"})  # another who holds nothing but items
    assert get_error_kind(ask.post("/recall", query="cat")) == "invalid"
    memory.forget(namespace="zoe")
    memory.forget(namespace=("acme", "alice"))
    assert get_error_kind(ask.get("/learning/optimizer/status")) == "invalid"


def test_a_namespace_with_items_only_is_listed_and_forgotten(ask: ApiClient, memory: MemoryEngine) -> None:
    memory.items.put(("carol", "notes"), "k", {"text": "tea"})
    assert ask.get("/overview", namespace="carol").status_code == 404
    assert ask.get_json("/overview", namespace="carol/notes")["messages"] == 0
    assert ask.get_json("/sessions", namespace="carol/notes")["items"] == []
    refused = ask.post("/forget", namespace="carol/notes", whole=True)
    assert get_error_kind(refused) == "not_confirmed"
    assert "would erase 'carol/notes' with its items" in refused.json()["error"]["message"]
    assert ask.post_json("/forget", namespace="carol/notes", whole=True, confirm=True)["counts"] == {
        "items": 1
    }
    assert ask.get("/overview", namespace="carol/notes").status_code == 404
