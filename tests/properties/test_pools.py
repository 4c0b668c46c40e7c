"""A pool shows the current contributions of its members, and copies are erased with their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from langmem_tiers import MemoryEngine, NotAllowedError
from langmem_tiers.testing import FrozenClock, seeded_ids
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath

TEXTS = ("Lunch is at noon.", "We use PostgreSQL.", "The harbour is closed.", "Alice owns a red boat.")
OWNER = ("owner",)
OTHERS = (("a",), ("A",), ("a", "b"), ("a%",))
who = st.sampled_from((OWNER, *OTHERS))
member = st.sampled_from(OTHERS)
text = st.sampled_from(TEXTS)


class PoolMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.clock = FrozenClock()
        self.engine = MemoryEngine(embedder=None, clock=self.clock, ids=seeded_ids())
        self.pool = self.engine.pools.create("pool", owner=OWNER)
        self.rights: dict[NamespacePath, tuple[bool, bool]] = {OWNER: (True, True)}
        self.given: dict[str, set[NamespacePath]] = {each: set() for each in TEXTS}
        self.erased: set[NamespacePath] = set()

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()

    @rule(who=member, rights=st.sampled_from([(True, True), (True, False), (False, True)]))
    def add(self, who: NamespacePath, rights: tuple[bool, bool]) -> None:
        self.pool.add(who, can_read=rights[0], can_write=rights[1], by=OWNER)
        self.rights[who] = rights
        self.erased.discard(who)

    @rule(who=who, text=text)
    def contribute(self, who: NamespacePath, text: str) -> None:
        self.clock.advance(seconds=1)
        if not self.allowed(who, 1, lambda: self.pool.contribute(who, text)):
            return
        self.given[text].add(who)

    @rule(who=who)
    def sync(self, who: NamespacePath) -> None:
        self.clock.advance(seconds=1)
        if self.allowed(who, 0, lambda: self.pool.sync_to(who)):
            assert self.pool.sync_to(who).copied == ()
            shown = {each for each, those in self.given.items() if those}
            known = {entry.content for entry in self.engine.namespace(who).long_term.entries()}
            own = {each for each in shown if who in self.given[each]}
            assert shown - own <= known

    @rule(who=member, take_back=st.booleans())
    def leave(self, who: NamespacePath, take_back: bool) -> None:  # noqa: FBT001 - drawn
        if who not in self.rights:
            return
        self.pool.leave(who, take_back=take_back)
        del self.rights[who]
        if take_back:
            for those in self.given.values():
                those.discard(who)

    @rule(who=member)
    def erase(self, who: NamespacePath) -> None:
        self.engine.namespace(who).delete()
        self.rights.pop(who, None)
        self.erased.add(who)
        for those in self.given.values():
            those.discard(who)

    @invariant()
    def shows_what_was_given_and_nothing_else(self) -> None:
        if not hasattr(self, "engine"):
            return
        hits = {hit.entry.content: hit for hit in self.pool.query(OWNER, " ".join(TEXTS))}
        assert len(hits) == len(self.pool.query(OWNER, " ".join(TEXTS)))
        for each, those in self.given.items():
            assert (each in hits) == bool(those)
            if those:
                assert {contributor.namespace for contributor in hits[each].contributors} == those

    @invariant()
    def nothing_of_who_was_erased_is_anywhere(self) -> None:
        if not hasattr(self, "engine"):
            return
        assert {member.namespace for member in self.pool.members()} == set(self.rights)
        for who in (OWNER, *OTHERS):
            entries = self.engine.namespace(who).long_term.entries(archived=True, valid_at=None)
            origins = self.engine.services.pools.get_origins(who, [entry.id for entry in entries])
            assert not {origin.namespace for those in origins.values() for origin in those} & self.erased

    def allowed(self, who: NamespacePath, right: int, use: object) -> bool:
        assert callable(use)
        may = who in self.rights and self.rights[who][right]
        try:
            use()
        except NotAllowedError:
            assert not may
            return False
        assert may
        return True


TestPools = PoolMachine.TestCase
TestPools.settings = examples(15, steps=15)
