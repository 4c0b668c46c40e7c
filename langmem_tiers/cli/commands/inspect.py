"""Commands that read a memory: status, inspect and search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    DatabaseOption,
    JsonOption,
    LimitOption,
    NamespaceArgument,
    OptionalNamespaceArgument,
    RedisOption,
    SessionOption,
)
from langmem_tiers.cli.output import Output, format_count, report_errors, to_json_value
from langmem_tiers.cli.targets import open_engine, require_namespace
from langmem_tiers.common.namespaces import format_namespace
from langmem_tiers.errors import InvalidInputError, SessionNotFoundError
from langmem_tiers.maintenance.statistics import ESTIMATED_BYTES_LABEL

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine

_SHOWN_CHARACTERS = 100


def status_command(database: DatabaseOption, redis: RedisOption = None, *, json: JsonOption = False) -> None:
    """Show counts and sizes by tier; with --json also by table."""
    printer = Output(is_json=json)
    with report_errors(printer), open_engine(database, redis=redis) as engine:
        statistics, redis_status = engine.statistics(), engine.redis
        totals = [
            format_count(statistics.namespaces, "namespace"),
            format_count(statistics.sessions, "session"),
            format_count(statistics.messages, "message"),
            format_count(statistics.total_bytes, "byte"),
        ]
        printer.print_table(
            {**to_json_value(statistics), "redis": to_json_value(redis_status)},
            ", ".join(totals),
            ("tier", "entries", "bytes (approx.)"),
            [(name, f"{tier.count:,}", f"{tier.bytes:,}") for name, tier in statistics.tiers.items()],
        )
        if json:
            return
        # The heading of the column says that the bytes are approximate.
        if estimated := [name for name in statistics.estimated if name != ESTIMATED_BYTES_LABEL]:
            printer.print_result(None, [f"Estimated: {', '.join(estimated)}"])
        if redis_status is not None:
            state = "answers" if redis_status.is_connected else "does not answer"
            printer.print_result(None, [f"Redis {redis_status.label} {state}."])


def inspect_command(
    database: DatabaseOption,
    namespace: OptionalNamespaceArgument = None,
    session: SessionOption = None,
    limit: LimitOption = 20,
    redis: RedisOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show the namespaces, the sessions of a namespace, or the messages of a session with tier and state."""
    printer = Output(is_json=json)
    with report_errors(printer), open_engine(database, redis=redis) as engine:
        if namespace is None:
            if session is not None:
                raise InvalidInputError(f"--session {session!r} requires a namespace, for example acme/alice")
            _show_namespaces(printer, engine, limit)
        elif session is None:
            _show_sessions(printer, engine, require_namespace(engine, namespace), limit)
        else:
            _show_session(printer, engine, require_namespace(engine, namespace), session, limit)


def search_command(
    database: DatabaseOption,
    namespace: NamespaceArgument,
    query: Annotated[str, typer.Argument(help="Question or search words.")],
    limit: LimitOption = 10,
    redis: RedisOption = None,
    *,
    words: Annotated[bool, typer.Option("--words", help="Rank by words only, without vectors.")] = False,
    json: JsonOption = False,
) -> None:
    """Recall the entries that answer a question, with the score and the main reason of each."""
    printer = Output(is_json=json)
    embedder: Literal["offline"] | None = None if words else "offline"
    with report_errors(printer), open_engine(database, redis=redis, embedder=embedder) as engine:
        found = engine.namespace(require_namespace(engine, namespace)).recall(query, limit=limit)
        printer.print_table(
            {
                "query": query,
                "hits": [_drop_empty_fields(hit) for hit in map(to_json_value, found.hits)],
                "problems": list(found.problems),
            },
            f"Results for {_shorten_line(query)!r}",
            ("score", "found by", "session", "content"),
            [
                (
                    f"{hit.score:.3f}",
                    "-" if hit.found_by == "form" else hit.found_by,  # nothing matched the question
                    hit.session or "-",
                    _format_message(hit.entry.content, hit.message),
                )
                for hit in found.hits
            ],
        )
        for problem in found.problems:
            printer.err.print(problem)


def _show_namespaces(printer: Output, engine: MemoryEngine, limit: int) -> None:
    # Read one extra row to find out whether the list is complete.
    found = engine.namespaces(limit=limit + 1)
    value = {"namespaces": [list(path) for path in found[:limit]], "is_whole": len(found) <= limit}
    printer.print_table(
        value, "Namespaces", ("namespace",), [(format_namespace(path),) for path in found[:limit]]
    )
    _print_more_hint(printer, is_whole=len(found) <= limit, what="more namespaces")


def _show_sessions(printer: Output, engine: MemoryEngine, path: NamespacePath, limit: int) -> None:
    page = engine.namespace(path).sessions(limit=limit)
    printer.print_table(
        page,
        f"Sessions of {format_namespace(path)}",
        ("session", "messages", "tokens", "compressed", "last changed"),
        [
            (
                info.name,
                info.message_count,
                info.token_count,
                info.compressed_count,
                f"{info.updated_at:%Y-%m-%d %H:%M}",
            )
            for info in page.sessions
        ],
    )
    _print_more_hint(printer, is_whole=page.next_after is None, what="older sessions")


def _show_session(printer: Output, engine: MemoryEngine, path: NamespacePath, name: str, limit: int) -> None:
    session = engine.namespace(path).find_session(name)
    if session is None:
        raise SessionNotFoundError(
            f"no session {name!r} in {format_namespace(path)!r}: omit --session to list its sessions"
        )
    all_entries = session.entries()
    entries, is_whole = all_entries[-limit:], len(all_entries) <= limit
    messages = {message.id: message for message in session.latest(limit)}
    printer.print_table(
        {"session": to_json_value(session.info()), "entries": to_json_value(entries), "is_whole": is_whole},
        f"{format_namespace(path)}, {name}",
        ("role", "tier", "state", "tokens", "content"),
        [
            (
                entry.role or entry.kind,
                entry.tier,
                entry.state,
                entry.token_count,
                _format_message(entry.content, messages.get(entry.id)),
            )
            for entry in entries
        ],
    )
    _print_more_hint(printer, is_whole=is_whole, what="older messages")


def _print_more_hint(printer: Output, *, is_whole: bool, what: str) -> None:
    if not is_whole and not printer.is_json:
        printer.out.print(f"There are {what}. Use a higher --limit to show them.")


def _format_message(content: str, message: Message | None) -> str:
    calls = () if message is None else message.tool_calls
    return _shorten_line(" ".join([content, *(f"{call.name} {call.arguments}" for call in calls)]))


def _drop_empty_fields(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if value is not None}


def _shorten_line(text: str) -> str:
    # Cut before splitting: a message may be very long. Twice the length leaves room for white space.
    line = " ".join(text[: 2 * _SHOWN_CHARACTERS].split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}..."
