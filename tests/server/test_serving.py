"""``langmem-tiers serve`` as a real process: requests over the local network, and shutdown."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from fastapi import FastAPI

from langmem_tiers import MemoryEngine, OfflineEmbedder
from langmem_tiers.cli.commands import serve
from langmem_tiers.server import ServerConfig
from langmem_tiers.server.config import is_host_allowed
from langmem_tiers.testing import HashEmbedder
from tests.cli.command_runner import run
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
TOKEN = "t" * 32
ENVIRONMENT_TOKEN = "e" * 32


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    with MemoryEngine(path, embedder=None) as engine:
        engine.session(("acme", "alice"), "monday").add("user", "My cat is called Tom.")
    return path


@contextmanager
def serving(*words: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """The process, its port, and what it says of itself."""
    import os

    command = [sys.executable, "-m", "langmem_tiers", "serve", "--port", "0", *map(str, words)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **environment},
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", lines[0])
        assert found is not None, (lines, process.stderr and process.stderr.read())
        yield process, int(found[1]), lines
    finally:
        process.kill()
        process.communicate()


def request_json(port: int, path: str, token: str | None = None, **body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_SECONDS)
    headers = {"Content-Type": "application/json"}
    headers |= {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def looked_at(port: int, path: str) -> tuple[int, bytes]:
    """The answer to HEAD, as it goes over the wire."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS) as connection:
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        head, body = b"".join(iter(lambda: connection.recv(65_536), b"")).split(b"\r\n\r\n", 1)
    return int(head.split()[1]), body


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_process_serves_until_terminated_and_closes_its_memory(
    database: Path, tmp_path: Path, how: signal.Signals
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"\ufeff{TOKEN} acme\r\n", "utf-8")  # as an editor on Windows writes it
    words = ("--database", database, "--token-file", tokens)
    with serving(*words, LANGMEM_TIERS_TOKEN=ENVIRONMENT_TOKEN) as (process, port, told):
        assert request_json(port, "/health")[0] == 200
        assert [looked_at(port, path) for path in ("/health", "/")] == [(200, b""), (307, b"")]
        assert request_json(port, "/namespaces")[0] == 401
        assert (
            request_json(port, "/sessions?namespace=acme/alice", TOKEN)[1]["items"][0]["session"] == "monday"
        )
        assert request_json(port, "/namespaces", ENVIRONMENT_TOKEN)[1]["items"] == [
            {"namespace": "acme/alice"}
        ]
        status, found = request_json(port, "/recall", TOKEN, namespace="acme/alice", query="cat")
        assert (status, found["hits"][0]["text"]) == (200, "My cat is called Tom.")
        new = [{"role": "user", "content": "Tom is grey."}]
        assert (
            request_json(port, "/sessions/monday/messages", TOKEN, namespace="acme/alice", messages=new)[0]
            == 200
        )
        process.send_signal(how)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, err
    assert TOKEN not in f"{told}{out}{err}"
    assert ENVIRONMENT_TOKEN not in f"{told}{out}{err}"
    assert "Traceback" not in err
    assert not database.with_name("memory.db-wal").exists()  # gone with the last connection
    with MemoryEngine(database, embedder=None) as engine:
        assert engine.session(("acme", "alice"), "monday").count() == 2


