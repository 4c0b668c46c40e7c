"""A project's memory as one object: start a conversation, add messages, build contexts, search, end, flush."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from langmem_tiers.core.config import EngineConfig, LearningConfig, RecallConfig
from langmem_tiers.core.episodes import EpisodeDraft, EpisodeKind
from langmem_tiers.core.errors import InvalidConfigError, InvalidInputError, NotFoundError
from langmem_tiers.core.memory_system import Conversation, ConversationStatus, MemorySystemConfig
from langmem_tiers.core.names import check_name
from langmem_tiers.core.recall import RecallFilters, Strategy, TfIdfWeights
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.flows.allocate import Allocator, Material
from langmem_tiers.flows.project_files import CONVERSATIONS_FILE, project_files
from langmem_tiers.scoring.tokens import CharCounter
from langmem_tiers.storage.file_io import file_faults, make_folder, write_whole
from langmem_tiers.storage.file_locks import locked

if TYPE_CHECKING:
    from types import TracebackType

    from langmem_tiers.core.clock import Clock
    from langmem_tiers.core.episodes import NarrativeArc
    from langmem_tiers.core.ids import IdSource
    from langmem_tiers.core.long_term import ConsolidationReport
    from langmem_tiers.core.memory_system import ContextBuildResult
    from langmem_tiers.core.messages import Message, Role
    from langmem_tiers.core.ports import Embedder, LanguageModel, TokenCounter
    from langmem_tiers.core.recall import Hit
    from langmem_tiers.engine import Namespace
    from langmem_tiers.flows.session import Session

CONVERSATIONS = "langmem-tiers: conversations"
"""The first label of the namespace of items that say which conversations there are."""
DATABASE_FILE = "memory.db"
_ENDED_SIGNIFICANCE = 0.6
_WRITTEN = "files"
_NOTHING: dict[str, Any] = {"revision": 0, "conversations": []}
_LOCK_FILE, _LOCK_SECONDS = ".lock", 30.0
_ALL = 1_000_000


class MemorySystem:
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
        self.config = _configured(config, settings)
        self.folder = Path(self.config.memory_dir)
        with file_faults(self.folder, "made"):
            make_folder(self.folder)
        self.engine = MemoryEngine(
            self.folder / DATABASE_FILE,
            config=_engine_config(self.config),
            counter=CharCounter() if counter is None else counter,
            model=model,
            embedder=embedder,
            clock=clock,
            ids=ids,
        )
        self.project: Namespace = self.engine.namespace(self.config.project_name)
        self._place = (CONVERSATIONS, self.config.project_name)
        self._place_written = (f"{CONVERSATIONS}, written", self.config.project_name)
        self._current: Session | None = None
        self._is_dirty = False

    def __repr__(self) -> str:
        return f"MemorySystem({str(self.folder)!r}, project_name={self.config.project_name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
        known = self._found(name)
        if known is not None and known.status is ConversationStatus.ENDED:
            raise InvalidInputError(
                f"the conversation {name!r} was ended on {known.ended_at:%Y-%m-%d}: start another one, "
                "what was said in it is remembered"
            )
        self._current = self.project.session(name)
        started = self._now() if known is None else known.started_at
        return self._note(Conversation(id=name, project_id=self.config.project_name, started_at=started))

    @property
    def conversation(self) -> Conversation | None:
        """The conversation at hand."""
        return None if self._current is None else self._found(self._current.name)

    def conversations(self) -> tuple[Conversation, ...]:
        """All conversations of the project, oldest first."""
        found = self.engine.items.search(self._place, limit=_ALL)
        known = [self._conversation(hit.item.key, hit.item.value) for hit in found]
        return tuple(sorted(known, key=lambda one: (one.started_at, one.id)))

    def add_message(self, role: Role | str, content: str) -> Message:
        """Store a message of the conversation at hand, and learn from it.

        Raises:
            InvalidInputError: No conversation was started.
        """
        session = self._session()
        message = session.add(role, content).stored[0]
        session.learn()
        self._is_dirty = True
        return message

    def build_context(self, query: str | None = None, *, system_prompt: str = "") -> ContextBuildResult:
        """What goes to the model: the system prompt, what was said last, memories and chunks, by priority.

        Args:
            query: What memory is asked for; the newest user message, if left out.
            system_prompt: The first thing in the context.

        Raises:
            BudgetExceededError: The system prompt and the newest message do not fit.
        """
        session = self._session()
        parts = self.engine.parts
        recent = parts.chunks_of(session).recent()
        retrieved = self._retrieved(query, recent)
        first_turn = parts.lasting.store.last_turn(session.key) - self.config.short_term_retention_turns
        chunks = [chunk for chunk in session.chunks() if chunk.last_turn > first_turn]
        return Allocator(parts.short_term, self.config, self._now()).allocate(
            Material(system_prompt=system_prompt, recent=recent, retrieved=retrieved, chunks=chunks)
        )

    def search(
        self, text: str, *, limit: int | None = None, filters: RecallFilters | None = None
    ) -> tuple[Hit, ...]:
        """Memories that answer a text, the best first, each with what its five signals gave.

        Args:
            text: A question, or words.
            limit: How many at most; ``retrieval_top_k``, if left out.
            filters: Which, and with ``valid_at`` as of when.
        """
        limit = self.config.retrieval_top_k if limit is None else limit
        found = self.project.recall(
            text, limit=limit, strategy=Strategy.TF_IDF, filters=_only_lasting(filters)
        )
        return tuple(hit for hit in found.hits if hit.score >= self.config.relevance_threshold)

    def pause_conversation(self) -> Conversation:
        """Leave the conversation at hand for another time."""
        return self._close(ConversationStatus.PAUSED, None)

    def end_conversation(self, outcome: str | None = None) -> Conversation:
        """End the conversation at hand: all its messages become chunks, and what came of it an episode.

        Args:
            outcome: What came of it.
        """
        session = self._session()
        session.learn(whole=True)
        turns = self.engine.parts.lasting.store.last_turn(session.key)
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
            self.project.episodes.record(session.name, draft)
        return self._close(ConversationStatus.ENDED, outcome)

    def get_narrative_arc(self, conversation_id: str | None = None) -> NarrativeArc:
        """The story of a conversation: beginning, middle, end and key moments."""
        name = self._session().name if conversation_id is None else conversation_id
        return self.project.episodes.arc(name)

    def consolidate(self) -> ConsolidationReport:
        """Archive what is old and matters little, and make one of episodes that overlap."""
        self._is_dirty = True
        return self.project.consolidate()

    def flush(self) -> tuple[Path, ...]:
        """Write what has changed since the last time as JSON for people to read; the files that were written."""
        self.engine.parts.lasting.uses.flush()
        sessions = [(one, self.project.find_session(one.id)) for one in self.conversations()]
        known = [(one, session) for one, session in sessions if session is not None]
        state = self._state(known)
        if not self._is_dirty and state == (self._written() or _NOTHING):
            return ()
        files = project_files(self.engine.parts, self.project.path, known)
        written = []
        with file_faults(self.folder, "written"), locked(self.folder / _LOCK_FILE, _LOCK_SECONDS):
            for name, value in files.items():
                text = json.dumps(value, ensure_ascii=False, indent=2)
                write_whole(self.folder / name, (text + "\n").encode("utf-8", "backslashreplace"))
                written.append(self.folder / name)
        self.engine.items.put(self._place_written, _WRITTEN, state, texts=())
        self._is_dirty = False
        return tuple(written)

    def close(self) -> None:
        """Write the JSON files and give the database back."""
        if not self.engine.is_closed:
            try:
                self.flush()
            finally:
                self.engine.close()

    def _state(self, known: list[tuple[Conversation, Session]]) -> dict[str, Any]:
        # What the files were made of: by it the next process sees whether they are as they should be.
        store = self.engine.parts.lasting.store
        talks = [[one.id, one.status.value, session.info().revision] for one, session in known]
        return {"revision": store.revision(self.project.path), "conversations": talks}

    def _written(self) -> dict[str, Any] | None:
        item = self.engine.items.get(self._place_written, _WRITTEN)
        return None if item is None or not (self.folder / CONVERSATIONS_FILE).exists() else item.value

    def _retrieved(self, query: str | None, recent: tuple[Message, ...]) -> tuple[Hit, ...]:
        if query is None:
            said = [one for one in recent if one.role == "user"]
            query = said[-1].content if said else ""
        if not query.strip():
            return ()
        return self.search(query)

    def _session(self) -> Session:
        if self._current is None:
            raise InvalidInputError("there is no conversation at hand: call start_conversation() first")
        known = self.engine.items.get(self._place, self._current.name)
        if known is not None and known.value["status"] == ConversationStatus.ENDED:
            name, self._current = self._current.name, None
            raise InvalidInputError(
                f"the conversation {name!r} was ended by somebody else: call start_conversation() for another one"
            )
        return self._current

    def _close(self, status: ConversationStatus, outcome: str | None) -> Conversation:
        session = self._session()
        known = self._found(session.name)
        if known is None:
            raise NotFoundError(f"the conversation {session.name!r} is gone: call start_conversation()")
        ended = self._now() if status is ConversationStatus.ENDED else None
        self._current = None
        return self._note(replace(known, status=status, ended_at=ended, outcome=outcome))

    def _note(self, conversation: Conversation) -> Conversation:
        ended = None if conversation.ended_at is None else conversation.ended_at.isoformat()
        value = {
            "started_at": conversation.started_at.isoformat(),
            "ended_at": ended,
            "status": conversation.status.value,
            "outcome": conversation.outcome,
        }
        self.engine.items.put(self._place, conversation.id, value, texts=())
        self._is_dirty = True
        found = self._found(conversation.id)
        assert found is not None  # noqa: S101 - just put
        return found

    def _found(self, name: str) -> Conversation | None:
        item = self.engine.items.get(self._place, name)
        return None if item is None else self._conversation(name, item.value)

    def _conversation(self, name: str, value: dict[str, Any]) -> Conversation:
        session = self.project.find_session(name)
        ended = value["ended_at"]
        return Conversation(
            id=name,
            project_id=self.config.project_name,
            started_at=datetime.fromisoformat(value["started_at"]),
            ended_at=None if ended is None else datetime.fromisoformat(ended),
            status=ConversationStatus(value["status"]),
            outcome=value["outcome"],
            total_turns=0 if session is None else self.engine.parts.lasting.store.last_turn(session.key),
        )

    def _now(self) -> datetime:
        return self.engine.parts.now()


def _only_lasting(filters: RecallFilters | None) -> RecallFilters:
    # Messages as such are in the context or in a chunk already.
    given = RecallFilters() if filters is None else filters
    return replace(given, messages=False)


def _configured(config: MemorySystemConfig | None, settings: dict[str, Any]) -> MemorySystemConfig:
    if config is not None and not isinstance(config, MemorySystemConfig):
        raise InvalidConfigError(f"config must be a MemorySystemConfig, got a {type(config).__name__}")
    known = {field.name for field in fields(MemorySystemConfig)}
    for name in settings:
        if name not in known:
            raise InvalidConfigError(f"unknown setting {name!r}: use one of {', '.join(sorted(known))}")
    return replace(MemorySystemConfig() if config is None else config, **settings)


def _engine_config(config: MemorySystemConfig) -> EngineConfig:
    weights = TfIdfWeights(recency=config.recency_weight, importance=config.importance_weight)
    return EngineConfig(
        learning=LearningConfig(
            chunk_messages=config.chunk_size,
            recent_messages=config.max_recent_messages,
            max_chunks=_ALL,
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
