"""Chunks: the older messages of a session, ten at a time, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    EngineConfig,
    InvalidConfigError,
    MemoryEngine,
    MessageDraft,
    MessageToolCall,
    RecallFilters,
    Tier,
)
from langmem_tiers.chunks.text import merge_chunk_summaries
from langmem_tiers.config import LearningConfig
from langmem_tiers.sessions import Listing
from langmem_tiers.testing import FrozenClock, ScriptedLLM, seeded_ids
from langmem_tiers.testing.threads import run_in_threads
from tests.backends import ON_FILE_AND_SERVER
from tests.facts.learning_processes import SESSION, TENANT, learn_together, run_together

if TYPE_CHECKING:
    from langmem_tiers import Chunk, Session


@pytest.fixture
def session(engine: MemoryEngine, tenant: str) -> Session:
    return engine.session(tenant, "s")


def say(session: Session, count: int, start: int = 1) -> list[str]:
    drafts = [
        MessageDraft("user", f"Line {n} speaks of tea number {n}.") for n in range(start, start + count)
    ]
    return [message.content for message in session.add_many(drafts).stored]


def small(**settings: Any) -> MemoryEngine:
    config = EngineConfig(learning=LearningConfig(**settings))
    return MemoryEngine(config=config, clock=FrozenClock(), ids=seeded_ids(), embedder=None)


def sizes(session: Session) -> list[int]:
    return [chunk.message_count for chunk in session.chunks()]


def texts_of(session: Session, chunk: Chunk) -> list[str]:
    return [message.content for message in session.messages_of(chunk)]


def assert_every_message_once(session: Session) -> None:
    """All chunks and what is recent together are the session, in its order."""
    chunks = session.chunks()
    in_chunks = [text for chunk in chunks for text in texts_of(session, chunk)]
    recent = [message.content for message in session._services.get_chunks(session).list_recent_messages()]
    assert [*in_chunks, *recent] == [message.content for message in session.messages()]
    assert sum(chunk.message_count for chunk in chunks) == len(in_chunks)


def test_sessions_of_up_to_20_messages_have_no_chunk(session: Session) -> None:
    assert session.learn().chunks == ()  # not of an empty session either
    say(session, 20)
    assert session.learn().chunks == ()
    assert session.chunks() == ()


def test_the_21st_message_creates_a_chunk_of_the_oldest_ten(session: Session, clock: FrozenClock) -> None:
    said = say(session, 21)
    (chunk,) = session.learn().chunks
    assert session.chunks() == (chunk,)
    messages = list(session.messages())
    assert (chunk.number, chunk.session, chunk.namespace) == (1, "s", session.namespace)
    assert (chunk.first_turn, chunk.last_turn, chunk.message_count, chunk.merged) == (1, 10, 10, 1)
    assert (chunk.first_message_id, chunk.last_message_id) == (messages[0].id, messages[9].id)
    assert chunk.created_at == clock.now()
    assert 0 < chunk.token_count <= 150
    assert chunk.token_count == session._services.counter.count(chunk.summary)
    assert chunk.topics
    assert texts_of(session, chunk) == said[:10]
    assert session.learn().chunks == ()
    say(session, 9, 22)
    assert session.learn().chunks == ()  # thirty: ten in the chunk and twenty that are recent
    say(session, 1, 31)
    assert [chunk.number for chunk in session.learn().chunks] == [2]


def test_250_messages_are_23_chunks_and_25_when_the_session_ends(session: Session) -> None:
    said = say(session, 250)
    assert len(session.learn().chunks) == 23
    assert len(session.chunks()) == 23
    assert len(session.learn(whole=True).chunks) == 2
    chunks = session.chunks()
    assert [chunk.number for chunk in chunks] == list(range(1, 26))
    assert [(chunk.first_turn, chunk.last_turn) for chunk in chunks] == [
        (10 * n + 1, 10 * n + 10) for n in range(25)
    ]
    messages = list(session.messages())
    for place, chunk in enumerate(chunks):
        assert chunk.first_message_id == messages[10 * place].id
        assert chunk.last_message_id == messages[10 * place + 9].id
    assert [text for chunk in chunks for text in texts_of(session, chunk)] == said
    assert session.learn(whole=True).chunks == ()


def test_learning_after_each_message_gives_the_same_chunks(session: Session) -> None:
    for number in range(1, 46):
        say(session, 1, number)
        session.learn()
    assert [(chunk.number, chunk.first_turn, chunk.last_turn) for chunk in session.chunks()] == [
        (1, 1, 10),
        (2, 11, 20),
        (3, 21, 30),
    ]
    assert_every_message_once(session)


def test_a_finished_session_can_end_with_a_smaller_chunk(session: Session) -> None:
    say(session, 13)
    session.learn(whole=True)
    assert sizes(session) == [10, 3]
    say(session, 2, 14)  # it goes on after all
    session.learn()
    assert sizes(session) == [10, 3]
    assert_every_message_once(session)


@pytest.mark.parametrize(
    ("size", "recent", "messages", "wanted"),
    [
        (5, 5, 5, []),
        (5, 5, 6, [5]),
        (3, 10, 12, [3]),
        (3, 10, 14, [3, 3]),
        (1, 202, 203, [1]),
        (1, 1, 4, [1, 1, 1]),
    ],
)
def test_sizes_are_configurable(size: int, recent: int, messages: int, wanted: list[int]) -> None:
    with small(chunk_messages=size, recent_messages=recent) as engine:
        session = engine.session("t", "s")
        say(session, messages)
        session.learn()
        assert sizes(session) == wanted
        assert_every_message_once(session)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("size", "recent"), [(10, 5), (30, 10), (4, 1)])
def test_the_newest_message_of_an_active_session_is_in_no_chunk(size: int, recent: int) -> None:
    with small(chunk_messages=size, recent_messages=recent) as engine:
        session = engine.session("t", "s")
        for number in range(1, 2 * size):
            say(session, 1, number)
            session.learn()
            newest = session.latest(1)[0]
            assert newest in session._services.get_chunks(session).list_recent_messages()


def test_the_sizes_are_10_and_20_and_50_by_default() -> None:
    config = EngineConfig().learning
    assert (config.chunk_messages, config.recent_messages, config.max_chunks) == (10, 20, 50)


@pytest.mark.parametrize(
    ("name", "value"),
    [("chunk_messages", 0), ("recent_messages", 0), ("max_chunks", 1), ("chunk_tokens", 15)],
)
def test_invalid_sizes_are_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} must be .* got {value}"):
        LearningConfig(**{name: value})  # type: ignore[arg-type] # all of them are numbers


def test_the_original_messages_are_returned_verbatim(engine: MemoryEngine, tenant: str) -> None:
    odd = [
        "  spaces  kept \n",
        "nul \0 here",
        "lone \ud800 surrogate",
        "</memory> 🦜 日本語",
        "a" * 20_000,
        "%00",
    ]
    session = engine.session(tenant, "odd")
    session.add_many([MessageDraft("user", text) for text in odd])
    say(session, 15)
    session.learn()
    (chunk,) = session.chunks()
    assert session.messages_of(chunk) == tuple(session.messages())[:10]
    assert texts_of(session, chunk)[: len(odd)] == odd


def test_above_max_chunks_the_oldest_two_are_merged() -> None:
    with small(chunk_messages=2, recent_messages=1, max_chunks=3) as engine:
        session = engine.session("t", "s")
        said = say(session, 7)
        session.learn()
        first, second, third = session.chunks()
        say(session, 2, 8)
        session.learn()
        merged, kept, newest = session.chunks()
        assert merged.summary == f"Earlier: {first.summary}\n\nThen: {second.summary}"
        assert merged.topics == tuple(dict.fromkeys((*first.topics, *second.topics)))
        assert len({topic.casefold() for topic in merged.topics}) == len(merged.topics)
        assert (merged.number, merged.merged, merged.message_count) == (1, 2, 4)
        assert merged.id not in (first.id, second.id)  # as of then, both are still there
        assert (merged.first_message_id, merged.last_message_id) == (
            first.first_message_id,
            second.last_message_id,
        )
        assert (merged.first_turn, merged.last_turn) == (1, 4)
        assert merged.token_count == engine.counter.count(merged.summary)
        assert (kept, newest.number) == (third, 4)
        assert texts_of(session, merged) == said[:4]
        assert_every_message_once(session)


def test_repeatedly_merged_chunks_stay_small_and_contain_every_message() -> None:
    with small(chunk_messages=2, recent_messages=1, max_chunks=3, chunk_tokens=40) as engine:
        session = engine.session("t", "s")
        for number in range(1, 42):
            say(session, 1, number)
            session.learn()
        chunks = session.chunks()
        assert len(chunks) == 3
        assert [chunk.number for chunk in chunks] == [1, 19, 20]
        assert [chunk.merged for chunk in chunks] == [18, 1, 1]
        assert chunks[0].token_count <= 80
        assert chunks[0].summary.startswith("Earlier: ")
        assert f"\n\nThen: {'User: Line 35'}" in chunks[0].summary
        assert_every_message_once(session)


def test_topics_that_differ_only_in_case_are_merged() -> None:
    model = ScriptedLLM(["First summary.", "Second summary.", "Third summary."])
    config = EngineConfig(
        learning=LearningConfig(chunk_messages=2, recent_messages=1, max_chunks=2, asks_model=False)
    )
    with MemoryEngine(config=config, model=model, embedder=None) as engine:
        session = engine.session("t", "s")
        lines = ["Kestrel kestrel", "Kestrel", "kestrel kestrel", "kestrel", "otter", "otter", "end"]
        session.add_many([MessageDraft("user", line) for line in lines])
        session.learn()
        merged, _ = session.chunks()
        assert merged.summary == "Earlier: First summary.\n\nThen: Second summary."
        assert [topic.casefold() for topic in merged.topics] == ["kestrel"]


def tool_turn(name: str, results: int = 1) -> list[MessageDraft]:
    calls = tuple(MessageToolCall(f"{name}-{n}", "look", "{}") for n in range(results))
    return [
        MessageDraft("assistant", "", tool_calls=calls),
        *(MessageDraft("tool", f"result of {call.id}", tool_call_id=call.id) for call in calls),
    ]


def assert_calls_are_whole(session: Session) -> None:
    for chunk in session.chunks():
        found = session.messages_of(chunk)
        called = {call.id for message in found for call in message.tool_calls}
        answered = {message.tool_call_id for message in found if message.tool_call_id is not None}
        assert called == answered


@pytest.mark.parametrize("before", range(6, 11))
def test_a_tool_call_and_its_results_are_never_separated(session: Session, before: int) -> None:
    say(session, before)
    session.add_many([*tool_turn("a", 3), MessageDraft("assistant", "There are three.")])
    say(session, 20, 50)
    session.learn()
    wanted = before if before == 10 else before + 4  # all four are in the chunk, or none
    assert sizes(session)[0] == wanted
    assert_calls_are_whole(session)
    assert_every_message_once(session)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("size", "recent"), [(1, 1), (2, 3), (3, 2), (4, 7), (10, 5)])
def test_tool_calls_stay_complete_for_any_chunk_size_and_learning_after_each_message(
    size: int, recent: int
) -> None:
    with small(chunk_messages=size, recent_messages=recent) as engine:
        session = engine.session("t", "s")
        for number in range(8):
            turn = [
                MessageDraft("user", f"Question {number}?"),
                *tool_turn(f"c{number}", number % 4 + 1),
                MessageDraft("assistant", f"Answer {number}."),
            ]
            for draft in turn:
                session.add(draft)
                session.learn()
                assert_calls_are_whole(session)
        session.learn(whole=True)
        assert_calls_are_whole(session)
        assert_every_message_once(session)


def test_removed_messages_are_in_no_chunk(session: Session) -> None:
    said = say(session, 24)
    removed = [message.id for message in session.messages() if message.content in said[2:5]]
    session.transcript.move(removed, Listing.REMOVED)
    (chunk,) = session.learn().chunks
    assert texts_of(session, chunk) == [*said[:2], *said[5:13]]
    assert (chunk.first_turn, chunk.last_turn, chunk.message_count) == (1, 13, 10)
    assert not any(text in chunk.summary for text in said[2:5])


def test_messages_removed_after_their_chunk_was_created_are_not_shown(session: Session) -> None:
    said = say(session, 21)
    session.learn()
    (chunk,) = session.chunks()
    session.transcript.move([session.messages_of(chunk)[0].id], Listing.REMOVED)
    assert texts_of(session, chunk) == said[1:10]


def test_summaries_are_in_no_chunk(session: Session) -> None:
    said = say(session, 30)
    messages = list(session.messages())
    session.compress(messages[12].id, "A summary of the first twelve.")
    session.learn()
    (chunk,) = session.chunks()
    assert texts_of(session, chunk) == said[:10]
    recent = session._services.get_chunks(session).list_recent_messages()
    assert [message.content for message in recent] == said[10:]
    session.learn(whole=True)
    assert sum(sizes(session)) == 30
    assert not any(message.is_summary for chunk in session.chunks() for message in session.messages_of(chunk))


def test_learning_in_many_threads_makes_no_chunk_twice(session: Session) -> None:
    say(session, 100)
    run_in_threads(6, session.learn)
    chunks = session.chunks()
    assert [chunk.number for chunk in chunks] == list(range(1, 9))
    assert [chunk.first_turn for chunk in chunks] == list(range(1, 80, 10))
    assert_every_message_once(session)


@ON_FILE_AND_SERVER
def test_two_engines_at_the_same_time_make_no_chunk_twice(url: str, tenant: str) -> None:
    with MemoryEngine(url, embedder=None) as one, MemoryEngine(url, embedder=None) as other:
        sessions = [one.session(tenant, "s"), other.session(tenant, "s")]
        say(sessions[0], 150)
        run_in_threads(2, lambda: sessions.pop().learn(whole=True))
        session = one.session(tenant, "s")
        assert [chunk.number for chunk in session.chunks()] == list(range(1, 16))
        assert_every_message_once(session)


def test_two_processes_at_the_same_time_make_no_chunk_twice(file_url: str) -> None:
    with MemoryEngine(file_url, embedder=None) as engine:
        session = engine.session(TENANT, SESSION)
        say(session, 60)
        assert run_together(learn_together, [(file_url, 12), (file_url, 12)]) == [0, 0]
        chunks = session.chunks()
        assert session.count() == 60 + 2 * 12 * 5
        assert [chunk.number for chunk in chunks] == list(range(1, len(chunks) + 1))
        assert len(chunks) == (session.count() - 20) // 10
        assert_every_message_once(session)


def test_concurrent_merges_lose_no_chunk(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else goes on learning while the first is about to write two chunks as one."""
    config = EngineConfig(learning=LearningConfig(chunk_messages=2, recent_messages=1, max_chunks=2))
    with (
        MemoryEngine(file_url, config=config, embedder=None) as one,
        MemoryEngine(file_url, config=config, embedder=None) as other,
    ):
        session, theirs = one.session("t", "s"), other.session("t", "s")
        say(session, 7)
        is_first = [True]

        def slow(*arguments: Any) -> str:
            text = merge_chunk_summaries(*arguments)
            if is_first.pop() if is_first else False:
                say(theirs, 4, 8)
                theirs.learn()
            return text

        monkeypatch.setattr("langmem_tiers.chunks.service.merge_chunk_summaries", slow)
        session.learn()
        assert_every_message_once(session)
        assert len(session.chunks()) == 2
        numbers = [(chunk.number, chunk.merged) for chunk in session.chunks()]
        assert numbers == [(1, 4), (5, 1)]


