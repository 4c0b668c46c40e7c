"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from langmem_tiers.common.budget import TokenBudget

DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database", "-d", envvar="LANGMEM_TIERS_DATABASE", help="A SQLite file, or the URL of a database."
    ),
]
RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis",
        envvar="LANGMEM_TIERS_REDIS",
        help="The URL of the Redis that agents use; URL#prefix, if their keys begin otherwise.",
    ),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        help="Tokens that your agents have for memory: parameters are adapted to them. "
        f"{TokenBudget().available:,}, if left out.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it: what it does cannot be undone.")]
NamespaceArgument = Annotated[str, typer.Argument(help="Labels parted by slashes, such as acme/alice.")]
OptionalNamespaceArgument = Annotated[
    str | None, typer.Argument(help="Labels parted by slashes, such as acme/alice; all, if left out.")
]
SessionOption = Annotated[str | None, typer.Option("--session", "-s", help="Only this session.")]
LimitOption = Annotated[int, typer.Option("--limit", "-l", min=1, max=10_000, help="How many at most.")]
