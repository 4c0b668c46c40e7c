"""Options shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from langmem_tiers.common.budget import TokenBudget

DatabaseOption = Annotated[
    str,
    typer.Option("--database", "-d", envvar="LANGMEM_TIERS_DATABASE", help="SQLite file or database URL."),
]
RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis",
        envvar="LANGMEM_TIERS_REDIS",
        help="URL of the Redis that your agents use; URL#prefix if they use another key prefix.",
    ),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        help="Tokens that your agents have for memory; parameters are adapted to this budget. "
        f"Default: {TokenBudget().available:,}.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Confirm. This cannot be undone.")]
NamespaceArgument = Annotated[
    str, typer.Argument(help="Labels separated by slashes, for example acme/alice.")
]
OptionalNamespaceArgument = Annotated[
    str | None,
    typer.Argument(help="Labels separated by slashes, for example acme/alice. Default: all namespaces."),
]
SessionOption = Annotated[str | None, typer.Option("--session", "-s", help="Only this session.")]
LimitOption = Annotated[int, typer.Option("--limit", "-l", min=1, max=10_000, help="Maximum number of rows.")]
