"""A project's memory as one object: start a conversation, add messages, build contexts, search, end, flush."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langmem_tiers.common.closeable import Closeable
from langmem_tiers.common.namespaces import CONVERSATIONS_LABEL, check_name
from langmem_tiers.common.recall_strategy import Strategy, TfIdfWeights
from langmem_tiers.config import EngineConfig, LearningConfig, RecallConfig
from langmem_tiers.context.namespace_recall import RawRecallRequest
from langmem_tiers.context.namespace_recall import recall_from_namespace as recall_memories
from langmem_tiers.context.session_context import expand_question
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.episodes.models import EpisodeDraft, EpisodeKind
from langmem_tiers.errors import InvalidConfigError, InvalidInputError, NotFoundError
from langmem_tiers.projects.conversations import ConversationRepository
from langmem_tiers.projects.json_files import CONVERSATIONS_FILE, build_project_files
from langmem_tiers.projects.models import Conversation, ConversationStatus, MemorySystemConfig
from langmem_tiers.projects.project_context import ContextAllocator, ContextSources
from langmem_tiers.recall.models import RecallFilters
from langmem_tiers.storage.file_io import make_folder, replace_file, translate_file_errors
from langmem_tiers.storage.file_locks import hold_file_lock
from langmem_tiers.text.token_counting import CharCounter
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ids import IdSource
    from langmem_tiers.common.messages import Message, Role
    from langmem_tiers.common.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.episodes.models import NarrativeArc
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.long_term.models import ConsolidationReport
    from langmem_tiers.namespace import Namespace
    from langmem_tiers.projects.models import ContextBuildResult
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.session import Session

DATABASE_FILE = "memory.db"
_ENDED_SIGNIFICANCE = 0.6
_WRITTEN_STATE_KEY = "files"
_EMPTY_STATE: dict[str, Any] = {"stamp": [0, 0, 0, 0, 0, 0], "conversations": []}
_MAX_CONTEXT_MESSAGES, _MAX_CONTEXT_MESSAGE_CHARACTERS = 3, 300
_BOOST_CANDIDATE_FACTOR = 3  # times as many as are asked for are looked at
_CONTEXT_BOOST_WEIGHT = 0.1  # for a memory that holds every word of what was spoken of
_LOCK_FILE, _LOCK_TIMEOUT_SECONDS = ".lock", 30.0
_MAX_CHUNKS = 1_000_000


class MemorySystem(Closeable):
    """The memory of one project, in a folder of its own.

    Everything that was added is on the disk when the call returns, in ``memory.db``. ``flush()`` writes it as JSON
    beside that, for people to read.

    Args:
        config: All settings; or give them by name, as in ``MemorySystem(memory_dir="...", chunk_size=10)``.
        counter: Counts tokens; four characters are one, if left out.
        model: Writes summaries of chunks; without one they are put together from what was said.
        embedder: Finds memories by meaning; ``"offline"`` is the one that is always there, None finds by words alone.
        clock: Where the time comes from.
        ids: Where ids come from.
        **settings: The fields of ``MemorySystemConfig``.
    """

    def __init__(
        self,
        config: MemorySystemConfig | None = None,
        *,
        counter: TokenCounter | None = None,
        model: LanguageModel | None = None,
        embedder: Embedder | Literal["offline"] | None = "offline",
        clock: Clock | None = None,
        ids: IdSource | None = None,
        **settings: Any,  # noqa: ANN401 - checked by the configuration
    ) -> None:
        self.config = _build_config(config, settings)
        self.folder = Path(self.config.memory_dir)
        with translate_file_errors(self.folder, "made"):
            make_folder(self.folder)
        self.engine = MemoryEngine(
            self.folder / DATABASE_FILE,
            config=_build_engine_config(self.config),
            counter=CharCounter() if counter is None else counter,
            model=model,
            embedder=embedder,
            clock=clock,
            ids=ids,
        )
        self.project: Namespace = self.engine.namespace(self.config.project_name)
        self._conversations = ConversationRepository(
            self.engine.items, self.engine.services, self.project.path
        )
        self._written_state_namespace = (f"{CONVERSATIONS_LABEL}, written", self.config.project_name)
        self._current_session: Session | None = None
        self._refuse_other_projects()
        self.engine.services.erasers.append(self._rewrite_files)

    def _rewrite_files(self, erased: ErasedIds) -> dict[str, int]:
        # What people read holds nothing either of what is gone.
        places = (
            *erased.namespaces,
            *erased.entries,
            *(path for path, _ in (*erased.sessions, *erased.messages)),
        )
        if self.project.path in places:
            self.flush()
        return {}

    def _refuse_other_projects(self) -> None:
        for project in self._conversations.list_projects(self.engine.namespaces()):
            if project != self.config.project_name:
                self.engine.close()
                raise InvalidConfigError(
                    f"{str(self.folder)!r} holds the memory of the project {project!r}: "
                    f"use another memory_dir for {self.config.project_name!r}"
                )

    def __repr__(self) -> str:
        return f"MemorySystem({str(self.folder)!r}, project_name={self.config.project_name!r})"

    def start_conversation(self, conversation_id: str | None = None) -> Conversation:
        """Begin a conversation, or go on with one that was paused or left open.

        Args:
            conversation_id: What it is called; a new one, if left out.

        Raises:
            InvalidInputError: It was ended.
        """
        name = (
            self.engine.new_id()
            if conversation_id is None
            else check_name(conversation_id, "conversation id")
        )
        known = self._conversations.get(name)
        if known is not None and known.status is ConversationStatus.ENDED:
            raise InvalidInputError(
                f"the conversation {name!r} was ended on {known.ended_at:%Y-%m-%d}: start another one, "
                "what was said in it is remembered"
            )
        self._current_session = self.project.session(name)
        started = self._now() if known is None else known.started_at
        return self._conversations.save(
            Conversation(id=name, project_id=self.config.project_name, started_at=started)
        )

    @property
    def conversation(self) -> Conversation | None:
        """The conversation at hand."""
        return None if self._current_session is None else self._conversations.get(self._current_session.name)

    def conversations(self) -> tuple[Conversation, ...]:
        """All conversations of the project, oldest first."""
        return self._conversations.list_all()

    def add_message(self, role: Role | str, content: str) -> Message:
        """Store a message of the conversation at hand, and learn from it.

        Raises:
            InvalidInputError: No conversation was started.
        """
        session = self._require_session()
        message = session.add(role, content).stored[0]
        session.learn()
        return message

    def build_context(self, query: str | None = None, *, system_prompt: str = "") -> ContextBuildResult:
        """What goes to the model: the system prompt, what was said last, memories and chunks, by priority.

        Args:
            query: What memory is asked for; the newest user message, if left out.
            system_prompt: The first thing in the context.

        Raises:
            BudgetExceededError: The system prompt and the newest message do not fit.
        """
        session = self._require_session()
        parts = self.engine.services
        recent = parts.get_chunks(session).list_recent_messages()
        retrieved = self._retrieve(query, recent)
        turns = self.config.short_term_retention_turns
        first_turn = parts.long_term.store.get_last_turn(session.key) - turns
        newest = parts.get_chunks(session).list_latest(turns // self.config.chunk_size + 2)
        chunks = [chunk for chunk in newest if chunk.last_turn > first_turn]
        return ContextAllocator(parts.short_term, self.config, self._now()).allocate(
            ContextSources(system_prompt=system_prompt, recent=recent, retrieved=retrieved, chunks=chunks)
        )

    def search(
        self,
        text: str,
        *,
        limit: int | None = None,
        filters: RecallFilters | None = None,
        context: str = "",
        weights: TfIdfWeights | None = None,
    ) -> tuple[Hit, ...]:
        """Memories that answer a text, the best first, each with what its five signals gave.

        Args:
            text: A question, or words.
            limit: How many at most; ``retrieval_top_k``, if left out.
            filters: Which, and with ``valid_at`` as of when.
            context: What was spoken of: memories with its words come before others that are as good.
            weights: What the signals count, in place of those of the configuration.
        """
        limit = self.config.retrieval_top_k if limit is None else limit
        parts = self.engine.services
        if weights is not None:
            recall = replace(parts.config.recall, tf_idf=weights)
            parts = replace(parts, config=replace(parts.config, recall=recall))
        wide = min(_BOOST_CANDIDATE_FACTOR * limit, parts.config.recall.max_limit) if context else limit
        wish = RawRecallRequest(text, max(limit, wide), Strategy.TF_IDF, _exclude_messages(filters))
        found = recall_memories(parts, self.project.path, wish).hits
        hits = [hit for hit in found if hit.score >= self.config.relevance_threshold]
        return tuple((_boost_by_context(hits, context) if context else hits)[:limit])

    def pause_conversation(self) -> Conversation:
        """Leave the conversation at hand for another time."""
        return self._close_conversation(ConversationStatus.PAUSED, None)

    def end_conversation(self, outcome: str | None = None) -> Conversation:
        """End the conversation at hand: all its messages become chunks, and what came of it an episode.

        Args:
            outcome: What came of it.
        """
        session = self._require_session()
        outcome = outcome if outcome and outcome.strip() else None
        session.learn(whole=True)
        turns = self.engine.services.long_term.store.get_last_turn(session.key)
        if outcome is not None and turns:
            draft = EpisodeDraft(
                kind=EpisodeKind.TASK_COMPLETED,
                title="Conversation ended",
                summary=outcome,
                outcome=outcome,
                participants=("user", "assistant"),
                significance=_ENDED_SIGNIFICANCE,
                first_turn=turns,
                last_turn=turns,
            )
            episodes = self.project.episodes
            (ended,) = episodes.build_episodes(session.name, [draft])
            # Under an id of its own, so that ending it again after a crash tells nothing twice.
            name = hashlib.blake2b(session.name.encode("utf-8", "replace"), digest_size=12).hexdigest()
            episodes.save(session.key, [replace(ended, id=f"ended-{name}")])
            episodes.archive_excess()
        return self._close_conversation(ConversationStatus.ENDED, outcome)

    def get_narrative_arc(self, conversation_id: str | None = None) -> NarrativeArc:
        """The story of a conversation: beginning, middle, end and key moments."""
        name = self._require_session().name if conversation_id is None else conversation_id
        return self.project.episodes.arc(name)

    def consolidate(self) -> ConsolidationReport:
        """Archive what is old and matters little, and make one of episodes that overlap."""
        return self.project.consolidate()

    def flush(self) -> tuple[Path, ...]:
        """Write what has changed since the last time as JSON for people to read; the files that were written."""
        self.engine.services.long_term.access_counter.flush()
        with (
            translate_file_errors(self.folder, "written"),
            hold_file_lock(self.folder / _LOCK_FILE, _LOCK_TIMEOUT_SECONDS),
        ):
            sessions = [(one, self.project.find_session(one.id)) for one in self.conversations()]
            known = [(one, session) for one, session in sessions if session is not None]
            state = self._build_state(known)
            if state == self._load_written_state():
                return ()
            written = []
            for name, value in build_project_files(self.engine.services, self.project.path, known).items():
                text = json.dumps(value, ensure_ascii=False, indent=2)
                # A lone surrogate becomes the escape that JSON has for it.
                replace_file(self.folder / name, (text + "\n").encode("utf-8", "backslashreplace"))
                written.append(self.folder / name)
            self.engine.items.put(self._written_state_namespace, _WRITTEN_STATE_KEY, state, texts=())
        return tuple(written)

    def close(self) -> None:
        """Write the JSON files and give the database back."""
        if not self.engine.is_closed:
            try:
                self.flush()
            finally:
                self.engine.close()

    def _build_state(self, known: list[tuple[Conversation, Session]]) -> dict[str, Any]:
        # What the files were made of: by it the next process sees whether they are as they should be.
        stamp = self.engine.services.long_term.store.get_change_stamp(self.project.path)
        talks = [[one.id, one.status.value, session.info().revision] for one, session in known]
        return {"stamp": list(stamp), "conversations": talks}

    def _load_written_state(self) -> dict[str, Any] | None:
        if not (self.folder / CONVERSATIONS_FILE).exists():
            return _EMPTY_STATE
        item = self.engine.items.get(self._written_state_namespace, _WRITTEN_STATE_KEY)
        return (
            None if item is None else item.value
        )  # whoever was forgotten altogether has files, and no note of them

    def _retrieve(self, query: str | None, recent: tuple[Message, ...]) -> tuple[Hit, ...]:
        if query is None:
            said = [one for one in recent if one.role == "user"]
            query = said[-1].content if said else ""
        if not query.strip():
            return ()
        if recent and recent[-1].content == query:  # it was added already
            recent = recent[:-1]
        spoken = "\n".join(
            one.content[:_MAX_CONTEXT_MESSAGE_CHARACTERS] for one in recent[-_MAX_CONTEXT_MESSAGES:]
        )
        return self.search(expand_question(query, recent), context=spoken)

    def _require_session(self) -> Session:
        if self._current_session is None:
            raise InvalidInputError("there is no conversation at hand: call start_conversation() first")
        if self._conversations.is_ended(self._current_session.name):
            name, self._current_session = self._current_session.name, None
            raise InvalidInputError(
                f"the conversation {name!r} was ended by somebody else: call start_conversation() for another one"
            )
        return self._current_session

    def _close_conversation(self, status: ConversationStatus, outcome: str | None) -> Conversation:
        session = self._require_session()
        known = self._conversations.get(session.name)
        if known is None:
            raise NotFoundError(f"the conversation {session.name!r} is gone: call start_conversation()")
        ended = self._now() if status is ConversationStatus.ENDED else None
        self._current_session = None
        return self._conversations.save(replace(known, status=status, ended_at=ended, outcome=outcome))

    def _now(self) -> datetime:
        return self.engine.services.now()


def _boost_by_context(hits: Sequence[Hit], context: str) -> list[Hit]:
    spoken = set(extract_terms(context))
    if not spoken:
        return list(hits)

    def boost(hit: Hit) -> float:
        return (
            _CONTEXT_BOOST_WEIGHT * len(spoken.intersection(extract_terms(hit.entry.content))) / len(spoken)
        )

    return sorted(hits, key=lambda hit: -(hit.score + boost(hit)))


def _exclude_messages(filters: RecallFilters | None) -> RecallFilters:
    # Messages as such are in the context or in a chunk already.
    given = RecallFilters() if filters is None else filters
    return replace(given, messages=False)


def _build_config(config: MemorySystemConfig | None, settings: dict[str, Any]) -> MemorySystemConfig:
    if config is not None and not isinstance(config, MemorySystemConfig):
        raise InvalidConfigError(f"config must be a MemorySystemConfig, got a {type(config).__name__}")
    known = {field.name for field in fields(MemorySystemConfig)}
    for name in settings:
        if name not in known:
            raise InvalidConfigError(f"unknown setting {name!r}: use one of {', '.join(sorted(known))}")
    return replace(MemorySystemConfig() if config is None else config, **settings)


def _build_engine_config(config: MemorySystemConfig) -> EngineConfig:
    weights = TfIdfWeights(recency=config.recency_weight, importance=config.importance_weight)
    return EngineConfig(
        learning=LearningConfig(
            chunk_messages=config.chunk_size,
            recent_messages=config.max_recent_messages,
            max_chunks=_MAX_CHUNKS,
            asks_model=False,
            max_episodes=config.max_episodic_memories,
            archive_after_days=config.consolidation_threshold_days,
        ),
        recall=RecallConfig(
            tf_idf=weights,
            limit=min(20, config.retrieval_top_k),
            max_limit=max(100, config.retrieval_top_k),
        ),
    )
