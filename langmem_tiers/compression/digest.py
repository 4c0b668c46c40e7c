"""Many messages in one summary: what was done, what came of it, and every fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import SUMMARY_PREFIX, Message, Role
from langmem_tiers.compression.layout import Summary, build_summary, build_truncated_story
from langmem_tiers.compression.message_text import SPEAKER_LABELS, message_to_text
from langmem_tiers.compression.selection import truncate_with_ellipsis
from langmem_tiers.text.facts import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.fact_finder import FactFinder

STEP_CHARACTERS = (320, 160, 80)
"""Characters of each step, as there is room."""
MAX_CARRIED_STEPS = 50
"""Steps that a summary hands on to the next one: the newest."""
MAX_NAMED_MISSING_FACTS = 1000
"""Facts without room that stay named as missing: the newest."""
MAX_CARRIED_MISSING_FACTS = 100
"""Facts that it hands on although it had no room for them: the newest."""


@dataclass(frozen=True, slots=True)
class DigestStep:
    """One message of the story in a few words."""

    is_action: bool
    """Whether somebody wanted or did something, as opposed to what came of it."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What a summary is made of. Digests add up, so a summary of a summary loses nothing that had room."""

    count: int = 0
    steps: tuple[DigestStep, ...] = ()
    facts: tuple[Fact, ...] = ()
    """Oldest first, each once."""

    @classmethod
    def from_messages(
        cls, messages: Iterable[Message], finder: FactFinder, earlier: Digest | None = None
    ) -> Digest:
        """The digest of messages, added to an earlier one."""
        return cls.merge(
            [*([] if earlier is None else [earlier]), *(_digest_message(m, finder) for m in messages)]
        )

    @classmethod
    def merge(cls, parts: Iterable[Digest]) -> Digest:
        """Digests one after the other."""
        count = 0
        steps: list[DigestStep] = []
        facts: dict[str, Fact] = {}
        for part in parts:
            count += part.count
            steps += part.steps
            for fact in part.facts:
                facts.pop(fact.text, None)  # its latest mention decides its age
                facts[fact.text] = fact
        return cls(count=count, steps=tuple(steps), facts=tuple(facts.values()))

    def render(
        self, counter: TokenCounter, max_tokens: int | None = None, story: str | None = None
    ) -> Summary:
        """The summary as text: facts first, then as much of the story as fits, the newest steps of it.

        Args:
            counter: Counts tokens.
            max_tokens: The limit; everything, if left out.
            story: Told in place of the actions and results.
        """
        stories = (
            [self._build_story(width) for width in STEP_CHARACTERS]
            if story is None
            else [build_truncated_story(story)]
        )
        return build_summary(f"[Summary of {self.count} messages]", stories, self.facts, counter, max_tokens)

    def _build_story(self, width: int) -> Callable[[int], str]:
        def tell(size: int) -> str:
            newest = self.steps[len(self.steps) - len(self.steps) * size // 100 :]
            lines = (
                ("Actions", [truncate_with_ellipsis(step.text, width) for step in newest if step.is_action]),
                (
                    "Results",
                    [truncate_with_ellipsis(step.text, width) for step in newest if not step.is_action],
                ),
            )
            return "\n".join(f"{title}: {' | '.join(steps)}" for title, steps in lines if steps)

        return tell

    def to_dict(self, done: Summary) -> dict[str, Any]:
        """The digest as JSON, for the summary that will follow this one."""
        facts = (*done.missing[-MAX_CARRIED_MISSING_FACTS:], *done.facts)
        width = STEP_CHARACTERS[1]
        return {
            "count": self.count,
            "steps": [
                [step.is_action, truncate_with_ellipsis(step.text, width)]
                for step in self.steps[-MAX_CARRIED_STEPS:]
            ],
            "facts": [[str(fact.kind), fact.text, fact.priority] for fact in facts],
            "missing": [fact.text for fact in done.missing[-MAX_NAMED_MISSING_FACTS:]],
        }

    @classmethod
    def from_dict(cls, carried: dict[str, Any]) -> Digest:
        """The digest that an earlier summary carried."""
        return cls(
            count=carried["count"],
            steps=tuple(DigestStep(is_action, text) for is_action, text in carried["steps"]),
            facts=tuple(Fact(kind, text, priority) for kind, text, priority in carried["facts"]),
        )


def _digest_message(message: Message, finder: FactFinder) -> Digest:
    text = message_to_text(message).removeprefix(SUMMARY_PREFIX).strip()
    words = " ".join(text.split())
    is_action = message.role is Role.USER or bool(message.tool_calls)
    step = DigestStep(
        is_action, truncate_with_ellipsis(f"{SPEAKER_LABELS[message.role]}: {words}", STEP_CHARACTERS[0])
    )
    return Digest(count=1, steps=(step,) if words else (), facts=finder.find_outermost(text))
