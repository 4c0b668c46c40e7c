"""MemorySystem: one object for the memory of a project."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from datetime import datetime
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
from langmem_tiers.items.models import NamespaceMatch
from langmem_tiers.projects.json_files import CONVERSATIONS_FILE, build_project_files
from langmem_tiers.projects.models import Conversation, ConversationStatus, MemorySystemConfig
from langmem_tiers.projects.project_context import ContextAllocator, ContextSources
from langmem_tiers.recall.models import RecallFilters
from langmem_tiers.storage.file_io import hold_file_lock, make_folder, replace_file, translate_file_errors
from langmem_tiers.text.token_counting import CharCounter
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ids import IdSource
    from langmem_tiers.common.messages import Message, Role
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.episodes.models import NarrativeArc
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.items.service import Items
    from langmem_tiers.long_term.fact_repository import FactRepository
    from langmem_tiers.long_term.models import ConsolidationReport
    from langmem_tiers.namespace import Namespace
    from langmem_tiers.projects.models import ContextBuildResult
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.session import Session
    from langmem_tiers.sessions.repository import SessionRepository


DATABASE_FILE = "memory.db"
_ENDED_SIGNIFICANCE = 0.6
_WRITTEN_STATE_KEY = "files"
_EMPTY_STATE: dict[str, Any] = {"stamp": [0, 0, 0, 0, 0, 0], "conversations": []}
_MAX_CONTEXT_MESSAGES, _MAX_CONTEXT_MESSAGE_CHARACTERS = 3, 300
_BOOST_CANDIDATE_FACTOR = 3  # candidates per requested result, so that the boost can move lower ones up
_CONTEXT_BOOST_WEIGHT = 0.1  # boost of a memory that contains all words of the context
_LOCK_FILE, _LOCK_TIMEOUT_SECONDS = ".lock", 30.0
_MAX_CHUNKS = 1_000_000


class MemorySystem(Closeable):
    """The memory of one project, in its own folder.

    Added messages are durable when the call returns, in ``memory.db``. ``flush()`` also writes the memory as readable
    JSON files to the same folder.

    Args:
        config: All settings. You can also pass them by name: ``MemorySystem(memory_dir="...", chunk_size=10)``.
        counter: Token counter. Default: four characters count as one token.
        model: Language model that summarizes chunks. Without one, summaries are extracted from the messages.
        embedder: Embedding model. Default: ``"offline"``, the built-in one. None searches by words only.
        clock: Source of the current time. Default: the system clock.
        ids: Source of new ids.
        **settings: Fields of ``MemorySystemConfig``.
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
        services = self.engine.services
        self._conversations = ConversationRepository(
            self.engine.items, services.short_term.sessions, services.long_term.store, self.project.path
        )
        self._written_state_namespace = (f"{CONVERSATIONS_LABEL}, written", self.config.project_name)
        self._current_session: Session | None = None
        self._refuse_other_projects()
        # After an erasure, the JSON files must not contain the erased data either.
        services.erasers.append(self._rewrite_files)

    def _rewrite_files(self, erased: ErasedIds) -> dict[str, int]:
        changed_namespaces = (
            *erased.namespaces,
            *erased.entries,
            *(path for path, _ in (*erased.sessions, *erased.messages)),
        )
        if self.project.path in changed_namespaces:
            self.flush()
        return {}

    def _refuse_other_projects(self) -> None:
        for project in self._conversations.list_projects(self.engine.namespaces()):
            if project != self.config.project_name:
                self.engine.close()
                raise InvalidConfigError(
                    f"{str(self.folder)!r} contains the memory of the project {project!r}: "
                    f"use another memory_dir for {self.config.project_name!r}"
                )

    def __repr__(self) -> str:
        return f"MemorySystem({str(self.folder)!r}, project_name={self.config.project_name!r})"

    def start_conversation(self, conversation_id: str | None = None) -> Conversation:
        """Start a conversation, or continue one that was paused or left open.

        Args:
            conversation_id: Id of the conversation. Default: a new id.

        Raises:
            InvalidInputError: The conversation has ended.
        """
        name = (
            self.engine.new_id()
            if conversation_id is None
            else check_name(conversation_id, "conversation id")
        )
        existing = self._conversations.get(name)
        if existing is not None and existing.status is ConversationStatus.ENDED:
            raise InvalidInputError(
                f"the conversation {name!r} was ended on {existing.ended_at:%Y-%m-%d}: start another one; "
                "its content is remembered"
            )
        self._current_session = self.project.session(name)
        started = self._now() if existing is None else existing.started_at
        return self._conversations.save(
            Conversation(id=name, project_id=self.config.project_name, started_at=started)
        )

    @property
    def conversation(self) -> Conversation | None:
        """The current conversation, or None."""
        return None if self._current_session is None else self._conversations.get(self._current_session.name)

    def conversations(self) -> tuple[Conversation, ...]:
        """Return all conversations of the project, oldest first."""
        return self._conversations.list_all()

    def add_message(self, role: Role | str, content: str) -> Message:
        """Store a message of the current conversation, and learn from it.

        Raises:
            InvalidInputError: No conversation is active.
        """
        session = self._require_session()
        message = session.add(role, content).stored[0]
        session.learn()
        return message

    def build_context(self, query: str | None = None, *, system_prompt: str = "") -> ContextBuildResult:
        """Build the context for the model: system prompt, recent messages, memories and chunks, by priority.

        Args:
            query: Text to retrieve memories for. Default: the newest user message.
            system_prompt: First message of the context.

        Raises:
            BudgetExceededError: The system prompt and the newest message exceed the budget.
        """
        session = self._require_session()
        services = self.engine.services
        recent = services.get_chunks(session).list_recent_messages()
        retrieved = self._retrieve(query, recent)
        turns = self.config.short_term_retention_turns
        first_turn = services.long_term.store.get_last_turn(session.key) - turns
        # A span of turns can touch two more chunks than it covers completely: one at each end.
        newest = services.get_chunks(session).list_latest(turns // self.config.chunk_size + 2)
        chunks = [chunk for chunk in newest if chunk.last_turn > first_turn]
        return ContextAllocator(services.short_term, self.config, self._now()).allocate(
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
        """Return memories that match a text, best first, each with the contributions of its five signals.

        Args:
            text: A question or keywords.
            limit: Maximum number of results. Default: ``retrieval_top_k``.
            filters: Restrictions on the results. Set ``valid_at`` to search the state at a time.
            context: Text of the conversation. Memories that share its words are ranked higher.
            weights: Weights of the signals. Default: those of the configuration.
        """
        limit = self.config.retrieval_top_k if limit is None else limit
        services = self.engine.services
        if weights is not None:
            recall = replace(services.config.recall, tf_idf=weights)
            services = replace(services, config=replace(services.config, recall=recall))
        candidate_count = (
            min(_BOOST_CANDIDATE_FACTOR * limit, services.config.recall.max_limit) if context else limit
        )
        request = RawRecallRequest(
            text, max(limit, candidate_count), Strategy.TF_IDF, _exclude_messages(filters)
        )
        found = recall_memories(services, self.project.path, request).hits
        hits = [hit for hit in found if hit.score >= self.config.relevance_threshold]
        return tuple((_boost_by_context(hits, context) if context else hits)[:limit])

    def pause_conversation(self) -> Conversation:
        """Pause the current conversation. ``start_conversation`` continues it."""
        return self._close_conversation(ConversationStatus.PAUSED, None)

    def end_conversation(self, outcome: str | None = None) -> Conversation:
        """End the current conversation. Its messages become chunks, and its outcome an episode.

        Args:
            outcome: Result of the conversation, for example "The bug is fixed." Default: no episode.
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
            # The id depends only on the session: if the process crashes before the status is saved, ending the
            # conversation again overwrites the episode instead of adding a second one.
            name = hashlib.blake2b(session.name.encode("utf-8", "replace"), digest_size=12).hexdigest()
            episodes.save(session.key, [replace(ended, id=f"ended-{name}")])
            episodes.archive_excess()
        return self._close_conversation(ConversationStatus.ENDED, outcome)

    def get_narrative_arc(self, conversation_id: str | None = None) -> NarrativeArc:
        """Return the story of a conversation: beginning, middle, end and key moments.

        Args:
            conversation_id: Id of the conversation. Default: the current one.
        """
        name = self._require_session().name if conversation_id is None else conversation_id
        return self.project.episodes.arc(name)

    def consolidate(self) -> ConsolidationReport:
        """Archive old, unimportant entries and merge overlapping episodes."""
        return self.project.consolidate()

    def flush(self) -> tuple[Path, ...]:
        """Write the JSON files if anything has changed since the last time; return the written files."""
        self.engine.services.long_term.access_counter.flush()
        with (
            translate_file_errors(self.folder, "written"),
            hold_file_lock(self.folder / _LOCK_FILE, _LOCK_TIMEOUT_SECONDS),
        ):
            sessions = [
                (conversation, self.project.find_session(conversation.id))
                for conversation in self.conversations()
            ]
            present = [(conversation, session) for conversation, session in sessions if session is not None]
            state = self._build_state(present)
            if state == self._load_written_state():
                return ()
            written = []
            services = self.engine.services
            files = build_project_files(services.long_term, services.get_chunks, self.project.path, present)
            for name, value in files.items():
                text = json.dumps(value, ensure_ascii=False, indent=2)
                # A lone surrogate has no UTF-8 encoding; "backslashreplace" writes its JSON escape.
                replace_file(self.folder / name, (text + "\n").encode("utf-8", "backslashreplace"))
                written.append(self.folder / name)
            # Last: if writing fails, the next flush() writes all files again.
            self.engine.items.put(self._written_state_namespace, _WRITTEN_STATE_KEY, state, texts=())
        return tuple(written)

    def close(self) -> None:
        """Write the JSON files and close the database."""
        if not self.engine.is_closed:
            try:
                self.flush()
            finally:
                self.engine.close()

    def _build_state(self, conversations: list[tuple[Conversation, Session]]) -> dict[str, Any]:
        # The state that the files were built from. Another process compares it to see whether the files are up to date.
        stamp = self.engine.services.long_term.store.get_change_stamp(self.project.path)
        revisions = [
            [conversation.id, conversation.status.value, session.info().revision]
            for conversation, session in conversations
        ]
        return {"stamp": list(stamp), "conversations": revisions}

    def _load_written_state(self) -> dict[str, Any] | None:
        if not (self.folder / CONVERSATIONS_FILE).exists():
            return _EMPTY_STATE
        item = self.engine.items.get(self._written_state_namespace, _WRITTEN_STATE_KEY)
        # The files exist but not the item: the namespace was erased. None differs from any state, so they are
        # rewritten.
        return None if item is None else item.value

    def _retrieve(self, query: str | None, recent: tuple[Message, ...]) -> tuple[Hit, ...]:
        if query is None:
            questions = [message for message in recent if message.role == "user"]
            query = questions[-1].content if questions else ""
        if not query.strip():
            return ()
        # The query was already added as a message: it must not count as its own context.
        if recent and recent[-1].content == query:
            recent = recent[:-1]
        context = "\n".join(
            message.content[:_MAX_CONTEXT_MESSAGE_CHARACTERS] for message in recent[-_MAX_CONTEXT_MESSAGES:]
        )
        return self.search(expand_question(query, recent), context=context)

    def _require_session(self) -> Session:
        if self._current_session is None:
            raise InvalidInputError("no active conversation: call start_conversation() first")
        if self._conversations.is_ended(self._current_session.name):
            name, self._current_session = self._current_session.name, None
            raise InvalidInputError(
                f"the conversation {name!r} was ended by another process: "
                "call start_conversation() to start another one"
            )
        return self._current_session

    def _close_conversation(self, status: ConversationStatus, outcome: str | None) -> Conversation:
        session = self._require_session()
        existing = self._conversations.get(session.name)
        if existing is None:
            raise NotFoundError(f"conversation {session.name!r} no longer exists: call start_conversation()")
        ended = self._now() if status is ConversationStatus.ENDED else None
        self._current_session = None
        return self._conversations.save(replace(existing, status=status, ended_at=ended, outcome=outcome))

    def _now(self) -> datetime:
        return self.engine.services.now()


def _boost_by_context(hits: Sequence[Hit], context: str) -> list[Hit]:
    context_terms = set(extract_terms(context))
    if not context_terms:
        return list(hits)

    def boost(hit: Hit) -> float:
        return (
            _CONTEXT_BOOST_WEIGHT
            * len(context_terms.intersection(extract_terms(hit.entry.content)))
            / len(context_terms)
        )

    return sorted(hits, key=lambda hit: -(hit.score + boost(hit)))


def _exclude_messages(filters: RecallFilters | None) -> RecallFilters:
    # The messages themselves are already in the context or in a chunk.
    filters_or_default = RecallFilters() if filters is None else filters
    return replace(filters_or_default, messages=False)


def _build_config(config: MemorySystemConfig | None, settings: dict[str, Any]) -> MemorySystemConfig:
    if config is not None and not isinstance(config, MemorySystemConfig):
        raise InvalidConfigError(
            f"config must be a MemorySystemConfig, got {type(config).__name__}: create one"
        )
    valid_names = {field.name for field in fields(MemorySystemConfig)}
    for name in settings:
        if name not in valid_names:
            raise InvalidConfigError(f"unknown setting {name!r}: use one of {', '.join(sorted(valid_names))}")
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


_MAX_CONVERSATIONS = 1_000_000


class ConversationRepository:
    """Repository of the conversations of one project.

    Args:
        items: Item store that holds the states of the conversations.
        sessions: Repository of the sessions with the messages.
        turns: Repository that numbers the turns of the sessions.
        project: Namespace of the project.
    """

    def __init__(
        self, items: Items, sessions: SessionRepository, turns: FactRepository, project: NamespacePath
    ) -> None:
        self._items = items
        self._sessions = sessions
        self._turns = turns
        self._project = project
        self._state_namespace = (CONVERSATIONS_LABEL, *project)

    def list_projects(self, extra_paths: Iterable[NamespacePath]) -> tuple[str, ...]:
        """Return the names of all projects in the database: those with conversations, and the given others."""
        found = self._items.namespaces([NamespaceMatch("prefix", (CONVERSATIONS_LABEL,))])
        return tuple(dict.fromkeys(path[-1] for path in (*found, *extra_paths)))

    def list_all(self) -> tuple[Conversation, ...]:
        """Return all conversations, oldest first."""
        found = self._items.search(self._state_namespace, limit=_MAX_CONVERSATIONS)
        conversations = [self._to_conversation(hit.item.key, hit.item.value) for hit in found]
        return tuple(
            sorted(conversations, key=lambda conversation: (conversation.started_at, conversation.id))
        )

    def get(self, name: str) -> Conversation | None:
        """Return a conversation, or None."""
        item = self._items.get(self._state_namespace, name)
        return None if item is None else self._to_conversation(name, item.value)

    def is_ended(self, name: str) -> bool:
        """Return True if the conversation was ended, even by another process."""
        item = self._items.get(self._state_namespace, name)
        return item is not None and item.value["status"] == ConversationStatus.ENDED

    def save(self, conversation: Conversation) -> Conversation:
        """Store the state of a conversation and return the stored conversation."""
        ended = None if conversation.ended_at is None else conversation.ended_at.isoformat()
        value = {
            "started_at": conversation.started_at.isoformat(),
            "ended_at": ended,
            "status": conversation.status.value,
            "outcome": conversation.outcome,
        }
        # texts=(): states are not searchable text.
        self._items.put(self._state_namespace, conversation.id, value, texts=())
        return self._to_conversation(conversation.id, value)

    def _to_conversation(self, name: str, value: dict[str, Any]) -> Conversation:
        session, ended = self._sessions.get(self._project, name), value["ended_at"]
        return Conversation(
            id=name,
            project_id=self._project[-1],
            started_at=datetime.fromisoformat(value["started_at"]),
            ended_at=None if ended is None else datetime.fromisoformat(ended),
            status=ConversationStatus(value["status"]),
            outcome=value["outcome"],
            total_turns=0 if session is None else self._turns.get_last_turn(session.key),
        )
