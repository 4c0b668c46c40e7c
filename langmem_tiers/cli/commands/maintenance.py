"""Commands that tend a memory: tidy and tune it, embed it anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from langmem_tiers.cli.commands.export import list_all_namespaces
from langmem_tiers.cli.options import (  # noqa: TC001 - typer reads the annotations at run time
    BudgetOption,
    DatabaseOption,
    JsonOption,
    OptionalNamespaceArgument,
    RedisOption,
    SessionOption,
    YesOption,
)
from langmem_tiers.cli.output import EXIT_FAILED, EXIT_RUNNING_ELSEWHERE, Output, report_errors, to_json_value
from langmem_tiers.cli.targets import open_engine, require_namespace
from langmem_tiers.common.namespaces import format_namespace, parse_namespace
from langmem_tiers.config import MaintenanceConfig
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.maintenance.models import MaintenanceReport


def optimize_command(
    database: DatabaseOption,
    namespace: OptionalNamespaceArgument = None,
    session: SessionOption = None,
    redis: RedisOption = None,
    budget: BudgetOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Tidy the sessions that changed since the last time, and adapt the parameters to them."""
    teller = Output(is_json=json)
    with report_errors(teller), open_engine(database, redis=redis, budget=budget) as engine:
        if session is not None and namespace is None:
            raise InvalidInputError(f"session {session!r} is of some namespace: say which, as acme/alice")
        paths = _resolve_namespaces(engine, namespace)
        runs = {}
        with teller.show_progress("Optimizing") as done:
            for number, path in enumerate(paths, 1):
                runs[format_namespace(path)] = engine.optimizer.run(path, session)
                done(number, len(paths))
        teller.print_table(
            {name: to_json_value(run) for name, run in runs.items()},
            _build_optimize_title(engine.config.budget.available, is_default=budget is None),
            ("namespace", "tokens saved", "why"),
            [
                (name, "-", "another process is at it")
                if run is None
                else (name, run.tokens_saved, run.reason)
                for name, run in runs.items()
            ],
        )
        if None in runs.values():
            raise typer.Exit(EXIT_RUNNING_ELSEWHERE)


