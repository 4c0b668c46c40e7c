"""What the suites for stores share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.core.messages import Message, Role

if TYPE_CHECKING:
    from langmem_tiers.core.names import NamespacePath
    from langmem_tiers.core.ports import MessageStore, SessionStore

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
HOSTILE_NAMES = (
    "a%",
    "a_",
    "a*",
    "a.",
    "a'",
    "a:",
    "a/b",
    "A",
    "a",
    "a ",
    "a\0",
    "å",
    "a\u030a",
    "\ud83d",
    "%00",
    "%25",
)


@dataclass(frozen=True)
class Stores:
    """The two stores under test, on one database."""

    sessions: SessionStore
    messages: MessageStore


class StoreConformance:
    """What both suites stand on."""

    @pytest.fixture
    def stores(self) -> Stores:
        """Your stores. They may hold other data: each test works in namespaces of its own."""
        raise NotImplementedError("define a fixture named 'stores' in your subclass")

    @pytest.fixture
    def namespace(self) -> NamespacePath:
        """A namespace that nobody else uses."""
        return ("conformance", uuid.uuid4().hex)

    @pytest.fixture
    def key(self, stores: Stores, namespace: NamespacePath) -> int:
        """A session with nothing in it."""
        return stores.sessions.open(namespace, "session", NOW).key


def message(content: str = "Hello", *, id: str | None = None, role: Role = Role.USER) -> Message:  # noqa: A002 - as in Message
    """A message with what the engine would have filled in."""
    return Message(
        id=id or uuid.uuid4().hex,
        role=role,
        content=content,
        created_at=NOW,
        token_count=2,
        token_counter="test",
    )


def contents(messages: tuple[Message, ...]) -> list[str]:
    """The texts, for comparing."""
    return [message.content for message in messages]
