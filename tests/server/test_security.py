"""Refused requests: no token, foreign token, forged Host, foreign origin, too large."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import ASGITransport, AsyncClient

from langmem_tiers import InvalidConfigError, MemoryEngine
from langmem_tiers.server import ServerConfig, Token, create_app, parse_tokens
from tests.server.api_client import ALICE, ApiClient, get_error_kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from httpx2 import Response

ROOT, ACME, BOB = "r" * 32, "a" * 32, "b" * 32
TOKENS = ServerConfig(tokens=(Token(ROOT), Token(ACME, ("acme",)), Token(BOB, ("bob",))))
READS = [
    "/namespaces",
    "/overview",
    "/learning/optimizer/status",
    "/learning/optimizer/history",
    "/sessions",
    "/sessions/monday/messages",
    "/sessions/monday/timeline",
    "/entries/any",
    "/knowledge",
    "/tasks",
    "/tasks/any/cycles",
    "/metrics",
    "/openapi.json",
]
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("/learning/optimizer/run", {}),
    ("/sessions/monday/messages", {"messages": [{"role": "user", "content": "Hello."}]}),
    ("/entries/any/promote", {}),
    ("/recall", {"query": "cat"}),
    ("/context", {"session": "monday"}),
    ("/knowledge", {"category": "domain", "key": "a", "value": "b"}),
    ("/forget", {"whole": True, "confirm": True}),
]


def everything(ask: ApiClient, **headers: str) -> Iterator[tuple[int, str, str]]:
    """What becomes of every request there is, for what is Alice's."""
    ask.client.headers.update(headers)
    for path in READS:
        answer = ask.get(path, namespace=ALICE)
        yield answer.status_code, path, answer.text
    for path, body in WRITES:
        answer = ask.post(path, namespace=ALICE, **body)
        yield answer.status_code, path, answer.text


def count_records(memory: MemoryEngine) -> int:
    return sum(
        memory.namespace(path).holdings().messages + memory.namespace(path).holdings().knowledge
        for path in memory.namespaces()
    )


@pytest.mark.parametrize("shown", [None, "wrong" * 8, ROOT[:-1]])
def test_a_request_without_a_valid_token_is_refused(memory: MemoryEngine, shown: str | None) -> None:
    ask, before = ApiClient(memory, TOKENS), count_records(memory)
    headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
    for status, path, text in everything(ask, **headers):
        assert status == 401, path
        assert "Tom" not in text
    assert count_records(memory) == before


def test_a_token_of_another_namespace_is_refused(memory: MemoryEngine) -> None:
    before = count_records(memory)
    for status, path, text in everything(ApiClient(memory, TOKENS, token=BOB)):
        if path in ("/namespaces", "/openapi.json"):
            assert status == 200
            assert "Tom" not in text
            assert path == "/openapi.json" or "alice" not in text
        else:
            assert status == 403, path
            assert "Tom" not in text
    assert count_records(memory) == before


def test_refusals_do_not_reveal_which_namespaces_exist(memory: MemoryEngine) -> None:
    ask = ApiClient(memory, TOKENS, token=BOB)
    there, not_there = (ask.get("/sessions", namespace=name) for name in ("acme", "acmf"))
    assert there.text.replace("acme", "acmf") == not_there.text


def test_a_token_grants_its_namespace_and_its_children_only(
    memory: MemoryEngine,
) -> None:
    memory.session(("acme",), "s").add("user", "Hello.")
    memory.session(("acme-corp",), "s").add("user", "Hello.")
    ask = ApiClient(memory, TOKENS, token=ACME)
    assert [item["namespace"] for item in ask.get_all("/namespaces")] == ["acme", "acme/alice"]
    assert ask.get_json("/sessions/monday/messages", namespace=ALICE)["items"]
    assert ask.get_json("/sessions")["items"]  # its own, if it names none
    assert ask.get("/sessions", namespace="acme-corp").status_code == 403
    assert ask.get("/metrics").status_code == 403


def test_a_token_without_a_namespace_grants_everything(memory: MemoryEngine) -> None:
    ask = ApiClient(memory, TOKENS, token=ROOT)
    assert [item["namespace"] for item in ask.get_all("/namespaces")] == ["acme/alice", "bob"]