def test_the_database_timeout_is_shorter_than_the_request_timeout(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def run_server(server: uvicorn.Server, **_: object) -> None:
        app = server.config.app
        assert isinstance(app, FastAPI)
        waits.append(app.state.app_state.engine.config.busy_timeout_seconds)

    monkeypatch.setattr(uvicorn.Server, "run", run_server)
    assert run("serve", "-d", database, "--port", 0).code == 0
    assert waits == [10]
    assert waits[0] < ServerConfig().timeout_seconds


def test_the_served_memory_has_the_budget_of_the_command_line(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[int] = []

    def run_server(server: uvicorn.Server, **_: object) -> None:
        app = server.config.app
        assert isinstance(app, FastAPI)
        budgets.append(app.state.app_state.engine.config.budget.available)

    monkeypatch.setattr(uvicorn.Server, "run", run_server)
    assert run("serve", "-d", database, "--port", 0, "--budget", 1234).code == 0
    assert budgets == [1234]


def test_a_port_in_use_is_named(database: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "-d", database, "--port", port)
    assert done.code == 1
    assert f"port {port}" in done.err
    assert "--port" in done.err


@pytest.mark.allow_hosts(["0.0.0.0"])  # noqa: S104 - it is refused
def test_other_hosts_require_a_token(database: Path) -> None:
    done = run("serve", "-d", database, "--host", "0.0.0.0", "--port", 0)  # noqa: S104 - it is refused
    assert done.code == 1
    assert "--token-file" in done.err


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("0.0.0.0", "Listening on all addresses, port 8790; open http://127.0.0.1:8790/."),  # noqa: S104 - no socket
        ("::", "Listening on all addresses, port 8790; open http://[::1]:8790/."),
        ("::1", "Serving at http://[::1]:8790/ - open it in a browser."),
        ("192.0.2.1", "Serving at http://192.0.2.1:8790/ - open it in a browser."),
    ],
)
def test_the_printed_url_is_one_that_the_server_answers(address: str, line: str) -> None:
    described, *_ = serve._describe_server((address, 8790), needs_token=True)
    assert described.startswith(line)
    assert ("--allowed-host" in described) == described.startswith("Listening")
    host = re.search(r"http://\[?([^/\]]+?)\]?:8790/", described)
    assert host is not None
    # A connection to a loopback address arrives there, on whichever address the server listens.
    assert is_host_allowed(host[1], host[1], ())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-d", "{tmp}/none.db"), "no memory"),
        (("-d", "{database}", "--token-file", "{tmp}/none"), "cannot be read"),
        (("-d", "{database}", "--token-file", "{tmp}/empty"), "no token"),
        (("-d", "{database}", "--token-file", "{tmp}/short"), "16 characters"),
        (("-d", "{database}", "--token-file", "{tmp}/latin"), "not UTF-8 (byte 34)"),
        (("-d", "{database}", "--namespace", "a//b"), "acme/alice"),
        (("-d", "{database}", "--host", "not an address"), "cannot listen"),
    ],
)
def test_startup_errors_are_printed_in_one_line(
    database: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").write_text("# nobody\n")
    (tmp_path / "short").write_text("hunter2\n")
    (tmp_path / "latin").write_bytes(f"{TOKEN} Müller\n".encode("latin-1"))
    done = run("serve", "--port", 0, *(word.format(tmp=tmp_path, database=database) for word in words))
    assert done.code == 1
    assert said in done.err
    assert "hunter2" not in done.err + done.out
    assert TOKEN not in done.err + done.out


def test_a_token_in_file_and_environment_is_refused_without_showing_it(
    database: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN} acme\n")
    words = ("serve", "-d", database, "--port", 0, "--token-file", tmp_path / "tokens")
    done = run(*words, env={"LANGMEM_TIERS_TOKEN": TOKEN})
    assert (done.code, "twice" in done.err) == (1, True)
    assert TOKEN not in done.err + done.out


@pytest.mark.soak
def test_the_optimizer_uses_the_budget_of_the_command_line(database: Path) -> None:
    with serving("-d", database, "--budget", 1000) as (_, port, _):
        assert request_json(port, "/overview")[1]["budget"] == 1000
        run_of_it = request_json(port, "/learning/optimizer/run", namespace="acme/alice")[1]
    assert run_of_it["usage_before"] == run_of_it["tokens_before"] / 1000 > 0


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_extra_is_named_with_its_command(
    database: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    done = run("serve", "-d", database, "--port", 0)
    assert done.code == 1
    assert "pip install 'langmem-tiers[server]'" in done.err


def test_without_the_metrics_extra_all_other_endpoints_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from langmem_tiers.cli.commands.serve import _build_metrics

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert _build_metrics() == (None, None)


@pytest.mark.soak
def test_a_memory_with_vectors_of_another_embedder_is_ranked_by_words(
    database: Path,
) -> None:
    with MemoryEngine(database, embedder=HashEmbedder()) as engine:
        engine.namespace("acme", "alice").embed()
        (own,) = engine.embedders()
    with serving("-d", database) as (process, port, _):
        assert request_json(port, "/recall", namespace="acme/alice", query="Which cat?")[1]["hits"]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_SECONDS)
    (line,) = said.splitlines()
    assert repr(own) in line
    assert "ranked by words only" in line
    with MemoryEngine(database, embedder=None) as engine:
        assert engine.embedders() == (own,)


@pytest.mark.soak
def test_a_memory_without_vectors_gets_those_of_the_offline_embedder(database: Path) -> None:
    with serving("-d", database) as (process, port, _):
        assert request_json(port, "/recall", namespace="acme/alice", query="Which cat?")[1]["hits"]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=LIMIT_SECONDS)[1] == ""
    with MemoryEngine(database, embedder=None) as engine:
        assert engine.embedders() == (OfflineEmbedder.identity,)
