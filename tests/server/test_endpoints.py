"""Every endpoint, on a real memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from langmem_tiers import AgentAction, AgentMemory, MemoryEngine, MessageDraft, Scoring, TokenBudget
from langmem_tiers.recall import Scorer, Signal
from langmem_tiers.telemetry.prometheus import PrometheusMetrics
from langmem_tiers.testing import FrozenClock
from langmem_tiers.version import __version__
from tests.server.api_client import ALICE, ApiClient, get_error_kind

if TYPE_CHECKING:
    from langmem_tiers import Session


def talk(memory: MemoryEngine, count: int, name: str = "long") -> Session:
    session = memory.session(("acme", "alice"), name)
    session.add_many(
        [MessageDraft("user", f"Message {n} of a long talk about boats.", id=f"m{n}") for n in range(count)]
    )
    return session


def test_health_reports_version_and_database(ask: ApiClient) -> None:
    assert ask.get_json("/health") == {"status": "ok", "version": __version__, "database": "sqlite"}


def test_the_status_of_the_optimizer_has_exactly_the_fields_of_the_design(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    assert ask.get_json("/learning/optimizer/status", namespace=ALICE) == {
        "totalOptimizations": 0,
        "totalTokensSaved": 0,
        "avgSavingsPerRun": 0,
        "currentParameters": {
            "compressionTrigger": 0.7,
            "fullMessageWindow": 30,
            "minRelevance": 0.3,
            "targetUsageRatio": 0.65,
        },
    }


def test_an_optimizer_run_is_returned_and_kept_in_the_history(ask: ApiClient) -> None:
    runs = [ask.post_json("/learning/optimizer/run", namespace=ALICE) for _ in range(5)]
    assert ask.get_all("/learning/optimizer/history", namespace=ALICE, limit=2) == runs[::-1]
    assert ask.get_json("/learning/optimizer/status", namespace=ALICE)["totalOptimizations"] == 5


def test_metrics_come_from_the_given_registry() -> None:
    registry = CollectorRegistry()
    with MemoryEngine(embedder=None, metrics=PrometheusMetrics(registry, cache_seconds=0.001)) as engine:
        engine.session("bob", "tuesday").add("user", "Hello.")
        answer = ApiClient(engine, registry=registry).get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'memory_episodic_count{engine="main"} 1.0' in answer.text


def test_metrics_are_not_found_without_a_registry(ask: ApiClient) -> None:
    assert ask.get("/metrics").status_code == 404


def test_namespaces_are_listed_page_by_page(ask: ApiClient, memory: MemoryEngine) -> None:
    for label in ("a/b", "c\\d", "é"):
        memory.session((label, "x"), "s").add("user", "Hello.")
    listed = ask.get_all("/namespaces", limit=1)
    assert [item["namespace"] for item in listed] == ["a\\/b/x", "acme/alice", "bob", "c\\\\d/x", "é/x"]
    for item in listed:
        assert ask.get_json("/sessions", namespace=item["namespace"])["items"]


def test_sessions_with_any_name_are_listed_newest_first(ask: ApiClient) -> None:
    names = [
        "plain",
        "with/slash",
        "with/messages",
        "100%",
        "é 😀",
        "nul\0in it",
        "a b+c?d#e",
        "two\nlines\n",
    ]
    for name in names:
        path = f"/sessions/{quoted(name)}/messages"
        assert ask.post_json(path, namespace="new", messages=[{"role": "user", "content": name}])["ids"]
    listed = ask.get_all("/sessions", namespace="new", limit=2)
    assert [item["session"] for item in listed] == names[::-1]
    for name in names:
        (message,) = ask.get_json(f"/sessions/{quoted(name)}/messages", namespace="new")["items"]
        assert message["text"] == name


def test_messages_are_listed_oldest_first_with_their_positions(ask: ApiClient, memory: MemoryEngine) -> None:
    talk(memory, 7)
    listed = ask.get_all("/sessions/long/messages", namespace=ALICE, limit=3)
    assert [(item["id"], item["position"]) for item in listed] == [(f"m{n}", n + 1) for n in range(7)]


def test_an_id_with_a_trailing_newline_is_distinct(ask: ApiClient) -> None:
    new = [{"role": "user", "content": "The plain one.", "id": "m"}]
    ask.post_json("/sessions/s/messages", namespace=ALICE, messages=new)
    assert ask.get("/entries/m%0A", namespace=ALICE).status_code == 404
    new = [{"role": "user", "content": "The other one.", "id": "m\n"}]
    ask.post_json("/sessions/s/messages", namespace=ALICE, messages=new)
    assert ask.get_json("/entries/m%0A", namespace=ALICE)["text"] == "The other one."
    assert ask.post_json("/entries/m%0A/promote", namespace=ALICE)["text"] == "The other one."


def test_a_long_name_or_source_is_truncated_in_lists(ask: ApiClient, memory: MemoryEngine) -> None:
    monday = memory.session(("acme", "alice"), "monday")
    stored = monday.add(MessageDraft("user", "Hello.", name="x" * 5000))
    item = ask.get_all("/sessions/monday/messages", namespace=ALICE)[-1]
    assert item["name"] == "x" * 1024 + "…"
    assert (
        ask.get_json(f"/entries/{stored.stored[0].id}", namespace=ALICE, session="monday")["name"]
        == "x" * 5000
    )
    known = {"namespace": ALICE, "category": "domain", "key": "cat", "value": "Tom"}
    assert ask.post("/knowledge", **known, source="x" * 1025).status_code == 422
    memory.namespace("acme", "alice").knowledge.store("domain", "cat", "Tom", source="x" * 5000)
    assert ask.get_json("/knowledge", namespace=ALICE)["items"][0]["source"] == "x" * 1024 + "…"


def test_messages_that_are_added_again_are_stored_once(ask: ApiClient) -> None:
    new = {"namespace": ALICE, "messages": [{"role": "user", "content": "Hello.", "id": "mine"}]}
    assert ask.post_json("/sessions/s/messages", **new) == {"ids": ["mine"], "known": [], "echoes": 0}
    assert ask.post_json("/sessions/s/messages", **new) == {"ids": [], "known": ["mine"], "echoes": 0}
    other = {"namespace": ALICE, "messages": [{"role": "user", "content": "Bye.", "id": "mine"}]}
    answer = ask.post("/sessions/s/messages", **other)
    assert (answer.status_code, get_error_kind(answer)) == (409, "conflict")


@pytest.mark.sample(2)
@pytest.mark.parametrize("question", [None, "Which message is about boats?"])
@pytest.mark.parametrize("budget", [120, 2_000, None])
def test_a_timeline_shows_the_context_state_of_each_message(
    ask: ApiClient, memory: MemoryEngine, question: str | None, budget: int | None
) -> None:
    session = talk(memory, 60)
    asked: dict[str, Any] = {} if question is None else {"question": question}
    asked |= {} if budget is None else {"budget": budget}
    whole = memory.config.budget
    context = session.build_context(
        question,
        budget=whole.resized(budget or whole.available),
        recall=question is not None,
        tidy=False,
    )
    recalled = {hit.entry.id for hit in context.recalled if hit.session == "long"}
    states = {"full": set(context.full), "compressed": set(context.compressed), "recalled": recalled}
    listed = ask.get_all("/sessions/long/timeline", namespace=ALICE, limit=25, **asked)
    assert [item["position"] for item in listed] == list(range(1, 61))
    for item in listed:
        assert item["reason"]
        assert item["state"] == next((name for name, ids in states.items() if item["id"] in ids), "dropped")
    newest = ask.get_all("/sessions/long/timeline", namespace=ALICE, limit=25, order="newest", **asked)
    assert newest == [{**item, "position": None} for item in reversed(listed)]


def test_summarized_messages_are_compressed_in_a_timeline(ask: ApiClient, memory: MemoryEngine) -> None:
    session = talk(memory, 10)
    session.compress("m6", "They spoke of boats.")
    listed = {entry["id"]: entry for entry in ask.get_all("/sessions/long/timeline", namespace=ALICE)}
    assert {listed[f"m{n}"]["state"] for n in range(6)} == {"compressed"}
    assert {listed[f"m{n}"]["state"] for n in range(6, 10)} == {"full"}
    assert "summary" in listed["m0"]["reason"]


def test_recall_returns_hits_with_signals_and_reasons(ask: ApiClient) -> None:
    body = ask.post_json("/recall", namespace=ALICE, query="What is the cat called?")
    best = body["hits"][0]
    assert (best["text"], best["session"], best["role"]) == ("My cat is called Tom.", "monday", "user")
    assert best["signals"]
    assert best["why"].startswith("found by")
    assert body["seconds"] >= 0
    assert not any("tea" in hit["text"] for hit in body["hits"])


def test_a_hit_is_explained_by_its_three_strongest_signals() -> None:
    signal = Signal("dog", lambda subject: 0.1 if "dog" in subject.content else -1)
    scoring, clock = Scoring(importance=Scorer((signal,))), FrozenClock()
    with MemoryEngine(embedder=None, clock=clock, scoring=scoring) as engine:
        said = [MessageDraft("assistant", text) for text in ("My cat.", "My dog.", "My dog's tail.")]
        engine.session("bob", "s").add_many(said)
        clock.advance(days=7)  # what is new has some importance in any case
        ask, told = ApiClient(engine), dict[str, dict[str, str]]()
        for strategy in ("importance", "tf_idf"):
            hits = ask.post_json("/recall", namespace="bob", query="dog", strategy=strategy)["hits"]
            told[strategy] = {hit["text"]: hit["why"] for hit in hits}
    assert told["importance"]["My cat."] == "found by importance"
    assert told["importance"]["My dog."] == "found by importance: importance +0.600"
    assert told["tf_idf"]["My cat."] == "found by recency: recency +0.170"
    assert told["tf_idf"]["My dog."] == "found by semantic: semantic +0.400, keyword +0.300, recency +0.170"


def test_recall_filters_by_session_and_time(ask: ApiClient) -> None:
    asked = {"namespace": ALICE, "query": "cat"}
    assert ask.post_json("/recall", **asked, session="monday", since="2000-01-01T00:00:00Z")["hits"]
    assert not ask.post_json("/recall", **asked, until="2000-01-01T00:00:00+02:00")["hits"]
    assert not ask.post_json("/recall", **asked, session="elsewhere")["hits"]
    backwards = ask.post("/recall", **asked, since="2001-01-01T00:00:00Z", until="2000-01-01T00:00:00Z")
    assert get_error_kind(backwards) == "invalid"


def test_a_context_respects_its_budget_and_lists_omitted_messages(
    ask: ApiClient, memory: MemoryEngine
) -> None:
    talk(memory, 200)
    asked = {"namespace": ALICE, "session": "long", "question": "Where is the cat?", "budget": 1000}
    ask.post_json("/knowledge", namespace=ALICE, category="domain", key="cat", value="sits on the mat")
    body = ask.post_json("/context", **asked, system="Be brief.")
    assert body["used"] <= body["budget"] == 1000
    assert sum(section["tokens"] for section in body["sections"]) == body["used"]
    assert {message["origin"] for message in body["messages"]} >= {"system", "full", "knowledge", "recalled"}
    origins = {message["origin"]: message["text"] for message in body["messages"]}
    assert "sits on the mat" in origins["knowledge"]
    assert "called Tom" in origins["recalled"]
    assert body["messages"][0]["text"] == "Be brief."
    assert body["left_out"]
    there = {message["id"] for message in body["messages"]}
    assert not there & {entry["id"] for entry in body["left_out"]}
    assert all(entry["reason"] for entry in (*body["left_out"], *body["messages"]))


def test_previewing_a_context_changes_nothing(ask: ApiClient, memory: MemoryEngine) -> None:
    session = talk(memory, 200)
    before = session.info()
    ask.post_json("/context", namespace=ALICE, session="long", budget=50)
    ask.get_json("/sessions/long/timeline", namespace=ALICE, budget=50)
    assert session.info() == before


def test_knowledge_is_stored_listed_and_found(ask: ApiClient) -> None:
    for category, key in (("domain", "a"), ("domain", "b/c"), ("error_pattern", "a")):
        stored = ask.post_json(
            "/knowledge", namespace=ALICE, category=category, key=key, value=f"{key} is red"
        )
        assert (
            stored == ask.get_json("/knowledge", namespace=ALICE, query="red", category=category)["items"][-1]
        )
        found = ask.get_json(f"/entries/{quoted(stored['id'])}", namespace=ALICE)
        assert (found["tier"], found["kind"]) == ("knowledge", "knowledge")
    listed = ask.get_all("/knowledge", namespace=ALICE, limit=1)
    assert [(item["category"], item["key"]) for item in listed] == [
        ("domain", "a"),
        ("domain", "b/c"),
        ("error_pattern", "a"),
    ]
    assert len(ask.get_all("/knowledge", namespace=ALICE, category="domain")) == 2


def test_a_summary_is_not_promoted(ask: ApiClient, memory: MemoryEngine) -> None:
    session = talk(memory, 10)
    session.compress("m6", "They spoke of boats.")
    (summary,) = [message for message in session.view() if message.is_summary]
    answer = ask.post(f"/entries/{quoted(summary.id)}/promote", namespace=ALICE, session="long")
    assert (answer.status_code, get_error_kind(answer)) == (422, "invalid")
    assert "summary" in answer.json()["error"]["message"]


def test_a_message_is_promoted_by_its_id(ask: ApiClient) -> None:
    first = ask.get_all("/sessions/monday/messages", namespace=ALICE)[0]
    assert ask.get_json(f"/entries/{first['id']}", namespace=ALICE)["tier"] == "short_term"
    body = ask.post_json(f"/entries/{first['id']}/promote", namespace=ALICE)
    assert (body["tier"], body["text"]) == ("long_term", "My cat is called Tom.")
    entry_counts = {
        tier["tier"]: tier["entries"] for tier in ask.get_json("/overview", namespace=ALICE)["tiers"]
    }
    assert entry_counts == {"short_term": 1, "long_term": 1}


def test_an_id_that_two_sessions_have_needs_the_session(ask: ApiClient) -> None:
    for name in ("one", "two"):
        new = [{"role": "user", "content": f"I am of {name}.", "id": "same"}]
        ask.post_json(f"/sessions/{name}/messages", namespace=ALICE, messages=new)
    assert get_error_kind(ask.get("/entries/same", namespace=ALICE)) == "invalid"
    assert ask.get_json("/entries/same", namespace=ALICE, session="two")["text"] == "I am of two."


def test_the_overview_counts_the_stored_records(ask: ApiClient, memory: MemoryEngine) -> None:
    talk(memory, 10)
    ask.post_json("/knowledge", namespace=ALICE, category="domain", key="a", value="b")
    body = ask.get_json("/overview", namespace=ALICE)
    assert (body["sessions"], body["messages"], body["knowledge"]) == (2, 12, 1)
    assert sum(day["messages"] for day in body["growth"]) == 12
    assert sum(day["tokens"] for day in body["growth"]) == body["tokens"]
    assert body["growth_is_whole"]
    assert body["optimizer"] == ask.get_json("/learning/optimizer/status", namespace=ALICE)
    assert body["budget"] == memory.config.budget.available


def test_recorded_tasks_are_listed_with_steps_and_loops(ask: ApiClient, memory: MemoryEngine) -> None:
    for name in ("first", "second"):
        with AgentMemory(engine=memory, namespace=("acme", "alice"), task=name) as agent:
            agent.start_task("Buy shoes")
            for number in range(12):
                tool = "click" if number > 3 else f"open{number}"
                agent.record_cycle("I try", AgentAction(tool, {"selector": "#buy"}), "nothing", "failure")
    listed = ask.get_all("/tasks", namespace=ALICE, limit=1)
    assert [(item["task"], item["cycles"]) for item in listed] == [("second", 12), ("first", 12)]
    steps = ask.get_all("/tasks/first/cycles", namespace=ALICE, limit=5)
    assert [step["number"] for step in steps] == list(range(1, 13))
    assert steps == ask.get_all("/tasks/first/cycles", namespace=ALICE)
    assert (steps[0]["action"], steps[0]["success"], steps[0]["loop"]) == ("open0", False, None)
    assert "12" in steps[-1]["loop"]
    assert get_error_kind(ask.get("/tasks/monday/cycles", namespace=ALICE)) == "not_found"


def forget(what: str, ask: ApiClient) -> dict[str, Any]:
    message = ask.get_all("/sessions/monday/messages", namespace=ALICE)[0]["id"]
    named: dict[str, dict[str, Any]] = {
        "whole": {"whole": True},
        "session": {"session": "monday"},
        "message": {"entry": message},
        "knowledge": {"knowledge": {"category": "domain", "key": "cat"}},
    }
    return named[what]


@pytest.mark.parametrize("what", ["whole", "session", "message", "knowledge"])
def test_forget_requires_a_confirmation(ask: ApiClient, what: str) -> None:
    ask.post_json("/knowledge", namespace=ALICE, category="domain", key="cat", value="Tom")
    asked = {"namespace": ALICE, **forget(what, ask)}
    before = ask.get_json("/overview", namespace=ALICE)
    refused = ask.post("/forget", **asked)
    assert (refused.status_code, get_error_kind(refused)) == (409, "not_confirmed")
    assert "would erase" in refused.json()["error"]["message"]
    assert ask.get_json("/overview", namespace=ALICE) == before
    receipt = ask.post_json("/forget", **asked, confirm=True)
    assert receipt["is_complete"]
    assert receipt["counts"]
    erased = ask.post("/forget", **asked, confirm=True)
    assert (erased.status_code, get_error_kind(erased)) == (404, "not_found")


def test_the_app_can_be_mounted_in_another(memory: MemoryEngine) -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from langmem_tiers.server import ServerConfig, Token, create_app

    outer = FastAPI()
    outer.mount("/memory", create_app(memory, config=ServerConfig(tokens=(Token("t" * 32),))))
    client = TestClient(outer, base_url="http://localhost")
    assert client.get("/memory/health").status_code == 200
    assert client.get("/memory/namespaces").status_code == 401
    assert (
        client.get("/memory/namespaces", headers={"Authorization": f"Bearer {'t' * 32}"}).status_code == 200
    )


def test_a_preview_of_a_very_long_session_equals_its_full_context() -> None:
    with MemoryEngine(embedder=None) as engine:
        session = engine.session("bob", "long")
        session.add("system", "You know boats.")
        session.add_many(
            [MessageDraft("user", f"Boat {n} has {n % 7} sails. " * (1 + n % 5)) for n in range(3000)]
        )
        for tokens in (60, 3_000, 12_000):
            budget = TokenBudget.of(tokens)
            whole = session.build_context("Which boat has 6 sails?", budget=budget)
            seen = session.preview("Which boat has 6 sails?", budget=budget)
            assert seen.context.messages == whole.messages
            states = dict.fromkeys(whole.full, "full") | dict.fromkeys(whole.compressed, "compressed")
            states |= {hit.entry.id: "recalled" for hit in whole.recalled}
            for message in session.messages():
                assert seen.state_of(message) == states.get(message.id, "dropped")


def quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
