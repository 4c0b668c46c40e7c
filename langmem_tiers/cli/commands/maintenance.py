"""Commands for maintenance: optimize, forget, maintain and reembed."""

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
from langmem_tiers.cli.output import (
    EXIT_FAILED,
    EXIT_RUNNING_ELSEWHERE,
    Output,
    format_count,
    report_errors,
    to_json_value,
)
from langmem_tiers.cli.targets import open_engine, require_namespace
from langmem_tiers.common.namespaces import format_namespace, parse_namespace
from langmem_tiers.config import MaintenanceConfig
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.maintenance.models import MaintenanceReport

# The names of ``ErasedCounts`` are plurals, most of them with "s".
_SINGULAR_KINDS = {"summaries": "summary", "entries": "entry", "knowledge": "knowledge value"}
_PLURAL_KINDS = {"knowledge": "knowledge values"}


def optimize_command(
    database: DatabaseOption,
    namespace: OptionalNamespaceArgument = None,
    session: SessionOption = None,
    redis: RedisOption = None,
    budget: BudgetOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Optimize the sessions that changed since the last run, and adapt the parameters to them."""
    printer = Output(is_json=json)
    with report_errors(printer), open_engine(database, redis=redis, budget=budget) as engine:
        if session is not None and namespace is None:
            raise InvalidInputError(f"--session {session!r} requires a namespace, for example acme/alice")
        paths = _resolve_namespaces(engine, namespace)
        runs = {}
        with printer.show_progress("Optimizing") as update_progress:
            for number, path in enumerate(paths, 1):
                runs[format_namespace(path)] = engine.optimizer.run(path, session)
                update_progress(number, len(paths))
        printer.print_table(
            {name: to_json_value(run) for name, run in runs.items()},
            _build_optimize_title(engine.config.budget.available, is_default=budget is None),
            ("namespace", "tokens saved", "reason"),
            [
                (name, "-", "another process holds the lock")
                if run is None
                else (name, run.tokens_saved, run.reason)
                for name, run in runs.items()
            ],
        )
        if None in runs.values():
            raise typer.Exit(EXIT_RUNNING_ELSEWHERE)


def forget_command(  # noqa: PLR0913 - one for each kind of data that can be erased
    database: DatabaseOption,
    namespace: Annotated[
        str | None,
        typer.Argument(help="Labels separated by slashes, for example acme/alice. Omit with --user."),
    ] = None,
    session: SessionOption = None,
    message: Annotated[
        str | None, typer.Option("--message", help="Only this message of the session.")
    ] = None,
    entry: Annotated[str | None, typer.Option("--entry", help="Only this entry of the namespace.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Every namespace with this label.")] = None,
    redis: RedisOption = None,
    *,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Erase a user, namespace, session, message or entry everywhere, with all data derived from it."""
    printer = Output(is_json=json)
    options = {"namespace": namespace, "session": session, "message": message, "entry": entry, "user": user}
    target = ", ".join(f"{name} {value!r}" for name, value in options.items() if value is not None)
    with report_errors(printer):
        if not target:
            raise InvalidInputError(
                "nothing to forget: pass a namespace, for example acme/alice, or --user with a label"
            )
        printer.confirm(f"erase {target} permanently{_describe_missing_redis(redis)}", yes=yes)
        with open_engine(database, redis=redis) as engine, printer.show_progress("Forgetting", counts=False):
            receipt = engine.forget(
                namespace=None if namespace is None else parse_namespace(namespace),
                session=session,
                message=message,
                entry=entry,
                user=user,
            )
        notes = [*receipt.notes, *_build_redis_notes(redis)]
        erased = {name: count for name, count in to_json_value(receipt.counts).items() if count}
        summary = ", ".join(_format_erased(count, kind) for kind, count in erased.items())
        printer.print_result(
            receipt.as_dict() | {"notes": notes},
            [
                f"Receipt {receipt.id}: {f'erased {summary}' if erased else 'nothing to erase'}.",
                *receipt.left,
                *notes,
            ],
        )
        if not receipt.is_complete:
            raise typer.Exit(EXIT_FAILED)


def maintain_command(
    database: DatabaseOption,
    days: Annotated[
        float | None, typer.Option("--days", help="Erase messages older than this many days. Default: 90.")
    ] = None,
    redis: RedisOption = None,
    *,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Do not erase messages by age.")] = False,
    compacts: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Compact the database to free unused space.")
    ] = True,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Erase messages older than --days (default: 90), delete expired items and compact; in one process at a time."""
    printer = Output(is_json=json)
    with report_errors(printer):
        config = _build_maintenance_config(days, keep_all=keep_all, compacts=compacts)
        printer.confirm(f"{_describe_steps(config)}{_describe_missing_redis(redis)}", yes=yes)
        with (
            open_engine(database, redis=redis, maintenance=config) as engine,
            printer.show_progress("Erasing") as update_progress,
        ):
            report = engine.maintenance.run(lambda erased: update_progress(erased, None))
        notes = _build_redis_notes(redis) if report.erased.total else []
        printer.print_result(
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
    """Embed messages without a vector of the offline embedder; entries and items are embedded when searched."""
    printer = Output(is_json=json)
    with report_errors(printer), open_engine(database, redis=redis, embedder="offline") as engine:
        paths, embedded = _resolve_namespaces(engine, namespace), dict[str, int]()
        with printer.show_progress("Embedding") as update_progress:
            for path in paths:
                # One bar counts the messages of all namespaces; "before" are those of the namespaces already done.
                before = sum(embedded.values())
                embedded[format_namespace(path)] = engine.namespace(path).embed(
                    lambda count, step_total, before=before: update_progress(
                        before + count, before + step_total
                    )  # type: ignore[misc]
                )
        total = sum(embedded.values())
        printer.print_result(
            {"embedded": embedded, "total": total},
            [f"Embedded {format_count(total, 'message')} in {format_count(len(paths), 'namespace')}."],
        )


def _build_optimize_title(budget: int, *, is_default: bool) -> str:
    title = f"Optimized for a budget of {budget:,} tokens"
    return f"{title} (default; change it with --budget)" if is_default else title


def _build_maintenance_config(days: float | None, *, keep_all: bool, compacts: bool) -> MaintenanceConfig:
    if keep_all and days is not None:
        raise InvalidInputError(f"--days {days:g} and --keep-all exclude each other: pass only one of them")
    config = MaintenanceConfig(compaction=compacts)
    return config if days is None and not keep_all else replace(config, retention_days=days)


def _describe_steps(config: MaintenanceConfig) -> str:
    steps = [f"erase messages older than {config.retention_days:g} days"] if config.retention_days else []
    steps.append("delete expired items")
    if config.compaction:
        steps.append("compact the database")
    *first, last = steps
    return f"{', '.join(first)}{',' if len(first) > 1 else ''} and {last}" if first else last


def _format_erased(count: int, kind: str) -> str:
    return format_count(
        count, _SINGULAR_KINDS.get(kind, kind.removesuffix("s")), plural=_PLURAL_KINDS.get(kind, kind)
    )


def _describe_report(report: MaintenanceReport) -> list[str]:
    if report.is_elsewhere:
        return ["Another process holds the lock. Nothing was done."]
    messages = format_count(report.erased.messages, "message")
    lines = [f"Erased {messages} and {format_count(report.expired_items, 'expired item')}."]
    if report.compacted is not None:
        before, after = report.compacted.bytes_before, report.compacted.bytes_after
        lines.append(
            f"Database size: {before:,} bytes before, {after:,} bytes after."
            if after < before
            else f"Database size: {after:,} bytes; compacting freed no space."
        )
    if not report.is_complete:
        lines.append("Maintenance stopped before the end. Run the command again to continue.")
    return lines


def _describe_missing_redis(redis: str | None) -> str:
    return (
        "" if redis else "; if your agents use Redis, pass --redis, otherwise copies remain there for a while"
    )


def _build_redis_notes(redis: str | None) -> list[str]:
    note = "Redis was not checked. If your agents use it, pass --redis next time"
    return [] if redis else [f"{note}; by default its copies expire after a day."]


def _resolve_namespaces(engine: MemoryEngine, namespace: str | None) -> list[NamespacePath]:
    return list(list_all_namespaces(engine)) if namespace is None else [require_namespace(engine, namespace)]
