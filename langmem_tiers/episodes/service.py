"""Episodic memory: moments of conversations, and the stories that they tell."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Unpack

from langmem_tiers.common.decay import decayed
from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.config import check_limit
from langmem_tiers.display.displayable import Listed, Showing, listing
from langmem_tiers.display.tables import ROWS
from langmem_tiers.episodes.models import Episode, EpisodeDraft, EpisodeKind, NarrativeArc
from langmem_tiers.episodes.narrative_arc import arc_of, merged_episodes
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError
from langmem_tiers.long_term.entry_filters import filters_of
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite, NewEntry
from langmem_tiers.recall.entry_search import found_by, terms_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import SessionStore
    from langmem_tiers.config import LearningConfig
    from langmem_tiers.display.tables import Sheet
    from langmem_tiers.long_term.dependencies import LastingParts
    from langmem_tiers.long_term.entry_filters import FilterWords
    from langmem_tiers.long_term.records import KeptEntry

_PAGE = 500
_ALL = 1_000_000
_DETAILS = ("title", "summary", "context", "outcome", "valence", "first_turn", "last_turn")
_EVER = EntryFilters()


class Episodes(Showing):
    """The episodes of a namespace. Get it from ``namespace.episodes``."""

    def __init__(
        self,
        parts: LastingParts,
        sessions: SessionStore,
        config: LearningConfig,
        namespace: NamespacePath,
    ) -> None:
        self._parts = parts
        self._store = parts.store
        self._sessions = sessions
        self._config = config
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"Episodes({'/'.join(self._namespace)!r})"

    def _sheet(self) -> Sheet:
        return listing(repr(self), self.page(limit=ROWS), "the newest episodes")

    def record(self, session: str, draft: EpisodeDraft) -> Episode:
        """Remember a moment of a session.

        Raises:
            EntryNotFoundError: There is no such session, or no such entry as it is linked with.
        """
        if not isinstance(draft, EpisodeDraft):
            raise InvalidInputError(f"record() takes an EpisodeDraft, got a {type(draft).__name__}")
        key = self._session_key(session)
        there = self._store.get(self._namespace, draft.linked)
        for name in draft.linked:
            if name not in there:
                raise EntryNotFoundError(
                    f"there is no entry {name!r} to link the episode with: nothing was stored"
                )
        (episode,) = self.drafted(session, [draft])
        self.keep(key, [episode])
        self.make_room()
        return episode

    def drafted(
        self, session: str, drafts: Sequence[EpisodeDraft], times: Mapping[int, datetime] | None = None
    ) -> list[Episode]:
        """Drafts as episodes that are not kept yet.

        Args:
            session: Whose.
            drafts: What happened.
            times: When each turn was; now, if left out.
        """
        now = self._parts.now()
        when = {} if times is None else {turn: min(now, moment) for turn, moment in times.items()}
        return [
            Episode(
                **{field.name: getattr(draft, field.name) for field in fields(EpisodeDraft)},
                id=self._parts.new_id(),
                namespace=self._namespace,
                session=session,
                created_at=when.get(draft.last_turn, now),
                last_access_at=now,
                token_count=self._parts.counter.count(told(draft)),
            )
            for draft in drafts
        ]

    def keep(self, session_key: int, episodes: Sequence[Episode]) -> None:
        """Keep episodes, in place of those with the same ids."""
        if episodes:
            write = MemoryWrite(put=tuple(new_episode(one, session_key) for one in episodes))
            self._store.commit(self._namespace, write, self._parts.now())

    def link(self, session_key: int, entries: Mapping[int, Sequence[str]]) -> None:
        """Link episodes of a session with long-term entries.

        Args:
            session_key: Which session.
            entries: Ids of entries, by the turn that they come from.
        """
        while entries:
            revision = self._store.revision(self._namespace)
            kept = self._store.of_session(self._namespace, session_key, Tier.EPISODIC, limit=_ALL)
            changed = [one for one in map(to_episode, kept) if _links(one, entries) - set(one.linked)]
            if not changed:
                return
            linked = (
                replace(one, linked=(*one.linked, *sorted(_links(one, entries) - set(one.linked))))
                for one in changed
            )
            put = tuple(new_episode(one, session_key) for one in linked)
            write = MemoryWrite(put=put, revision=revision)
            if self._store.commit(self._namespace, write, self._parts.now()):
                return

    def get(self, episode_id: str) -> Episode | None:
        """One episode."""
        found = self._store.get(self._namespace, [check_name(episode_id, "episode id")]).get(episode_id)
        return None if found is None or found.entry.tier is not Tier.EPISODIC else self._episode(found)

    def page(
        self, *, limit: int = 100, before: str | None = None, **which: Unpack[FilterWords]
    ) -> tuple[Episode, ...]:
        """Episodes, the last found first.

        Args:
            limit: How many at most.
            before: Id of the last one of the page before.
            **which: Filters, as of long-term entries; ``kinds`` are kinds of episodes.
        """
        check_limit(limit)
        key = None if before is None else self._kept(before).key
        filters = filters_of(which, self._parts.now())
        page = self._store.page(self._namespace, Tier.EPISODIC, filters, before=key, limit=limit)
        return Listed(map(self._episode, page))

    def __iter__(self) -> Iterator[Episode]:
        now, before = EntryFilters(valid_at=self._parts.now()), None
        while page := self._store.page(self._namespace, Tier.EPISODIC, now, before=before, limit=_PAGE):
            yield from map(self._episode, page)
            before = page[-1].key

    def arc(self, session: str) -> NarrativeArc:
        """The story of a session: its episodes by thirds, and the key moments.

        Raises:
            EntryNotFoundError: There is no such session.
        """
        key = self._session_key(session)
        kept = self._store.of_session(self._namespace, key, Tier.EPISODIC, limit=_ALL)
        return arc_of(session, self._store.last_turn(key), [self._episode(one) for one in kept])

    def forget(self, episode_id: str) -> bool:
        """Erase an episode; whether it was there."""
        there = self.get(episode_id) is not None
        return there and self._store.erase(self._namespace, [episode_id]) > 0

    def make_room(self) -> tuple[int, int]:
        """Archive those of too many that matter least by now; how many that were, and their tokens."""
        over = self._store.count(self._namespace, Tier.EPISODIC) - self._config.max_episodes
        if over <= 0:
            return 0, 0
        kept = self._all()
        now = self._parts.now()

        def worth(one: KeptEntry) -> float:
            entry = self._parts.uses.seen(one).entry
            last = entry.last_access_at or entry.created_at
            return entry.importance * decayed(last, entry.access_count, now, self._config.half_life_days)

        least = sorted(kept, key=lambda one: (worth(one), one.key))[:over]
        return self._store.archive(self._namespace, [one.key for one in least], now)

    def merge(self) -> tuple[int, int]:
        """Make one of those that overlap; how many are no longer there by themselves, and the tokens saved.

        The one that they become is new: whoever asks how things stood before sees the others.
        """
        merged = tokens = 0
        for session in sorted({one.entry.session or "" for one in self._all()}):
            done = self._merge_session(session)
            merged, tokens = merged + done[0], tokens + done[1]
        return merged, tokens

    def _merge_session(self, session: str) -> tuple[int, int]:
        found = self._sessions.find(self._namespace, session)
        if found is None:
            return 0, 0
        while True:
            revision, now = self._store.revision(self._namespace), self._parts.now()
            kept = self._store.of_session(self._namespace, found.key, Tier.EPISODIC, limit=_ALL)
            groups = merged_episodes([to_episode(one) for one in kept])
            keepers = [self._kept_as(group.keeper, found.key, now) for group in groups]
            gone = {one.id for group in groups for one in (group.keeper, *group.absorbed)}
            write = MemoryWrite(put=tuple(keepers), archive=tuple(sorted(gone)), revision=revision)
            if not groups or self._store.commit(self._namespace, write, now):
                before = sum(group.keeper.token_count for group in groups)  # of all that they were made of
                after = sum(keeper.entry.token_count for keeper in keepers)
                return sum(len(group.absorbed) for group in groups), max(0, before - after)

    def _kept_as(self, keeper: Episode, session_key: int, now: datetime) -> NewEntry:
        new = new_episode(replace(keeper, id=self._parts.new_id()), session_key)
        count = self._parts.counter.count(new.entry.content)
        return replace(new, entry=replace(new.entry, token_count=count, valid_from=now))

    def _all(self) -> list[KeptEntry]:
        found: list[KeptEntry] = []
        before: int | None = None
        while page := self._store.page(self._namespace, Tier.EPISODIC, _EVER, before=before, limit=_PAGE):
            found += page
            before = page[-1].key
        return found

    def _episode(self, kept: KeptEntry) -> Episode:
        return to_episode(self._parts.uses.seen(kept))

    def _kept(self, episode_id: str) -> KeptEntry:
        found = self._store.get(self._namespace, [check_name(episode_id, "episode id")]).get(episode_id)
        if found is None or found.entry.tier is not Tier.EPISODIC:
            raise EntryNotFoundError(f"{self!r} has no episode {episode_id!r}: use an id that page() gave")
        return found

    def _session_key(self, session: str) -> int:
        found = self._sessions.find(self._namespace, check_name(session))
        if found is None:
            raise EntryNotFoundError(f"there is no session {session!r}: use the name of one that was opened")
        return found.key


def _links(episode: Episode, entries: Mapping[int, Sequence[str]]) -> set[str]:
    return {
        name
        for turn, names in entries.items()
        if episode.first_turn <= turn <= episode.last_turn
        for name in names
    }


def told(draft: EpisodeDraft) -> str:
    """What an episode says in a context: what happened, and what came of it."""
    is_named = draft.title.rstrip(" .…") in draft.summary
    outcome = "" if not draft.outcome or draft.outcome in draft.summary else f" Outcome: {draft.outcome}"
    return f"{draft.summary if is_named else f'{draft.title}: {draft.summary}'}{outcome}"


def new_episode(episode: Episode, session_key: int | None) -> NewEntry:
    """An episode ready to be kept."""
    entry = Entry(
        id=episode.id,
        namespace=episode.namespace,
        tier=Tier.EPISODIC,
        kind=episode.kind.value,
        content=told(episode),
        created_at=episode.created_at,
        session=episode.session,
        importance=episode.significance,
        relevance=episode.significance,
        token_count=episode.token_count,
        valid_from=episode.created_at,
        access_count=episode.access_count,
        last_access_at=episode.last_access_at,
    )
    details: dict[str, Any] = {name: getattr(episode, name) for name in _DETAILS}
    details |= {"participants": list(episode.participants), "linked": list(episode.linked)}
    words = [*found_by(entry), episode.context]
    return NewEntry(
        entry=entry,
        terms=terms_for(words),
        session_key=session_key,
        turn=episode.last_turn,
        details=details,
    )


def to_episode(kept: KeptEntry) -> Episode:
    """An episode as it is kept."""
    entry, details = kept.entry, kept.details
    return Episode(
        **{name: details[name] for name in _DETAILS},
        participants=tuple(details["participants"]),
        linked=tuple(details["linked"]),
        kind=EpisodeKind(entry.kind),
        significance=entry.importance,
        id=entry.id,
        namespace=entry.namespace,
        session=entry.session or "",
        created_at=entry.created_at,
        token_count=entry.token_count,
        access_count=entry.access_count,
        last_access_at=entry.last_access_at,
        is_archived=kept.archived_at is not None,
    )
