"""Commands that look: what is there, and what would be found."""

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
from langmem_tiers.cli.output import Output, report_errors, to_json_value
from langmem_tiers.cli.targets import open_engine, require_namespace
from langmem_tiers.common.namespaces import format_namespace
from langmem_tiers.errors import InvalidInputError, SessionNotFoundError

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine

_SHOWN_CHARACTERS = 100


def status_command(database: DatabaseOption, redis: RedisOption = None, *, json: JsonOption = False) -> None:
    """Tell what a memory holds and takes, by tier; with --json by table, too."""
    teller = Output(is_json=json)
    with report_errors(teller), open_engine(database, redis=redis) as engine:
        found, above = engine.statistics(), engine.redis
        teller.print_table(
            {**to_json_value(found), "redis": to_json_value(above)},
            f"{found.namespaces:,} namespaces, {found.sessions:,} sessions, {found.messages:,} messages, "
            f"{found.total_bytes:,} bytes",
            ("tier", "entries", "bytes, about"),
            [(name, f"{one.count:,}", f"{one.bytes:,}") for name, one in found.tiers.items()],
        )
        if json:
            return
        if found.estimated:
            teller.print_result(None, [f"Estimated: {', '.join(found.estimated)}"])
        if above is not None:
            teller.print_result(
                None, [f"Redis {above.label} {'answers' if above.is_connected else 'does not answer'}."]
            )


def inspect_command(
    database: DatabaseOption,
    namespace: OptionalNamespaceArgument = None,
    session: SessionOption = None,
    limit: LimitOption = 20,
    redis: RedisOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show namespaces, the sessions of one, or what is in a session: message by message, with its tier and state."""
    teller = Output(is_json=json)
    with report_errors(teller), open_engine(database, redis=redis) as engine:
        if namespace is None:
            if session is not None:
                raise InvalidInputError(f"session {session!r} is of some namespace: say which, as acme/alice")
            _show_namespaces(teller, engine, limit)
        elif session is None:
            _show_sessions(teller, engine, require_namespace(engine, namespace), limit)
        else:
            _show_session(teller, engine, require_namespace(engine, namespace), session, limit)


def search_command(
    database: DatabaseOption,
    namespace: NamespaceArgument,
    query: Annotated[str, typer.Argument(help="A question, or words.")],
    limit: LimitOption = 10,
    redis: RedisOption = None,
    *,
    words: Annotated[bool, typer.Option("--words", help="By words alone, without meaning.")] = False,
    json: JsonOption = False,
) -> None:
    """Recall what answers a question, with the score and what gave it."""
    teller = Output(is_json=json)
    embedder: Literal["offline"] | None = None if words else "offline"
    with report_errors(teller), open_engine(database, redis=redis, embedder=embedder) as engine:
        found = engine.namespace(require_namespace(engine, namespace)).recall(query, limit=limit)
        teller.print_table(
            {
                "query": query,
                "hits": [_drop_empty_fields(one) for one in map(to_json_value, found.hits)],
                "problems": list(found.problems),
            },
            f"Found for {_shorten_line(query)!r}",
            ("score", "found by", "session", "what"),
            [
                (
                    f"{one.score:.3f}",
                    one.found_by,
                    one.session or "-",
                    _format_message(one.entry.content, one.message),
                )
                for one in found.hits
            ],
        )
        for problem in found.problems:
            teller.err.print(problem)


def _show_namespaces(teller: Output, engine: MemoryEngine, limit: int) -> None:
    found = engine.namespaces(limit=limit + 1)
    told = {"namespaces": [list(path) for path in found[:limit]], "is_whole": len(found) <= limit}
    teller.print_table(
        told, "Namespaces", ("namespace",), [(format_namespace(path),) for path in found[:limit]]
    )
    _print_more_hint(teller, is_whole=len(found) <= limit, what="namespaces, in the order of their names")


def _show_sessions(teller: Output, engine: MemoryEngine, path: NamespacePath, limit: int) -> None:
    page = engine.namespace(path).sessions(limit=limit)
    teller.print_table(
        page,
        f"Sessions of {format_namespace(path)}",
        ("session", "messages", "tokens", "compressed", "last changed"),
        [
            (
                one.name,
                one.message_count,
                one.token_count,
                one.compressed_count,
                f"{one.updated_at:%Y-%m-%d %H:%M}",
            )
            for one in page.sessions
        ],
    )
    _print_more_hint(teller, is_whole=page.next_after is None, what="sessions, which were begun before these")


def _show_session(teller: Output, engine: MemoryEngine, path: NamespacePath, name: str, limit: int) -> None:
    session = engine.namespace(path).find_session(name)
    if session is None:
        raise SessionNotFoundError(
            f"{format_namespace(path)} has no session {name!r}: inspect the namespace to see them"
        )
    all_entries = session.entries()
    entries, is_whole = all_entries[-limit:], len(all_entries) <= limit
    messages = {one.id: one for one in session.latest(limit)}
    teller.print_table(
        {"session": to_json_value(session.info()), "entries": to_json_value(entries), "is_whole": is_whole},
        f"{format_namespace(path)}, {name}",
        ("role", "tier", "state", "tokens", "what"),
        [
            (
                one.role or one.kind,
                one.tier,
                one.state,
                one.token_count,
                _format_message(one.content, messages.get(one.id)),
            )
            for one in entries
        ],
    )
    _print_more_hint(teller, is_whole=is_whole, what="messages, which are older")


def _print_more_hint(teller: Output, *, is_whole: bool, what: str) -> None:
    if not is_whole and not teller.is_json:
        teller.out.print(f"There are more {what}: --limit shows more of them.")


def _format_message(content: str, message: Message | None) -> str:
    calls = () if message is None else message.tool_calls
    return _shorten_line(" ".join([content, *(f"{call.name} {call.arguments}" for call in calls)]))


def _drop_empty_fields(told: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in told.items() if value is not None}


def _shorten_line(text: str) -> str:
    line = " ".join(text[: 2 * _SHOWN_CHARACTERS].split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}..."
