"""A thread cut to its budget without a record: the newest of it, and the question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from langmem_tiers.errors import BudgetExceededError
from langmem_tiers_langchain.repair import repaired

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_QUESTION_PART = 4
"""Of the room, one part in so many is the question's if it needs that."""


class PlainCut:
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
        self._groups = _groups(repaired(said))
        self._size = size
        self._shortened = shortened
        asked = [n for n, group in enumerate(self._groups) if group[0] is question]
        self._asked = asked[0] if asked else len(self._groups) - 1

    def within(self, room: int) -> tuple[list[BaseMessage], bool]:
        """What has room, and whether anything was left out.

        Raises:
            BudgetExceededError: Not even the newest message and the question fit.
        """
        groups, newest, chosen = list(self._groups), len(self._groups) - 1, dict[int, list[BaseMessage]]()
        if groups:
            groups[newest] = self._beside_the_question(groups[newest], room)
        sizes = [sum(map(self._size, group)) for group in groups]
        if groups and sizes[newest] > room:
            raise BudgetExceededError(
                f"the newest message takes {sizes[newest]} tokens where {room} are left: raise the budget"
            )
        if groups:
            chosen[newest] = groups[newest]
            room -= sizes[newest]
        if groups and self._asked not in chosen:
            question = self._shortened(groups[self._asked][0], room)
            if self._size(question) > room:
                raise BudgetExceededError(
                    f"the newest messages leave {room} tokens for the question, in its fewest words "
                    f"{self._size(question)}: raise the budget"
                )
            chosen[self._asked] = [question]
            room -= self._size(question)
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

    def _beside_the_question(self, group: list[BaseMessage], room: int) -> list[BaseMessage]:
        # The results of tools make room for the question that they are to answer.
        asked = self._groups[self._asked][0]
        left = room if asked in group else room - min(self._size(asked), room // _QUESTION_PART)
        if sum(map(self._size, group)) <= left:
            return group
        results = [one for one in group if isinstance(one, ToolMessage)]
        left -= sum(self._size(one) for one in group if one not in results)
        return [self._shortened(one, left // len(results)) if one in results else one for one in group]


def _groups(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    # Repaired, so results stand right behind their calls.
    groups: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups
