"""An engine with Redis shows the same as one without, for any operations and Redis failures."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from benchmarks.servers import TemporaryRedis
from langmem_tiers import CacheConfig, EngineConfig, MemoryEngine, MessageDraft, RedisConfig
from langmem_tiers.config import Durability
from langmem_tiers.sessions import Listing
from langmem_tiers.testing import FrozenClock

if TYPE_CHECKING:
    from pathlib import Path

    from langmem_tiers.session import Session

WINDOW = 5
WRITERS = st.integers(0, 2)
NAMES = st.sampled_from(["a", "b"])
TEXTS = st.text(max_size=20) | st.sampled_from(["lone \ud83d\ude00", "null \0", "x" * 500])
TIMES = st.none() | st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))


class TwoWorkersAndTheTruth(RuleBasedStateMachine):
    """Two engines share a Redis; the third has none and tells what the database holds."""

    def __init__(self, engines: list[MemoryEngine], server: TemporaryRedis, clock: FrozenClock) -> None:
        super().__init__()
        self.engines, self.server, self.clock = engines, server, clock
        self.tenant = uuid.uuid4().hex

    def session(self, name: str, writer: int) -> Session:
        return self.engines[writer].session(self.tenant, name)

    @rule(name=NAMES, writer=WRITERS, texts=st.lists(TEXTS, min_size=1, max_size=7), time=TIMES)
    def add(self, name: str, writer: int, texts: list[str], time: datetime | None) -> None:
        at = None if time is None else time.replace(tzinfo=UTC)
        self.session(name, writer).add_many([MessageDraft("user", text, created_at=at) for text in texts])

    @rule(name=NAMES, writer=WRITERS, seconds=st.sampled_from([0, 0.5, 90]))
    def add_again(self, name: str, writer: int, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        self.session(name, writer).add(MessageDraft("user", "the same", id="same"))

    @rule(name=NAMES, writer=WRITERS, place=st.integers(0, 9))
    def compress(self, name: str, writer: int, place: int) -> None:
        session = self.session(name, writer)
        if shown := session.view():
            session.compress(older_than=shown[place % len(shown)].id, summary="what was said")

    @rule(name=NAMES, writer=WRITERS, listing=st.sampled_from(list(Listing)))
    def change_the_list(self, name: str, writer: int, listing: Listing) -> None:
        self.session(name, writer).transcript.move_oldest(1, listing)

    @rule(name=NAMES, writer=WRITERS, keep=st.booleans(), text=TEXTS)
    def replace_the_list(self, name: str, writer: int, keep: bool, text: str) -> None:  # noqa: FBT001 - drawn
        transcript = self.session(name, writer).transcript
        kept = (
            [MessageDraft(message.role, message.content) for message in transcript.messages()] if keep else []
        )
        transcript.replace([*kept, MessageDraft("user", text)])

    @rule(name=NAMES, writer=WRITERS)
    def set_aside(self, name: str, writer: int) -> None:
        self.session(name, writer).set_aside()

    @rule(name=NAMES, writer=WRITERS)
    def delete(self, name: str, writer: int) -> None:
        self.session(name, writer).delete()

    @rule(writer=WRITERS)
    def delete_all(self, writer: int) -> None:
        self.engines[writer].namespace(self.tenant).delete()

    @rule()
    def redis_loses_everything(self) -> None:
        with self.server.client as client:
            client.flushall()
            client.script_flush()

    @rule(
        name=NAMES, change=st.sampled_from(["member", "head", "text", "kind", "swap"]), listed=st.booleans()
    )
    def somebody_meddles(self, name: str, change: str, listed: bool) -> None:  # noqa: FBT001 - drawn
        session = self.session(name, 2)
        start = f"p:episodic:{self.engines[2].database_id}:"
        key = f"{start}{session.key}{':list' if listed else ''}"
        with self.server.client as client:
            if change == "swap":
                other = f"{start}{self.session('b' if name == 'a' else 'a', 2).key}"
                if client.exists(key):
                    client.rename(key, other)
            elif change == "kind":
                client.set(key, "no window")
            elif client.zcard(key):
                if change == "text":
                    client.zadd(key, {b"0123456789abcdef[]": 10**16})
                else:
                    client.zpopmin(key) if change == "head" else client.zpopmax(key)

    @rule(limit=st.integers(1, 2 * WINDOW), name=NAMES, reader=st.integers(0, 1))
    def read(self, limit: int, name: str, reader: int) -> None:
        truth = self.session(name, 2)
        assert self.session(name, reader).latest(limit) == truth.latest(limit)

    @invariant()
    def every_reader_sees_the_truth(self) -> None:
        self.clock.advance(seconds=1)  # after a failure Redis is asked again
        for name in ("a", "b"):
            truth = self.session(name, 2).latest(WINDOW)
            assert self.session(name, 0).latest(WINDOW) == truth
            assert self.session(name, 1).latest(2) == truth[-2:]
            listed = self.session(name, 2).transcript.latest(WINDOW)
            assert self.session(name, 0).transcript.latest(WINDOW - 1) == listed[-WINDOW + 1 :]
            assert self.session(name, 1).transcript.latest(WINDOW) == listed


def test_engines_with_redis_match_the_database(tmp_path: Path) -> None:
    clock, off = FrozenClock(), CacheConfig(max_characters=0)
    with ExitStack() as stack:
        server = stack.enter_context(TemporaryRedis())
        redis = RedisConfig(
            url=server.url,
            prefix="p",
            window=WINDOW,
            max_window_bytes=1500,
            timeout_seconds=10,
            retry_seconds=0.5,
        )
        engines = [
            stack.enter_context(
                MemoryEngine(
                    tmp_path / "memory.db",
                    config=EngineConfig(cache=off, redis=config, durability=Durability.NORMAL),
                    clock=clock,
                    embedder=None,
                )
            )
            for config in (redis, redis, None)
        ]
        run_state_machine_as_test(
            lambda: TwoWorkersAndTheTruth(engines, server, clock),  # type: ignore[arg-type]
            settings=settings(max_examples=15, stateful_step_count=20),
        )
        status = engines[0].redis
        assert status is not None
        assert status.hits > status.misses / 4
        assert status.failures > 0
