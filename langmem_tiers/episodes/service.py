"""Episodic memory: moments of conversations, and the stories that they tell."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Unpack

from langmem_tiers.common.decay import compute_decay_since
from langmem_tiers.common.entries import Entry, Tier
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.config import check_limit
from langmem_tiers.display.displayable import DisplayableTuple, NotebookDisplayable, build_list_display
from langmem_tiers.display.tables import MAX_TABLE_ROWS
from langmem_tiers.episodes.models import Episode, EpisodeDraft, EpisodeKind, NarrativeArc
from langmem_tiers.episodes.narrative_arc import build_narrative_arc, merge_overlapping_episodes
from langmem_tiers.errors import EntryNotFoundError, InvalidInputError
from langmem_tiers.long_term.entry_filters import build_filters
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite, NewEntry
from langmem_tiers.recall.entry_search import build_search_terms, get_search_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import SessionStore
    from langmem_tiers.config import LearningConfig
    from langmem_tiers.display.tables import DisplayContent
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.entry_filters import FilterOptions
    from langmem_tiers.long_term.records import StoredEntry

_PAGE_SIZE = 500
_MAX_SESSION_EPISODES = 1_000_000
_DETAIL_FIELDS = ("title", "summary", "context", "outcome", "valence", "first_turn", "last_turn")
_NO_FILTERS = EntryFilters()


class Episodes(NotebookDisplayable):
    """The episodes of a namespace. Get it from ``namespace.episodes``."""

    def __init__(
        self,
        parts: LongTermDependencies,
        sessions: SessionStore,
        config: LearningConfig,
        namespace: NamespacePath,
    ) -> None:
        self._dependencies = parts
        self._store = parts.store
        self._sessions = sessions
        self._config = config
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"Episodes({'/'.join(self._namespace)!r})"

    def _to_display(self) -> DisplayContent:
        return build_list_display(repr(self), self.page(limit=MAX_TABLE_ROWS), "the newest episodes")

    def record(self, session: str, draft: EpisodeDraft) -> Episode:
        """Remember a moment of a session.

        Raises:
            EntryNotFoundError: There is no such session, or no such entry as it is linked with.
        """
        if not isinstance(draft, EpisodeDraft):
            raise InvalidInputError(f"record() takes an EpisodeDraft, got a {type(draft).__name__}")
        key = self._require_session_key(session)
        there = self._store.get(self._namespace, draft.linked)
        for name in draft.linked:
            if name not in there:
                raise EntryNotFoundError(
                    f"there is no entry {name!r} to link the episode with: nothing was stored"
                )
        (episode,) = self.build_episodes(session, [draft])
        self.save(key, [episode])
        self.archive_excess()
        return episode

    def build_episodes(
        self, session: str, drafts: Sequence[EpisodeDraft], times: Mapping[int, datetime] | None = None
    ) -> list[Episode]:
        """Drafts as episodes that are not kept yet.

        Args:
            session: Whose.
            drafts: What happened.
            times: When each turn was; now, if left out.
        """
        now = self._dependencies.now()
        when = {} if times is None else {turn: min(now, moment) for turn, moment in times.items()}
        return [
            Episode(
                **{field.name: getattr(draft, field.name) for field in fields(EpisodeDraft)},
                id=self._dependencies.new_id(),
                namespace=self._namespace,
                session=session,
                created_at=when.get(draft.last_turn, now),
                last_access_at=now,
                token_count=self._dependencies.token_counter.count(render_episode(draft)),
            )
            for draft in drafts
        ]

    def save(self, session_key: int, episodes: Sequence[Episode]) -> None:
        """Keep episodes, in place of those with the same ids."""
        if episodes:
            write = MemoryWrite(put=tuple(build_episode_entry(one, session_key) for one in episodes))
            self._store.commit(self._namespace, write, self._dependencies.now())

    def link(self, session_key: int, entries: Mapping[int, Sequence[str]]) -> None:
        """Link episodes of a session with long-term entries.

        Args:
            session_key: Which session.
            entries: Ids of entries, by the turn that they come from.
        """
        while entries:
            revision = self._store.get_revision(self._namespace)
            kept = self._store.list_session_entries(
                self._namespace, session_key, Tier.EPISODIC, limit=_MAX_SESSION_EPISODES
            )
            changed = [one for one in map(to_episode, kept) if _find_links(one, entries) - set(one.linked)]
            if not changed:
                return
            linked = (
                replace(one, linked=(*one.linked, *sorted(_find_links(one, entries) - set(one.linked))))
                for one in changed
            )
            put = tuple(build_episode_entry(one, session_key) for one in linked)
            write = MemoryWrite(put=put, revision=revision)
            if self._store.commit(self._namespace, write, self._dependencies.now()):
                return

    def get(self, episode_id: str) -> Episode | None:
        """One episode."""
        found = self._store.get(self._namespace, [check_name(episode_id, "episode id")]).get(episode_id)
        return (
            None
            if found is None or found.entry.tier is not Tier.EPISODIC
            else self._to_current_episode(found)
        )

    def page(
        self, *, limit: int = 100, before: str | None = None, **which: Unpack[FilterOptions]
    ) -> tuple[Episode, ...]:
        """Episodes, the last found first.

        Args:
            limit: How many at most.
            before: Id of the last one of the page before.
            **which: Filters, as of long-term entries; ``kinds`` are kinds of episodes.
        """
        check_limit(limit)
        key = None if before is None else self._require_stored(before).key
        filters = build_filters(which, self._dependencies.now())
        page = self._store.list_entries(self._namespace, Tier.EPISODIC, filters, before=key, limit=limit)
        return DisplayableTuple(map(self._to_current_episode, page))

    def __iter__(self) -> Iterator[Episode]:
        now, before = EntryFilters(valid_at=self._dependencies.now()), None
        while page := self._store.list_entries(
            self._namespace, Tier.EPISODIC, now, before=before, limit=_PAGE_SIZE
        ):
            yield from map(self._to_current_episode, page)
            before = page[-1].key

    def arc(self, session: str) -> NarrativeArc:
        """The story of a session: its episodes by thirds, and the key moments.

        Raises:
            EntryNotFoundError: There is no such session.
        """
        key = self._require_session_key(session)
        kept = self._store.list_session_entries(
            self._namespace, key, Tier.EPISODIC, limit=_MAX_SESSION_EPISODES
        )
        return build_narrative_arc(
            session, self._store.get_last_turn(key), [self._to_current_episode(one) for one in kept]
        )

    def forget(self, episode_id: str) -> bool:
        """Erase an episode; whether it was there."""
        there = self.get(episode_id) is not None
        return there and self._store.delete(self._namespace, [episode_id]) > 0

    def archive_excess(self) -> tuple[int, int]:
        """Archive those of too many that matter least by now; how many that were, and their tokens."""
        over = self._store.count(self._namespace, Tier.EPISODIC) - self._config.max_episodes
        if over <= 0:
            return 0, 0
        kept = self._load_all()
        now = self._dependencies.now()

        def worth(one: StoredEntry) -> float:
            entry = self._dependencies.access_counter.with_pending_accesses(one).entry
            last = entry.last_access_at or entry.created_at
            return entry.importance * compute_decay_since(
                last, entry.access_count, now, self._config.half_life_days
            )

        least = sorted(kept, key=lambda one: (worth(one), one.key))[:over]
        return self._store.archive(self._namespace, [one.key for one in least], now)

    def merge(self) -> tuple[int, int]:
        """Make one of those that overlap; how many are no longer there by themselves, and the tokens saved.

        The one that they become is new: whoever asks how things stood before sees the others.
        """
        merged = tokens = 0
        for session in sorted({one.entry.session or "" for one in self._load_all()}):
            done = self._merge_session(session)
            merged, tokens = merged + done[0], tokens + done[1]
        return merged, tokens

    def _merge_session(self, session: str) -> tuple[int, int]:
        found = self._sessions.get(self._namespace, session)
        if found is None:
            return 0, 0
        while True:
            revision, now = self._store.get_revision(self._namespace), self._dependencies.now()
            kept = self._store.list_session_entries(
                self._namespace, found.key, Tier.EPISODIC, limit=_MAX_SESSION_EPISODES
            )
            groups = merge_overlapping_episodes([to_episode(one) for one in kept])
            keepers = [self._build_merged_entry(group.keeper, found.key, now) for group in groups]
            gone = {one.id for group in groups for one in (group.keeper, *group.absorbed)}
            write = MemoryWrite(put=tuple(keepers), archive=tuple(sorted(gone)), revision=revision)
            if not groups or self._store.commit(self._namespace, write, now):
                before = sum(group.keeper.token_count for group in groups)  # of all that they were made of
                after = sum(keeper.entry.token_count for keeper in keepers)
                return sum(len(group.absorbed) for group in groups), max(0, before - after)

    def _build_merged_entry(self, keeper: Episode, session_key: int, now: datetime) -> NewEntry:
        new = build_episode_entry(replace(keeper, id=self._dependencies.new_id()), session_key)
        count = self._dependencies.token_counter.count(new.entry.content)
        return replace(new, entry=replace(new.entry, token_count=count, valid_from=now))

    def _load_all(self) -> list[StoredEntry]:
        found: list[StoredEntry] = []
        before: int | None = None
        while page := self._store.list_entries(
            self._namespace, Tier.EPISODIC, _NO_FILTERS, before=before, limit=_PAGE_SIZE
        ):
            found += page
            before = page[-1].key
        return found

    def _to_current_episode(self, kept: StoredEntry) -> Episode:
        return to_episode(self._dependencies.access_counter.with_pending_accesses(kept))

    def _require_stored(self, episode_id: str) -> StoredEntry:
        found = self._store.get(self._namespace, [check_name(episode_id, "episode id")]).get(episode_id)
        if found is None or found.entry.tier is not Tier.EPISODIC:
            raise EntryNotFoundError(f"{self!r} has no episode {episode_id!r}: use an id that page() gave")
        return found

    def _require_session_key(self, session: str) -> int:
        found = self._sessions.get(self._namespace, check_name(session))
        if found is None:
            raise EntryNotFoundError(f"there is no session {session!r}: use the name of one that was opened")
        return found.key


def _find_links(episode: Episode, entries: Mapping[int, Sequence[str]]) -> set[str]:
    return {
        name
        for turn, names in entries.items()
        if episode.first_turn <= turn <= episode.last_turn
        for name in names
    }


def render_episode(draft: EpisodeDraft) -> str:
    """What an episode says in a context: what happened, and what came of it."""
    is_named = draft.title.rstrip(" .…") in draft.summary
    outcome = "" if not draft.outcome or draft.outcome in draft.summary else f" Outcome: {draft.outcome}"
    return f"{draft.summary if is_named else f'{draft.title}: {draft.summary}'}{outcome}"


def build_episode_entry(episode: Episode, session_key: int | None) -> NewEntry:
    """An episode ready to be kept."""
    entry = Entry(
        id=episode.id,
        namespace=episode.namespace,
        tier=Tier.EPISODIC,
        kind=episode.kind.value,
        content=render_episode(episode),
        created_at=episode.created_at,
        session=episode.session,
        importance=episode.significance,
        relevance=episode.significance,
        token_count=episode.token_count,
        valid_from=episode.created_at,
        access_count=episode.access_count,
        last_access_at=episode.last_access_at,
    )
    details: dict[str, Any] = {name: getattr(episode, name) for name in _DETAIL_FIELDS}
    details |= {"participants": list(episode.participants), "linked": list(episode.linked)}
    words = [*get_search_texts(entry), episode.context]
    return NewEntry(
        entry=entry,
        terms=build_search_terms(words),
        session_key=session_key,
        turn=episode.last_turn,
        details=details,
    )


def to_episode(kept: StoredEntry) -> Episode:
    """An episode as it is kept."""
    entry, details = kept.entry, kept.details
    return Episode(
        **{name: details[name] for name in _DETAIL_FIELDS},
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
