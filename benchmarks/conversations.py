"""A conversation of any length, made up from a seed: questions, tool calls, results, errors, small talk."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from langmem_tiers import MessageDraft, MessageToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICES = "billing search checkout ledger mailer quotes archive gateway profile sync".split()
_VERBS = "fails restarts hangs drifts leaks slows recovers retries drops duplicates".split()
_PLACES = "staging production the canary the nightly job the audit log the mobile client".split(" the ")
_FILLER = (
    "the queue had been quiet since the last deploy and nobody expected the numbers to move again so early",
    "we compared both traces line by line and the only difference was the order of the two middle calls",
    "the team on call would rather wait for the weekly window than change a running system in the evening",
    "reading the old notes helped more than the dashboards did because they say why the limit was chosen",
    "it looks like the cache was warm on one side and cold on the other which explains most of the gap",
)
_SMALL_TALK = ("ok", "thanks!", "sure", "yes", "hello again", "no", "ok, go on")


class MadeUpConversation:
    """Turns of an operations assistant. The same seed makes the same conversation.

    Args:
        seed: Of the chance.
        length: How long messages are, as a factor.
    """

    def __init__(self, seed: int = 1, length: float = 1.0) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._length = length
        self._number = 0

    def messages(self) -> Iterator[MessageDraft]:
        """Messages without end."""
        while True:
            chance = self._rng.random()
            if chance < 0.12:
                yield MessageDraft("user", self._rng.choice(_SMALL_TALK))
                yield MessageDraft("assistant", "I will keep an eye on it.")
            elif chance < 0.5:
                yield from self._turn_with_tool()
            else:
                yield MessageDraft("user", self._question())
                yield MessageDraft("assistant", self._prose(2, 7))

    def _turn_with_tool(self) -> Iterator[MessageDraft]:
        self._number += 1
        call = f"call-{self._number}"
        service = self._rng.choice(_SERVICES)
        arguments = json.dumps({"service": service, "since": f"2025-03-{self._rng.randint(1, 28):02d}"})
        yield MessageDraft("user", self._question())
        yield MessageDraft("assistant", "", tool_calls=[MessageToolCall(call, "read_logs", arguments)])
        yield MessageDraft("tool", self._log(service), tool_call_id=call)
        yield MessageDraft("assistant", self._prose(1, 4))

    def _question(self) -> str:
        rng = self._rng
        text = f"Why does {rng.choice(_SERVICES)} {rng.choice(_VERBS)} on {rng.choice(_PLACES)}? {self._prose(0, 3)}"
        if rng.random() < 0.3:
            ticket = rng.randint(1000, 99_999)
            text += f" It is ticket OPS-{ticket} at https://ops.example.com/t/{ticket}."
        return text

    def _log(self, service: str) -> str:
        rng = self._rng
        lines = [
            f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d} {service} took {rng.randint(12, 9000)} ms"
            for _ in range(max(1, int(rng.randint(2, 9) * self._length)))
        ]
        if rng.random() < 0.4:
            lines.append(
                f"Error: {service} lost its connection to 10.0.{rng.randint(0, 255)}.{rng.randint(1, 254)}"
            )
        return "\n".join(lines)

    def _prose(self, least: int, most: int) -> str:
        sentences = max(least, int(self._rng.randint(least, most) * self._length))
        said = [self._sentence() for _ in range(sentences)]
        return " ".join(said) or "Please look."

    def _sentence(self) -> str:
        words = self._rng.choice(_FILLER).split()
        self._rng.shuffle(words)
        return " ".join(words[: self._rng.randint(6, len(words))]).capitalize() + "."
