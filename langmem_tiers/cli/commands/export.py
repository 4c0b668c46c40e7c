"""Commands that export messages as JSON Lines and import them."""

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
from langmem_tiers.cli.output import Output, format_count, report_errors, to_json_line
from langmem_tiers.cli.targets import open_engine, require_namespace
from langmem_tiers.common.messages import Message, MessageDraft, MessageToolCall
from langmem_tiers.common.namespaces import check_name, check_namespace, parse_namespace
from langmem_tiers.errors import InvalidInputError, MessageConflictError, SessionNotFoundError
from langmem_tiers.wiring import create_whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.session import Session

_BATCH_SIZE = 500
"""Messages stored per transaction."""
_PAGE_SIZE = 100


def export_command(
    database: DatabaseOption,
    namespace: OptionalNamespaceArgument = None,
    session: SessionOption = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="New file, readable only by you; - for standard output.")
    ] = Path("-"),
    redis: RedisOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Write messages as JSON Lines for other programs. Use backup to save all other data as well."""
    printer = Output(is_json=json)
    with report_errors(printer), open_engine(database, redis=redis) as engine:
        if json and str(output) == "-":
            raise InvalidInputError("--json describes the exported file: pass a file with --output")
        count = 0
        with _open_output(output) as file, printer.show_progress("Exporting") as update_progress:
            for count, record in enumerate(_export_messages(engine, namespace, session), 1):
                file.write(f"{to_json_line(record, file.encoding)}\n")
                if count % _BATCH_SIZE == 0:
                    update_progress(count, None)
        if str(output) != "-":
            printer.print_result(
                {"messages": count, "file": str(output)},
                [f"Exported {format_count(count, 'message')} to {output}."],
            )


def import_command(
    database: DatabaseOption,
    file: Annotated[Path, typer.Argument(help="File that export wrote; - for standard input.")],
    namespace: Annotated[
        str | None,
        typer.Option("--into", help="Namespace for all messages. Default: the namespace in each line."),
    ] = None,
    redis: RedisOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Import messages that export wrote. Messages that a session already has are skipped."""
    printer = Output(is_json=json)
    with report_errors(printer), _open_input(file) as lines:
        into = None if namespace is None else parse_namespace(namespace)
        numbered = (_parse_line(line, number) for number, line in enumerate(lines, 1) if line.strip())
        # Parse the first line before the engine creates a database: a wrong file must not leave an empty one.
        first = list(islice(numbered, 1))
        with (
            open_engine(database, redis=redis, creates=True) as engine,
            printer.show_progress("Importing") as update_progress,
        ):
            importer = _Importer(update_progress)
            # groupby joins consecutive lines of a session only, so the order of the file is kept.
            for (path, name), group in groupby(
                chain(first, numbered), key=lambda line: (line.path, line.session)
            ):
                session = engine.session(into or path, name)
                for batch in _split_batches(group, importer):
                    importer.store(session, batch)
        counts = {"stored": importer.stored, "known": importer.duplicates, "left_out": importer.left_out}
        printer.print_result(counts, importer.render_lines())


def _export_messages(
    engine: MemoryEngine, namespace: str | None, session: str | None
) -> Iterator[dict[str, Any]]:
    found = False
    for path in list_all_namespaces(engine) if namespace is None else [require_namespace(engine, namespace)]:
        for source in _find_sessions(engine, path, session):
            found = True
            for message in source.messages():
                # Summaries are derived from the other messages.
                if not message.is_summary:
                    yield _to_record(path, source.name, message)
    if session is not None and not found:
        raise SessionNotFoundError(
            f"no session {session!r}: run 'langmem-tiers inspect' with a namespace to list its sessions"
        )


def list_all_namespaces(engine: MemoryEngine) -> Iterator[NamespacePath]:
    """Yield every namespace that has a session."""
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
    record: dict[str, Any] = {
        "namespace": list(path),
        "session": session,
        "id": message.id,
        "role": message.role.value,
        "content": message.content,
        "created_at": message.created_at.isoformat(),
        "name": message.name,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ],
        "tool_call_id": message.tool_call_id,
        "payload": message.payload,
    }
    return {name: value for name, value in record.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class _ImportLine:
    number: int
    path: NamespacePath
    session: str
    draft: MessageDraft


def _parse_line(line: bytes, number: int) -> _ImportLine:
    try:
        record = json.loads(line.decode("utf-8"))
        created_at = record.get("created_at")
        draft = MessageDraft(
            record["role"],
            record["content"],
            id=record.get("id"),
            created_at=None if created_at is None else datetime.fromisoformat(created_at),
            name=record.get("name"),
            tool_calls=[MessageToolCall(**call) for call in record.get("tool_calls", ())],
            tool_call_id=record.get("tool_call_id"),
            payload=record.get("payload"),
        )
        return _ImportLine(number, check_namespace(record["namespace"]), check_name(record["session"]), draft)
    except UnicodeDecodeError as error:
        # The most likely binary file is a backup, which is compressed.
        raise InvalidInputError(
            f"line {number} is not UTF-8 text: import reads files that export wrote; use restore for a backup"
        ) from error
    # What a line of JSON with unexpected types or missing fields raises; deep nesting is a RecursionError.
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"line {number} is not an exported message ({type(error).__name__}: {error}): correct or remove it"
        ) from error


class _Importer:
    """Stores messages and counts the results."""

    def __init__(self, report_progress: Callable[[int, int | None], None]) -> None:
        self.stored = self.duplicates = self.left_out = 0
        self._report_progress = report_progress

    @property
    def total(self) -> int:
        return self.stored + self.duplicates + self.left_out

    def store(self, session: Session, lines: Sequence[_ImportLine]) -> None:
        try:
            report = session.add_many([line.draft for line in lines])
        except (InvalidInputError, MessageConflictError) as error:
            if len(lines) == 1:
                raise self.build_error(f"line {lines[0].number} was not stored ({error})") from error
            # A batch is all or nothing. Halving it finds the rejected line and stores all lines before it.
            half = len(lines) // 2
            self.store(session, lines[:half])
            self.store(session, lines[half:])
            return
        self.stored += len(report.stored)
        self.duplicates += len(report.duplicates)
        self.left_out += len(report.echoes)
        self._report_progress(self.total, None)

    def build_error(self, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"{why}; the {self.total} messages before it are stored and will be skipped when you import again"
        )

    def render_lines(self) -> list[str]:
        stored = format_count(self.stored, "message")
        lines = [f"Stored {stored}, skipped {self.duplicates:,} already stored."]
        if self.left_out:
            lines.append(f"Skipped {self.left_out:,} that contain only text injected by the memory itself.")
        return lines


def _split_batches(lines: Iterator[_ImportLine], importer: _Importer) -> Iterator[list[_ImportLine]]:
    batch: list[_ImportLine] = []
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == _BATCH_SIZE:
                yield batch
                batch = []
    except InvalidInputError as error:
        # A wrong line ends the import, but the messages before it are stored: yield them first.
        if batch:
            yield batch
        raise importer.build_error(str(error)) from error
    if batch:
        yield batch


@contextmanager
def _open_output(path: Path) -> Iterator[TextIO]:
    if str(path) == "-":
        yield sys.stdout
        # Flush inside report_errors(), so a full disk is reported as an error of this command.
        sys.stdout.flush()
        return
    with create_whole_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def _open_input(path: Path) -> Iterator[Iterable[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file
