"""Effect of message lists on views, contexts, summaries and recall, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall, Strategy, TokenBudget
from langmem_tiers.testing import HashEmbedder
from tests.sessions.session_texts import (
    ACTIVE,
    ARCHIVED,
    REMOVED,
    REPLACED,
    context,
    drafts,
    ids,
    list_texts,
    recall_texts,
    record_texts,
    view_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from langmem_tiers import Session
    from langmem_tiers.testing import FrozenClock


@pytest.fixture
def session(engine: MemoryEngine, tenant: str) -> Session:
    return engine.session(tenant, "s")


def test_the_former_messages_get_the_given_listing(
    engine: MemoryEngine, session: Session, tenant: str
) -> None:
    session.transcript.add(drafts("walrus one", "walrus two"))
    session.transcript.replace(drafts("walrus two", "walrus three"), former=REMOVED)
    assert (list_texts(session, REMOVED), list_texts(session, REPLACED)) == (["walrus one"], [])
    assert recall_texts(engine, tenant, "walrus") == {"walrus two", "walrus three"}
    session.transcript.replace([], former=ARCHIVED)
    assert list_texts(session) == ["walrus two", "walrus three"]


def test_replaced_messages_are_in_no_view_or_context_but_recalled(
    engine: MemoryEngine, session: Session, tenant: str
) -> None:
    session.transcript.add(drafts("The walrus lives in Tromsø", "A long tusk has the walrus"))
    assert len(context(session)) == 2
    session.transcript.replace(drafts("Where does the walrus live?"))
    assert view_texts(session) == context(session) == ["Where does the walrus live?"]
    assert [entry.content for entry in session.entries()] == ["Where does the walrus live?"]
    assert len(recall_texts(engine, tenant, "walrus")) == 3
    with_memories = session.build_context()
    assert "The walrus lives in Tromsø" in {hit.entry.content for hit in with_memories.recalled}
    assert [message.content for message in with_memories.messages if message.id in session.find_known_ids(
        [message.id for message in with_memories.messages]
    )] == ["Where does the walrus live?"]  # fmt: skip


def test_removed_messages_are_neither_shown_nor_recalled_until_restored(
    engine: MemoryEngine, session: Session, tenant: str
) -> None:
    session.transcript.add(
        drafts("The walrus lives in Tromsø", "The walrus is called Ole", "Where is the walrus?")
    )
    other = engine.session(tenant, "other")
    other.add("user", "Tell me of the walrus")
    everything = {*record_texts(session), *record_texts(other)}
    assert recall_texts(engine, tenant, "walrus") == everything
    (secret,) = ids(session, "The walrus is called Ole")
    session.transcript.move([secret], REMOVED)
    assert "Ole" not in "".join([*view_texts(session), *context(session)])
    for asked in (session, other):
        built = asked.build_context()
        assert not any("Ole" in message.content for message in built.messages)
        assert not any("Ole" in hit.entry.content for hit in (*built.recalled, *built.left_out))
    assert recall_texts(engine, tenant, "walrus") == everything - {"The walrus is called Ole"}
    for strategy in Strategy:
        found = engine.namespace(tenant).recall("walrus called Ole", strategy=strategy, limit=50)
        assert secret not in {hit.entry.id for hit in found}
        assert found.hits
    assert session.get(secret).content in record_texts(session)
    session.transcript.move([secret], ACTIVE)
    assert recall_texts(engine, tenant, "walrus") == everything
    assert context(session) == record_texts(session)


def test_a_session_with_all_messages_removed_is_empty(
    engine: MemoryEngine, session: Session, tenant: str
) -> None:
    session.transcript.add(drafts("walrus one", "walrus two"))
    assert len(recall_texts(engine, tenant, "walrus")) == 2
    session.transcript.move_oldest(2, REMOVED)
    assert recall_texts(engine, tenant, "walrus") == set()
    assert context(session) == list_texts(session) == []
    session.add("user", "walrus three")
    assert context(session) == list_texts(session) == ["walrus three"]
    assert recall_texts(engine, tenant, "walrus") == {"walrus three"}


def test_removed_messages_are_not_recalled_by_similarity(url: str, clock: FrozenClock, tenant: str) -> None:
    with MemoryEngine(url, clock=clock, embedder=HashEmbedder()) as engine:
        session = engine.session(tenant, "s")
        session.add_many(drafts(*(f"walrus number {n} swims" for n in range(30))))
        namespace = engine.namespace(tenant)
        namespace.embed()
        session.transcript.move_oldest(10, REMOVED)
        for strategy in (Strategy.BEST, Strategy.SIMILARITY, Strategy.HYBRID):
            found = namespace.recall("walrus number swims", strategy=strategy, limit=30)
            numbers = {int(hit.entry.content.split()[2]) for hit in found}
            assert (found.problems, numbers) == ((), set(range(10, 30)))


def test_removed_messages_are_not_long_term_entries(
    engine: MemoryEngine, session: Session, tenant: str
) -> None:
    (message,) = session.transcript.add(drafts("The walrus is called Ole")).stored
    session.promote(message)
    assert [entry.id for entry in engine.namespace(tenant).long_term] == [message.id]
    session.transcript.move([message.id], REMOVED)
    assert list(engine.namespace(tenant).long_term) == []
    session.transcript.move([message.id], ACTIVE)
    assert [entry.id for entry in engine.namespace(tenant).long_term] == [message.id]


def test_lists_continue_after_a_summary(session: Session) -> None:
    session.transcript.add(drafts(*"abcdef"))
    session.compress(ids(session, "d")[0], summary="three letters")
    assert list_texts(session) == list("abcdef")  # the summary is the engine's own
    report = session.transcript.replace(drafts(*"abcdefg"), behind_summaries=False)
    assert report is not None
    assert (report.kept, len(report.added), report.replaced) == (6, 1, 0)
    report = session.transcript.replace(drafts(*"abcxg"), behind_summaries=False)
    assert report is not None
    assert (report.kept, len(report.added), report.replaced) == (3, 2, 4)
    assert session.view()[0].is_summary
    assert (list_texts(session), view_texts(session)) == (list("abcxg"), ["x", "g"])


def test_a_list_without_summarized_messages_replaces_only_if_allowed(
    session: Session,
) -> None:
    session.transcript.add(drafts(*"abcdef"))
    session.compress(ids(session, "d")[0], summary="three letters")
    before = session.info()
    for new in ("", "acdef", "def", "xabcdef"):
        assert session.transcript.replace(drafts(*new), behind_summaries=False) is None
        assert (session.info(), list_texts(session)) == (before, list("abcdef"))
    report = session.transcript.replace(drafts(*"acdef"))
    assert report is not None
    assert (report.kept, report.replaced) == (5, 1)
    assert (list_texts(session), view_texts(session)) == (list("acdef"), list("def"))
    # What is out already, a summary may tell of for ever.
    assert session.transcript.replace(drafts(*"acdefg"), behind_summaries=False) is not None


def test_a_list_with_gaps_is_summarized_without_replaced_messages(session: Session) -> None:
    session.transcript.add(drafts(*"abcdef"))
    session.transcript.move(ids(session, "b"), REPLACED)
    report = session.compress(ids(session, "d")[0], summary="two letters")
    assert report.compressed == 2
    assert view_texts(session) == list("def")
    assert session.transcript.replace(drafts(*"acdefg"), behind_summaries=False) is not None
    assert list_texts(session) == list("acdefg")


def test_a_compacted_session_is_still_a_list(engine: MemoryEngine, session: Session) -> None:
    texts = [f"Part {n}: " + f"it goes on {n} times " * 20 for n in range(40)]
    session.transcript.add(drafts(*texts))
    session.build_context(budget=TokenBudget.of(2000), tidy=True, recall=False)
    assert session.view()[0].is_summary
    assert list_texts(session) == texts
    session.transcript.replace(drafts(*texts[:-1], "and more"))
    assert list_texts(session) == [*texts[:-1], "and more"]
    assert texts[-1] not in context(session)
    assert context(session)[-1] == "and more"


def test_a_tool_result_without_its_removed_call_is_not_shown(session: Session) -> None:
    session.transcript.add(
        [
            MessageDraft("user", "go"),
            MessageDraft("assistant", "", id="call", tool_calls=[MessageToolCall("c", "look")]),
            MessageDraft("tool", "found", tool_call_id="c"),
            MessageDraft("user", "and?"),
        ]
    )
    assert len(context(session)) == 4
    session.transcript.move(["call"], REPLACED)
    assert view_texts(session) == context(session) == ["go", "and?"]
    assert list_texts(session) == ["go", "found", "and?"]


def other_lists(session: Session) -> Iterable[list[str]]:
    """What the list becomes by each way to change it, one after the other."""
    transcript = session.transcript
    transcript.move(ids(session, "b"), REPLACED)
    yield list("acd")
    transcript.replace(drafts(*"acx"))
    yield list("acx")
    transcript.move(ids(session, "b"), ACTIVE)
    yield list("abcx")
    transcript.move_oldest(2, REMOVED)
    yield ["c", "x"]
    transcript.add(drafts("y"), ARCHIVED)
    yield ["c", "x", "y"]
    transcript.add(drafts("z"), REPLACED)
    session.add("user", "end")
    yield ["c", "x", "y", "end"]


def test_another_engine_on_the_same_database_sees_each_change_immediately(url: str, tenant: str) -> None:
    if url == "sqlite://":
        url = "sqlite:///file:lists?mode=memory&cache=shared&uri=true"
    with MemoryEngine(url) as one, MemoryEngine(url) as other:
        mine, theirs = one.session(tenant, "s"), other.session(tenant, "s")
        mine.transcript.add(drafts(*"abcd"))
        assert context(theirs) == context(mine) == list("abcd")
        for expected in other_lists(mine):
            assert context(theirs) == context(mine) == expected
            assert list_texts(theirs) == view_texts(theirs) == expected
            assert theirs.latest(9) == mine.latest(9) == tuple(mine.messages())


def test_messages_removed_by_another_engine_are_not_recalled(tmp_path: Path) -> None:
    with MemoryEngine(tmp_path / "m.db") as one, MemoryEngine(tmp_path / "m.db") as other:
        mine = one.session("a", "s")
        mine.transcript.add(drafts("walrus one", "walrus two"))
        for engine in (one, other):
            assert len(recall_texts(engine, "a", "walrus")) == 2
        mine.transcript.move_oldest(1, REMOVED)
        assert recall_texts(other, "a", "walrus") == recall_texts(one, "a", "walrus") == {"walrus two"}
        mine.transcript.move(ids(mine, "walrus one"), REPLACED)
        assert len(recall_texts(other, "a", "walrus")) == 2


@pytest.mark.soak
def test_a_list_is_replaced_despite_constant_concurrent_writes(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = session._dependencies.transcripts
    look, decide = store.list_messages, store.apply_locked_change
    session.transcript.add(drafts(*"abc"))
    session.transcript.move_oldest(2, ARCHIVED)

    def outrun(*arguments: Any, **options: Any) -> Any:
        found = look(*arguments, **options)
        session.add("user", "in between")
        return found

    def decide_alone(key: int, listings: Any, make: Any, now: Any, **options: Any) -> bool:
        def make_alone(there: Any) -> Any:
            with monkeypatch.context() as patched:  # others wait: whoever asks a store now may wait for them
                patched.delattr(type(store), "list_messages")
                patched.delattr(type(store), "count")
                return make(there)

        return decide(key, listings, make_alone, now, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store, "list_messages", outrun)
        patched.setattr(store, "apply_locked_change", decide_alone)
        report = session.transcript.replace(drafts(*"abx"))
        moved = session.transcript.move_oldest(2, REPLACED)
    assert report is not None
    outran = record_texts(session).count("in between")
    assert (report.kept, len(report.added), report.replaced) == (2, 1, 1 + outran // 2)
    assert [message.content for message in moved] == ["a", "b"]
    assert list_texts(session) == list_texts(session, ACTIVE) == ["x", *["in between"] * (outran // 2)]


def test_a_replacement_overtaken_by_a_summary_removes_no_summarized_message(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(session._dependencies.transcripts)
    look = store.list_messages
    session.transcript.add(drafts(*"abc"))

    def outrun(self: Any, *arguments: Any, **options: Any) -> Any:
        found = look(self, *arguments, **options)
        session.compress(ids(session, "c")[0], summary="two letters")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(store, "list_messages", outrun)
        assert session.transcript.replace(drafts("x"), behind_summaries=False) is None
    assert list_texts(session) == record_texts(session) == list("abc")
