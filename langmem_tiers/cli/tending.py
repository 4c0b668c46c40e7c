"""Commands that tend a memory: tidy and tune it, embed it anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.cli.carrying import all_namespaces
from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    Database,
    IsJson,
    MaybeNamespace,
    MaybeSession,
)
from langmem_tiers.cli.places import opened, path_of, shown
from langmem_tiers.cli.telling import Teller, plain, told_errors
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
