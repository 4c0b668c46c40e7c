"""What the demo shows of the memory: sessions, tiers and what the optimizer did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from langmem_tiers.cli.demo.conversation import chapters
from langmem_tiers.compression.facts import FactFinder
from langmem_tiers.compression.speech import speech

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.core.context import Context
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.tuning import EfficiencyReport
    from langmem_tiers.namespace import Namespace


def intro(budget: int) -> Panel:
    """What is going to happen."""
    count = sum(len(chapter.messages) for chapter in chapters())
    return Panel(
        f"Mara and her agent build [bold]Tidepool[/bold], a booking service for three aquariums:\n"
        f"{count} messages in {len(chapters())} threads over {_weeks()} weeks, with tool output, errors, decisions "
        "and changes of mind. Each message is written to SQLite and on the disk before the next one is sent, and no "
        f"prompt takes more than {budget:,} tokens. Weeks later two agents are asked about it in new threads. No "
        "network, and a model that can only quote its prompt.",
        title="langmem-tiers demo",
        border_style="cyan",
    )


def _weeks() -> int:
    first, last = chapters()[0].messages[0].created_at, chapters()[-1].messages[-1].created_at
    return 0 if first is None or last is None else round((last - first).days / 7)


def sessions(tenant: Namespace, contexts: Mapping[str, Context]) -> Table:
    """What each session takes, and what a prompt takes of it."""
    table = Table(
        title="Sessions: the record stays whole, what the model sees stays small",
        title_justify="left",
        caption="Facts: addresses, paths, numbers, dates, commands, errors, decisions against something. "
        "What a context has no room for stays in the record.",
        caption_justify="left",
    )
    table.add_column("session", no_wrap=True)
    for heading in ("messages", "tokens", "in context", "in full", "facts kept"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, context in contexts.items():
        said = [message for message in tenant.session(name).messages() if not message.is_summary]
        table.add_row(
            name,
            f"{len(said)}",
            f"{sum(message.token_count for message in said):,}",
            f"{context.token_count:,}",
            f"{len(context.full)}",
            _facts_kept(said, context),
        )
    return table


def _facts_kept(said: list[Message], context: Context) -> str:
    finder = FactFinder()
    facts = {fact.text for message in said for fact in finder.find(speech(message))}
    text = "\n".join(speech(message) for message in context.messages)
    return f"{sum(fact in text for fact in facts) / max(1, len(facts)):.0%}"


def tiers(tenant: Namespace, contexts: Mapping[str, Context], milliseconds: float) -> Table:
    """What each tier holds.

    Args:
        tenant: Whose.
        contexts: The newest one last.
        milliseconds: What storing a message took.
    """
    infos = tenant.sessions().sessions
    newest = list(contexts.values())[-1]
    promoted, known = list(tenant.long_term), list(tenant.knowledge)
    table = Table(title="Tiers", title_justify="left")
    table.add_column("tier")
    table.add_column("holds")
    table.add_column("tokens", justify="right")
    table.add_row(
        "working",
        f"the last session as a prompt: {len(newest.messages)} messages with their frames",
        f"{newest.token_count:,}",
    )
    table.add_row(
        "short_term",
        f"all messages of {len(infos)} sessions, the new threads among them, and their summaries; "
        f"{milliseconds:.1f} ms each until durable",
        f"{sum(info.token_count for info in infos):,}",
    )
    table.add_row(
        "long_term",
        f"{len(promoted)} entries with key facts, promoted or learned automatically",
        f"{sum(entry.token_count for entry in promoted):,}",
    )
    table.add_row("knowledge", f"{len(known)} things that hold across sessions", "")
    table.add_row("episodic", f"{len(list(tenant.episodes))} moments: decisions, problems, what was done", "")
    table.add_row("procedural", "nothing here: what agents that act have learned to do", "")
    return table


def tuning(report: EfficiencyReport) -> Text:
    """What the optimizer did."""
    tuned = report.parameters
    return Text(
        f"The optimizer ran {report.total_optimizations} times and saved {report.total_tokens_saved:,} tokens. It now "
        f"shows the newest {tuned.full_message_window} messages in full, compresses from "
        f"{max(tuned.compression_trigger, tuned.target_usage):.0%} of the budget on and keeps what has a relevance of "
        f"{tuned.min_relevance:.2f} or more.\n"
    )
