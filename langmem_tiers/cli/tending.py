"""Commands that tend a memory: tidy and tune it, embed it anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from langmem_tiers.cli.carrying import all_namespaces
from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    Database,
    IsJson,
    MaybeNamespace,
    MaybeSession,
    Yes,
)
from langmem_tiers.cli.places import opened, path_of, shown
from langmem_tiers.cli.telling import FAILED, Teller, plain, told_errors
from langmem_tiers.core.errors import InvalidInputError

if TYPE_CHECKING:
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.engine import MemoryEngine


def optimize(
    database: Database,
    namespace: MaybeNamespace = None,
    session: MaybeSession = None,
    *,
    json: IsJson = False,
) -> None:
    """Tidy the sessions that changed since the last time, and adapt the parameters to them."""
    teller = Teller(is_json=json)
    with told_errors(teller), opened(database) as engine:
        if session is not None and namespace is None:
            raise InvalidInputError(f"session {session!r} is of some namespace: say which, as acme/alice")
        paths = _chosen(engine, namespace)
        runs = {}
        with teller.progress("Optimizing") as done:
            for number, path in enumerate(paths, 1):
                runs[shown(path)] = engine.optimizer.run(path, session)
                done(number, len(paths))
        teller.table(
            {name: plain(run) for name, run in runs.items()},
            "Optimized",
            ("namespace", "tokens saved", "why"),
            [
                (name, "-", "another process is at it")
                if run is None
                else (name, run.tokens_saved, run.reason)
                for name, run in runs.items()
            ],
        )


def forget(  # noqa: PLR0913 - one for each thing that can be forgotten
    database: Database,
    namespace: MaybeNamespace = None,
    session: MaybeSession = None,
    message: Annotated[
        str | None, typer.Option("--message", help="Only this message of the session.")
    ] = None,
    entry: Annotated[str | None, typer.Option("--entry", help="Only this entry of the namespace.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Every namespace that has this label.")] = None,
    *,
    yes: Yes = False,
    json: IsJson = False,
) -> None:
    """Erase a user, a namespace, a session, a message or an entry everywhere, with what was made of it."""
    teller = Teller(is_json=json)
    asked = {"namespace": namespace, "session": session, "message": message, "entry": entry, "user": user}
    named = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
    if named:
        teller.confirm(f"erase {named} for good", yes=yes)
    with told_errors(teller), opened(database) as engine:
        receipt = engine.forget(
            namespace=None if namespace is None else path_of(namespace),
            session=session,
            message=message,
            entry=entry,
            user=user,
        )
        erased = {name: count for name, count in plain(receipt.counts).items() if count}
        lines = [
            f"Receipt {receipt.id}: {', '.join(f'{n} {name}' for name, n in erased.items()) or 'nothing was there'}."
        ]
        teller.result(receipt.as_dict(), [*lines, *receipt.left, *receipt.notes])
        if not receipt.is_complete:
            raise typer.Exit(FAILED)


def maintain(database: Database, *, yes: Yes = False, json: IsJson = False) -> None:
    """Erase what is older than the retention of 90 days, drop what expired, and compact; once among processes."""
    teller = Teller(is_json=json)
    teller.confirm("erase messages that are older than 90 days, and compact the database", yes=yes)
    with told_errors(teller), opened(database) as engine:
        report = engine.maintenance.run()
        told = (
            "Another process is at it."
            if report.is_elsewhere
            else f"{report.erased.messages} messages were erased."
        )
        teller.result(report.as_dict(), [told, *report.problems])


def reembed(database: Database, namespace: MaybeNamespace = None, *, json: IsJson = False) -> None:
    """Embed everything that has no vector of the embedder in use."""
    teller = Teller(is_json=json)
    with told_errors(teller), opened(database, embedder="offline") as engine:
        paths = _chosen(engine, namespace)
        embedded = {}
        with teller.progress("Embedding") as done:
            for number, path in enumerate(paths, 1):
                embedded[shown(path)] = engine.namespace(path).embed()
                done(number, len(paths))
        total = sum(embedded.values())
        teller.result(
            {"embedded": embedded, "total": total},
            [f"{total} texts of {len(paths)} namespaces were embedded."],
        )


def _chosen(engine: MemoryEngine, namespace: str | None) -> list[NamespacePath]:
    return list(all_namespaces(engine)) if namespace is None else [path_of(namespace)]
