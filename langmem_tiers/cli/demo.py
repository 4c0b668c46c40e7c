"""Plays the bundled conversation and shows what the memory holds."""

from __future__ import annotations

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
_ASK = slice(1, 9)  # of the questions: decisions, their reversals, an error, a limit, a URL


def run_demo(console: Console, database: Path | None) -> None:
    """Play, then show sessions, tiers and what a new session can find."""
    if database is not None and database.exists():
        raise InvalidConfigError(
            f"{str(database)!r} exists already: name a new file, the demo starts from nothing"
        )
    with tempfile.TemporaryDirectory(prefix="langmem-tiers-") as folder:
        path = database or Path(folder) / "demo.db"
        with MemoryEngine(f"sqlite:///{path}") as engine:
            tenant = engine.namespace(*_TENANT)
            console.print(_intro())
            seconds = _play(console, tenant)
            console.print(_sessions(tenant))
            console.print(_tiers(tenant, seconds, path.stat().st_size))
            console.print(_answers(tenant))
    console.print(
        f"The memory is in [bold]{database}[/bold]."
        if database
        else "The memory was temporary; keep one with [bold]langmem-tiers demo --database tidepool.db[/bold]."
    )


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
            progress.update(task, description=chapter.title[:34])
            session = tenant.session(chapter.session)
            for message in chapter.messages:
                session.add(message)
                progress.advance(task)
            session.compress(older_than=_first_kept(chapter), summary=chapter.summary)
        progress.update(task, description="all acknowledged, all durable")
    return time.perf_counter() - start


def _first_kept(chapter: Chapter) -> str:
    return chapter.messages[-_KEEP].id or ""


def _sessions(tenant: Namespace) -> Table:
    table = Table(title="Sessions: the record stays whole, what is shown stays small", title_justify="left")
    for heading in ("session", "ended", "messages", "tokens", "shown", "tokens shown", "behind the summary"):
        table.add_column(heading, justify="left" if heading in {"session", "ended"} else "right")
    for info in reversed(tenant.sessions().sessions):
        view = tenant.session(info.name).view()
        table.add_row(
            info.name,
            f"{view[-1].created_at:%d %b %Y}",
            f"{info.message_count}",
            f"{info.token_count:,}",
            f"{len(view)}",
            f"{sum(message.token_count for message in view):,}",
            f"{info.compressed_count}",
        )
    return table


def _tiers(tenant: Namespace, seconds: float, size: int) -> Table:
    counter = ContentAwareCounter()
    infos = tenant.sessions().sessions
    newest = tenant.session(infos[0].name).view()
    messages = sum(info.message_count for info in infos)
    table = Table(title="Tiers", title_justify="left")
    for heading in ("tier", "holds", "tokens"):
        table.add_column(heading, justify="right" if heading == "tokens" else "left")
    table.add_row("working", "the newest session as a prompt", f"{count_messages(counter, newest):,}")
    table.add_row(
        "short_term",
        f"all {messages} messages, {size / 1024:,.0f} KB, {seconds / messages * 1000:.1f} ms each to store",
        f"{sum(info.token_count for info in infos):,}",
    )
    table.add_row("[dim]long_term, knowledge, episodic, procedural[/dim]", "[dim]not built yet[/dim]", "")
    return table


def _answers(tenant: Namespace) -> Table:
    table = Table(
        title="A new session, weeks later: key words find what was said, also behind the summaries",
        title_justify="left",
        show_lines=True,
    )
    table.add_column("question, and what to search for", ratio=3)
    table.add_column("first hit", ratio=5)
    table.add_column("session", no_wrap=True)
    for question in questions()[_ASK]:
        hit = tenant.search(question.search, limit=1)[0]
        asked = Text.assemble(question.text, "\n", (question.search, "cyan"))
        table.add_row(asked, _excerpt(hit, question.search.split()), hit.session)
    return table


def _excerpt(hit: SearchHit, words: list[str]) -> Text:
    content = " ".join(hit.message.content.split())
    places = [place for word in words if (place := content.lower().find(word.lower())) >= 0]
    start = max(0, min(places, default=0) - 40)
    end = start + 200
    excerpt = Text(("…" if start else "") + content[start:end] + ("…" if len(content) > end else ""))
    excerpt.highlight_words(words, style="bold cyan", case_sensitive=False)
    return excerpt
