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

from langmem_tiers.cli.story import chapters, questions
from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.scoring.tokens import count_messages
from langmem_tiers.scoring.tokens.estimates import ContentAwareCounter

if TYPE_CHECKING:
    from rich.console import Console

    from langmem_tiers.cli.story import Chapter
    from langmem_tiers.core.reports import SearchHit
    from langmem_tiers.engine import Namespace

_TENANT = ("tidepool", "mara")
_KEEP = 12  # messages of each session that stay in sight behind its summary
# Questions about a reversal, dates, an error, a URL, a port, money and a limit.
_ASK = (1, 3, 6, 8, 9, 10, 15, 16)


def run_demo(console: Console, database: Path | None) -> None:
    """Play, then show sessions, tiers and what a new session can find."""
    if database is not None and database.exists():
        raise InvalidConfigError(
            f"{str(database)!r} exists already: name a new file, the demo starts from nothing"
        )
    with (
        tempfile.TemporaryDirectory(prefix="langmem-tiers-") as folder,
        MemoryEngine(database or Path(folder) / "demo.db") as engine,
    ):
        tenant = engine.namespace(*_TENANT)
        console.print(_intro())
        milliseconds = _play(console, tenant)
        console.print(_sessions(tenant))
        console.print(_tiers(tenant, milliseconds))
        console.print(_answers(tenant))
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
        "and changes of mind.\nEach message is written to SQLite and on the disk before the next one is sent. "
        "No model, no network.",
        title="langmem-tiers demo",
        border_style="cyan",
    )


def _weeks() -> int:
    first, last = chapters()[0].messages[0].created_at, chapters()[-1].messages[-1].created_at
    return 0 if first is None or last is None else round((last - first).days / 7)


def _play(console: Console, tenant: Namespace) -> float:
    total = sum(len(chapter.messages) for chapter in chapters())
    start = time.perf_counter()
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
            for message in chapter.messages:
                session.add(message)
                progress.advance(task)
            session.compress(older_than=_first_kept(chapter), summary=chapter.summary)
        progress.update(task, description="all acknowledged, all durable")
    return (time.perf_counter() - start) / total * 1000


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _first_kept(chapter: Chapter) -> str:
    return chapter.messages[-_KEEP].id or ""


def _sessions(tenant: Namespace) -> Table:
    table = Table(
        title="Sessions: the record stays whole, what is shown stays small",
        title_justify="left",
        caption=f"Of each session the last {_KEEP} messages are shown, behind a summary, which is a message too.",
        caption_justify="left",
    )
    table.add_column("session", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    for heading in ("messages", "tokens", "shown", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    for info in reversed(tenant.sessions().sessions):
        view = tenant.session(info.name).view()
        table.add_row(
            info.name,
            f"{view[-1].created_at:%d %b}",
            f"{info.message_count}",
            f"{info.token_count:,}",
            f"{len(view)}",
            f"{sum(message.token_count for message in view):,}",
        )
    return table


def _tiers(tenant: Namespace, milliseconds: float) -> Table:
    infos = tenant.sessions().sessions
    newest = tenant.session(infos[0].name).view()
    table = Table(title="Tiers", title_justify="left")
    table.add_column("tier")
    table.add_column("holds")
    table.add_column("tokens", justify="right")
    table.add_row(
        "working",
        f"the newest session as a prompt: {len(newest)} messages with their frames",
        f"{count_messages(ContentAwareCounter(), newest):,}",
    )
    table.add_row(
        "short_term",
        f"all {sum(info.message_count for info in infos)} messages, {len(infos)} summaries among them; "
        f"{milliseconds:.1f} ms each until durable",
        f"{sum(info.token_count for info in infos):,}",
    )
    table.add_row("[dim]long_term, knowledge,\nepisodic, procedural[/dim]", "[dim]not built yet[/dim]", "")
    return table


def _answers(tenant: Namespace) -> Table:
    session = tenant.session("08-weeks-later")
    table = Table(
        title=f"Weeks later, session {session.name}: {session.count()} messages of its own. "
        "Key words find what the others said:",
        title_justify="left",
        show_lines=True,
    )
    table.add_column("question, key words", ratio=2, overflow="fold")
    table.add_column("first hit", ratio=3, overflow="fold")
    for question in (questions()[number] for number in _ASK):
        hit = tenant.search(question.search, limit=1)[0]
        when = f"{hit.session}, {hit.message.created_at:%d %b}\n"
        table.add_row(
            Text.assemble(question.text, "\n", (question.search, "cyan")),
            Text.assemble((when, "dim"), _excerpt(hit, question.search.split())),
        )
    return table


def _excerpt(hit: SearchHit, words: list[str]) -> Text:
    content = " ".join(hit.message.content.split())
    places = [place for word in words if (place := content.lower().find(word.lower())) >= 0]
    start = max(0, min(places, default=0) - 40)
    end = start + 260
    excerpt = Text(("…" if start else "") + content[start:end] + ("…" if len(content) > end else ""))
    excerpt.highlight_words(words, style="bold cyan", case_sensitive=False)
    return excerpt
