"""Play the bundled conversation, then ask two agents about it: one with memory and one without."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from langmem_tiers.cli.demo.conversation import StoryClock, load_chapters, load_questions
from langmem_tiers.cli.output import format_count
from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.compression.fact_finder import FactFinder
from langmem_tiers.compression.message_text import message_to_text
from langmem_tiers.config import EngineConfig
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidConfigError, MissingExtraError
from langmem_tiers.knowledge.models import KnowledgeCategory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.context.models import MemoryContext
    from langmem_tiers.integration_kit.demo import Assistant, Assistants, Reply
    from langmem_tiers.namespace import Namespace
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.tuning.models import EfficiencyReport

    AssistantFactory = Callable[[MemoryEngine, NamespacePath, int], Assistants]

_FACTORY_NAME = "make_assistants"


class Framework(StrEnum):
    """Frameworks whose agents the demo can run."""

    LANGCHAIN = "langchain"
    LLAMA_INDEX = "llama-index"


@dataclass(frozen=True, slots=True)
class _Adapter:
    module: str
    name: str
    required_packages: tuple[str, ...]


_ADAPTERS = {
    Framework.LANGCHAIN: _Adapter(
        "langmem_tiers_langchain.demo",
        "LangChain",
        ("langchain", "langchain_core", "langgraph", "langmem_tiers_langchain"),
    ),
    Framework.LLAMA_INDEX: _Adapter(
        "langmem_tiers_llamaindex.demo", "LlamaIndex", ("llama_index", "langmem_tiers_llamaindex")
    ),
}


def load_assistant_factory(framework: Framework = Framework.LANGCHAIN) -> AssistantFactory:
    """Return the function that creates the agents from an engine, a namespace and a token budget.

    Args:
        framework: Framework of the agents.

    Raises:
        MissingExtraError: The framework is not installed.
    """
    adapter = _ADAPTERS[framework]
    try:
        factory: AssistantFactory = getattr(import_module(adapter.module), _FACTORY_NAME)
    except ModuleNotFoundError as error:
        # Any other missing module is a defect, not a framework that is not installed.
        if (error.name or "").partition(".")[0] not in adapter.required_packages:
            raise
        raise MissingExtraError(
            f"the demo runs a {adapter.name} agent and needs {error.name!r}, which is not installed: "
            f"pip install 'langmem-tiers[{framework}]', or choose another framework with --framework "
            f"{next(other for other in Framework if other is not framework)}"
        ) from error
    return factory


def build_intro(budget: int) -> Panel:
    """Build the panel that introduces the demo."""
    count = sum(len(chapter.messages) for chapter in load_chapters())
    return Panel(
        f"Mara and her agent build [bold]Tidepool[/bold], a booking service for three aquariums:\n"
        f"{count} messages in {len(load_chapters())} threads over {_count_weeks()} weeks, with tool "
        f"output, errors, decisions "
        "and changes of mind. Each message is on the disk, in SQLite, before the next one is sent, and no "
        f"prompt with memory exceeds {budget:,} tokens. Weeks later, two agents answer questions about it in new "
        "threads. The demo uses no network and a model that can only quote its prompt.",
        title="langmem-tiers demo",
        border_style="cyan",
    )


def _count_weeks() -> int:
    first, last = load_chapters()[0].messages[0].created_at, load_chapters()[-1].messages[-1].created_at
    return 0 if first is None or last is None else round((last - first).days / 7)


def build_session_table(tenant: Namespace, contexts: Mapping[str, MemoryContext]) -> Table:
    """Build the table of the sessions: their size, and the size of their contexts."""
    table = Table(
        title="Sessions: the record is complete, the context of the model is small",
        title_justify="left",
        caption="Facts: addresses, paths, numbers, dates, commands, errors, rejected options. "
        "Facts that do not fit in a context stay in the record.",
        caption_justify="left",
    )
    table.add_column("session", no_wrap=True)
    for heading in ("messages", "tokens", "context", "unchanged", "facts kept"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, context in contexts.items():
        messages = [message for message in tenant.session(name).messages() if not message.is_summary]
        table.add_row(
            name,
            f"{len(messages)}",
            f"{sum(message.token_count for message in messages):,}",
            f"{context.token_count:,}",
            f"{len(context.full)}",
            _format_fact_share(messages, context),
        )
    return table


def _format_fact_share(messages: list[Message], context: MemoryContext) -> str:
    finder = FactFinder()
    facts = {fact.text for message in messages for fact in finder.find(message_to_text(message))}
    text = "\n".join(message_to_text(message) for message in context.messages)
    return f"{sum(fact in text for fact in facts) / max(1, len(facts)):.0%}"


def build_tier_table(tenant: Namespace, contexts: Mapping[str, MemoryContext], milliseconds: float) -> Table:
    """Build the table of the tiers with their contents.

    Args:
        tenant: Namespace of the demo.
        contexts: Contexts by session, oldest first.
        milliseconds: Mean time to store a message.
    """
    infos = tenant.sessions().sessions
    newest = list(contexts.values())[-1]
    long_term, knowledge = list(tenant.long_term), list(tenant.knowledge)
    table = Table(title="Tiers", title_justify="left")
    table.add_column("tier")
    table.add_column("contents")
    table.add_column("tokens", justify="right")
    table.add_row(
        "working",
        f"the last session as a prompt: {len(newest.messages)} messages with their framing",
        f"{newest.token_count:,}",
    )
    table.add_row(
        "short_term",
        f"all messages of {len(infos)} sessions, including the new threads, and their summaries; "
        f"{milliseconds:.1f} ms per message until durable",
        f"{sum(info.token_count for info in infos):,}",
    )
    table.add_row(
        "long_term",
        f"{len(long_term)} entries with key facts, promoted or learned automatically",
        f"{sum(entry.token_count for entry in long_term):,}",
    )
    table.add_row("knowledge", f"{format_count(len(knowledge), 'fact')} known across sessions", "")
    table.add_row("episodic", f"{len(list(tenant.episodes))} episodes: decisions, problems, actions", "")
    table.add_row("procedural", "empty in this demo: patterns that agents learn from tasks", "")
    return table


def build_tuning_text(report: EfficiencyReport) -> Text:
    """Build the text about the runs of the optimizer and the parameters that it chose."""
    tuned = report.parameters
    return Text(
        f"The optimizer ran {report.total_optimizations} times and saved {report.total_tokens_saved:,} tokens. It now "
        f"shows the newest {tuned.full_message_window} messages in full, compresses when usage reaches "
        f"{max(tuned.compression_trigger, tuned.target_usage):.0%} of the budget, and keeps entries with a relevance "
        f"of at least {tuned.min_relevance:.2f}.\n"
    )


_KNOWLEDGE_PREFIX = "- "
"""Prefix of a line of knowledge in a prompt."""


@dataclass(frozen=True, slots=True)
class DemoAnswers:
    """A question and both answers."""

    question: str
    without_memory: Reply
    with_memory: Reply


@dataclass(frozen=True, slots=True)
class DemoScore:
    """Number of prompts and answers that contain the fact that a question asks for."""

    questions: int
    in_prompt: int
    """Prompts of the agent with memory."""
    in_answer: int
    in_prompt_without: int

    @classmethod
    def of(cls, questions: Sequence[tuple[DemoAnswers, str]]) -> Self:
        """Count the facts in prompts and answers.

        Args:
            questions: Questions with answers, each with the words that a correct answer contains.
        """
        return cls(
            questions=len(questions),
            in_prompt=sum(fact in answers.with_memory.prompt for answers, fact in questions),
            in_answer=sum(fact in answers.with_memory.text for answers, fact in questions),
            in_prompt_without=sum(fact in answers.without_memory.prompt for answers, fact in questions),
        )


def build_answer_table(all_answers: Sequence[DemoAnswers]) -> Table:
    """Build a table with both answers to each question side by side."""
    table = Table(
        title="Three weeks later, each question in a new thread: the same agent, the same model",
        title_justify="left",
        show_lines=True,
    )
    table.add_column("question", ratio=4, overflow="fold")
    table.add_column("without memory", width=14, overflow="fold")
    table.add_column("with memory", ratio=6, overflow="fold")
    table.add_column("prompt\ntokens", justify="right", width=7)
    for answers in all_answers:
        tokens = f"{answers.without_memory.prompt_tokens:,} /\n{answers.with_memory.prompt_tokens:,}"
        table.add_row(
            Text(answers.question),
            Text(answers.without_memory.text, "dim"),
            Text(answers.with_memory.text, "bold"),
            tokens,
        )
    return table


def build_score_text(shown: Sequence[DemoAnswers], rest: DemoScore, whole: int) -> Text:
    """Build the text about the size of the prompts and the score on all other questions.

    Args:
        shown: Questions in the table.
        rest: Score of the other questions.
        whole: Tokens of the whole conversation.
    """
    mean = sum(answers.with_memory.prompt_tokens for answers in shown) / len(shown)
    return Text(
        f"Prompts with memory took {mean:,.0f} tokens on average; the full history would take {whole:,}.\n"
        "The questions in the table were chosen and worded for a model that can only quote. Of the "
        f"{rest.questions} other questions about the project, the answer was in {rest.in_prompt} prompts with "
        f"memory and in {rest.in_prompt_without} without, and this model quoted the right sentence for "
        f"{rest.in_answer}.\n"
    )


def build_old_thread_text(question: str, agent: Assistant, thread: str) -> Text:
    """Build the text with the answer of the agent without memory, in the thread that contains the fact."""
    reply = agent.ask(question, thread)
    return Text.assemble(
        f"Without memory, an agent only knows its own thread. In {thread}, which contains the fact:\n  ",
        (question, "cyan"),
        f"\n  {reply.text} ({reply.prompt_tokens:,} prompt tokens)\n",
    )


def build_prompt_table(answers: DemoAnswers, hits: Iterable[Hit], past: Sequence[str]) -> Table:
    """Build a table with the lines of a prompt and the reason why each memory is in it.

    Args:
        answers: Question with its answers.
        hits: Memories recalled for the question.
        past: Earlier values of the knowledge that the question asks for.
    """
    table = Table(
        title=f"One prompt of {answers.with_memory.prompt_tokens:,} tokens, and why each memory is in it "
        "(long lines are cut here only)",
        title_justify="left",
        caption=f"Outdated, but kept in the history: {', '.join(past)}",
        caption_justify="left",
    )
    table.add_column("why", no_wrap=True)
    table.add_column("what the model saw")
    reasons = {_collapse_whitespace(hit.entry.content): f"{hit.score:.2f} {hit.found_by}" for hit in hits}
    # Tool calls without text would give their reason to every empty line.
    reasons.pop("", None)
    for line in answers.with_memory.prompt.splitlines():
        why = "known" if line.startswith(_KNOWLEDGE_PREFIX) else reasons.get(line.partition(": ")[2], "")
        is_question = line == answers.question
        shown = Text(line, "bold cyan") if is_question else Text(line, no_wrap=True, overflow="ellipsis")
        table.add_row(why, shown)
    table.add_section()
    table.add_row("the answer", Text(answers.with_memory.text, "bold"))
    return table


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


_TENANT = ("tidepool", "mara")
_BUDGET_TOKENS = 3000  # tokens per prompt: less than any session has
_OPTIMIZE_EVERY_MESSAGES = 20  # messages between two runs of the optimizer
_QUESTION_DELAY = timedelta(weeks=3)
# Chosen because a model that only quotes can answer them; the score of all other questions is printed as well.
_SHOWN_QUESTIONS = (8, 18, 19, 9, 15, 20, 21, 22)
_UNANSWERABLE_QUESTION = "What is Jonas' favourite colour?"
# Knowledge of the agent: category, key, value.
_LEARNED_KNOWLEDGE = (
    (
        KnowledgeCategory.USER_PREFERENCE,
        "answers",
        "short answers and British spelling, also in code comments",
    ),
    (KnowledgeCategory.DOMAIN, "payment provider", "Stripe"),
    (KnowledgeCategory.DOMAIN, "payment provider", "Fjordpay, which replaced Stripe on 26 March"),
)
_LAST_QUESTION = "Which online rate does our payment provider take per transaction?"
_MAX_HITS = 100  # more than fit in a prompt


def run_demo(console: Console, database: Path | None, framework: Framework = Framework.LANGCHAIN) -> None:
    """Play the conversation, ask in new threads, then show the prompts and the stored data.

    Raises:
        InvalidConfigError: The database file already exists.
        MissingExtraError: The framework is not installed.
    """
    if database is not None and database.exists():
        raise InvalidConfigError(
            f"{str(database)!r} already exists: pass a new file, the demo starts with an empty memory"
        )
    make_assistants, clock = load_assistant_factory(framework), StoryClock()
    config = EngineConfig(budget=TokenBudget.of(_BUDGET_TOKENS))
    with (
        tempfile.TemporaryDirectory(prefix="langmem-tiers-") as folder,
        MemoryEngine(database or Path(folder) / "demo.db", config=config, clock=clock) as engine,
    ):
        console.print(build_intro(_BUDGET_TOKENS))
        contexts, milliseconds = _play_conversation(console, engine, clock)
        clock.advance_to(clock.now() + _QUESTION_DELAY)
        _ask_questions(console, engine, make_assistants(engine, _TENANT, _BUDGET_TOKENS))
        tenant = engine.namespace(*_TENANT)
        for chapter in load_chapters():
            tenant.session(chapter.session).learn()
        console.print(build_session_table(tenant, contexts))
        console.print(build_tier_table(tenant, contexts, milliseconds))
        console.print(build_tuning_text(engine.optimizer.report(_TENANT)))
    if database is None:
        console.print(
            "The memory was temporary. To keep it:",
            f"  {_get_program_name()} demo{_format_framework_option(framework)} --database tidepool.db",
            sep="\n",
        )
    else:
        console.print("The memory is in", str(database), markup=False)


def _format_framework_option(framework: Framework) -> str:
    return "" if framework is Framework.LANGCHAIN else f" --framework {framework}"


def _get_program_name() -> str:
    # As the user called it: a command inside a virtual environment may not be on the path.
    return "python -m langmem_tiers" if sys.argv[0].endswith("__main__.py") else sys.argv[0]


def _play_conversation(
    console: Console, engine: MemoryEngine, clock: StoryClock
) -> tuple[dict[str, MemoryContext], float]:
    tenant, total = engine.namespace(*_TENANT), sum(len(chapter.messages) for chapter in load_chapters())
    contexts: dict[str, MemoryContext] = {}
    seconds = 0.0
    with Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("playing", total=total)
        for chapter in load_chapters():
            progress.update(task, description=_shorten(chapter.title, 34))
            session = tenant.session(chapter.session)
            for number, message in enumerate(chapter.messages, start=1):
                start = time.perf_counter()
                session.add(message)
                seconds += time.perf_counter() - start
                clock.advance_to(message.created_at)
                contexts[chapter.session] = session.build_context()
                if number % _OPTIMIZE_EVERY_MESSAGES == 0:
                    engine.optimizer.run(_TENANT)
                progress.advance(task)
        progress.update(task, description="all messages are durable")
    return contexts, seconds / total * 1000


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _ask_questions(console: Console, engine: MemoryEngine, both: Assistants) -> None:
    tenant, story = engine.namespace(*_TENANT), load_questions()
    whole = sum(message.token_count for message in _list_messages(tenant))
    shown = [_ask_both(both, story[number].text, f"later-{number:02}") for number in _SHOWN_QUESTIONS]
    never_said = _ask_both(both, _UNANSWERABLE_QUESTION, "later-never-said")
    other_questions = [
        (_ask_both(both, question.text, f"later-{number:02}"), question.fact)
        for number, question in enumerate(story)
        if number not in _SHOWN_QUESTIONS
    ]
    console.print(build_answer_table([*shown, never_said]))
    console.print(build_score_text(shown, DemoScore.of(other_questions), whole))
    console.print(
        build_old_thread_text(
            story[_SHOWN_QUESTIONS[0]].text, both.without_memory, load_chapters()[0].session
        )
    )
    console.print(_build_last_prompt_table(tenant, both))


def _list_messages(tenant: Namespace) -> Iterator[Message]:
    for chapter in load_chapters():
        messages = tenant.session(chapter.session).messages()
        yield from (message for message in messages if not message.is_summary)


def _ask_both(both: Assistants, question: str, thread: str) -> DemoAnswers:
    return DemoAnswers(
        question, both.without_memory.ask(question, thread), both.with_memory.ask(question, thread)
    )


def _build_last_prompt_table(tenant: Namespace, both: Assistants) -> Table:
    for learned in _LEARNED_KNOWLEDGE:
        tenant.knowledge.store(*learned)
    hits = tenant.recall(_LAST_QUESTION, limit=_MAX_HITS)
    answers = _ask_both(both, _LAST_QUESTION, "later-last")
    past = tenant.knowledge.history(KnowledgeCategory.DOMAIN, "payment provider")
    return build_prompt_table(answers, hits, [item.value for item in past])
