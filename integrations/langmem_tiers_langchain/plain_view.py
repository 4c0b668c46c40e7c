"""A thread cut to its budget without a record: the newest of it, and the question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from langmem_tiers.errors import BudgetExceededError
from langmem_tiers_langchain.repair import repair_tool_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_QUESTION_DIVISOR = 4
"""Of the room, one part in so many is the question's if it needs that."""


class ThreadTrimmer:
    """Chooses what of a thread is shown.

    Args:
        said: The thread.
        question: What of it has to stay in sight.
        size: What a message takes.
        shortened: A message within so many tokens, as far as that can be.
    """

    def __init__(
        self,
        said: Sequence[BaseMessage],
        question: BaseMessage | None,
        size: Callable[[BaseMessage], int],
        shortened: Callable[[BaseMessage, int], BaseMessage],
    ) -> None:
        self._groups = _group_messages(repair_tool_calls(said))
        self._count_tokens = size
        self._shorten = shortened
        asked = [n for n, group in enumerate(self._groups) if group[0] is question]
        self._question_index = asked[0] if asked else len(self._groups) - 1

    def trim(self, room: int) -> tuple[list[BaseMessage], bool]:
        """What has room, and whether anything was left out.

        Raises:
            BudgetExceededError: Not even the newest message and the question fit.
        """
        groups, newest, chosen = list(self._groups), len(self._groups) - 1, dict[int, list[BaseMessage]]()
        if groups:
            groups[newest] = self._fit_beside_question(groups[newest], room)
        sizes = [sum(map(self._count_tokens, group)) for group in groups]
        if groups and sizes[newest] > room:
            raise BudgetExceededError(
                f"the newest message takes {sizes[newest]} tokens where {room} are left: raise the budget"
            )
        if groups:
            chosen[newest] = groups[newest]
            room -= sizes[newest]
        if groups and self._question_index not in chosen:
            question = self._shorten(groups[self._question_index][0], room)
            if self._count_tokens(question) > room:
                raise BudgetExceededError(
                    f"the newest messages leave {room} tokens for the question, in its fewest words "
                    f"{self._count_tokens(question)}: raise the budget"
                )
            chosen[self._question_index] = [question]
            room -= self._count_tokens(question)
        leading = [n for n, group in enumerate(groups[:1]) if isinstance(group[0], SystemMessage)]
        older = (n for n in reversed(range(newest)) if n not in leading)
        for n in [*leading, *older]:
            if n in chosen:
                continue
            if sizes[n] > room:
                break
            chosen[n] = groups[n]
            room -= sizes[n]
        return [message for n in sorted(chosen) for message in chosen[n]], len(chosen) < len(groups)

    def _fit_beside_question(self, group: list[BaseMessage], room: int) -> list[BaseMessage]:
        # The results of tools make room for the question that they are to answer.
        asked = self._groups[self._question_index][0]
        left = room if asked in group else room - min(self._count_tokens(asked), room // _QUESTION_DIVISOR)
        if sum(map(self._count_tokens, group)) <= left:
            return group
        results = [one for one in group if isinstance(one, ToolMessage)]
        left -= sum(self._count_tokens(one) for one in group if one not in results)
        return [self._shorten(one, left // len(results)) if one in results else one for one in group]


def _group_messages(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    # Repaired, so results stand right behind their calls.
    groups: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups
