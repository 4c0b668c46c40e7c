"""Extracted facts: what was found in messages, on its way into long-term memory."""

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
    """The extracted facts of a namespace, and what became of each. Get it from ``namespace.facts``."""

    def __init__(self, parts: LongTermDependencies, long_term: LongTerm, namespace: NamespacePath) -> None:
        self._dependencies = parts
        self._store = parts.store
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
        """Facts, oldest first.

        Args:
            states: Only those in one of these states, such as ``{"quarantined"}``.
            after: Id of the last one of the page before.
            limit: How many at most.
        """
        check_limit(limit)
        wanted = None if states is None else _check_states(states)
        after = None if after is None else self._require_fact(after).id
        return self._store.list_facts(self._namespace, wanted, after=after, limit=limit)

    def __iter__(self) -> Iterator[ExtractedFact]:
        last: str | None = None
        while page := self._store.list_facts(self._namespace, None, after=last, limit=_PAGE_SIZE):
            yield from page
            last = page[-1].id

    def get(self, fact_id: str) -> ExtractedFact | None:
        """One fact."""
        return self._store.get_fact(self._namespace, check_name(fact_id, "fact id"))

    def promote(self, fact_id: str, *, importance: float | None = None) -> Receipt:
        """Make a fact a long-term entry by hand, whatever its confidence and state.

        Args:
            fact_id: Which.
            importance: From 0 to 1; by its kind, if left out.

        Raises:
            EntryNotFoundError: There is no such fact.
            InvalidInputError: It was promoted already.
        """
        fact = self._require_fact(fact_id)
        if fact.promoted:
            raise InvalidInputError(f"the fact {fact_id!r} was promoted already, as entry {fact.entry_id!r}")
        return self.promote_fact(fact, "by hand", importance=importance)

    def promote_fact(
        self,
        fact: ExtractedFact,
        reason: str,
        *,
        importance: float | None = None,
        confidence: float | None = None,
        was: frozenset[FactState] = UNPROMOTED_STATES,
    ) -> Receipt:
        """Make a fact a long-term entry, in one step with its new state.

        Args:
            fact: Which.
            reason: Why.
            importance: From 0 to 1; by its kind, if left out.
            confidence: The one that it has from now on.
            was: It must be in one of these states still.

        Raises:
            FactMovedError: It is not.
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

    def reject(self, fact_id: str, reason: str = "by hand") -> None:
        """Say that a fact is none. It stays listed as rejected.

        Raises:
            EntryNotFoundError: There is no such fact.
            InvalidInputError: It was promoted: forget or close its entry.
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
        """Give a fact that was not promoted another state.

        Raises:
            FactMovedError: It was promoted, or is not in one of those states.
        """
        move = FactMove(fact.id, was, state, reason, confidence=confidence)
        if not self._store.commit(self._namespace, MemoryWrite(fact_moves=(move,)), self._dependencies.now()):
            raise FactStateChangedError(
                f"the fact {fact.id!r} was promoted: use namespace.long_term.forget(entry_id) or close(entry_id)"
                if was >= UNPROMOTED_STATES
                else f"the fact {fact.id!r} was changed by somebody else: nothing was changed here"
            )

    def _require_fact(self, fact_id: str) -> ExtractedFact:
        found = self.get(fact_id)
        if found is None:
            raise EntryNotFoundError(f"{self!r} has no fact {fact_id!r}: use an id that page() gave")
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