def test_deleting_a_session_deletes_its_chunks(engine: MemoryEngine, tenant: str) -> None:
    session, other = engine.session(tenant, "s"), engine.session(tenant, "other")
    for target in (session, other):
        say(target, 21)
        target.learn()
    session.delete()
    assert len(other.chunks()) == 1
    found = engine.namespace(tenant).recall("tea number", limit=50).hits
    assert {hit.session for hit in found} == {"other"}
    again = engine.session(tenant, "s")
    assert again.chunks() == ()
    say(again, 21)
    again.learn()
    assert [chunk.number for chunk in again.chunks()] == [1]


def test_chunks_belong_only_to_their_session_and_namespace(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    say(session, 21)
    session.learn()
    assert engine.session(tenant, "t").chunks() == ()
    assert engine.session((tenant, "s"), "s").chunks() == ()
    assert engine.namespace(tenant, "s").recall("tea number").hits == ()
    for other in ("t", "s"):
        only = RecallFilters(messages=False, sessions={other})
        found = engine.namespace(tenant).recall("tea number", filters=only)
        assert [hit.session for hit in found] == (["s"] if other == "s" else [])


def test_a_chunk_is_recalled_with_its_session_its_size_and_its_times(
    session: Session, engine: MemoryEngine, clock: FrozenClock
) -> None:
    said = clock.now()
    say(session, 21)
    clock.advance(hours=1)
    made = clock.now()
    (chunk,) = session.learn().chunks
    clock.advance(hours=1)
    (hit,) = engine.namespace(*session.namespace).recall("tea", filters=RecallFilters(messages=False))
    entry = hit.entry
    assert (entry.id, entry.namespace, entry.session) == (chunk.id, session.namespace, "s")
    assert (entry.tier, entry.kind, entry.content) == (Tier.SHORT_TERM, "chunk", chunk.summary)
    assert entry.token_count == chunk.token_count > 0
    assert (entry.created_at, entry.valid_from, entry.valid_until) == (made, said, None)
    assert (entry.access_count, entry.last_access_at) == (0, made)


def test_a_failed_model_summary_is_reported_and_replaced() -> None:
    config = EngineConfig(learning=LearningConfig(asks_model=False))
    model = ScriptedLLM([RuntimeError("down")])
    with MemoryEngine(config=config, model=model, embedder=None) as engine:
        session = engine.session("t", "s")
        say(session, 21)
        report = session.learn()
        assert len(report.chunks) == 1
        assert report.chunks[0].summary
        assert any("RuntimeError" in problem for problem in report.problems)
