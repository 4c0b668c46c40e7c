"""What of a conversation is shown in full, what compressed, and what not at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from langmem_tiers.common.tool_call_groups import group_tool_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.messages import Message


@dataclass(frozen=True, slots=True)
class Partition:
    """Indexes of what was handed in, each in exactly one set, oldest first."""

    full: tuple[int, ...]
    compressed: tuple[int, ...]
    dropped: tuple[int, ...]
    tokens: int
    """What is pinned, full and compressed takes together; what is added to the pinned part fits the budget."""


class GroupSize(NamedTuple):
    """A group as the partition sees it: how many messages, how many tokens."""

    messages: int
    tokens: int


def partition_groups(
    groups: Sequence[GroupSize],
    budget: TokenBudget,
    *,
    compressed_tokens: Callable[[int], int] | None = None,
    pinned_tokens: int = 0,
    patience: int | None = None,
) -> Partition:
    """Divide groups, oldest first, from the newest backwards.

    1. The newest ``full_message_window`` messages stay full.
    2. Older ones stay full as long as that keeps within 85 % of the budget.
    3. Otherwise they are compressed, expected at 20 % of their size, as long as that keeps within 95 %.
    4. Otherwise they are dropped.

    A group in the window that does not fit the whole budget is treated as an older one.

    Args:
        groups: What must not be parted.
        budget: How much there is.
        compressed_tokens: What the group with that index takes when compressed; 20 % if left out.
        pinned_tokens: What is in use already.
        patience: After so many groups in a row without room all older ones are dropped untried, so that
            the cost follows from what fits and not from how much there is; every one is tried, if None.
    """
    if compressed_tokens is None:
        ratio = budget.compressed_ratio

        def compressed_tokens(index: int) -> int:
            return math.ceil(groups[index].tokens * ratio)

    total = pinned_tokens + sum([group.tokens for group in groups])
    if total <= budget.share(budget.full_share):  # the usual case
        return Partition(tuple(range(len(groups))), (), (), total)
    full: list[int] = []
    compressed: list[int] = []
    dropped: list[int] = []
    used, seen, refused = pinned_tokens, 0, 0
    for_full, for_compressed = budget.share(budget.full_share), budget.share(budget.compressed_share)
    for index in range(len(groups) - 1, -1, -1):
        if patience is not None and refused >= patience:
            dropped += range(index, -1, -1)
            break
        group = groups[index]
        in_window = seen < budget.full_message_window
        seen += group.messages
        limit = budget.available if in_window else for_full
        if used + group.tokens <= limit:
            full.append(index)
            used += group.tokens
        elif used + (size := compressed_tokens(index)) <= for_compressed:
            compressed.append(index)
            used += size
        else:
            dropped.append(index)
            refused += 1
            continue
        refused = 0
    return Partition(tuple(full[::-1]), tuple(compressed[::-1]), tuple(dropped[::-1]), used)


def partition_messages(
    messages: Sequence[Message], budget: TokenBudget
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """The messages that stay full, those to compress and those to drop, tool calls with their results."""
    groups = group_tool_calls(messages)
    sizes = [GroupSize(end - start, sum(m.token_count for m in messages[start:end])) for start, end in groups]
    parts = partition_groups(sizes, budget)

    def members(indexes: tuple[int, ...]) -> tuple[Message, ...]:
        return tuple(m for index in indexes for m in messages[slice(*groups[index])])

    return members(parts.full), members(parts.compressed), members(parts.dropped)
