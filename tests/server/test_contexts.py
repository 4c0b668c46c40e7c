"""Contexts of the server equal those sent to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, TokenBudget
from langmem_tiers.sessions.models import Listing
from langmem_tiers.telemetry.instruments import RETRIEVE_DURATION
from langmem_tiers.telemetry.prometheus import METRIC_NAMES, PrometheusMetrics
from tests.server.api_client import ALICE, ApiClient, get_error_kind
from tests.server.test_endpoints import talk

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "Which sails of the harbour boats are red?"
FRAME, REPLY = 4, 3


def reason_of(one: dict[str, Any]) -> str:
    return str(one["reason"]).partition(":")[0]


def test_omitted_messages_have_their_actual_reason(ask: ApiClient, memory: MemoryEngine) -> None:
    before = memory.session(("acme", "alice"), "before")
    said = [
        f"The harbour boats have red sails, number {n}, " + f"seen at pier {n} again " * 12 for n in range(9)
    ]
    before.add_many([MessageDraft("user", text) for text in (*said, said[0], said[1])])
    known = memory.namespace("acme", "alice").knowledge
    known.store("domain", "harbour boats", "moored at the pier")
    known.store("domain", "red sails", "sewn by Nora " * 40)
    memory.session(("acme", "alice"), "now").add("user", QUESTION)
    body = ask.post_json("/context", namespace=ALICE, session="now", question=QUESTION, budget=800)
    out = body["left_out"]
    assert {reason_of(entry) for entry in out} >= {"summarized", "duplicate", "knowledge"}
    assert {entry["origin"] for entry in out if reason_of(entry) == "summarized"} == {"compressed"}
    assert {entry["origin"] for entry in out if reason_of(entry) != "summarized"} == {"dropped"}
    (unknown,) = (entry for entry in out if reason_of(entry) == "knowledge")
    assert (unknown["id"], unknown["session"], unknown["role"]) == ("domain/red sails", None, None)
    assert unknown["tokens"] > 100
    context = memory.session(("acme", "alice"), "now").preview(QUESTION, budget=TokenBudget.of(800)).context
    assert len(out) == len({(entry["session"], entry["id"]) for entry in out}) == body["left_out_count"]
    names = [
        entry["id"] if entry["session"] is None else f"{entry['session']}/{entry['id']}" for entry in out
    ]
    assert [entry["reason"] for entry in out] == [context.reasons[name] for name in names]
    without = {
        name for name, why in context.reasons.items() if not why.startswith(("recalled", "known", "in full"))
    }
    assert without <= set(names)


def test_irrelevant_memories_are_reported_as_not_relevant_enough(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    talk(memory, 3)
    memory.session(("acme", "alice"), "now").add("user", "What is the weather of a cat called?")
    body = ask.post_json("/context", namespace=ALICE, session="now", budget=2_000)
    assert "not relevant enough" in {reason_of(entry) for entry in body["left_out"]}


@pytest.mark.soak
def test_all_omitted_messages_of_a_very_long_session_are_counted(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    session = talk(memory, 5_000)
    for question in (None, "Which message is about boats?"):
        asked = {"namespace": ALICE, "session": "long", "question": question, "budget": 500}
        body = ask.post_json("/context", **asked)
        context = session.build_context(question, budget=TokenBudget.of(500))
        there = len(context.full) + len(context.compressed)
        there += sum(hit.session == "long" and hit.message is not None for hit in context.recalled)
        assert len(body["left_out"]) == 200
        others = sum(entry["session"] != "long" for entry in body["left_out"])
        assert body["left_out_count"] == 5_000 - there + others
        (warned,) = (warning for warning in body["warnings"] if " messages did not fit" in warning)
        # What is told in a few words has some room.
        in_few_words = sum(entry["origin"] == "compressed" for entry in body["left_out"])
        assert 5_000 - there - in_few_words <= int(warned.split()[0]) <= 5_000 - there


def test_removed_messages_of_a_very_long_session_are_not_counted(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    session = talk(memory, 3_000)
    session.transcript.move([f"m{n}" for n in range(1_000, 1_500)], Listing.REMOVED)
    body = ask.post_json("/context", namespace=ALICE, session="long", budget=500)
    there = sum(message["origin"] in {"full", "compressed"} for message in body["messages"])
    recalled = session.preview(budget=TokenBudget.of(500)).context.recalled
    there += sum(hit.session == "long" for hit in recalled)
    others = sum(entry["session"] != "long" for entry in body["left_out"])
    assert body["left_out_count"] == 2_500 - there + others


def test_messages_removed_from_the_conversation_have_their_own_state(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    session = talk(memory, 6)
    session.transcript.move(["m0"], Listing.REMOVED)
    session.transcript.replace([MessageDraft("user", "Another talk.", id="other")])
    listed = {
        entry["id"]: entry for entry in ask.get_all("/sessions/long/timeline", namespace=ALICE, limit=2)
    }
    for n in range(6):
        assert (listed[f"m{n}"]["state"], listed[f"m{n}"]["reason"]) == (
            "dropped",
            "removed from the conversation",
        )
    assert listed["other"]["state"] == "full"


def test_a_context_is_divided_as_the_optimizer_has_learned(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    config = EngineConfig(budget=TokenBudget.of(1_500))
    with MemoryEngine(url, embedder=None) as engine:
        talk(engine, 90)
        for _ in range(15):
            engine.optimizer.run(("acme", "alice"))
        window = engine.optimizer.parameters(("acme", "alice")).full_message_window
        assert window != engine.config.budget.full_message_window
        session = engine.session(("acme", "alice"), "long")
        assert session.preview().context.messages == session.build_context().messages
        asked = {"namespace": ALICE, "session": "long", "question": "Which boats?", "budget": 1_500}
        seen = ApiClient(engine).post_json("/context", **asked)
    with MemoryEngine(url, embedder=None, config=config) as engine:
        session = engine.session(("acme", "alice"), "long")
        revision = session.info().revision
        built = session.build_context("Which boats?")
        assert session.info().revision == revision
        assert [message["text"] for message in seen["messages"]] == [
            message.content for message in built.messages
        ]
        assert [message["reason"] for message in seen["messages"]] == [
            built.reasons[message.id] for message in built.messages
        ]
        assert built.reasons["m89"] == f"in full: among the newest {window}"


def test_the_pages_of_a_timeline_are_of_one_context() -> None:
    registry = CollectorRegistry()
    with MemoryEngine(embedder=None, metrics=PrometheusMetrics(registry)) as engine:
        session = talk(engine, 100)
        ask = ApiClient(engine)
        asked = {"namespace": ALICE, "question": "Which message is about boats?", "budget": 300, "limit": 10}

        def recalls() -> float:
            (family,) = (
                metric for metric in registry.collect() if metric.name == METRIC_NAMES[RETRIEVE_DURATION]
            )
            return sum(sample.value for sample in family.samples if sample.name.endswith("_count"))

        page = ask.get_json("/sessions/long/timeline", **asked)
        once = recalls()
        assert once
        page = ask.get_json("/sessions/long/timeline", **asked, cursor=page["next"])
        page = ask.get_json("/sessions/long/timeline", **asked, cursor=page["next"])
        assert recalls() == once
        ask.get_json("/sessions/long/timeline", **asked | {"budget": 301}, cursor=page["next"])
        assert recalls() == 2 * once
        session.add(MessageDraft("user", "One more.", id="last"))
        while page["next"] is not None:
            page = ask.get_json("/sessions/long/timeline", **asked, cursor=page["next"])
        assert (page["items"][-1]["id"], page["items"][-1]["state"]) == ("last", "full")
        before = recalls()
        page = ask.get_json("/sessions/long/timeline", **asked)
        assert recalls() > before
        before = recalls()
        engine.forget(namespace=("acme", "alice"), session="long", message="last")
        session.add(MessageDraft("user", "As many as before.", id="another"))
        ask.get_json("/sessions/long/timeline", **asked, cursor=page["next"])
        assert recalls() > before


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_system_prompt_counts_with_its_frame(
    ask: ApiClient, memory: MemoryEngine, *, is_empty: bool
) -> None:
    if is_empty:
        memory.session(("acme", "alice"), "long")
    else:
        talk(memory, 200)
    for budget in range(300, 320):
        asked = {"namespace": ALICE, "session": "long", "question": "Hi.", "budget": budget}
        body = ask.post_json("/context", **asked, system="Be brief.")
        prompt = REPLY + sum(message["tokens"] + FRAME for message in body["messages"])
        assert prompt == body["used"] <= budget


def test_a_budget_above_two_million_tokens_is_refused(ask: ApiClient) -> None:
    for tokens, status in ((2_000_000, 200), (2_000_001, 422)):
        asked = {"namespace": ALICE, "session": "monday", "budget": tokens}
        answer = ask.post("/context", **asked)
        assert answer.status_code == status
    assert get_error_kind(answer) == "invalid"
