"""Episodic memory: store, link, merge and archive key moments of conversations."""

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
from langmem_tiers.long_term.models import EntryFilters
from langmem_tiers.long_term.records import MemoryWrite, NewEntry
from langmem_tiers.long_term.rules import build_filters
from langmem_tiers.recall.entry_search import build_search_terms, get_search_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import LearningConfig
    from langmem_tiers.display.tables import DisplayContent
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.long_term.rules import FilterOptions
    from langmem_tiers.sessions.repository import SessionRepository

_PAGE_SIZE = 500
_MAX_SESSION_EPISODES = 1_000_000
_DETAIL_FIELDS = ("title", "summary", "context", "outcome", "valence", "first_turn", "last_turn")
_NO_FILTERS = EntryFilters()


class Episodes(NotebookDisplayable):
    """Episodes of a namespace. Get it from ``namespace.episodes``."""

    def __init__(
        self,
        dependencies: LongTermDependencies,
        sessions: SessionRepository,
        config: LearningConfig,
        namespace: NamespacePath,
    ) -> None:
        self._dependencies = dependencies
        self._store = dependencies.store
        self._sessions = sessions
        self._config = config
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"Episodes({'/'.join(self._namespace)!r})"

    def _to_display(self) -> DisplayContent:
        return build_list_display(repr(self), self.page(limit=MAX_TABLE_ROWS), "the newest episodes")

    def record(self, session: str, draft: EpisodeDraft) -> Episode:
        """Store an episode of a session.

        Raises:
            EntryNotFoundError: The session, or an entry that the episode is linked to, does not exist.
        """
        if not isinstance(draft, EpisodeDraft):
            raise InvalidInputError(
                f"expected EpisodeDraft, got {type(draft).__name__}: pass EpisodeDraft(...)"
            )
        key = self._require_session_key(session)
        linked = self._store.get(self._namespace, draft.linked)
        for entry_id in draft.linked:
            if entry_id not in linked:
                raise EntryNotFoundError(f"no entry {entry_id!r} to link the episode to: nothing was stored")
        (episode,) = self.build_episodes(session, [draft])
        self.save(key, [episode])
        self.archive_excess()
        return episode

    def build_episodes(
        self, session: str, drafts: Sequence[EpisodeDraft], times: Mapping[int, datetime] | None = None
    ) -> list[Episode]:
        """Build episodes from drafts without storing them.

        Args:
            session: Name of the session.
            drafts: Drafts of the episodes.
            times: Time of each turn. Default: now.
        """
        now = self._dependencies.now()
        # A message may be dated in the future, an episode may not: it would not be valid yet.
        when = {} if times is None else {turn: min(now, time) for turn, time in times.items()}
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
        """Store episodes; existing ones with the same ids are replaced."""
        if episodes:
            write = MemoryWrite(put=tuple(build_episode_entry(episode, session_key) for episode in episodes))
            self._store.commit(self._namespace, write, self._dependencies.now())

    def link(self, session_key: int, entries: Mapping[int, Sequence[str]]) -> None:
        """Link episodes of a session to long-term entries.

        Args:
            session_key: Key of the session.
            entries: Ids of the entries, by the turn of their source message.
        """
        while entries:
            revision = self._store.get_revision(self._namespace)
            stored = self._store.list_session_entries(
                self._namespace, session_key, Tier.EPISODIC, limit=_MAX_SESSION_EPISODES
            )
            changed = [
                episode
                for episode in map(to_episode, stored)
                if _find_links(episode, entries) - set(episode.linked)
            ]
            if not changed:
                return
            linked = (
                replace(
                    episode,
                    linked=(*episode.linked, *sorted(_find_links(episode, entries) - set(episode.linked))),
                )
                for episode in changed
            )
            put = tuple(build_episode_entry(episode, session_key) for episode in linked)
            # The commit fails if the namespace has changed since the revision was read. Then read and link again:
            # otherwise two writers could overwrite each other's links.
            write = MemoryWrite(put=put, revision=revision)
            if self._store.commit(self._namespace, write, self._dependencies.now()):
                return

    def get(self, episode_id: str) -> Episode | None:
        """Return the episode with this id, or None."""
        # Ids are shared by all tiers: the entry may be of another one.
        found = self._store.get(self._namespace, [check_name(episode_id, "episode id")]).get(episode_id)
        return (
            None
            if found is None or found.entry.tier is not Tier.EPISODIC
            else self._to_current_episode(found)
        )

    def page(
        self, *, limit: int = 100, before: str | None = None, **which: Unpack[FilterOptions]
    ) -> tuple[Episode, ...]:
        """Return one page of episodes, the most recently stored first.

        Args:
            limit: Maximum number of episodes.
            before: Id of the last episode of the previous page.
            **which: The same filters as for long-term entries; ``kinds`` are episode kinds.
        """
        check_limit(limit)
        key = None if before is None else self._require_episode(before).key
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
        """Return the narrative arc of a session: its episodes by thirds, and the key moments.

        Raises:
            EntryNotFoundError: The session does not exist.
        """
        key = self._require_session_key(session)
        stored = self._store.list_session_entries(
            self._namespace, key, Tier.EPISODIC, limit=_MAX_SESSION_EPISODES
        )
        return build_narrative_arc(
            session, self._store.get_last_turn(key), [self._to_current_episode(entry) for entry in stored]
        )

    def forget(self, episode_id: str) -> bool:
        """Erase an episode. Return True if it existed."""
        # `delete` accepts ids of any tier, so first make sure that this is an episode.
        exists = self.get(episode_id) is not None
        return exists and self._store.delete(self._namespace, [episode_id]) > 0

    def archive_excess(self) -> tuple[int, int]:
        """Archive the least relevant episodes above the limit. Return their number and their tokens."""
        excess = self._store.count(self._namespace, Tier.EPISODIC) - self._config.max_episodes
        if excess <= 0:
            return 0, 0
        stored = self._load_all()
        now = self._dependencies.now()

        def compute_worth(stored_entry: StoredEntry) -> float:
            entry = self._dependencies.access_counter.with_pending_accesses(stored_entry).entry
            last = entry.last_access_at or entry.created_at
            return entry.importance * compute_decay_since(
                last, entry.access_count, now, self._config.half_life_days
            )

        # Among equals, the older one (with the smaller key) goes first.
        least_relevant = sorted(stored, key=lambda entry: (compute_worth(entry), entry.key))[:excess]
        return self._store.archive(self._namespace, [entry.key for entry in least_relevant], now)

    def merge(self) -> tuple[int, int]:
        """Merge overlapping episodes. Return the number of absorbed episodes and of tokens saved.

        A merged episode gets a new id and is valid from now on. Queries for an earlier point in time still return the
        original episodes.
        """
        merged = tokens = 0
        for session in sorted({stored.entry.session or "" for stored in self._load_all()}):
            absorbed, saved = self._merge_session(session)
            merged, tokens = merged + absorbed, tokens + saved
        return merged, tokens

    def _merge_session(self, session: str) -> tuple[int, int]:
        found = self._sessions.get(self._namespace, session)
        if found is None:
            return 0, 0
        while True:
            # The revision is read before the episodes: the commit fails, and everything is read again, if another
            # process changes the namespace in between.
            revision, now = self._store.get_revision(self._namespace), self._dependencies.now()
            stored = self._store.list_session_entries(
                self._namespace, found.key, Tier.EPISODIC, limit=_MAX_SESSION_EPISODES
            )
            groups = merge_overlapping_episodes([to_episode(entry) for entry in stored])
            keepers = [self._build_merged_entry(group.keeper, found.key, now) for group in groups]
            # The keeper still has the id of one of the originals, which is archived like the others.
            archived = {episode.id for group in groups for episode in (group.keeper, *group.absorbed)}
            write = MemoryWrite(put=tuple(keepers), archive=tuple(sorted(archived)), revision=revision)
            if not groups or self._store.commit(self._namespace, write, now):
                # The token count of a keeper is the sum of its originals, see MergedEpisode.
                before = sum(group.keeper.token_count for group in groups)
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

    def _to_current_episode(self, stored: StoredEntry) -> Episode:
        # Accesses are counted in memory and written in batches; add those that are not written yet.
        return to_episode(self._dependencies.access_counter.with_pending_accesses(stored))

    def _require_episode(self, episode_id: str) -> StoredEntry:
        found = self._store.get(self._namespace, [check_name(episode_id, "episode id")]).get(episode_id)
        if found is None or found.entry.tier is not Tier.EPISODIC:
            raise EntryNotFoundError(f"{self!r} has no episode {episode_id!r}: use an id returned by page()")
        return found

    def _require_session_key(self, session: str) -> int:
        found = self._sessions.get(self._namespace, check_name(session))
        if found is None:
            raise EntryNotFoundError(f"no session {session!r}: use the name of an existing session")
        return found.key


def _find_links(episode: Episode, entries: Mapping[int, Sequence[str]]) -> set[str]:
    return {
        entry_id
        for turn, entry_ids in entries.items()
        if episode.first_turn <= turn <= episode.last_turn
        for entry_id in entry_ids
    }


def render_episode(draft: EpisodeDraft) -> str:
    """Render an episode as text for contexts: title, summary and outcome."""
    # The title of a detected episode is usually the start of its summary; leave out what is already said.
    is_named = draft.title.rstrip(" .…") in draft.summary
    outcome = "" if not draft.outcome or draft.outcome in draft.summary else f" Outcome: {draft.outcome}"
    return f"{draft.summary if is_named else f'{draft.title}: {draft.summary}'}{outcome}"


def build_episode_entry(episode: Episode, session_key: int | None) -> NewEntry:
    """Convert an episode to an entry for the store."""
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


def to_episode(stored: StoredEntry) -> Episode:
    """Convert a stored entry to an episode."""
    entry, details = stored.entry, stored.details
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
        is_archived=stored.archived_at is not None,
    )
