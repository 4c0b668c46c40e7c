"""Commands that look: what is there, and what would be found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    Database,
    IsJson,
    Limit,
    MaybeNamespace,
    MaybeSession,
    Namespace,
    Redis,
)
from langmem_tiers.cli.output import Teller, plain, told_errors
from langmem_tiers.cli.targets import known, opened
from langmem_tiers.common.namespaces import shown
from langmem_tiers.errors import InvalidInputError, SessionNotFoundError

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine

_SHOWN_CHARACTERS = 100


def status(database: Database, redis: Redis = None, *, json: IsJson = False) -> None:
    """Tell what a memory holds and takes, by tier; with --json by table, too."""
    teller = Teller(is_json=json)
    with told_errors(teller), opened(database, redis=redis) as engine:
        found, above = engine.statistics(), engine.redis
        teller.table(
            {**plain(found), "redis": plain(above)},
            f"{found.namespaces:,} namespaces, {found.sessions:,} sessions, {found.messages:,} messages, "
            f"{found.total_bytes:,} bytes",
            ("tier", "entries", "bytes, about"),
            [(name, f"{one.count:,}", f"{one.bytes:,}") for name, one in found.tiers.items()],
        )
        if json:
            return
        if found.estimated:
            teller.result(None, [f"Estimated: {', '.join(found.estimated)}"])
        if above is not None:
            teller.result(
                None, [f"Redis {above.label} {'answers' if above.is_connected else 'does not answer'}."]
            )


def inspect(
    database: Database,
    namespace: MaybeNamespace = None,
    session: MaybeSession = None,
    limit: Limit = 20,
    redis: Redis = None,
    *,
    json: IsJson = False,
) -> None:
    """Show namespaces, the sessions of one, or what is in a session: message by message, with its tier and state."""
    teller = Teller(is_json=json)
    with told_errors(teller), opened(database, redis=redis) as engine:
        if namespace is None:
            if session is not None:
                raise InvalidInputError(f"session {session!r} is of some namespace: say which, as acme/alice")
            _show_namespaces(teller, engine, limit)
        elif session is None:
            _show_sessions(teller, engine, known(engine, namespace), limit)
        else:
            _show_session(teller, engine, known(engine, namespace), session, limit)


def search(
    database: Database,
    namespace: Namespace,
    query: Annotated[str, typer.Argument(help="A question, or words.")],
    limit: Limit = 10,
    redis: Redis = None,
    *,
    words: Annotated[bool, typer.Option("--words", help="By words alone, without meaning.")] = False,
    json: IsJson = False,
) -> None:
    """Recall what answers a question, with the score and what gave it."""
    teller = Teller(is_json=json)
    embedder: Literal["offline"] | None = None if words else "offline"
    with told_errors(teller), opened(database, redis=redis, embedder=embedder) as engine:
        found = engine.namespace(known(engine, namespace)).recall(query, limit=limit)
        teller.table(
            {
                "query": query,
                "hits": [_hit(one) for one in map(plain, found.hits)],
                "problems": list(found.problems),
            },
            f"Found for {_line(query)!r}",
            ("score", "found by", "session", "what"),
            [
                (f"{one.score:.3f}", one.found_by, one.session or "-", _said(one.entry.content, one.message))
                for one in found.hits
            ],
        )
        for problem in found.problems:
            teller.err.print(problem)


def _show_namespaces(teller: Teller, engine: MemoryEngine, limit: int) -> None:
    found = engine.namespaces(limit=limit + 1)
    told = {"namespaces": [list(path) for path in found[:limit]], "is_whole": len(found) <= limit}
    teller.table(told, "Namespaces", ("namespace",), [(shown(path),) for path in found[:limit]])
    _tell_of_more(teller, is_whole=len(found) <= limit, what="namespaces, in the order of their names")


def _show_sessions(teller: Teller, engine: MemoryEngine, path: NamespacePath, limit: int) -> None:
    page = engine.namespace(path).sessions(limit=limit)
    teller.table(
        page,
        f"Sessions of {shown(path)}",
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
    _tell_of_more(teller, is_whole=page.next_after is None, what="sessions, which were begun before these")


def _show_session(teller: Teller, engine: MemoryEngine, path: NamespacePath, name: str, limit: int) -> None:
    session = engine.namespace(path).find_session(name)
    if session is None:
        raise SessionNotFoundError(
            f"{shown(path)} has no session {name!r}: inspect the namespace to see them"
        )
    all_entries = session.entries()
    entries, is_whole = all_entries[-limit:], len(all_entries) <= limit
    messages = {one.id: one for one in session.latest(limit)}
    teller.table(
        {"session": plain(session.info()), "entries": plain(entries), "is_whole": is_whole},
        f"{shown(path)}, {name}",
        ("role", "tier", "state", "tokens", "what"),
        [
            (
                one.role or one.kind,
                one.tier,
                one.state,
                one.token_count,
                _said(one.content, messages.get(one.id)),
            )
            for one in entries
        ],
    )
    _tell_of_more(teller, is_whole=is_whole, what="messages, which are older")


def _tell_of_more(teller: Teller, *, is_whole: bool, what: str) -> None:
    if not is_whole and not teller.is_json:
        teller.out.print(f"There are more {what}: --limit shows more of them.")


def _said(content: str, message: Message | None) -> str:
    calls = () if message is None else message.tool_calls
    return _line(" ".join([content, *(f"{call.name} {call.arguments}" for call in calls)]))


def _hit(told: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in told.items() if value is not None}


def _line(text: str) -> str:
    line = " ".join(text[: 2 * _SHOWN_CHARACTERS].split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}..."
