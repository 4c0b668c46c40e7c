"""Conversations of a project and their states."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.namespaces import CONVERSATIONS_LABEL
from langmem_tiers.items.models import NamespaceMatch
from langmem_tiers.projects.models import Conversation, ConversationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.items.service import Items
    from langmem_tiers.long_term.fact_repository import FactRepository
    from langmem_tiers.sessions.repository import SessionRepository

_MAX_CONVERSATIONS = 1_000_000


class ConversationRepository:
    """Repository of the conversations of one project.

    Args:
        items: Item store that holds the states of the conversations.
        sessions: Repository of the sessions with the messages.
        turns: Repository that numbers the turns of the sessions.
        project: Namespace of the project.
    """

    def __init__(
        self, items: Items, sessions: SessionRepository, turns: FactRepository, project: NamespacePath
    ) -> None:
        self._items = items
        self._sessions = sessions
        self._turns = turns
        self._project = project
        self._state_namespace = (CONVERSATIONS_LABEL, *project)

    def list_projects(self, others: Iterable[NamespacePath]) -> tuple[str, ...]:
        """Return the names of all projects in the database: those with conversations, and the given others."""
        found = self._items.namespaces([NamespaceMatch("prefix", (CONVERSATIONS_LABEL,))])
        return tuple(dict.fromkeys(path[-1] for path in (*found, *others)))

    def list_all(self) -> tuple[Conversation, ...]:
        """Return all conversations, oldest first."""
        found = self._items.search(self._state_namespace, limit=_MAX_CONVERSATIONS)
        conversations = [self._to_conversation(hit.item.key, hit.item.value) for hit in found]
        return tuple(
            sorted(conversations, key=lambda conversation: (conversation.started_at, conversation.id))
        )

    def get(self, name: str) -> Conversation | None:
        """Return a conversation, or None."""
        item = self._items.get(self._state_namespace, name)
        return None if item is None else self._to_conversation(name, item.value)

    def is_ended(self, name: str) -> bool:
        """Return True if the conversation was ended, even by another process."""
        item = self._items.get(self._state_namespace, name)
        return item is not None and item.value["status"] == ConversationStatus.ENDED

    def save(self, conversation: Conversation) -> Conversation:
        """Store the state of a conversation and return the stored conversation."""
        ended = None if conversation.ended_at is None else conversation.ended_at.isoformat()
        value = {
            "started_at": conversation.started_at.isoformat(),
            "ended_at": ended,
            "status": conversation.status.value,
            "outcome": conversation.outcome,
        }
        # texts=(): states are not searchable text.
        self._items.put(self._state_namespace, conversation.id, value, texts=())
        return self._to_conversation(conversation.id, value)

    def _to_conversation(self, name: str, value: dict[str, Any]) -> Conversation:
        session, ended = self._sessions.get(self._project, name), value["ended_at"]
        return Conversation(
            id=name,
            project_id=self._project[-1],
            started_at=datetime.fromisoformat(value["started_at"]),
            ended_at=None if ended is None else datetime.fromisoformat(ended),
            status=ConversationStatus(value["status"]),
            outcome=value["outcome"],
            total_turns=0 if session is None else self._turns.get_last_turn(session.key),
        )
