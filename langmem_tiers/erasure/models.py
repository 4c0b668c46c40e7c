"""Forgetting: what is asked to be erased, what that comes to, and the receipt for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.common.namespaces import NamespacePath, check_entry_id, check_name, check_namespace
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """What is to be forgotten: a namespace, a session of it, a message of that, an entry, or a user everywhere."""

    namespace: NamespacePath | None = None
    session: str | None = None
    message: str | None = None
    entry: str | None = None
    user: str | None = None

    @classmethod
    def of(
        cls,
        *,
        namespace: str | Iterable[str] | None,
        session: str | None,
        message: str | None,
        entry: str | None,
        user: str | None,
    ) -> ErasureRequest:
        """The request, or an error for what names nothing or two things at once."""
        if user is not None:
            if (namespace, session, message, entry) != (None, None, None, None):
                raise InvalidInputError(
                    f"forget(user={user!r}) takes no other name: it is every namespace with that label"
                )
            return cls(user=check_name(user, "user"))
        if namespace is None:
            raise InvalidInputError("forget() needs a namespace or a user: pass e.g. namespace='alice'")
        if entry is not None and (session, message) != (None, None):
            raise InvalidInputError("an entry is of a namespace: leave session and message out")
        if message is not None and session is None:
            raise InvalidInputError(f"the message {message!r} is of a session: pass its name as session")
        return cls(
            namespace=check_namespace(namespace),
            session=None if session is None else check_name(session),
            message=None if message is None else check_name(message, "message id"),
            entry=None if entry is None else check_entry_id(entry),
        )

    def __str__(self) -> str:
        named = ((part.name, getattr(self, part.name)) for part in fields(self))
        return ", ".join(f"{name}={value!r}" for name, value in named if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedCounts:
    """How many of each kind are gone."""

    namespaces: int = 0
    sessions: int = 0
    messages: int = 0
    summaries: int = 0
    """Of sessions; one that was made anew from what is left counts too."""
    chunks: int = 0
    episodes: int = 0
    facts: int = 0
    """Extracted ones."""
    entries: int = 0
    """Of the long-term tier."""
    patterns: int = 0
    knowledge: int = 0
    versions: int = 0
    """Values that held before: of entries, of knowledge and of contexts."""
    vectors: int = 0
    items: int = 0
    files: int = 0
    """Contexts."""

    def __add__(self, other: ErasedCounts) -> ErasedCounts:
        return ErasedCounts(
            **{part.name: getattr(self, part.name) + getattr(other, part.name) for part in fields(self)}
        )

    @property
    def total(self) -> int:
        """All of them."""
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedIds(Displayable):
    """What is gone by name, for those who keep copies of it elsewhere."""

    namespaces: tuple[NamespacePath, ...] = ()
    """Gone whole."""
    sessions: tuple[tuple[NamespacePath, str], ...] = ()
    """Gone whole, each by its namespace and name."""
    messages: Mapping[tuple[NamespacePath, str], tuple[str, ...]] = field(default_factory=dict)
    """Ids, by namespace and session."""
    entries: Mapping[NamespacePath, tuple[str, ...]] = field(default_factory=dict)
    """Ids of long-term entries, episodes, chunks, facts and knowledge, or of those that are told anew."""

    def holds(self, namespace: NamespacePath, session: str, message_id: str) -> bool:
        """Whether a message is gone."""
        place = (namespace, session)
        if namespace in self.namespaces or place in self.sessions:
            return True
        return message_id in self.messages.get(place, ())

    def __add__(self, other: ErasedIds) -> ErasedIds:
        return ErasedIds(
            namespaces=(*self.namespaces, *other.namespaces),
            sessions=(*self.sessions, *other.sessions),
            messages=_merge_ids(self.messages, other.messages),
            entries=_merge_ids(self.entries, other.entries),
        )


def _merge_ids(
    one: Mapping[Any, tuple[str, ...]], other: Mapping[Any, tuple[str, ...]]
) -> dict[Any, tuple[str, ...]]:
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in {**one, **other}}


Eraser: TypeAlias = Callable[[ErasedIds], Mapping[str, int]]
"""Erases copies of what is gone and says how many of what that were.

It is called after the rows are gone, and again for the same names if somebody forgets them again. What it raises is
told in the receipt.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReceipt(Displayable):
    """What was erased, and nothing of what it said."""

    id: str
    asked: ErasureRequest
    erased_at: datetime
    counts: ErasedCounts
    remade: int = 0
    """Summaries, chunks, episodes and entries that are told anew from what is left."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Copies outside the database, by kind."""
    is_scrubbed: bool = False
    """Whether the files of the database hold nothing of it any more."""
    left: tuple[str, ...] = ()
    """What could not be done, and what to do about it."""
    notes: tuple[str, ...] = ()
    """What lies outside of what can be erased from here, such as backups."""

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for was done."""
        return not self.left

    def as_dict(self) -> dict[str, Any]:
        """As JSON, with the time as text."""
        found = asdict(self) | {"erased_at": self.erased_at.isoformat(), "is_complete": self.is_complete}
        found["asked"] = {name: value for name, value in asdict(self.asked).items() if value is not None}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubResult(Displayable):
    """How far the bytes of what was erased are gone from the files of the database."""

    left: tuple[str, ...] = ()
    """What could not be done, and what to do about it."""
    notes: tuple[str, ...] = ()
    """What lies outside of what can be done from here."""
    is_clear: bool = True
    """Whether that leaves the files of the database themselves without anything of it."""
