"""Partition a conversation by a token budget into full, compressed and dropped groups."""

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
    """Indexes of groups, each in exactly one tuple, oldest first."""

    full: tuple[int, ...]
    compressed: tuple[int, ...]
    dropped: tuple[int, ...]
    tokens: int
    """Tokens of the pinned, full and compressed part. Groups are added to the pinned part only if they fit."""


class GroupSize(NamedTuple):
    """Size of a group in messages and tokens."""

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
    """Partition groups, starting with the newest.

    1. The newest ``full_message_window`` messages stay in full.
    2. Older groups stay in full while the total is at most 85% of the budget.
    3. Otherwise they are compressed, by default to 20% of their size, while the total is at most 95%.
    4. Otherwise they are dropped.

    A group in the window that does not fit the whole budget is treated like an older one. The percentages are
    settings of the budget.

    Args:
        groups: Sizes of the groups, oldest first. A group is never split.
        budget: Token budget.
        compressed_tokens: Returns the compressed size of the group at an index. Default: a fixed ratio.
        pinned_tokens: Tokens that are already used.
        patience: Number of consecutive groups that do not fit, after which all older groups are dropped untested.
            It makes the cost depend on the budget and not on the length of the session. Default: test all groups.
    """
    if compressed_tokens is None:
        ratio = budget.compressed_ratio

        def compressed_tokens(index: int) -> int:
            return math.ceil(groups[index].tokens * ratio)

    total = pinned_tokens + sum([group.tokens for group in groups])
    # Shortcut for the usual case: everything fits in full.
    if total <= budget.share(budget.full_share):
        return Partition(tuple(range(len(groups))), (), (), total)
    full: list[int] = []
    compressed: list[int] = []
    dropped: list[int] = []
    used, seen, rejected = pinned_tokens, 0, 0
    for_full, for_compressed = budget.share(budget.full_share), budget.share(budget.compressed_share)
    for index in range(len(groups) - 1, -1, -1):
        if patience is not None and rejected >= patience:
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
            rejected += 1
            continue
        # A group fits: only consecutive misfits count.
        rejected = 0
    return Partition(tuple(full[::-1]), tuple(compressed[::-1]), tuple(dropped[::-1]), used)


def partition_messages(
    messages: Sequence[Message], budget: TokenBudget
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """Partition messages into those in full, compressed and dropped; tool calls stay with their results."""
    groups = group_tool_calls(messages)
    sizes = [GroupSize(end - start, sum(m.token_count for m in messages[start:end])) for start, end in groups]
    parts = partition_groups(sizes, budget)

    def members(indexes: tuple[int, ...]) -> tuple[Message, ...]:
        return tuple(m for index in indexes for m in messages[slice(*groups[index])])

    return members(parts.full), members(parts.compressed), members(parts.dropped)
