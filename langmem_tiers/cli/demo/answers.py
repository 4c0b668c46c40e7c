"""What the demo shows of the questions: the answers of both agents, and the prompt behind one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.cli.demo.agents import Assistant, Reply
    from langmem_tiers.core.recall import Hit

_KNOWN = "- "
"""How a line of knowledge begins in a prompt."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and both answers."""

    question: str
    without_memory: Reply
    with_memory: Reply


@dataclass(frozen=True, slots=True)
class Score:
    """How often the fact that answers a question was there."""

    questions: int
    in_prompt: int
    """Of the agent with memory."""
    in_answer: int
    in_prompt_without: int

    @classmethod
    def of(cls, asked: Sequence[tuple[Asked, str]]) -> Self:
        """Count.

        Args:
            asked: Each with the words without which nothing is an answer.
        """
        return cls(
            questions=len(asked),
            in_prompt=sum(fact in one.with_memory.prompt for one, fact in asked),
            in_answer=sum(fact in one.with_memory.text for one, fact in asked),
            in_prompt_without=sum(fact in one.without_memory.prompt for one, fact in asked),
        )


def answers(asked: Sequence[Asked]) -> Table:
    """Both answers to each question, side by side."""
    table = Table(
        title="Three weeks later, each question in a new thread: the same agent, the same model",
        title_justify="left",
        show_lines=True,
    )
    table.add_column("question", ratio=4, overflow="fold")
    table.add_column("without memory", width=14, overflow="fold")
    table.add_column("with memory", ratio=6, overflow="fold")
    table.add_column("prompt\ntokens", justify="right", width=7)
    for one in asked:
        tokens = f"{one.without_memory.prompt_tokens:,} /\n{one.with_memory.prompt_tokens:,}"
        table.add_row(
            Text(one.question),
            Text(one.without_memory.text, "dim"),
            Text(one.with_memory.text, "bold"),
            tokens,
        )
    return table


def score(shown: Sequence[Asked], others: Score, whole: int) -> Text:
    """What the prompts cost, and how the agents did on all other questions.

    Args:
        shown: The questions in the table.
        others: How the others went.
        whole: Tokens of all that was said.
    """
    mean = sum(one.with_memory.prompt_tokens for one in shown) / len(shown)
    return Text(
        f"Prompts with memory took {mean:,.0f} tokens on average; all that was said would take {whole:,}.\n"
        "The questions of the table were chosen and worded so that a model that can only quote answers them. Of the "
        f"{others.questions} others about the project, the answer stood in {others.in_prompt} prompts with memory and "
        f"in {others.in_prompt_without} without, and this model quoted the right sentence for {others.in_answer}.\n"
    )


def old_thread(question: str, agent: Assistant, thread: str) -> Text:
    """The answer of the agent without memory where the fact was said."""
    reply = agent.ask(question, thread)
    return Text.assemble(
        f"Without memory an agent knows its own thread only. In {thread}, where it was said:\n  ",
        (question, "cyan"),
        f"\n  {reply.text} ({reply.prompt_tokens:,} prompt tokens)\n",
    )


def fence(asked: Asked, hits: Iterable[Hit], past: Sequence[str]) -> Table:
    """A prompt as the model saw it, line by line, and why each memory is in it.

    Args:
        asked: The question.
        hits: What memory finds for it.
        past: What was known of it once.
    """
    table = Table(
        title=f"One prompt of {asked.with_memory.prompt_tokens:,} tokens, and why each memory is in it "
        "(long lines are cut here only)",
        title_justify="left",
        caption=f"No longer true, but remembered: {', '.join(past)}",
        caption_justify="left",
    )
    table.add_column("why", no_wrap=True)
    table.add_column("what the model saw")
    reasons = {_flat(hit.entry.content): f"{hit.score:.2f} {hit.found_by}" for hit in hits}
    reasons.pop("", None)  # calls of tools without a word
    for line in asked.with_memory.prompt.splitlines():
        why = "known" if line.startswith(_KNOWN) else reasons.get(line.partition(": ")[2], "")
        is_question = line == asked.question
        shown = Text(line, "bold cyan") if is_question else Text(line, no_wrap=True, overflow="ellipsis")
        table.add_row(why, shown)
    table.add_section()
    table.add_row("the answer", Text(asked.with_memory.text, "bold"))
    return table


def _flat(text: str) -> str:
    return " ".join(text.split())
