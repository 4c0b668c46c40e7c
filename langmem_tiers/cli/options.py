"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from langmem_tiers.common.budget import TokenBudget

Database = Annotated[
    str,
    typer.Option(
        "--database", "-d", envvar="LANGMEM_TIERS_DATABASE", help="A SQLite file, or the URL of a database."
    ),
]
Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        envvar="LANGMEM_TIERS_REDIS",
        help="The URL of the Redis that agents use; URL#prefix, if their keys begin otherwise.",
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        help="Tokens that your agents have for memory: parameters are adapted to them. "
        f"{TokenBudget().available:,}, if left out.",
    ),
]
IsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it: what it does cannot be undone.")]
Namespace = Annotated[str, typer.Argument(help="Labels parted by slashes, such as acme/alice.")]
MaybeNamespace = Annotated[
    str | None, typer.Argument(help="Labels parted by slashes, such as acme/alice; all, if left out.")
]
MaybeSession = Annotated[str | None, typer.Option("--session", "-s", help="Only this session.")]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, max=10_000, help="How many at most.")]