def test_a_server_of_one_namespace_knows_no_other(memory: MemoryEngine) -> None:
    ask = ApiClient(memory, ServerConfig(namespace=("bob",)))
    assert [item["namespace"] for item in ask.get_all("/namespaces")] == ["bob"]
    refused = ask.get("/sessions", namespace=ALICE)
    assert (refused.status_code, "'acme/alice' is not served here" in refused.text) == (403, True)
    bound = ServerConfig(namespace=("bob",), tokens=TOKENS.tokens)
    assert ApiClient(memory, bound, token=ACME).get("/namespaces").status_code == 403
    assert ApiClient(memory, bound, token=ROOT).get("/sessions", namespace=ALICE).status_code == 403


def test_public_endpoints_need_no_token(memory: MemoryEngine) -> None:
    ask = ApiClient(memory, TOKENS)
    assert ask.get("/health").status_code == 200
    assert ask.get("/").headers["location"].endswith("inspector/")
    assert ask.get("/inspector").headers["location"].endswith("inspector/")
    assert (ask.client.head("/health").status_code, ask.client.head("/").status_code) == (200, 307)
    assert ask.client.post("/health").status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "localhost@evil.example", "", "[::1"],
)
def test_a_forged_host_is_refused(memory: MemoryEngine, host: str) -> None:
    before = count_records(memory)
    for status, path, text in everything(ApiClient(memory), host=host):
        assert status == 421, path
        assert "Tom" not in text
    assert ApiClient(memory).client.get("/health", headers={"host": host}).status_code == 421
    assert count_records(memory) == before


