"""Messages of sessions as JSON Lines, out of a memory and into one."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    DatabaseOption,
    JsonOption,
    OptionalNamespaceArgument,
    RedisOption,
    SessionOption,
)
from langmem_tiers.cli.output import Output, report_errors, to_json_line
from langmem_tiers.cli.targets import open_engine, require_namespace
from langmem_tiers.common.messages import Message, MessageDraft, ToolCall
from langmem_tiers.common.namespaces import check_name, check_namespace, parse_namespace
from langmem_tiers.errors import InvalidInputError, MessageConflictError, SessionNotFoundError
from langmem_tiers.wiring import create_whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.session import Session

_BATCH_SIZE = 500
"""Messages in one transaction."""
_PAGE_SIZE = 100


def export_command(
    database: DatabaseOption,
    namespace: OptionalNamespaceArgument = None,
    session: SessionOption = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A new file, for you alone to read; - for standard output.")
    ] = Path("-"),
    redis: RedisOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Write messages as JSON Lines, as they were said: for other programs. A backup holds all else as well."""
    teller = Output(is_json=json)
    with report_errors(teller), open_engine(database, redis=redis) as engine:
        if json and str(output) == "-":
            raise InvalidInputError("--json tells of the file that was written: name one with --output")
        count = 0
        with _open_output(output) as file, teller.show_progress("Exporting") as done:
            for count, told in enumerate(_export_messages(engine, namespace, session), 1):
                file.write(f"{to_json_line(told, file.encoding)}\n")
                if count % _BATCH_SIZE == 0:
                    done(count, None)
        if str(output) != "-":
            teller.print_result(
                {"messages": count, "file": str(output)}, [f"{count} messages are in {output}."]
            )


def import_command(
    database: DatabaseOption,
    file: Annotated[Path, typer.Argument(help="What export wrote; - for standard input.")],
    namespace: Annotated[
        str | None, typer.Option("--into", help="All into this namespace, instead of where they came from.")
    ] = None,
    redis: RedisOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Take messages in that were exported. Those that a session has already are not stored again."""
    teller = Output(is_json=json)
    with report_errors(teller), _open_input(file) as lines:
        into = None if namespace is None else parse_namespace(namespace)
        numbered = (_parse_line(line, number) for number, line in enumerate(lines, 1) if line.strip())
        first = list(islice(numbered, 1))  # before a database is made for it
        with (
            open_engine(database, redis=redis, creates=True) as engine,
            teller.show_progress("Importing") as done,
        ):
            taken = _Importer(done)
            for (path, name), group in groupby(
                chain(first, numbered), key=lambda one: (one.path, one.session)
            ):
                session = engine.session(into or path, name)
                for batch in _split_batches(group, taken):
                    taken.store(session, batch)
        told = {"stored": taken.stored, "known": taken.duplicates, "left_out": taken.left_out}
        teller.print_result(told, taken.render_lines())


def _export_messages(
    engine: MemoryEngine, namespace: str | None, session: str | None
) -> Iterator[dict[str, Any]]:
    found = False
    for path in list_all_namespaces(engine) if namespace is None else [require_namespace(engine, namespace)]:
        for one in _find_sessions(engine, path, session):
            found = True
            for message in one.messages():
                if not message.is_summary:  # made from the others
                    yield _to_record(path, one.name, message)
    if session is not None and not found:
        raise SessionNotFoundError(
            f"there is no session {session!r}: inspect the namespace to see its sessions"
        )


def list_all_namespaces(engine: MemoryEngine) -> Iterator[NamespacePath]:
    """Every namespace that has a session."""
    page = engine.namespaces(limit=_PAGE_SIZE)
    while page:
        yield from page
        page = engine.namespaces(after=page[-1], limit=_PAGE_SIZE)


def _find_sessions(engine: MemoryEngine, path: NamespacePath, name: str | None) -> Iterator[Session]:
    space = engine.namespace(path)
    if name is not None:
        if (found := space.find_session(name)) is not None:
            yield found
        return
    after: str | None = None
    while True:
        page = space.sessions(after=after, limit=_PAGE_SIZE)
        for info in page.sessions:
            if (found := space.find_session(info.name)) is not None:
                yield found
        if (after := page.next_after) is None:
            return


def _to_record(path: NamespacePath, session: str, message: Message) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True)
class _ImportLine:
    number: int
    path: NamespacePath
    session: str
    draft: MessageDraft


def _parse_line(line: bytes, number: int) -> _ImportLine:
    try:
        told = json.loads(line.decode("utf-8"))
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
        return _ImportLine(number, check_namespace(told["namespace"]), check_name(told["session"]), draft)
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"line {number} is no text in UTF-8, as export writes it: what backup wrote is taken back with restore"
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"line {number} is no exported message ({type(error).__name__}: {error}): mend or remove it"
        ) from error


class _Importer:
    """Stores messages, and counts what became of them."""

    def __init__(self, done: Callable[[int, int | None], None]) -> None:
        self.stored = self.duplicates = self.left_out = 0
        self._report_progress = done

    @property
    def total(self) -> int:
        return self.stored + self.duplicates + self.left_out

    def store(self, session: Session, lines: Sequence[_ImportLine]) -> None:
        try:
            report = session.add_many([one.draft for one in lines])
        except (InvalidInputError, MessageConflictError) as error:
            if len(lines) == 1:
                raise self.build_error(f"line {lines[0].number} was not stored ({error})") from error
            half = len(lines) // 2  # those before the one that is refused are stored
            self.store(session, lines[:half])
            self.store(session, lines[half:])
            return
        self.stored += len(report.stored)
        self.duplicates += len(report.duplicates)
        self.left_out += len(report.echoes)
        self._report_progress(self.total, None)

    def build_error(self, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"{why}; the {self.total} messages before it are stored, and are passed over when you import again"
        )

    def render_lines(self) -> list[str]:
        told = [f"{self.stored} messages were stored, {self.duplicates} were there already."]
        if self.left_out:
            told.append(f"{self.left_out} were left out: memory itself had put them before a model.")
        return told


def _split_batches(lines: Iterator[_ImportLine], taken: _Importer) -> Iterator[list[_ImportLine]]:
    batch: list[_ImportLine] = []
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == _BATCH_SIZE:
                yield batch
                batch = []
    except InvalidInputError as error:
        if batch:
            yield batch
        raise taken.build_error(str(error)) from error
    if batch:
        yield batch


@contextmanager
def _open_output(path: Path) -> Iterator[TextIO]:
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()  # here what cannot be written is still told
        return
    with create_whole_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def _open_input(path: Path) -> Iterator[Iterable[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file
