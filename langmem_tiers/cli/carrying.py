"""Messages of sessions as JSON Lines, out of a memory and into one."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    Database,
    IsJson,
    MaybeNamespace,
    MaybeSession,
)
from langmem_tiers.cli.places import opened, path_of
from langmem_tiers.cli.telling import Teller, told_errors
from langmem_tiers.core.errors import InvalidInputError
from langmem_tiers.core.messages import Message, MessageDraft, ToolCall
from langmem_tiers.core.names import check_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.flows.session import Session

_AT_ONCE = 500
"""Messages in one transaction."""
_PAGE = 100


def export(
    database: Database,
    namespace: MaybeNamespace = None,
    session: MaybeSession = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file; - for standard output.")] = Path(
        "-"
    ),
    *,
    json: IsJson = False,
) -> None:
    """Write messages as JSON Lines, as they were said: for other programs. A backup holds all else as well."""
    teller = Teller(is_json=json)
    with told_errors(teller), opened(database) as engine, _written(output) as file:
        count = 0
        with teller.progress("Exporting") as done:
            for count, line in enumerate(_lines(engine, namespace, session), 1):
                file.write(f"{line}\n")
                if count % _AT_ONCE == 0:
                    done(count, None)
        if str(output) != "-":
            teller.result({"messages": count, "file": str(output)}, [f"{count} messages are in {output}."])


def import_(
    database: Database,
    file: Annotated[Path, typer.Argument(help="What export wrote; - for standard input.")],
    namespace: Annotated[
        str | None, typer.Option("--into", help="All into this namespace, instead of where they came from.")
    ] = None,
    *,
    json: IsJson = False,
) -> None:
    """Take messages in that were exported. Those that a session has already are not stored again."""
    teller = Teller(is_json=json)
    with told_errors(teller), opened(database, creates=True) as engine, _read(file) as lines:
        into = None if namespace is None else path_of(namespace)
        stored = known = 0
        with teller.progress("Importing") as done:
            parsed = (_parsed(line, number) for number, line in enumerate(lines, 1) if line.strip())
            for (path, name), group in groupby(parsed, key=lambda one: one[:2]):
                session = engine.session(into or path, name)
                for batch in _batches(one[2] for one in group):
                    report = session.add_many(batch)
                    stored, known = stored + len(report.stored), known + len(report.duplicates)
                    done(stored + known, None)
        told = {"stored": stored, "known": known}
        teller.result(told, [f"{stored} messages were stored, {known} were there already."])


def _lines(engine: MemoryEngine, namespace: str | None, session: str | None) -> Iterator[str]:
    for path in all_namespaces(engine) if namespace is None else [path_of(namespace)]:
        for one in _sessions(engine, path, session):
            for message in one.messages():
                if not message.is_summary:  # made from the others
                    yield json.dumps(_told(path, one.name, message), ensure_ascii=False)


def all_namespaces(engine: MemoryEngine) -> Iterator[NamespacePath]:
    """Every namespace that has a session."""
    page = engine.namespaces(limit=_PAGE)
    while page:
        yield from page
        page = engine.namespaces(after=page[-1], limit=_PAGE)


def _sessions(engine: MemoryEngine, path: NamespacePath, name: str | None) -> Iterator[Session]:
    space = engine.namespace(path)
    if name is not None:
        found = space.find_session(name)
        if found is None:
            raise InvalidInputError(
                f"there is no session {name!r}: inspect the namespace to see its sessions"
            )
        yield found
        return
    after: str | None = None
    while True:
        page = space.sessions(after=after, limit=_PAGE)
        for info in page.sessions:
            if (found := space.find_session(info.name)) is not None:
                yield found
        if (after := page.next_after) is None:
            return


def _told(path: NamespacePath, session: str, message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {
        "namespace": list(path),
        "session": session,
        "id": message.id,
        "role": message.role.value,
        "content": message.content,
        "created_at": message.created_at.isoformat(),
        "name": message.name,
        "tool_calls": [
            {"id": one.id, "name": one.name, "arguments": one.arguments} for one in message.tool_calls
        ],
        "tool_call_id": message.tool_call_id,
        "payload": message.payload,
    }
    return {name: value for name, value in told.items() if value not in (None, [])}


def _parsed(line: str, number: int) -> tuple[NamespacePath, str, MessageDraft]:
    try:
        told = json.loads(line)
        moment = told.get("created_at")
        draft = MessageDraft(
            told["role"],
            told["content"],
            id=told.get("id"),
            created_at=None if moment is None else datetime.fromisoformat(moment),
            name=told.get("name"),
            tool_calls=[ToolCall(**one) for one in told.get("tool_calls", ())],
            tool_call_id=told.get("tool_call_id"),
            payload=told.get("payload"),
        )
        return check_namespace(told["namespace"]), str(told["session"]), draft
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            f"line {number} is no exported message ({type(error).__name__}: {error}): what stands before it was stored"
        ) from error


def _batches(drafts: Iterator[MessageDraft]) -> Iterator[list[MessageDraft]]:
    batch: list[MessageDraft] = []
    for draft in drafts:
        batch.append(draft)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


@contextmanager
def _written(path: Path) -> Iterator[IO[str]]:
    if str(path) == "-":
        yield sys.stdout
        return
    with path.open("x", encoding="utf-8") as file:
        yield file


@contextmanager
def _read(path: Path) -> Iterator[IO[str]]:
    if str(path) == "-":
        yield sys.stdin
        return
    with path.open(encoding="utf-8") as file:
        yield file
