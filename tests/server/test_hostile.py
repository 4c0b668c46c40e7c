"""Invalid requests and database faults are reported, and the server continues."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from benchmarks.servers import TemporaryPostgres
from langmem_tiers import EngineConfig, MemoryEngine, PostgresConfig
from langmem_tiers.server import ServerConfig
from langmem_tiers.server.pagination import encode_cursor
from tests.server.api_client import ALICE, ApiClient, get_error_kind
from tests.shared_servers import new_folder
from tests.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

JSON = {"content-type": "application/json"}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"namespace": "acme/alice", "query": ' + b"9" * 5000 + b"}",
        b'{"namespace": "acme/alice", "query": NaN}',
        b'{"namespace": "acme/alice", "query": "a", "limit": "5"}',
        b'{"namespace": "acme/alice", "query": "a", "limit": true}',
        b'{"namespace": "acme/alice", "query": "a", "limit": 0}',
        b'{"namespace": "acme/alice", "query": "a", "limit": 1e99}',
        b'{"namespace": "acme/alice", "query": "a", "strategy": "guess"}',
        b'{"namespace": "acme/alice", "query": "a", "since": "yesterday"}',
        b'{"namespace": "acme/alice", "query": "a", "since": "2026-01-01T00:00:00"}',
        b'{"namespace": "acme/alice", "query": "a", "since": 5}',
        b'{"namespace": "acme/alice", "query": "a", "since": "2025"}',
        b'{"namespace": "acme/alice", "query": "a", "until": "-1.5e3"}',
        b'{"namespace": "acme/alice", "query": "a", "limit": 101}',
        b'{"namespace": "acme/alice", "query": "a", "other": 1}',
        b'{"namespace": ["acme"], "query": "a"}',
        b'{"namespace": "", "query": "a"}',
        b'{"namespace": "a//b", "query": "a"}',
        b'{"namespace": "acme/alice", "query": "\\ud800"}',
        b'{"query": "a"}',
    ],
)
def test_an_invalid_request_body_is_refused_with_a_short_message(ask: ApiClient, body: bytes) -> None:
    answer = ask.client.post("/recall", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert get_error_kind(answer) == "invalid"
    assert len(answer.json()["error"]["message"]) < 500
    assert ask.get("/health").status_code == 200


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("path", "values", "status"),
    [
        ("/sessions", {"limit": 0}, 422),
        ("/sessions", {"limit": 201}, 422),
        ("/sessions", {"limit": "9" * 5000}, 422),
        ("/sessions", {"limit": "many"}, 422),
        ("/sessions", {"cursor": "nonsense"}, 400),
        ("/sessions", {"cursor": "é"}, 400),
        ("/sessions", {"cursor": encode_cursor("messages", "a", 1)}, 400),
        ("/sessions", {"cursor": encode_cursor("sessions", "gone")}, 404),
        ("/sessions/monday/messages", {"cursor": encode_cursor("messages", "gone", 1)}, 404),
        ("/sessions/monday/messages", {"cursor": encode_cursor("messages", "gone", -1)}, 400),
        ("/learning/optimizer/history", {"cursor": encode_cursor("history", 2**80)}, 400),
        ("/tasks", {"cursor": encode_cursor("tasks", 2**63)}, 400),
        ("/tasks/t/cycles", {"cursor": encode_cursor("cycles", "", 2**40, 2**40)}, 422),
        ("/sessions/monday/timeline", {"budget": 0}, 422),
        ("/sessions/monday/timeline", {"budget": 1}, 422),
        ("/sessions/monday/timeline", {"budget": -5}, 422),
        ("/sessions/none/timeline", {}, 404),
        ("/sessions/none/messages", {}, 404),
        ("/sessions//messages", {}, 422),
        ("/sessions/" + "x" * 2000 + "/messages", {}, 422),
        ("/entries/none", {}, 404),
        ("/entries/none", {"session": "monday"}, 404),
        ("/entries/none", {"session": "none"}, 404),
        ("/entries/%00%FF", {}, 404),
        ("/tasks/none/cycles", {}, 404),
        ("/knowledge", {"category": ""}, 422),
        ("/nothing", {}, 404),
    ],
)
def test_unknown_records_and_invalid_values_have_their_status(
    ask: ApiClient, path: str, values: dict[str, Any], status: int
) -> None:
    answer = ask.get(path, namespace=ALICE, **values)
    assert answer.status_code == status, answer.text
    assert get_error_kind(answer)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "path", ["/overview", "/sessions", "/knowledge", "/tasks", "/learning/optimizer/status"]
)
def test_an_unknown_namespace_is_not_found_and_not_created(
    ask: ApiClient, memory: MemoryEngine, path: str
) -> None:
    before = memory.namespaces()
    assert ask.get(path, namespace="nobody").status_code == 404
    assert ask.post("/recall", namespace="nobody", query="a").status_code == 404
    assert ask.get(path).status_code == 422
    assert memory.namespaces() == before


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "values",
    [
        {"messages": []},
        {"messages": "Hello."},
        {"messages": [{"role": "boss", "content": "Hello."}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": ["Hello."]}]},
        {"messages": [{"role": "user", "content": "Hello.", "name": "x" * 1025}]},
        {"messages": [{"role": "user", "content": "Hello.", "id": ""}]},
        {"messages": [{"role": "user", "content": "Hello.", "id": "x" * 2000}]},
        {"messages": [{"role": "user", "content": "Hello."}] * 1001},
    ],
)
def test_an_invalid_message_is_not_stored(
    ask: ApiClient, memory: MemoryEngine, values: dict[str, Any]
) -> None:
    assert ask.post("/sessions/new/messages", namespace=ALICE, **values).status_code == 422
    assert memory.namespace("acme", "alice").find_session("new") is None


@pytest.mark.parametrize(
    "values",
    [{}, {"whole": True, "session": "monday"}, {"entry": "a", "knowledge": {"category": "a", "key": "b"}}],
)
def test_forget_requires_exactly_one_target(ask: ApiClient, values: dict[str, Any]) -> None:
    assert get_error_kind(ask.post("/forget", namespace=ALICE, confirm=True, **values)) == "invalid"


def test_any_json_text_is_returned_unchanged(ask: ApiClient) -> None:
    text = "<script>alert(1)</script> \0 \x1b[31m \u202e \u2028 😀 ' \" \\ {{7*7}}"
    new = [{"role": "user", "content": text, "name": text}]
    (message_id,) = ask.post_json("/sessions/s/messages", namespace=ALICE, messages=new)["ids"]
    found = ask.get_json(f"/entries/{message_id}", namespace=ALICE)
    assert (found["text"], found["name"]) == (text, text)


def test_lone_surrogates_are_returned_as_replacement_characters(ask: ApiClient, memory: MemoryEngine) -> None:
    memory.session(("acme", "alice"), "half\ud800").add("user", "half \udcff a pair of cats")
    memory.namespace("acme", "alice").knowledge.store("domain", "k\ud800", "v\ud800 cats", source="\ud800")
    assert ask.get_json("/sessions", namespace=ALICE)["items"][0]["session"] == "half\ufffd"
    assert any(
        "half \ufffd a" in hit["text"]
        for hit in ask.post_json("/recall", namespace=ALICE, query="cats")["hits"]
    )
    assert ask.get_json("/knowledge", namespace=ALICE)["items"][0]["value"] == "v\ufffd cats"


def test_a_closed_engine_is_unavailable(memory: MemoryEngine) -> None:
    ask = ApiClient(memory)
    memory.close()
    for answer in (ask.get("/health"), ask.get("/sessions", namespace=ALICE)):
        assert (answer.status_code, get_error_kind(answer)) == (503, "unavailable")
        assert answer.headers["retry-after"]


def test_a_locked_database_is_busy_and_works_after_the_lock_is_released(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    new = {"namespace": "bob", "messages": [{"role": "user", "content": "Hello."}]}
    with MemoryEngine(path, embedder=None, config=EngineConfig(busy_timeout_seconds=0.02)) as engine:
        ask = ApiClient(engine)
        ask.post_json("/sessions/s/messages", **new)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answer = ask.post("/sessions/s/messages", **new)
            other.execute("ROLLBACK")
        assert (answer.status_code, get_error_kind(answer)) == (503, "busy")
        assert answer.headers["retry-after"] == "1"
        ask.post_json("/sessions/s/messages", **new)
        assert len(ask.get_all("/sessions/s/messages", namespace="bob")) == 2


def test_a_missing_database_file_is_unavailable_and_loses_nothing_when_restored(
    tmp_path: Path,
) -> None:
    path, aside = tmp_path / "memory.db", tmp_path / "aside.db"
    new = {"namespace": "bob", "messages": [{"role": "user", "content": "Hello."}]}
    with MemoryEngine(path, embedder=None) as engine:
        ask = ApiClient(engine)
        ask.post_json("/sessions/s/messages", **new)
        path.rename(aside)
        for answer in (ask.get("/health"), ask.post("/sessions/s/messages", **new)):
            assert (answer.status_code, get_error_kind(answer)) == (503, "unavailable")
            assert str(tmp_path) not in answer.text
        aside.rename(path)
        assert ask.get("/health").status_code == 200
        ask.post_json("/sessions/s/messages", **new)
        assert len(ask.get_all("/sessions/s/messages", namespace="bob")) == 2
        path.rename(aside)
        path.write_bytes(aside.read_bytes())  # another file under its name
        assert ask.get("/health").status_code == 503


@pytest.mark.fault
def test_a_stopped_server_is_unavailable_and_loses_nothing() -> None:
    # The engine gives up before the request does, so no request leaves a thread behind that waits for the server.
    config = EngineConfig(postgres=PostgresConfig(reconnect_seconds=0))
    with (
        TemporaryPostgres(new_folder() / "server") as server,
        MemoryEngine(server.new_database(), config=config) as engine,
    ):
        ask = ApiClient(engine)
        said = {"namespace": ALICE, "messages": [{"role": "user", "content": "The boat is red."}]}
        ask.post_json("/sessions/s/messages", **said)
        server.stop()
        for answer in (
            ask.get("/health"),
            ask.get("/sessions", namespace=ALICE),
            ask.post("/recall", namespace=ALICE, query="boat"),
        ):
            assert (answer.status_code, get_error_kind(answer)) == (503, "unavailable")
        server.start()
        wait_until(lambda: ask.get("/health").status_code == 200, "the server is healthy again")
        assert [message["text"] for message in ask.get_all("/sessions/s/messages", namespace=ALICE)] == [
            "The boat is red."
        ]


def test_an_internal_error_is_logged_and_returned_without_its_trace(
    ask: ApiClient, memory: MemoryEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the secret detail")

    with monkeypatch.context() as patch:
        patch.setattr(memory.optimizer, "report", broken)
        answer = ask.get("/learning/optimizer/status", namespace=ALICE)
    assert (answer.status_code, get_error_kind(answer)) == (500, "internal")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "the secret detail" in caplog.text
    assert ask.get("/learning/optimizer/status", namespace=ALICE).status_code == 200


def test_requests_are_rejected_when_all_threads_are_busy_and_health_answers(
    memory: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = threading.Semaphore(0), threading.Event()
    report = memory.optimizer.report

    def slow(path: Any) -> Any:
        entered.release()
        assert leave.wait(LIMIT_SECONDS)
        return report(path)

    monkeypatch.setattr(memory.optimizer, "report", slow)
    ask = ApiClient(memory, ServerConfig(max_threads=2, max_waiting=1, timeout_seconds=LIMIT_SECONDS))
    answers: list[int] = []

    def go() -> None:
        answers.append(ask.get("/learning/optimizer/status", namespace=ALICE).status_code)

    with ask.client:  # all in one loop, as in a server
        threads = [threading.Thread(target=go) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert entered.acquire(timeout=LIMIT_SECONDS)
        assert entered.acquire(timeout=LIMIT_SECONDS)
        # Of two more requests at least one is one too many, whichever of them comes first.
        pair = [threading.Thread(target=go) for _ in range(2)]
        for thread in pair:
            thread.start()
        wait_until(lambda: 503 in answers, "a request is refused")
        refused = ask.get("/sessions", namespace=ALICE)
        assert (refused.status_code, get_error_kind(refused)) == (503, "busy")
        assert ask.get("/health").status_code == 200
        leave.set()
        for thread in (*threads, *pair):
            thread.join(LIMIT_SECONDS)
        assert sorted(answers) == [200, 200, 200, 503, 503]
        assert ask.get("/sessions", namespace=ALICE).status_code == 200


def test_a_write_that_times_out_is_not_stored_later_if_it_can_be_repeated(
    tmp_path: Path,
) -> None:
    path, answers = tmp_path / "memory.db", {}
    with MemoryEngine(path, embedder=None) as engine, closing(sqlite3.connect(path)) as other:
        ask = ApiClient(engine, ServerConfig(max_threads=1, timeout_seconds=0.3))

        def go(content: str) -> None:
            new = [{"role": "user", "content": content}]
            answers[content] = ask.post("/sessions/s/messages", namespace="bob", messages=new)

        def is_one_begun() -> bool:
            threads = [threading.Thread(target=go, args=(content,)) for content in ("one", "two")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT_SECONDS)
            return any("may still succeed" in answer.text for answer in answers.values())

        with ask.client:  # all in one loop, as in a server
            other.execute("BEGIN IMMEDIATE")
            # On a busy machine none may begin within its time limit.
            wait_until(is_one_begun, "one of two writes begins")
            other.rollback()
            # Of two on one thread one is begun, and is done once it can be; the other may be sent again.
            assert {(response.status_code, get_error_kind(response)) for response in answers.values()} == {
                (503, "timeout")
            }
            begun, waited = sorted(answers, key=lambda name: "retry-after" in answers[name].headers)
            assert "may still succeed" in answers[begun].text
            assert "retry-after" not in answers[begun].headers
            assert "canceled before it started" in answers[waited].text
            assert "retry-after" in answers[waited].headers
            asked = {"namespace": "bob"}
            listed: list[httpx2.Response] = []

            def is_listed() -> bool:
                listed.append(ask.get("/sessions/s/messages", **asked))
                return listed[-1].status_code == 200

            wait_until(is_listed, "the begun write is done")
    assert [item["text"] for item in listed[-1].json()["items"]] == [begun]


def test_a_slow_request_gets_a_timeout_response(
    memory: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = threading.Event()
    monkeypatch.setattr(memory.optimizer, "report", lambda _path: leave.wait(LIMIT_SECONDS))
    ask = ApiClient(memory, ServerConfig(timeout_seconds=0.2))
    answer = ask.get("/learning/optimizer/status", namespace=ALICE)
    leave.set()
    assert (answer.status_code, get_error_kind(answer)) == (503, "timeout")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize(
    "longest", ["\x01" * 1_020, "é" * 510, "%" * 340], ids=["control", "accent", "percent"]
)
def test_knowledge_with_the_longest_names_is_listed_read_and_forgotten(ask: ApiClient, longest: str) -> None:
    for number in range(3):
        ask.post_json("/knowledge", namespace=ALICE, category=f"{longest}{number}", key=longest, value="tea")
    listed = ask.get_all("/knowledge", namespace=ALICE, limit=1)
    assert len(listed) == 3
    for item in listed:
        assert ask.get_json(f"/entries/{quote(item['id'])}", namespace=ALICE)["text"].endswith("tea")
        named = {"category": item["category"], "key": item["key"]}
        assert ask.post_json("/forget", namespace=ALICE, knowledge=named, confirm=True)
    assert ask.get_all("/knowledge", namespace=ALICE) == []
