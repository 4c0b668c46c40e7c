"""The public surface and the results of recall, as texts that can be compared with the files next to this module."""

from __future__ import annotations

import asyncio
import json
import math
import re
import tempfile
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from typer.main import get_command

import langmem_tiers
from langmem_tiers import EngineConfig, Hit, MemoryContext, MemoryEngine, Strategy, TokenBudget
from langmem_tiers.cli.app import app
from langmem_tiers.cli.demo.conversation import StoryClock, load_chapters, load_questions
from langmem_tiers.mcp.server import build_server
from langmem_tiers.server import create_app
from langmem_tiers.storage.migrations import _create_statements
from langmem_tiers.testing import seeded_ids
from tests.backup.sample_memory import fill, read_lines
from tests.backup.sample_memory import open_small_engine as opened_for_backup
from tests.mcp.clients import InProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = Path(__file__).with_name("files")
PACKAGES = (
    "langmem_tiers",
    *(f"langmem_tiers.{module.name}" for module in iter_modules(langmem_tiers.__path__) if module.ispkg),
    "langmem_tiers_langchain",
    "langmem_tiers_llamaindex",
)
USER = ("tidepool", "mara")
RECALLS, CONTEXTS, HITS = 200, 50, 5
ROUNDING = 1e-5
BUDGETS = (200, 400, 800, 1200, 2000)


def public_names() -> Any:
    packages = ((package, import_module(package)) for package in PACKAGES)
    return {name: sorted(package.__all__) for name, package in packages if hasattr(package, "__all__")}


def openapi() -> Any:
    """Return the OpenAPI document without the schemas that FastAPI adds."""
    with MemoryEngine(embedder=None) as engine:
        document = create_app(engine).openapi()
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return {"paths": document["paths"], "schemas": document["components"]["schemas"]}


def mcp_tools() -> Any:
    with MemoryEngine(embedder=None) as engine:
        listed = asyncio.run(InProcess(build_server(engine, USER)).list_tools())
    parts = {"title", "description", "input_schema", "output_schema", "annotations"}
    return {tool.name: tool.model_dump(mode="json", include=parts) for tool in listed.tools}


def cli_help() -> Any:
    """Return the help text, arguments and options of the program and of each command.

    How they are laid out depends on the version of Typer, so the rendered help is not compared.
    """
    pending: list[tuple[str, Any]] = [("langmem-tiers", get_command(app))]
    shown = {}
    for name, command in pending:
        pending += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]
        shown[name] = {
            "help": command.help,
            "parameters": [
                [*parameter.opts, *parameter.secondary_opts, getattr(parameter, "help", None)]
                for parameter in command.params
                if "completion" not in parameter.name
            ],
        }
    return shown


def tables() -> Any:
    """Return the statements that create a database, sorted: the order of indexes differs between processes."""
    return {
        dialect: sorted(re.sub(r"\s+", " ", statement).strip() for statement in _create_statements(dialect))
        for dialect in ("sqlite", "postgresql")
    }


def backup() -> Any:
    """Return the records of a backup with something of every kind in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with opened_for_backup(f"sqlite:///{path / 'memory.db'}") as engine:
            fill(engine, "acme", "alice")
            engine.backup(path / "backup.gz")
        return read_lines(path / "backup.gz")


def recalls() -> Any:
    """Return 200 recalls, over all strategies, with the score and the signals of each hit."""
    strategies = list(Strategy)
    with _demo() as engine:
        namespace = engine.namespace(*USER)
        shown = []
        for number, query in enumerate(_queries()[:RECALLS]):
            # The default strategy answers every second query, the others take turns.
            strategy = strategies[number // 2 % len(strategies)] if number % 2 else Strategy.BEST
            hits = namespace.recall(query, limit=HITS, strategy=strategy, use=False)
            shown.append({"query": query, "strategy": strategy.value, "hits": [_hit(hit) for hit in hits]})
    return shown


def contexts() -> Any:
    """Return 50 contexts, of the namespace and of its sessions in turn, within five budgets."""
    with _demo() as engine:
        namespace = engine.namespace(*USER)
        names = [chapter.session for chapter in load_chapters()]
        shown = []
        for number, query in enumerate(_queries()[:CONTEXTS]):
            size = BUDGETS[number % len(BUDGETS)]
            budget = TokenBudget.of(size)
            if number % 2:
                context = namespace.build_context(query, budget=budget)
            else:
                context = namespace.session(names[number % len(names)]).build_context(query, budget=budget)
            shown.append({"query": query, "budget": size, **_context(context)})
    return shown


SNAPSHOTS: dict[str, Callable[[], Any]] = {
    "public_names": public_names,
    "openapi": openapi,
    "mcp_tools": mcp_tools,
    "cli_help": cli_help,
    "tables": tables,
    "backup": backup,
    "recalls": recalls,
    "contexts": contexts,
}


def load(name: str) -> Any:
    return json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))


def save(name: str) -> None:
    text = json.dumps(SNAPSHOTS[name](), indent=1, sort_keys=True)
    (FILES / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Yield the places where two JSON values differ. Numbers may differ by rounding."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            if key in expected and key in actual:
                yield from differences(expected[key], actual[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}: only in the {'file' if key in expected else 'result'}"
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{path}: {len(expected)} elements in the file, {len(actual)} in the result"
        for number, pair in enumerate(zip(expected, actual, strict=False)):
            yield from differences(*pair, f"{path}/{number}")
    elif isinstance(expected, float) and isinstance(actual, float):
        if not math.isclose(expected, actual, abs_tol=ROUNDING):
            yield f"{path}: {expected} in the file, {actual} in the result"
    elif expected != actual:
        yield f"{path}: {expected!r} in the file, {actual!r} in the result"


@contextmanager
def _demo() -> Iterator[MemoryEngine]:
    """Open an engine that has heard and learned the bundled conversation."""
    clock = StoryClock()
    config = EngineConfig(budget=TokenBudget.of(2000))
    with MemoryEngine(clock=clock, ids=seeded_ids(), config=config) as engine:
        namespace = engine.namespace(*USER)
        for chapter in load_chapters():
            session = namespace.session(chapter.session)
            session.add_many(chapter.messages)
            clock.advance_to(chapter.messages[-1].created_at)
            session.learn()
        namespace.knowledge.store("preference", "spelling", "British spelling everywhere")
        namespace.embed()
        yield engine


@cache
def _queries() -> list[str]:
    asked = [
        text for question in load_questions() for text in (question.text, question.search, question.answer)
    ]
    drafts = [draft for chapter in load_chapters() for draft in chapter.messages]
    said = [draft.content for role in ("user", "assistant") for draft in drafts if draft.role == role]
    return list(dict.fromkeys(text for text in [*asked, *said] if text))


def _hit(hit: Hit) -> dict[str, Any]:
    return {
        "id": hit.entry.id,
        "tier": hit.entry.tier.value,
        "found_by": hit.found_by,
        "score": round(hit.score, 6),
        "signals": {name: round(value, 6) for name, value in hit.signals.items()},
    }


def _context(context: MemoryContext) -> dict[str, Any]:
    return {
        "token_count": context.token_count,
        "messages": [[message.role.value, message.content] for message in context.messages],
        "recalled": {hit.entry.id: round(hit.score, 6) for hit in context.recalled},
    }