@pytest.mark.parametrize(
    ("host", "reached_at", "status"),
    [
        ("localhost:8765", "127.0.0.1", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("[::1]:80", "::1", 200),
        ("LOCALHOST", "127.0.0.1", 200),
        ("localhost", "192.0.2.7", 421),
        ("192.0.2.7", "192.0.2.7", 200),
        ("192.0.2.7", "::ffff:192.0.2.7", 200),
        ("192.0.2.8", "192.0.2.7", 421),
        ("192.0.2.7", "127.0.0.1", 421),
        ("memory.example.org", "192.0.2.7", 200),
        ("with-port.example.org:444", "192.0.2.7", 200),
        ("[2001:db8::1]", "192.0.2.7", 200),
    ],
)
def test_a_server_answers_at_its_address_and_the_allowed_hosts(
    memory: MemoryEngine, host: str, reached_at: str, status: int
) -> None:
    hosts = ("Memory.example.org", "with-port.example.org:443", "2001:db8::1")
    app = create_app(memory, config=ServerConfig(allowed_hosts=hosts))
    literal = f"[{reached_at}]" if ":" in reached_at else reached_at
    client = TestClient(app, base_url=f"http://{literal}")
    answer = client.get("/health", headers={"host": host})
    assert answer.status_code == status
    assert status == 200 or "--allowed-host or ServerConfig(allowed_hosts=" in answer.text


@pytest.mark.parametrize("name", ["", "https://memory.example.org", "memory.example.org:port", "a b"])
def test_an_invalid_host_name_is_refused_with_its_value(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="is not a host name") as caught:
        ServerConfig(allowed_hosts=(name,))
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_page_of_another_origin_is_refused(memory: MemoryEngine, headers: dict[str, str]) -> None:
    before = count_records(memory)
    for status, path, text in everything(ApiClient(memory), **headers):
        assert status == 403, path
        assert "Tom" not in text
    assert count_records(memory) == before


def test_requests_from_the_own_page_and_links_are_accepted(memory: MemoryEngine) -> None:
    client = ApiClient(memory).client
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    asked = {"namespace": ALICE, "query": "cat"}
    assert client.post("/recall", json=asked, headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 307


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_only_json_changes_anything(memory: MemoryEngine, kind: str) -> None:
    body = b'{"namespace": "bob", "category": "domain", "key": "a", "value": "b"}'
    answer = ApiClient(memory).client.post("/knowledge", content=body, headers={"content-type": kind})
    assert (answer.status_code, get_error_kind(answer)) == (415, "unsupported_media_type")
    assert not memory.namespace("bob").knowledge.page()


def test_get_requests_change_nothing(memory: MemoryEngine) -> None:
    ask, before = ApiClient(memory), count_records(memory)
    for path, body in WRITES:
        for method in ("GET", "HEAD"):
            ask.client.request(method, path, params={"namespace": ALICE}, json=body)
    assert count_records(memory) == before
    assert ask.get("/forget", namespace=ALICE, whole=True, confirm=True).status_code == 405


def test_a_large_body_is_refused_before_it_is_read(memory: MemoryEngine) -> None:
    client = ApiClient(memory, ServerConfig(max_body_bytes=1000)).client
    answer = client.post("/recall", json={"namespace": ALICE, "query": "x" * 2000})
    assert (answer.status_code, get_error_kind(answer)) == (413, "too_large")


def test_a_body_that_is_declared_too_large_is_refused_without_reading_any_of_it(memory: MemoryEngine) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        sent += 1
        yield b"{}"

    async def post() -> Response:
        app = create_app(memory, config=ServerConfig(max_body_bytes=1000))
        headers = {"content-type": "application/json", "content-length": "1001"}
        async with AsyncClient(transport=ASGITransport(app=app), base_url="http://localhost") as client:
            return await client.post("/recall", content=pieces(), headers=headers)

    answer = asyncio.run(post())
    assert (answer.status_code, get_error_kind(answer), sent) == (413, "too_large", 0)


def test_a_body_of_exactly_the_maximum_size_is_accepted(memory: MemoryEngine) -> None:
    client = ApiClient(memory, ServerConfig(max_body_bytes=1000)).client
    json_type = {"content-type": "application/json"}
    body = b'{"namespace": "bob", "query": "boats"}'
    assert client.post("/recall", content=body.ljust(1000), headers=json_type).status_code == 200
    assert client.post("/recall", content=body.ljust(1001), headers=json_type).status_code == 413


def posted(memory: MemoryEngine, config: ServerConfig, pieces: AsyncIterator[bytes]) -> Response:
    """Post a body piece by piece, without its length."""

    async def post() -> Response:
        app = create_app(memory, config=config)
        kind = {"content-type": "application/json"}
        async with AsyncClient(transport=ASGITransport(app=app), base_url="http://localhost") as client:
            return await client.post("/recall", content=pieces, headers=kind)

    return asyncio.run(post())


def test_a_large_body_without_a_length_is_refused_as_soon_as_it_is_too_large(memory: MemoryEngine) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(50):
            sent += 1
            yield b'{"a":' + b" " * 100

    answer = posted(memory, ServerConfig(max_body_bytes=1000), pieces())
    assert (answer.status_code, get_error_kind(answer)) == (413, "too_large")
    assert sent == 10  # pieces of 105 bytes


@pytest.mark.timeout(120)
def test_a_request_body_without_end_times_out(memory: MemoryEngine) -> None:
    async def dripping() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.02)
            yield b" "

    answer = posted(memory, ServerConfig(timeout_seconds=0.2), dripping())
    assert (answer.status_code, get_error_kind(answer)) == (408, "timeout")


def test_every_answer_has_safe_headers(memory: MemoryEngine) -> None:
    ask = ApiClient(memory, TOKENS)
    for answer in (
        ask.get("/health"),
        ask.get("/sessions"),
        ask.get("/nothing"),
        ask.get("/"),
        ask.client.get("/health", headers={"host": "evil.example"}),
    ):
        headers = answer.headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == ("no-cache" if answer.url.path == "/" else "no-store")
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_a_token_is_in_no_log_and_in_no_repr(memory: MemoryEngine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for token in (ROOT, "wrong" * 8):
        list(everything(ApiClient(memory, TOKENS, token=token)))
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("langmem_tiers")]
    assert not any(token in line for line in ours for token in (ROOT, ACME, "wrong" * 8))
    assert ROOT not in repr(TOKENS)


def test_tokens_are_read_from_lines() -> None:
    text = f"# who may\n\n{ROOT}\n  {ACME}   acme/alice \r\n{BOB} a\\/b\n"
    assert parse_tokens(text) == (Token(ROOT), Token(ACME, ("acme", "alice")), Token(BOB, ("a/b",)))
    assert parse_tokens(f"{ACME} our agents/Alice B.") == (Token(ACME, ("our agents", "Alice B.")),)


def test_a_duplicate_token_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidConfigError, match="twice") as caught:
        ServerConfig(tokens=(Token(ACME, ("acme",)), Token(BOB, ("bob",)), Token(ACME)))
    assert ACME not in str(caught.value)


@pytest.mark.parametrize("between", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_only_line_ends_separate_token_entries(between: str) -> None:
    assert parse_tokens(f"{ACME}{between}acme/alice") == (Token(ACME, ("acme", "alice")),)


@pytest.mark.parametrize("text", ["short", f"{ROOT}é", f"{ROOT}\n{ROOT} bob", f"{ROOT} a//b"])
def test_an_invalid_token_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_tokens(text)
    assert text.split(maxsplit=1)[0] not in str(caught.value)
    assert caught.value.__cause__ is None
