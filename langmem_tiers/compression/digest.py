"""Digest of many messages: actions, results and facts, which can be merged and rendered as a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import SUMMARY_PREFIX, Message, Role
from langmem_tiers.compression.layout import Summary, build_summary, build_truncated_story
from langmem_tiers.compression.message_text import SPEAKER_LABELS, message_to_text
from langmem_tiers.text.facts import Fact
from langmem_tiers.text.sentences import truncate_with_ellipsis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.fact_finder import FactFinder

STEP_CHARACTERS = (320, 160, 80)
"""Maximum lengths of a step, tried from the longest to the shortest until the story fits."""
MAX_CARRIED_STEPS = 50
"""Number of steps, the newest, that a summary passes on to the next one."""
MAX_NAMED_MISSING_FACTS = 1000
"""Maximum number of facts, the newest, that are reported as missing."""
MAX_CARRIED_MISSING_FACTS = 100
"""Maximum number of missing facts, the newest, that a summary passes on to the next one."""


@dataclass(frozen=True, slots=True)
class DigestStep:
    """Short form of one message in the story."""

    is_action: bool
    """True for a request or an action, False for a result."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Structured content of a summary. Digests can be merged, so repeated summarizing does not lose facts that fit."""

    count: int = 0
    steps: tuple[DigestStep, ...] = ()
    facts: tuple[Fact, ...] = ()
    """Facts without duplicates, ordered by their latest mention, oldest first."""

    @classmethod
    def from_messages(
        cls, messages: Iterable[Message], finder: FactFinder, earlier: Digest | None = None
    ) -> Digest:
        """Build the digest of messages, appended to an earlier digest if given."""
        return cls.merge(
            [*([] if earlier is None else [earlier]), *(_digest_message(m, finder) for m in messages)]
        )

    @classmethod
    def merge(cls, parts: Iterable[Digest]) -> Digest:
        """Concatenate digests."""
        count = 0
        steps: list[DigestStep] = []
        facts: dict[str, Fact] = {}
        for part in parts:
            count += part.count
            steps += part.steps
            for fact in part.facts:
                facts.pop(
                    fact.text, None
                )  # a repeated fact moves to the end: its latest mention determines its age
                facts[fact.text] = fact
        return cls(count=count, steps=tuple(steps), facts=tuple(facts.values()))

    def render(
        self, counter: TokenCounter, max_tokens: int | None = None, story: str | None = None
    ) -> Summary:
        """Render the summary as text. Facts take precedence; the rest is for the newest steps of the story.

        Args:
            counter: Token counter.
            max_tokens: Maximum size. Default: no limit.
            story: Text that replaces the actions and results.
        """
        stories = (
            [self._build_story(width) for width in STEP_CHARACTERS]
            if story is None
            else [build_truncated_story(story)]
        )
        return build_summary(f"[Summary of {self.count} messages]", stories, self.facts, counter, max_tokens)

    def _build_story(self, width: int) -> Callable[[int], str]:
        def render_newest(percent: int) -> str:
            newest = self.steps[len(self.steps) - len(self.steps) * percent // 100 :]
            lines = (
                ("Actions", [truncate_with_ellipsis(step.text, width) for step in newest if step.is_action]),
                (
                    "Results",
                    [truncate_with_ellipsis(step.text, width) for step in newest if not step.is_action],
                ),
            )
            return "\n".join(f"{title}: {' | '.join(steps)}" for title, steps in lines if steps)

        return render_newest

    def to_dict(self, summary: Summary) -> dict[str, Any]:
        """Serialize the digest as JSON values, as the basis of the next summary.

        Args:
            summary: The rendered summary, which determines the missing facts.
        """
        # Facts that did not fit get another chance in the next summary. Their number is limited: otherwise the
        # stored digest would grow with every summary.
        facts = (*summary.missing[-MAX_CARRIED_MISSING_FACTS:], *summary.facts)
        width = STEP_CHARACTERS[1]
        return {
            "count": self.count,
            "steps": [
                [step.is_action, truncate_with_ellipsis(step.text, width)]
                for step in self.steps[-MAX_CARRIED_STEPS:]
            ],
            "facts": [[str(fact.kind), fact.text, fact.priority] for fact in facts],
            "missing": [fact.text for fact in summary.missing[-MAX_NAMED_MISSING_FACTS:]],
        }

    @classmethod
    def from_dict(cls, carried: dict[str, Any]) -> Digest:
        """Restore the digest of an earlier summary from the values of ``to_dict``."""
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
