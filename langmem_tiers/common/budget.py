"""Token budget of a prompt, and how the share for memory is divided."""

from __future__ import annotations

from dataclasses import dataclass, replace

from langmem_tiers.common.checks import check_fraction, check_whole
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.display.tables import DisplayContent, StackedBar, humanize_field_name
from langmem_tiers.errors import InvalidConfigError

_FRACTION_FIELDS = (
    "compression_trigger",
    "target_usage",
    "full_share",
    "compressed_share",
    "compressed_ratio",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget(Displayable):
    """A model's context window, the tokens reserved in it, and the compression thresholds for memory.

    Args:
        context_tokens: Size of the whole context window.
        system_tokens: Tokens reserved for the system prompt.
        response_tokens: Tokens reserved for the answer.
        tools_tokens: Tokens reserved for tool schemas.
        working_tokens: Tokens reserved for the current turn.
        full_message_window: Number of newest messages that are always shown in full.
        compression_trigger: Share of the available tokens at which compression of older messages starts.
        target_usage: Share of the available tokens in use after compression.
        full_share: Older messages stay full up to this share.
        compressed_share: Older messages stay compressed up to this share.
        compressed_ratio: Expected size of a compressed message relative to its full size.

    Raises:
        InvalidConfigError: The reserves leave no tokens for memory, or a share is invalid.
    """

    context_tokens: int = 200_000
    system_tokens: int = 5_000
    response_tokens: int = 4_096
    tools_tokens: int = 0
    working_tokens: int = 0
    full_message_window: int = 30
    compression_trigger: float = 0.7
    target_usage: float = 0.65
    full_share: float = 0.85
    compressed_share: float = 0.95
    compressed_ratio: float = 0.20

    def __post_init__(self) -> None:
        check_whole(self.context_tokens, 1, "context_tokens")
        for name in ("system_tokens", "response_tokens", "tools_tokens", "working_tokens"):
            check_whole(getattr(self, name), 0, name)
        check_whole(self.full_message_window, 1, "full_message_window")
        for name in _FRACTION_FIELDS:
            check_fraction(getattr(self, name), name)
        if self.full_share > self.compressed_share:
            raise InvalidConfigError(
                f"full_share {self.full_share!r} must not exceed compressed_share {self.compressed_share!r}: "
                "compressed messages come on top of full ones"
            )
        if self.available < 1:
            raise InvalidConfigError(
                f"a context of {self.context_tokens} tokens leaves nothing for memory after "
                f"{self.reserved} reserved ones: raise context_tokens or lower the reserves"
            )

    @property
    def reserved(self) -> int:
        """Number of reserved tokens."""
        return self.system_tokens + self.response_tokens + self.tools_tokens + self.working_tokens

    @property
    def available(self) -> int:
        """Number of tokens for memory: the window minus its reserves."""
        return self.context_tokens - self.reserved

    def share(self, fraction: float) -> int:
        """Return that fraction of the available tokens, rounded down."""
        # The small addend undoes binary rounding: int(100 * 0.29) would be 28.
        return int(self.available * fraction + 1e-9)

    def resized(self, tokens: int) -> TokenBudget:
        """Return a budget with exactly ``tokens`` tokens for memory, no reserves and the same shares."""
        return replace(
            self, context_tokens=tokens, system_tokens=0, response_tokens=0, tools_tokens=0, working_tokens=0
        )

    @classmethod
    def of(cls, tokens: int) -> TokenBudget:
        """Return a budget with exactly ``tokens`` tokens for memory and no reserves."""
        return cls(context_tokens=tokens, system_tokens=0, response_tokens=0)

    @classmethod
    def browser_agent(cls) -> TokenBudget:
        """Return the default budget: a window of 200,000 tokens with 190,904 available."""
        return cls()

    @classmethod
    def task_agent(cls) -> TokenBudget:
        """Return a budget of 64,000 tokens, a quarter of them for working memory; 50 recent entries."""
        return cls(
            context_tokens=64_000,
            system_tokens=0,
            response_tokens=0,
            working_tokens=16_000,
            full_message_window=50,
        )

    @classmethod
    def agent(cls, context_tokens: int = 128_000, *, tools: int = 0) -> TokenBudget:
        """Return a budget scaled to the window.

        Reserves 5 % for the system prompt and 10 % for the answer, at most 4,000 tokens each, and 500 tokens per tool.

        Args:
            context_tokens: Size of the context window.
            tools: Number of tools.
        """
        check_whole(context_tokens, 1, "context_tokens")
        return cls(
            context_tokens=context_tokens,
            system_tokens=min(4_000, context_tokens * 5 // 100),
            response_tokens=min(4_000, context_tokens * 10 // 100),
            tools_tokens=check_whole(tools, 0, "tools") * 500,
        )

    @classmethod
    def context_files(cls) -> TokenBudget:
        """Return a budget of 100,000 tokens of history, with the newest 30 messages in full."""
        return cls.of(100_000)

    @classmethod
    def assistant(cls) -> TokenBudget:
        """Return a budget of 128,000 tokens: 2,000 for the system, 8,000 for the current turn; 20 recent messages."""
        return cls(
            context_tokens=128_000,
            system_tokens=2_000,
            response_tokens=0,
            working_tokens=8_000,
            full_message_window=20,
        )

    def _to_display(self) -> DisplayContent:
        parts = {
            "system": self.system_tokens,
            "tools": self.tools_tokens,
            "current turn": self.working_tokens,
            "answer": self.response_tokens,
            "memory": self.available,
        }
        shares = {
            humanize_field_name(name): getattr(self, name)
            for name in ("full_message_window", *_FRACTION_FIELDS)
        }
        title = f"TokenBudget: {self.available:,} of {self.context_tokens:,} tokens for memory"
        return DisplayContent(title, shares, bar=StackedBar(parts, self.context_tokens))
