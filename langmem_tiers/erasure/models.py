"""Request, result and receipt of an erasure."""

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
    """Data to erase: a namespace, a session, a message, an entry, or a user in all namespaces."""

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
        """Build and check a request.

        Raises:
            InvalidInputError: The arguments name no target, or more than one.
        """
        if user is not None:
            if (namespace, session, message, entry) != (None, None, None, None):
                raise InvalidInputError(
                    f"forget(user={user!r}) accepts no other argument: it erases every namespace with this label"
                )
            return cls(user=check_name(user, "user"))
        if namespace is None:
            raise InvalidInputError(
                "forget() requires a namespace or a user: pass for example namespace='alice'"
            )
        if entry is not None and (session, message) != (None, None):
            raise InvalidInputError(
                f"entry {entry!r} belongs to a namespace, not to a session: omit session and message"
            )
        if message is not None and session is None:
            raise InvalidInputError(f"message {message!r} requires a session: pass its name as session")
        return cls(
            namespace=check_namespace(namespace),
            session=None if session is None else check_name(session),
            message=None if message is None else check_name(message, "message id"),
            entry=None if entry is None else check_entry_id(entry),
        )

    def __str__(self) -> str:
        values = ((part.name, getattr(self, part.name)) for part in fields(self))
        return ", ".join(f"{name}={value!r}" for name, value in values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedCounts:
    """Number of erased records by kind."""

    namespaces: int = 0
    sessions: int = 0
    messages: int = 0
    summaries: int = 0
    """Summaries of sessions, including those that were rebuilt without the erased messages."""
    chunks: int = 0
    episodes: int = 0
    facts: int = 0
    """Extracted facts."""
    entries: int = 0
    """Long-term entries."""
    patterns: int = 0
    knowledge: int = 0
    versions: int = 0
    """Earlier values of entries, knowledge and context files."""
    vectors: int = 0
    items: int = 0
    files: int = 0
    """Context files."""

    def __add__(self, other: ErasedCounts) -> ErasedCounts:
        return ErasedCounts(
            **{part.name: getattr(self, part.name) + getattr(other, part.name) for part in fields(self)}
        )

    @property
    def total(self) -> int:
        """Sum of all counts."""
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedIds(Displayable):
    """Names and ids of the erased data, for programs that keep copies of it elsewhere."""

    namespaces: tuple[NamespacePath, ...] = ()
    """Namespaces that were erased completely."""
    sessions: tuple[tuple[NamespacePath, str], ...] = ()
    """Sessions that were erased completely, by namespace and name."""
    messages: Mapping[tuple[NamespacePath, str], tuple[str, ...]] = field(default_factory=dict)
    """Ids of messages, by namespace and session."""
    entries: Mapping[NamespacePath, tuple[str, ...]] = field(default_factory=dict)
    """Ids of long-term entries, episodes, chunks, facts and knowledge that were erased or rewritten."""

    def holds(self, namespace: NamespacePath, session: str, message_id: str) -> bool:
        """Return True if a message was erased."""
        key = (namespace, session)
        if namespace in self.namespaces or key in self.sessions:
            return True
        return message_id in self.messages.get(key, ())

    def __add__(self, other: ErasedIds) -> ErasedIds:
        return ErasedIds(
            namespaces=(*self.namespaces, *other.namespaces),
            sessions=(*self.sessions, *other.sessions),
            messages=_merge_ids(self.messages, other.messages),
            entries=_merge_ids(self.entries, other.entries),
        )


def _merge_ids(
    first: Mapping[Any, tuple[str, ...]], second: Mapping[Any, tuple[str, ...]]
) -> dict[Any, tuple[str, ...]]:
    return {name: (*first.get(name, ()), *second.get(name, ())) for name in {**first, **second}}


Eraser: TypeAlias = Callable[[ErasedIds], Mapping[str, int]]
"""Function that erases external copies and returns the number of erased copies by kind.

It is called after the rows are deleted, and again with the same names if the same data is forgotten again. Exceptions
are reported in the receipt.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReceipt(Displayable):
    """Receipt of an erasure. It contains no erased content."""

    id: str
    asked: ErasureRequest
    erased_at: datetime
    counts: ErasedCounts
    remade: int = 0
    """Number of summaries, chunks, episodes and entries rebuilt without the erased content."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Number of erased copies outside the database, by kind."""
    is_scrubbed: bool = False
    """True if the files of the database no longer contain the erased content."""
    left: tuple[str, ...] = ()
    """Steps that failed, and what to do about them."""
    notes: tuple[str, ...] = ()
    """Copies that cannot be erased from here, for example backups."""

    @property
    def is_complete(self) -> bool:
        """True if all steps succeeded."""
        return not self.left

    def as_dict(self) -> dict[str, Any]:
        """Return the receipt as JSON values, with the time as text."""
        record = asdict(self) | {"erased_at": self.erased_at.isoformat(), "is_complete": self.is_complete}
        record["asked"] = {name: value for name, value in asdict(self.asked).items() if value is not None}
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubResult(Displayable):
    """Result of scrubbing the bytes of erased content from the files of the database."""

    left: tuple[str, ...] = ()
    """Steps that failed, and what to do about them."""
    notes: tuple[str, ...] = ()
    """Copies that cannot be scrubbed from here."""
    is_clear: bool = True
    """True if the files of the database themselves no longer contain the erased content."""