def forget_command(  # noqa: PLR0913 - one for each thing that can be forgotten
    database: DatabaseOption,
    namespace: Annotated[
        str | None, typer.Argument(help="Labels parted by slashes, such as acme/alice; none with --user.")
    ] = None,
    session: SessionOption = None,
    message: Annotated[
        str | None, typer.Option("--message", help="Only this message of the session.")
    ] = None,
    entry: Annotated[str | None, typer.Option("--entry", help="Only this entry of the namespace.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Every namespace that has this label.")] = None,
    redis: RedisOption = None,
    *,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Erase a user, a namespace, a session, a message or an entry everywhere, with what was made of it."""
    teller = Output(is_json=json)
    asked = {"namespace": namespace, "session": session, "message": message, "entry": entry, "user": user}
    named = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
    with report_errors(teller):
        if not named:
            raise InvalidInputError("name what to forget: a namespace, as acme/alice, or --user with a label")
        teller.confirm(f"erase {named} for good{_describe_missing_redis(redis)}", yes=yes)
        with open_engine(database, redis=redis) as engine, teller.show_progress("Forgetting", counts=False):
            receipt = engine.forget(
                namespace=None if namespace is None else parse_namespace(namespace),
                session=session,
                message=message,
                entry=entry,
                user=user,
            )
        notes = [*receipt.notes, *_build_redis_notes(redis)]
        erased = {name: count for name, count in to_json_value(receipt.counts).items() if count}
        counted = ", ".join(f"{n} {name}" for name, n in erased.items()) or "nothing was there"
        teller.print_result(
            receipt.as_dict() | {"notes": notes},
            [f"Receipt {receipt.id}: {counted}.", *receipt.left, *notes],
        )
        if not receipt.is_complete:
            raise typer.Exit(EXIT_FAILED)


def maintain_command(
    database: DatabaseOption,
    days: Annotated[
        float | None, typer.Option("--days", help="Messages older than that are erased; 90, if left out.")
    ] = None,
    redis: RedisOption = None,
    *,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Erase no message for its age.")] = False,
    compacts: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Whether unused room is given back.")
    ] = True,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Erase messages that are older than 90 days, drop what expired, and compact; once among processes."""
    teller = Output(is_json=json)
    with report_errors(teller):
        config = _build_maintenance_config(days, keep_all=keep_all, compacts=compacts)
        teller.confirm(f"{_describe_steps(config)}{_describe_missing_redis(redis)}", yes=yes)
        with (
            open_engine(database, redis=redis, maintenance=config) as engine,
            teller.show_progress("Erasing") as done,
        ):
            report = engine.maintenance.run(lambda erased: done(erased, None))
        notes = _build_redis_notes(redis) if report.erased.total else []
        teller.print_result(
            report.as_dict() | {"notes": notes}, [*_describe_report(report), *report.problems, *notes]
        )
        if report.is_elsewhere:
            raise typer.Exit(EXIT_RUNNING_ELSEWHERE)
        if report.problems or not report.is_complete:
            raise typer.Exit(EXIT_FAILED)


def reembed_command(
    database: DatabaseOption,
    namespace: OptionalNamespaceArgument = None,
    redis: RedisOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Embed messages that have no vector of the offline embedder; entries and items get theirs when searched."""
    teller = Output(is_json=json)
    with report_errors(teller), open_engine(database, redis=redis, embedder="offline") as engine:
        paths, embedded = _resolve_namespaces(engine, namespace), dict[str, int]()
        with teller.show_progress("Embedding") as done:
            for path in paths:
                before = sum(embedded.values())
                embedded[format_namespace(path)] = engine.namespace(path).embed(
                    lambda some, of, before=before: done(before + some, before + of)  # type: ignore[misc]
                )
        total = sum(embedded.values())
        teller.print_result(
            {"embedded": embedded, "total": total},
            [f"{total} messages of {len(paths)} namespaces were embedded."],
        )


def _build_optimize_title(budget: int, *, is_default: bool) -> str:
    told = f"Optimized for a budget of {budget:,} tokens"
    return f"{told}, the default: --budget, if your agents have another" if is_default else told


def _build_maintenance_config(days: float | None, *, keep_all: bool, compacts: bool) -> MaintenanceConfig:
    if keep_all and days is not None:
        raise InvalidInputError(f"--days {days:g} and --keep-all contradict each other: say one of them")
    config = MaintenanceConfig(compaction=compacts)
    return config if days is None and not keep_all else replace(config, retention_days=days)


def _describe_steps(config: MaintenanceConfig) -> str:
    aged = (
        f"erase messages that are older than {config.retention_days:g} days, "
        if config.retention_days
        else ""
    )
    return f"{aged}drop items that expired" + (", and compact the database" if config.compaction else "")


def _describe_report(report: MaintenanceReport) -> list[str]:
    if report.is_elsewhere:
        return ["Another process is at it: nothing was done here."]
    told = [f"{report.erased.messages:,} messages and {report.expired_items:,} expired items were erased."]
    if report.compacted is not None:
        before, after = report.compacted.bytes_before, report.compacted.bytes_after
        told.append(f"The database took {before:,} bytes, and takes {after:,}.")
    if not report.is_complete:
        told.append("It was stopped before its end: run it again, it goes on there.")
    return told


def _describe_missing_redis(redis: str | None) -> str:
    return (
        "" if redis else "; if agents use a Redis, name it with --redis, or it keeps its copies for a while"
    )


def _build_redis_notes(redis: str | None) -> list[str]:
    told = "Redis was not looked at: if agents use one, name it with --redis next time"
    return [] if redis else [f"{told}; it keeps what it has of this for a day, if they set no other time"]


def _resolve_namespaces(engine: MemoryEngine, namespace: str | None) -> list[NamespacePath]:
    return list(list_all_namespaces(engine)) if namespace is None else [require_namespace(engine, namespace)]
