"""Agents that an adapter offers to ``langmem-tiers demo``: the result of its ``demo.make_assistants``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of an agent, with the prompt behind it."""

    text: str
    prompt: str
    """Complete prompt that the model received."""
    prompt_tokens: int
    """Tokens of the prompt as reported by the model."""


class Assistant(Protocol):
    """An agent of a framework."""

    def ask(self, question: str, thread: str) -> Reply:
        """Ask the agent a question in a thread."""


@dataclass(frozen=True, slots=True)
class Assistants:
    """Two agents with the same model and the same threads, one of them with memory."""

    without_memory: Assistant
    with_memory: Assistant
