"""The public facade for extracted facts: list, promote and reject them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import check_name
from langmem_tiers.config import check_limit
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError
from langmem_tiers.facts.models import FactState, FactStateChangedError
from langmem_tiers.long_term.models import EntryDraft
from langmem_tiers.long_term.records import FactMove, MemoryWrite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.facts.models import ExtractedFact
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import Receipt
    from langmem_tiers.long_term.service import LongTerm

_PAGE_SIZE = 500
UNPROMOTED_STATES = frozenset(FactState) - {FactState.PROMOTED}


class Facts:
    """Extracted facts of a namespace and their states. Get it from ``namespace.facts``."""

    def __init__(
        self, dependencies: LongTermDependencies, long_term: LongTerm, namespace: NamespacePath
    ) -> None:
        self._dependencies = dependencies
        self._store = dependencies.store
        self._long_term = long_term
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"Facts({'/'.join(self._namespace)!r})"

    def page(
        self,
        states: Iterable[FactState | str] | None = None,
        *,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[ExtractedFact, ...]:
        """Return one page of facts, oldest first.

        Args:
            states: Only facts in one of these states, such as ``{"quarantined"}``. Default: all states.
            after: Id of the last fact of the previous page.
            limit: Maximum number of facts.
        """
        check_limit(limit)
        checked_states = None if states is None else _check_states(states)
        after = None if after is None else self._require_fact(after).id
        return self._store.list_facts(self._namespace, checked_states, after=after, limit=limit)

    def __iter__(self) -> Iterator[ExtractedFact]:
        last: str | None = None
        while page := self._store.list_facts(self._namespace, None, after=last, limit=_PAGE_SIZE):
            yield from page
            last = page[-1].id

    def get(self, fact_id: str) -> ExtractedFact | None:
        """Return the fact with this id, or None."""
        return self._store.get_fact(self._namespace, check_name(fact_id, "fact id"))

    def promote(self, fact_id: str, *, importance: float | None = None) -> Receipt:
        """Store a fact as a long-term entry, regardless of its confidence and state.

        Args:
            fact_id: Id of the fact.
            importance: Importance of the entry, from 0 to 1. Default: depends on the kind of the fact.

        Raises:
            EntryNotFoundError: The fact does not exist.
            InvalidInputError: The fact is already promoted.
        """
        fact = self._require_fact(fact_id)
        if fact.promoted:
            raise InvalidInputError(f"fact {fact_id!r} is already promoted as entry {fact.entry_id!r}")
        return self.promote_fact(fact, "manually", importance=importance)

    def promote_fact(
        self,
        fact: ExtractedFact,
        reason: str,
        *,
        importance: float | None = None,
        confidence: float | None = None,
        was: frozenset[FactState] = UNPROMOTED_STATES,
    ) -> Receipt:
        """Store a fact as a long-term entry and update its state in the same transaction.

        Args:
            fact: The fact to promote.
            reason: Recorded with the new state.
            importance: Importance of the entry, from 0 to 1. Default: depends on the kind of the fact.
            confidence: New confidence of the fact. Default: unchanged.
            was: States in which the fact may currently be.

        Raises:
            FactStateChangedError: The fact is in another state.
        """
        move = FactMove(fact.id, was, FactState.PROMOTED, reason, confidence=confidence)
        message = fact.source_message_id
        draft = EntryDraft(
            content=fact.content,
            kind=fact.kind,
            category=fact.category,
            tags=frozenset(fact.tags),
            importance=fact.importance if importance is None else importance,
            source=fact.source if message is None else f"message {message}",
            session=fact.session,
            valid_from=fact.valid_from,
            valid_until=fact.valid_until,
        )
        return self._long_term.put(draft, trusted=True, moves=move)

    def reject(self, fact_id: str, reason: str = "manually") -> None:
        """Mark a fact as rejected. It remains listed with this state.

        Raises:
            EntryNotFoundError: The fact does not exist.
            InvalidInputError: The fact is promoted; forget or close its entry instead.
        """
        self.move(self._require_fact(fact_id), FactState.REJECTED, reason)

    def move(
        self,
        fact: ExtractedFact,
        state: FactState,
        reason: str,
        *,
        confidence: float | None = None,
        was: frozenset[FactState] = UNPROMOTED_STATES,
    ) -> None:
        """Change the state of a fact that is not promoted.

        Args:
            fact: The fact to change.
            state: The new state.
            reason: Recorded with the new state.
            confidence: New confidence of the fact. Default: unchanged.
            was: States in which the fact may currently be.

        Raises:
            FactStateChangedError: The fact is promoted, or in a state that is not in ``was``.
        """
        # `commit` compares the stored state with `was`, so two concurrent reviewers cannot both move a fact.
        move = FactMove(fact.id, was, state, reason, confidence=confidence)
        if not self._store.commit(self._namespace, MemoryWrite(fact_moves=(move,)), self._dependencies.now()):
            raise FactStateChangedError(
                f"fact {fact.id!r} is promoted: use namespace.long_term.forget(entry_id) or close(entry_id)"
                if was >= UNPROMOTED_STATES
                else f"fact {fact.id!r} was changed concurrently: nothing was changed by this call"
            )

    def _require_fact(self, fact_id: str) -> ExtractedFact:
        found = self.get(fact_id)
        if found is None:
            raise EntryNotFoundError(f"{self!r} has no fact {fact_id!r}: use an id returned by page()")
        return found


def _check_state(state: object) -> FactState:
    try:
        return FactState(state)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(state.value for state in FactState)
        raise InvalidInputError(f"unknown state {state!r}: use one of {known}") from None


def _check_states(states: Iterable[object]) -> frozenset[FactState]:
    if isinstance(states, str):
        raise InvalidInputError(f"states must be a set, got {states!r}: use {{{states!r}}}")
    return frozenset(map(_check_state, states))
