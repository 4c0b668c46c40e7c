"""Sessions through the public API, on every database."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    CacheConfig,
    EngineConfig,
    InvalidInputError,
    InvalidMessageError,
    InvalidNameError,
    MemoryEngine,
    MessageConflictError,
    MessageDraft,
    MessageNotFoundError,
    MessageToolCall,
    Role,
    Session,
    SessionNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langmem_tiers.testing import FrozenClock


def fill(session: Session, count: int, start: int = 0) -> list[str]:
    report = session.add_many(MessageDraft("user", f"message {n}") for n in range(start, start + count))
    return [message.id for message in report.stored]


def test_a_message_gets_id_time_and_count(engine: MemoryEngine, clock: FrozenClock, tenant: str) -> None:
    session = engine.session(tenant, "s")
    report = session.add("user", "Create a new file")
    assert report.message == session.latest()[0]
    assert report.message.created_at == clock.now()
    assert (report.message.token_count, report.message.token_counter) == (5, "content1")
    assert not report.message.is_compressed
    assert report.tokens == 5


def test_all_handles_of_a_session_see_the_same_messages(engine: MemoryEngine, tenant: str) -> None:
    engine.session(tenant, "s").add("user", "one")
    engine.namespace(tenant).session("s").add("assistant", "two")
    assert [m.content for m in engine.session((tenant,), "s").latest()] == ["one", "two"]


def test_a_batch_is_stored_completely_or_not_at_all(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    session.add(MessageDraft("user", "one", id="a"))
    with pytest.raises(MessageConflictError):
        session.add_many([MessageDraft("user", "two"), MessageDraft("user", "other", id="a")])
    assert session.count() == 1


def test_adding_again_is_harmless(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    turn = [MessageDraft("user", "hi", id="a"), MessageDraft("assistant", "hello", id="b")]
    first = session.add_many(turn)
    again = session.add_many([*turn, MessageDraft("user", "new", id="c")])
    assert [m.id for m in first.stored] == ["a", "b"]
    assert [m.id for m in again.stored] == ["c"]
    assert again.duplicates == first.stored
    assert session.add(turn[0]).message == first.stored[0]
    assert session.count() == 3


def test_a_token_count_of_the_caller_is_kept(engine: MemoryEngine, tenant: str) -> None:
    message = engine.session(tenant, "s").add(MessageDraft("user", "hi", token_count=77)).message
    assert (message.token_count, message.token_counter) == (77, "caller")


def test_an_empty_batch_does_nothing(engine: MemoryEngine, tenant: str) -> None:
    report = engine.session(tenant, "s").add_many([])
    assert (report.stored, report.duplicates, report.tokens) == ((), (), 0)


def test_latest_is_right_before_after_and_beyond_the_cache(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    fill(session, 120)
    for count in (1, 30, 50, 51, 119, 120, 500):
        expected = [f"message {n}" for n in range(max(0, 120 - count), 120)]
        assert [m.content for m in session.latest(count)] == expected
        assert [m.content for m in session.latest(count)] == expected
    fill(session, 3, start=120)
    assert [m.content for m in session.latest(2)] == ["message 121", "message 122"]
    assert len(session.latest(500)) == 123


def test_pages_cover_the_whole_record(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    ids = fill(session, 25)
    seen, after = [], None
    while True:
        page = session.page(after=after, limit=10)
        seen += [m.id for m in page.messages]
        if (after := page.next_after) is None:
            break
    assert seen == ids
    assert [m.id for m in session.messages()] == ids
    assert session.page(after=ids[-1]).messages == ()


def test_compressing_shows_a_summary_and_keeps_the_originals(
    engine: MemoryEngine, clock: FrozenClock, tenant: str
) -> None:
    session = engine.session(tenant, "s")
    ids = fill(session, 10)
    originals = list(session.messages())
    clock.advance(minutes=5)
    report = session.compress(older_than=ids[7], summary="They counted to seven.")
    assert report.summary is not None
    assert report.summary.role is Role.SYSTEM
    assert report.summary.content == "[CONTEXT SUMMARY]\nThey counted to seven."
    assert (report.compressed, report.boundary) == (7, ids[7])
    assert (report.tokens_before, report.tokens_after) == (
        sum(m.token_count for m in originals[:7]),
        report.summary.token_count,
    )
    assert [m.content for m in session.view()] == [
        report.summary.content,
        "message 7",
        "message 8",
        "message 9",
    ]
    record = list(session.messages())
    assert [m.content for m in record if not m.is_summary] == [m.content for m in originals]
    assert [m.is_compressed for m in record] == [True] * 7 + [False] * 4
    info = session.info()
    assert (info.message_count, info.compressed_count, info.updated_at) == (11, 7, clock.now())


def test_compressing_again_includes_the_old_summary(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    ids = fill(session, 6)
    session.compress(older_than=ids[2], summary="first")
    second = session.compress(older_than=ids[4], summary="second")
    assert second.compressed == 3  # two messages and the first summary
    third = session.compress(older_than=ids[4], summary="third, better worded")
    assert third.compressed == 1
    assert [m.content.split("\n")[-1] for m in session.view()] == [
        "third, better worded",
        "message 4",
        "message 5",
    ]
    assert session.info().compressed_count == sum(m.is_compressed for m in session.messages()) == 6
    assert [m.content for m in session.messages() if not m.is_summary] == [f"message {n}" for n in range(6)]


def test_compressing_compressed_messages_changes_nothing(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    ids = fill(session, 6)
    session.compress(older_than=ids[4], summary="sum")
    before = session.info()
    for place in (ids[0], ids[2]):
        report = session.compress(older_than=place, summary="again")
        assert (report.summary, report.compressed) == (None, 0)
    assert session.compress(older_than=session.view()[0].id, summary="again").compressed == 0
    assert session.info() == before


def test_compressing_never_separates_a_call_from_its_results(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    calls = [MessageToolCall("c1", "search"), MessageToolCall("c2", "read")]
    session.add_many(
        [
            MessageDraft("user", "go", id="u"),
            MessageDraft("assistant", "", id="a", tool_calls=calls),
            MessageDraft("tool", "r1", id="t1", tool_call_id="c1"),
            MessageDraft("tool", "r2", id="t2", tool_call_id="c2"),
            MessageDraft("assistant", "done", id="d"),
        ]
    )
    report = session.compress(older_than="t2", summary="went")
    assert report.boundary == "a"
    assert [m.id for m in session.view()][1:] == ["a", "t1", "t2", "d"]
    assert [m.id for m in session.view(limit=3)][1:] == ["d"]  # r2 alone would be an orphan
    assert [m.id for m in session.view(limit=5)][1:] == ["a", "t1", "t2", "d"]


def test_a_result_added_after_its_call_was_compressed_is_not_shown_alone(
    engine: MemoryEngine, tenant: str
) -> None:
    session = engine.session(tenant, "s")
    session.add(MessageDraft("assistant", "", id="call", tool_calls=[MessageToolCall("c1", "slow")]))
    session.add(MessageDraft("user", "still there?", id="u"))
    session.compress(older_than="u", summary="a call was made")
    session.add(MessageDraft("tool", "late", id="late", tool_call_id="c1"))
    for view in (session.view(), session.view(limit=9)):
        assert [m.id for m in view][1:] == ["u"]
    assert session.get("late").content == "late"


def test_a_view_is_consistent_during_concurrent_compression(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    ids = fill(session, 60)
    done = threading.Event()

    def compress() -> None:
        for place in range(2, 58):
            session.compress(older_than=ids[place], summary=f"until {place}")
        done.set()

    worker = threading.Thread(target=compress)
    worker.start()
    while not done.is_set():
        for view in (session.view(), session.view(limit=10)):
            summaries = [m for m in view if m.is_summary]
            assert summaries == list(view[: len(summaries)])
            assert len(summaries) <= 1
            shown = [m.id for m in view if not m.is_summary]
            assert shown == ids[len(ids) - len(shown) :]
    worker.join()


def test_a_limited_view_keeps_the_summary_and_the_newest_messages(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    ids = fill(session, 40)
    assert [m.id for m in session.view(limit=5)] == ids[-5:]
    session.compress(older_than=ids[10], summary="ten")
    view = session.view(limit=5)
    assert view[0].is_summary
    assert [m.id for m in view[1:]] == ids[-4:]
    assert len(session.view(limit=100)) == 31
    assert len(session.view(limit=1)) == 1


def test_concurrent_compressions_leave_one_current_summary(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    ids = fill(session, 30)
    workers = [
        threading.Thread(target=session.compress, args=(ids[place], f"until {place}"))
        for place in (10, 15, 20, 25)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    view = session.view()
    assert [m.is_summary for m in view] == [True] + [False] * 5
    assert session.info().compressed_count == sum(m.is_compressed for m in session.messages())
    assert [m.id for m in session.messages() if not m.is_summary] == ids


def test_deleting_a_session_deletes_everything(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    session.add("user", "the walrus")
    report = session.delete()
    assert (report.sessions, report.messages) == (1, 1)
    assert engine.namespace(tenant).search("walrus") == ()
    for use in (
        session.info,
        session.latest,
        lambda: session.add("user", "x"),
        lambda: list(session.messages()),
    ):
        with pytest.raises(SessionNotFoundError, match="open a new one"):
            use()
    assert engine.session(tenant, "s").count() == 0
    with pytest.raises(SessionNotFoundError):  # the old handle does not slip into the new session
        session.info()


def test_sessions_are_listed_newest_first_in_pages(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    for n in range(7):
        namespace.session(f"s{n}").add("user", "x")
    first = namespace.sessions(limit=5)
    second = namespace.sessions(limit=5, after=first.next_after)
    assert [info.name for info in first.sessions + second.sessions] == [f"s{n}" for n in reversed(range(7))]
    assert second.next_after is None
    with pytest.raises(SessionNotFoundError, match="'gone'"):
        namespace.sessions(after="gone")


def test_a_namespace_is_deleted_without_its_neighbors(engine: MemoryEngine, tenant: str) -> None:
    for labels in ((tenant, "a"), (tenant, "a", "b"), (tenant, "A"), (tenant, "a%")):
        engine.session(labels, "s").add("user", "x")
    assert engine.namespace(tenant, "a").delete().messages == 1
    assert engine.namespaces((tenant,)) == ((tenant, "A"), (tenant, "a%"), (tenant, "a", "b"))
    assert engine.namespaces(tenant, after=(tenant, "A"), limit=1) == ((tenant, "a%"),)


def test_search_covers_all_sessions_and_ignores_punctuation(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    namespace.session("monday").add("user", "We decided on PostgreSQL for bookings.")
    namespace.session("tuesday").add("user", "Lunch was good.")
    (hit,) = namespace.search('What did we DECIDE? "AND NOT* (bookings:')
    assert (hit.session, hit.entry.content) == ("monday", "We decided on PostgreSQL for bookings.")
    assert namespace.search("?! ...") == ()
    assert namespace.search("") == ()


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, 2**63])
def test_an_invalid_limit_is_refused(limit: Any, tenant: str) -> None:
    with MemoryEngine() as engine:
        namespace = engine.namespace(tenant)
        session = namespace.session("s")
        for use in (
            lambda: session.latest(limit),
            lambda: session.page(limit=limit),
            lambda: namespace.sessions(limit=limit),
            lambda: namespace.search("x", limit=limit),
            lambda: engine.namespaces(limit=limit),
        ):
            with pytest.raises(InvalidInputError, match=f"got {limit!r}"):
                use()


def test_unknown_messages_are_named_in_errors(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    session.add("user", "x")
    with pytest.raises(MessageNotFoundError, match="'nope'"):
        session.get("nope")
    with pytest.raises(MessageNotFoundError, match="'nope'"):
        session.page(after="nope")
    with pytest.raises(MessageNotFoundError, match="'nope'"):
        session.compress(older_than="nope", summary="x")


def test_wrong_types_are_refused_by_name_and_nothing_is_written(engine: MemoryEngine, tenant: str) -> None:
    namespace: Any = engine.namespace(tenant)
    session: Any = namespace.session("s")
    message = session.add("user", "x").message
    wrong: list[Callable[[], object]] = [
        lambda: session.add_many([{"role": "user", "content": "x"}]),
        lambda: session.add_many([("user", "x")]),
        lambda: session.add_many("user"),
        lambda: session.add_many(MessageDraft("user", "x")),
        lambda: session.add_many(None),
        lambda: session.add(MessageDraft("user", "x"), "and a text"),
        lambda: session.add({"role": "user", "content": "x"}),
        lambda: session.add("user", 7),
        lambda: session.get(None),
        lambda: session.get(message),
        lambda: session.page(after=message),
        lambda: session.compress(older_than=message, summary="x"),
        lambda: session.compress(older_than=message.id, summary=None),
        lambda: namespace.search(None),
        lambda: namespace.search(7),
        lambda: namespace.sessions(after=7),
        lambda: namespace.find_session(7),
        lambda: engine.session(17, "a"),  # type: ignore[arg-type] # that is the case
        lambda: engine.session(None, "a"),  # type: ignore[arg-type] # that is the case
        lambda: engine.session(b"x", "a"),  # type: ignore[arg-type] # that is the case
        lambda: engine.namespaces(7),  # type: ignore[arg-type] # that is the case
    ]
    for use in wrong:
        with pytest.raises(InvalidInputError):
            use()
    assert session.count() == 1


def test_a_list_that_raises_while_iterated_is_not_stored(engine: MemoryEngine, tenant: str) -> None:
    def broken() -> Iterator[MessageDraft]:
        yield MessageDraft("user", "one")
        raise RuntimeError("broke off")

    session = engine.session(tenant, "s")
    with pytest.raises(RuntimeError, match="broke off"):
        session.add_many(broken())
    assert session.count() == 0


def test_find_session_does_not_create_a_session(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace((tenant, "a"))
    assert namespace.path == engine.namespace(tenant, "a").path
    assert namespace.find_session("s") is None
    namespace.session("s").add("user", "x")
    found = namespace.find_session("s")
    assert found is not None
    assert found.count() == 1


def test_invalid_input_writes_nothing(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    first = session.add("user", "x").message
    with pytest.raises(InvalidMessageError, match="expects a role and a text"):
        session.add("user")
    with pytest.raises(InvalidMessageError, match="unknown role 'robot'"):
        session.add("robot", "x")
    with pytest.raises(InvalidInputError, match="summary must be a text that is not empty"):
        session.compress(older_than=first.id, summary="  ")
    for name in ("", None, 7):
        with pytest.raises(InvalidNameError):
            engine.session(tenant, name)  # type: ignore[arg-type] # that is the case
        with pytest.raises(InvalidNameError):
            engine.namespace(tenant, name)  # type: ignore[arg-type] # that is the case
    assert session.count() == 1
    assert engine.namespaces(tenant) == ((tenant,),)


def test_two_engines_on_one_database_never_show_each_other_stale_messages(url: str, tenant: str) -> None:
    if url == "sqlite://":
        url = "sqlite:///file:shared?mode=memory&cache=shared&uri=true"
    with MemoryEngine(url) as one, MemoryEngine(url) as other:
        mine, theirs = one.session(tenant, "s"), other.session(tenant, "s")
        for n in range(20):
            writer, reader = (mine, theirs) if n % 2 else (theirs, mine)
            added = writer.add("user", f"message {n}").message
            assert writer.latest(1) == (added,)
            assert reader.latest(5)[-1] == added
        mine.compress(older_than=theirs.latest(1)[0].id, summary="all of it")
        assert [m.is_compressed for m in theirs.latest(3)] == [True, False, False]
        mine.delete()
        with pytest.raises(SessionNotFoundError):
            theirs.latest(1)


def test_the_cache_can_be_switched_off(url: str, tenant: str) -> None:
    config = EngineConfig(cache=CacheConfig(max_characters=0))
    with MemoryEngine(url, config=config) as engine:
        session = engine.session(tenant, "s")
        fill(session, 3)
        assert len(session.latest(2)) == len(session.latest(2)) == 2


def test_messages_declared_new_that_already_exist_are_stored_once(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "s")
    session.add(MessageDraft("user", "one", id="1"))
    drafts = [
        MessageDraft("user", text, id=number) for number, text in (("1", "one"), ("2", "two"), ("2", "two"))
    ]
    report = session.add_many(drafts, expect_new=True)
    assert ([m.id for m in report.stored], [m.id for m in report.duplicates]) == (["2"], ["1", "2"])
    with pytest.raises(MessageConflictError):
        session.add_many([MessageDraft("user", "other", id="1")], expect_new=True)
    assert [m.content for m in session.messages()] == ["one", "two"]
