"""The conversations of a project: which there are, and whether they go on."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.namespaces import CONVERSATIONS
from langmem_tiers.items.models import NamespaceMatch
from langmem_tiers.projects.models import Conversation, ConversationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.items.service import Items
    from langmem_tiers.services import MemoryParts

_ALL = 1_000_000


class Conversations:
    """The conversations of one project.

    Args:
        items: Where their state is kept.
        parts: Where their messages are.
        project: Its namespace.
    """

    def __init__(self, items: Items, parts: MemoryParts, project: NamespacePath) -> None:
        self._items = items
        self._parts = parts
        self._project = project
        self._place = (CONVERSATIONS, *project)

    def projects(self, others: Iterable[NamespacePath]) -> tuple[str, ...]:
        """The projects that have conversations, or anything else, in the database."""
        found = self._items.namespaces([NamespaceMatch("prefix", (CONVERSATIONS,))])
        return tuple(dict.fromkeys(place[-1] for place in (*found, *others)))

    def all(self) -> tuple[Conversation, ...]:
        """All of them, oldest first."""
        found = self._items.search(self._place, limit=_ALL)
        known = [self._conversation(hit.item.key, hit.item.value) for hit in found]
        return tuple(sorted(known, key=lambda one: (one.started_at, one.id)))

    def get(self, name: str) -> Conversation | None:
        """One of them."""
        item = self._items.get(self._place, name)
        return None if item is None else self._conversation(name, item.value)

    def is_ended(self, name: str) -> bool:
        """Whether it was ended, by whomever."""
        item = self._items.get(self._place, name)
        return item is not None and item.value["status"] == ConversationStatus.ENDED

    def put(self, conversation: Conversation) -> Conversation:
        """Note how it stands; the conversation as it is now."""
        ended = None if conversation.ended_at is None else conversation.ended_at.isoformat()
        value = {
            "started_at": conversation.started_at.isoformat(),
            "ended_at": ended,
            "status": conversation.status.value,
            "outcome": conversation.outcome,
        }
        self._items.put(self._place, conversation.id, value, texts=())
        return self._conversation(conversation.id, value)

    def _conversation(self, name: str, value: dict[str, Any]) -> Conversation:
        session, ended = self._parts.short_term.sessions.find(self._project, name), value["ended_at"]
        return Conversation(
            id=name,
            project_id=self._project[-1],
            started_at=datetime.fromisoformat(value["started_at"]),
            ended_at=None if ended is None else datetime.fromisoformat(ended),
            status=ConversationStatus(value["status"]),
            outcome=value["outcome"],
            total_turns=0 if session is None else self._parts.lasting.store.last_turn(session.key),
        )
