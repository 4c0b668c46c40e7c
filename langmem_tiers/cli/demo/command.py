"""Plays the bundled conversation, then asks two agents about it: one with memory and one without."""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from langmem_tiers.cli.demo.agents import Framework, load_maker
from langmem_tiers.cli.demo.answers import Asked, Score, answers, fence, old_thread, score
from langmem_tiers.cli.demo.conversation import StoryClock, chapters, questions
from langmem_tiers.cli.demo.overview import intro, sessions, tiers, tuning
from langmem_tiers.core.budget import TokenBudget
from langmem_tiers.core.config import EngineConfig
from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.core.knowledge import KnowledgeCategory
from langmem_tiers.engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from langmem_tiers.cli.demo.agents import Assistants
    from langmem_tiers.core.context import Context
    from langmem_tiers.core.messages import Message
    from langmem_tiers.namespace import Namespace

_TENANT = ("tidepool", "mara")
_BUDGET = 3000  # tokens for a prompt: less than any of the sessions takes
_RUN_EVERY = 20  # messages between two runs of the optimizer
_LATER = timedelta(weeks=3)
# Chosen because a model that only quotes can answer them; how it does on all others is printed as well.
_ASK = (8, 18, 19, 9, 15, 20, 21, 22)
_NEVER_SAID = "What is Jonas' favourite colour?"
# What the agent learned for good, by category and key.
_LEARNED = (
    (
        KnowledgeCategory.USER_PREFERENCE,
        "answers",
        "short answers and British spelling, also in code comments",
    ),
    (KnowledgeCategory.DOMAIN, "payment provider", "Stripe"),
    (KnowledgeCategory.DOMAIN, "payment provider", "Fjordpay, which replaced Stripe on 26 March"),
)
_LAST_QUESTION = "Which online rate does our payment provider take per transaction?"
_HITS = 100  # more than a prompt has room for


def run_demo(console: Console, database: Path | None, framework: Framework = Framework.LANGCHAIN) -> None:
    """Play, ask in new threads, then show what the model saw and what is stored.

    Raises:
        InvalidConfigError: The file is there already.
        MissingExtraError: The framework is not installed.
    """
    if database is not None and database.exists():
        raise InvalidConfigError(
            f"{str(database)!r} exists already: name a new file, the demo starts from nothing"
        )
    make_assistants, clock = load_maker(framework), StoryClock()
    config = EngineConfig(budget=TokenBudget.of(_BUDGET))
    with (
        tempfile.TemporaryDirectory(prefix="langmem-tiers-") as folder,
        MemoryEngine(database or Path(folder) / "demo.db", config=config, clock=clock) as engine,
    ):
        console.print(intro(_BUDGET))
        contexts, milliseconds = _play(console, engine, clock)
        clock.follow(clock.now() + _LATER)
        _ask(console, engine, make_assistants(engine, _TENANT, _BUDGET))
        tenant = engine.namespace(*_TENANT)
        for chapter in chapters():
            tenant.session(chapter.session).learn()
        console.print(sessions(tenant, contexts))
        console.print(tiers(tenant, contexts, milliseconds))
        console.print(tuning(engine.optimizer.report(_TENANT)))
    if database is None:
        console.print(
            "The memory was temporary. To keep it:",
            f"  {_program()} demo{_flag(framework)} --database tidepool.db",
            sep="\n",
        )
    else:
        console.print("The memory is in", str(database), markup=False)


def _flag(framework: Framework) -> str:
    return "" if framework is Framework.LANGCHAIN else f" --framework {framework}"


def _program() -> str:
    # As the person called it: a command inside a virtual environment is not on the path.
    return "python -m langmem_tiers" if sys.argv[0].endswith("__main__.py") else sys.argv[0]


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
    return contexts, seconds / total * 1000


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _ask(console: Console, engine: MemoryEngine, both: Assistants) -> None:
    tenant, story = engine.namespace(*_TENANT), questions()
    whole = sum(message.token_count for message in _said(tenant))
    shown = [_asked(both, story[number].text, f"later-{number:02}") for number in _ASK]
    never_said = _asked(both, _NEVER_SAID, "later-never-said")
    others = [
        (_asked(both, question.text, f"later-{number:02}"), question.fact)
        for number, question in enumerate(story)
        if number not in _ASK
    ]
    console.print(answers([*shown, never_said]))
    console.print(score(shown, Score.of(others), whole))
    console.print(old_thread(story[_ASK[0]].text, both.without_memory, chapters()[0].session))
    console.print(_last_prompt(tenant, both))


def _said(tenant: Namespace) -> Iterator[Message]:
    for chapter in chapters():
        yield from (one for one in tenant.session(chapter.session).messages() if not one.is_summary)


def _asked(both: Assistants, question: str, thread: str) -> Asked:
    return Asked(question, both.without_memory.ask(question, thread), both.with_memory.ask(question, thread))


def _last_prompt(tenant: Namespace, both: Assistants) -> Table:
    for learned in _LEARNED:
        tenant.knowledge.store(*learned)
    hits = tenant.recall(_LAST_QUESTION, limit=_HITS)
    asked = _asked(both, _LAST_QUESTION, "later-last")
    past = tenant.knowledge.history(KnowledgeCategory.DOMAIN, "payment provider")
    return fence(asked, hits, [item.value for item in past])
