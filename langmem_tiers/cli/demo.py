"""Plays the bundled conversation and shows what the memory holds."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from langmem_tiers.cli.story import StoryClock, chapters, questions
from langmem_tiers.compression.facts import FactFinder
from langmem_tiers.compression.speech import speech
from langmem_tiers.core.budget import TokenBudget
from langmem_tiers.core.config import EngineConfig
from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.core.knowledge import KnowledgeCategory
from langmem_tiers.engine import MemoryEngine

if TYPE_CHECKING:
    from rich.console import Console

    from langmem_tiers.core.context import Context
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.recall import Hit
    from langmem_tiers.engine import Namespace

_TENANT = ("tidepool", "mara")
_BUDGET = 3000  # tokens for a context: less than any of the sessions takes
_PANEL = 900  # characters of a summary that are shown
_RUN_EVERY = 20  # messages between two runs of the optimizer
# Questions about a reversal, dates, an error, a URL, a port, money and a limit.
_ASK = (1, 3, 6, 8, 9, 10, 15, 16)
# What the agent learned for good, by category and key.
_LEARNED = (
    (
        KnowledgeCategory.USER_PREFERENCE,
        "answers",
        "short answers and British spelling, also in code comments",
    ),
    (KnowledgeCategory.USER_PREFERENCE, "deploy", "never deploy on Fridays"),
    (KnowledgeCategory.DOMAIN, "payment provider", "Stripe"),
    (KnowledgeCategory.DOMAIN, "payment provider", "Fjordpay, which replaced Stripe on 26 March"),
    (KnowledgeCategory.ERROR_PATTERN, "webhook 401", "check the signature over the raw request body"),
)
_NEW_SESSION = "08-weeks-later"
_NEW_QUESTION = "Which payment provider does the webhook belong to, and may I deploy the fix on Friday?"


def run_demo(console: Console, database: Path | None) -> None:
    """Play, then show sessions, tiers and what a new session can find."""
    if database is not None and database.exists():
        raise InvalidConfigError(
            f"{str(database)!r} exists already: name a new file, the demo starts from nothing"
        )
    clock = StoryClock()
    config = EngineConfig(budget=TokenBudget.of(_BUDGET))
    with (
        tempfile.TemporaryDirectory(prefix="langmem-tiers-") as folder,
        MemoryEngine(database or Path(folder) / "demo.db", config=config, clock=clock) as engine,
    ):
        tenant = engine.namespace(*_TENANT)
        console.print(_intro())
        contexts, milliseconds = _play(console, engine, clock)
        console.print(_sessions(tenant, contexts))
        console.print(_one_context(contexts))
        console.print(_tiers(tenant, contexts, milliseconds))
        console.print(_tuning(engine))
        console.print(_answers(tenant))
        console.print(_knowledge(tenant))
    if database is None:
        console.print(
            "The memory was temporary. To keep it:", f"  {_program()} demo --database tidepool.db", sep="\n"
        )
    else:
        console.print("The memory is in", str(database), markup=False)


def _program() -> str:
    # As the person called it: a command inside a virtual environment is not on the path.
    return "python -m langmem_tiers" if sys.argv[0].endswith("__main__.py") else sys.argv[0]


def _intro() -> Panel:
    count = sum(len(chapter.messages) for chapter in chapters())
    return Panel(
        f"Mara and her agent build [bold]Tidepool[/bold], a booking service for three aquariums:\n"
        f"{count} messages in {len(chapters())} sessions over {_weeks()} weeks, with tool output, errors, decisions "
        "and changes of mind. Each message is written to SQLite and on the disk before the next one is sent, and the "
        f"context for the model never takes more than {_BUDGET:,} tokens. No model, no network.",
        title="langmem-tiers demo",
        border_style="cyan",
    )


def _weeks() -> int:
    first, last = chapters()[0].messages[0].created_at, chapters()[-1].messages[-1].created_at
    return 0 if first is None or last is None else round((last - first).days / 7)


def _play(console: Console, engine: MemoryEngine, clock: StoryClock) -> tuple[dict[str, Context], float]:
    tenant, total = engine.namespace(*_TENANT), sum(len(chapter.messages) for chapter in chapters())
    contexts: dict[str, Context] = {}
    seconds = 0.0
    with Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("playing", total=total)
        for chapter in chapters():
            progress.update(task, description=_shortened(chapter.title, 34))
            session = tenant.session(chapter.session)
            for number, message in enumerate(chapter.messages, start=1):
                start = time.perf_counter()
                session.add(message)
                seconds += time.perf_counter() - start
                clock.follow(message.created_at)
                contexts[chapter.session] = session.build_context()
                if number % _RUN_EVERY == 0:
                    engine.optimizer.run(_TENANT)
                progress.advance(task)
        progress.update(task, description="all acknowledged, all durable")
    for learned in _LEARNED:
        tenant.knowledge.store(*learned)
    return contexts, seconds / total * 1000


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _sessions(tenant: Namespace, contexts: dict[str, Context]) -> Table:
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
        session = tenant.session(name)
        said = [message for message in session.messages() if not message.is_summary]
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


def _one_context(contexts: dict[str, Context]) -> Panel:
    name, context = max(contexts.items(), key=lambda pair: len(pair[1].messages[0].content))
    text = context.messages[0].content
    return Panel(
        Text(text if len(text) <= _PANEL else f"{text[:_PANEL]}…"),
        title=f"What stands for the older messages of {name}",
        border_style="dim",
    )


def _tiers(tenant: Namespace, contexts: dict[str, Context], milliseconds: float) -> Table:
    infos = tenant.sessions().sessions
    newest = list(contexts.values())[-1]
    promoted, known = list(tenant.long_term), list(tenant.knowledge)
    table = Table(title="Tiers", title_justify="left")
    table.add_column("tier")
    table.add_column("holds")
    table.add_column("tokens", justify="right")
    table.add_row(
        "working",
        f"the newest session as a prompt: {len(newest.messages)} messages with their frames",
        f"{newest.token_count:,}",
    )
    table.add_row(
        "short_term",
        f"all messages of {len(infos)} sessions and their summaries; {milliseconds:.1f} ms each until durable",
        f"{sum(info.token_count for info in infos):,}",
    )
    table.add_row(
        "long_term",
        f"{len(promoted)} entries with key facts, promoted automatically",
        f"{sum(entry.token_count for entry in promoted):,}",
    )
    table.add_row("knowledge", f"{len(known)} things that hold across sessions", "")
    table.add_row("[dim]episodic, procedural[/dim]", "[dim]not built yet[/dim]", "")
    return table


def _tuning(engine: MemoryEngine) -> Text:
    report = engine.optimizer.report(_TENANT)
    tuned = report.parameters
    return Text(
        f"The optimizer ran {report.total_optimizations} times and saved {report.total_tokens_saved:,} tokens. It now "
        f"shows the newest {tuned.full_message_window} messages in full, compresses from "
        f"{max(tuned.compression_trigger, tuned.target_usage):.0%} of the budget on and keeps what has a relevance of "
        f"{tuned.min_relevance:.2f} or more.\n"
    )


def _answers(tenant: Namespace) -> Table:
    session = tenant.session(_NEW_SESSION)
    table = Table(
        title=f"Weeks later, session {session.name}: {session.count()} messages of its own. "
        "Key words, chosen by hand, find what the others said:",
        title_justify="left",
        show_lines=True,
    )
    table.add_column("question, key words", ratio=2, overflow="fold")
    table.add_column("first hit", ratio=3, overflow="fold")
    for question in (questions()[number] for number in _ASK):
        hit = tenant.search(question.search, limit=1)[0]
        when = f"{hit.session}, {hit.entry.created_at:%d %b}\n"
        table.add_row(
            Text.assemble(question.text, "\n", (question.search, "cyan")),
            Text.assemble((when, "dim"), _excerpt(hit, question.search.split())),
        )
    return table


def _knowledge(tenant: Namespace) -> Panel:
    session = tenant.session(_NEW_SESSION)
    session.add("user", _NEW_QUESTION)
    context = session.build_context()
    past = tenant.knowledge.history(KnowledgeCategory.DOMAIN, "payment provider")
    return Panel(
        Text.assemble(
            (f"{_NEW_QUESTION}\n\n", "cyan"),
            context.messages[0].content,
            (f"\n\nNo longer true, but remembered: {', '.join(item.value for item in past)}", "dim"),
        ),
        title="What is known comes along with a question",
        border_style="cyan",
    )


def _excerpt(hit: Hit, words: list[str]) -> Text:
    content = " ".join(hit.entry.content.split())
    places = [place for word in words if (place := content.lower().find(word.lower())) >= 0]
    start = max(0, min(places, default=0) - 40)
    end = start + 260
    excerpt = Text(("…" if start else "") + content[start:end] + ("…" if len(content) > end else ""))
    excerpt.highlight_words(words, style="bold cyan", case_sensitive=False)
    return excerpt
