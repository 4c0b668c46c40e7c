"""Sessions as message lists of a framework, through the public API, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    InvalidInputError,
    MemoryEngine,
    MessageConflictError,
    MessageDraft,
    MessageNotFoundError,
    MessageToolCall,
    SessionNotFoundError,
)
from langmem_tiers.common.prompt_fences import wrap_in_fence
from langmem_tiers.sessions.models import Listing
from tests.sessions.session_texts import (
    ACTIVE,
    ARCHIVED,
    REMOVED,
    REPLACED,
    context,
    drafts,
    ids,
    list_texts,
    record_texts,
    view_texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langmem_tiers import Session


@pytest.fixture
def session(engine: MemoryEngine, tenant: str) -> Session:
    return engine.session(tenant, "s")


def test_added_messages_are_appended_to_the_list(session: Session) -> None:
    assert (list_texts(session), list_texts(session, *Listing)) == ([], [])
    session.add("user", "one")
    report = session.transcript.add(drafts("two", "three"))
    assert [message.content for message in report.stored] == ["two", "three"]
    assert session.transcript.messages() == tuple(session.messages())
    assert (list_texts(session, ACTIVE), list_texts(session, ARCHIVED)) == (["one", "two", "three"], [])


def test_a_list_is_read_in_pages(session: Session) -> None:
    session.transcript.add(drafts(*"abcdef"))
    session.transcript.move_oldest(2, ARCHIVED)
    session.transcript.move(ids(session, "d"), REPLACED)

    def part(*listings: Listing, limit: int | None = None, offset: int = 0) -> str:
        found = session.transcript.messages(listings, limit=limit, offset=offset)
        return "".join(message.content for message in found)

    assert (part(ACTIVE, ARCHIVED, limit=3), part(ACTIVE, ARCHIVED, limit=3, offset=3)) == ("abc", "ef")
    assert (part(ACTIVE, limit=0), part(ACTIVE, offset=1), part(REPLACED), part()) == ("", "ef", "d", "")


@pytest.mark.parametrize("listing", [ARCHIVED, REPLACED, REMOVED])
def test_messages_are_added_with_the_given_listing(session: Session, listing: Listing) -> None:
    session.transcript.add(drafts("one"))
    report = session.transcript.add(drafts("two", "three"), listing)
    assert report.stored == session.transcript.messages((listing,))
    assert (list_texts(session, ACTIVE), record_texts(session)) == (["one"], ["one", "two", "three"])
    assert session.info().message_count == 3


@pytest.mark.parametrize("listing", Listing)
def test_a_message_that_is_known_is_not_added_again(session: Session, listing: Listing) -> None:
    known = MessageDraft("user", "known", id="1")
    first = session.transcript.add([known]).stored
    echo = MessageDraft("user", wrap_in_fence(["user: from memory"]))
    report = session.transcript.add(
        [known, echo, MessageDraft("user", "new", id="2"), *drafts("no id")], listing
    )
    assert [message.content for message in report.stored] == ["new", "no id"]
    assert (report.duplicates, len(report.echoes)) == (first, 1)
    assert record_texts(session) == ["known", "new", "no id"]
    assert "known" in list_texts(session, ACTIVE)  # it stands as before
    with pytest.raises(MessageConflictError, match="'2'"):
        session.transcript.add(
            [*drafts("more"), MessageDraft("user", "says something else", id="2")], listing
        )
    assert record_texts(session) == ["known", "new", "no id"]


def test_the_oldest_active_messages_are_archived(session: Session) -> None:
    session.transcript.add(drafts(*"abcde"))
    session.transcript.move(ids(session, "b"), REMOVED)
    moved = session.transcript.move_oldest(2, ARCHIVED)
    assert [message.content for message in moved] == ["a", "c"]
    assert [message.content for message in session.transcript.move_oldest(1, REPLACED)] == ["d"]
    assert session.transcript.move_oldest(0, ARCHIVED) == ()
    assert [list_texts(session, listing) for listing in Listing] == [["e"], ["a", "c"], ["d"], ["b"]]
    assert len(session.transcript.move_oldest(99, ARCHIVED)) == 1
    assert session.transcript.move_oldest(99, ARCHIVED) == ()


def test_archived_messages_stay_in_list_view_and_context(session: Session) -> None:
    session.transcript.add(drafts(*"abc"))
    session.transcript.move_oldest(2, ARCHIVED)
    assert list_texts(session) == view_texts(session) == context(session) == list("abc")


def test_a_message_returns_to_its_original_position(session: Session) -> None:
    session.transcript.add(drafts(*"abcd"))
    session.transcript.move(ids(session, "b", "c"), REMOVED)
    assert list_texts(session) == view_texts(session) == context(session) == ["a", "d"]
    session.transcript.move(ids(session, "b"), ACTIVE)
    session.transcript.move(ids(session, "c"), ARCHIVED)
    assert list_texts(session) == view_texts(session) == context(session) == list("abcd")
    assert list_texts(session, ACTIVE) == ["a", "b", "d"]


def test_moving_an_unknown_message_changes_nothing(session: Session) -> None:
    session.transcript.add(drafts("a"))
    revision = session.info().revision
    with pytest.raises(MessageNotFoundError, match="no message 'nowhere'"):
        session.transcript.move([*ids(session, "a"), "nowhere"], REMOVED)
    session.transcript.move([], REMOVED)
    assert (list_texts(session), session.info().revision) == (["a"], revision)


@pytest.mark.parametrize("former", ["", "a", "abc", "abcabc"])
def test_replacing_a_list_with_a_longer_one_adds_only_the_new_messages(session: Session, former: str) -> None:
    before = session.transcript.add(drafts(*former)).stored
    report = session.transcript.replace(drafts(*former, "x", "y"))
    assert report is not None
    assert (report.kept, report.replaced) == (len(former), 0)
    assert [message.content for message in report.added] == ["x", "y"]
    assert tuple(session.messages()) == session.transcript.messages() == before + report.added


def test_the_same_list_again_writes_nothing(session: Session) -> None:
    session.transcript.add(drafts(*"abc"))
    before = session.info()
    report = session.transcript.replace(drafts(*"abc"))
    assert report is not None
    assert (report.kept, report.added, report.replaced) == (3, (), 0)
    assert session.info() == before


@pytest.mark.parametrize(
    ("former", "new", "kept"),
    [
        ("abcd", "", ""),
        ("abcd", "bd", "bd"),
        ("abcd", "cd", "cd"),
        ("abcd", "ab", "ab"),
        ("abcd", "wxyz", ""),
        ("abcd", "bxd", "b"),
        ("abcd", "dcba", "d"),
        ("abcd", "acbd", "ac"),
        ("aaa", "a", "a"),
        ("aaa", "aaaa", "aaa"),
        ("abab", "aab", "aab"),
        ("abab", "bba", "bb"),
        ("", "aa", ""),
    ],
)
def test_replacing_a_list_keeps_the_common_messages_in_order(
    session: Session, former: str, new: str, kept: str
) -> None:
    before = {message.id for message in session.transcript.add(drafts(*former)).stored}
    report = session.transcript.replace(drafts(*new))
    assert report is not None
    assert (
        list_texts(session)
        == list_texts(session, ACTIVE)
        == view_texts(session)
        == context(session)
        == list(new)
    )
    assert [m.content for m in session.transcript.messages() if m.id in before] == list(kept)
    assert (report.kept, report.replaced) == (len(kept), len(former) - len(kept))
    assert "".join(message.content for message in report.added) == new[len(kept) :]
    assert record_texts(session) == [*former, *new[len(kept) :]]
    assert len(list_texts(session, REPLACED)) == report.replaced


@pytest.mark.parametrize(
    "other",
    [
        {"role": "user"},
        {"content": "y"},
        {"name": "bob"},
        {"name": None},
        {"tool_calls": []},
        {"tool_calls": [MessageToolCall("c", "look", "{ }")]},
        {"tool_call_id": "d"},
        {"payload": {"a": 1, "b": 0}},
        {"payload": None},
    ],
    ids=str,
)
def test_a_message_is_kept_only_if_all_its_content_is_equal(session: Session, other: dict[str, Any]) -> None:
    said: dict[str, Any] = {
        "role": "assistant",
        "content": "x",
        "name": "ann",
        "tool_calls": [MessageToolCall("c", "look")],
        "tool_call_id": "c",
        "payload": {"a": 1, "b": [None]},
    }
    session.transcript.add([MessageDraft(**said)])
    for new, kept in ((said, 1), (said | other, 0), (said | other, 1), (said, 0)):
        report = session.transcript.replace([MessageDraft(**new)])
        assert report is not None
        assert (report.kept, len(report.added), report.replaced) == (kept, 1 - kept, 1 - kept)


def test_an_equal_message_with_another_id_keeps_the_stored_one(session: Session) -> None:
    session.transcript.add([MessageDraft("user", "a", id="1")])
    report = session.transcript.replace(
        [MessageDraft("user", "a", id="2"), MessageDraft("user", "b", id="3")]
    )
    assert report is not None
    assert [message.id for message in session.transcript.messages()] == ["1", "3"]


def test_a_list_that_reuses_an_id_for_another_message_is_refused(session: Session) -> None:
    session.transcript.add([MessageDraft("user", "a", id="1"), MessageDraft("user", "b", id="2")])
    before = session.info()
    for wrong in (
        [MessageDraft("user", "b", id="2"), MessageDraft("user", "a", id="1")],
        [MessageDraft("user", "other", id="1")],
        [MessageDraft("user", "x", id="1"), MessageDraft("user", "x", id="1")],
    ):
        with pytest.raises(MessageConflictError, match="'1'.*leave out the id"):
            session.transcript.replace(wrong)
    assert (session.info(), list_texts(session)) == (before, ["a", "b"])


def test_all_messages_of_a_replacing_list_get_the_given_listing(session: Session) -> None:
    session.transcript.add(drafts(*"abcd"))
    session.transcript.move_oldest(2, ARCHIVED)
    kept = session.transcript.messages()[:3]
    session.transcript.replace(drafts(*"abcx"))
    assert (list_texts(session, ACTIVE), list_texts(session, ARCHIVED)) == (list("abcx"), [])
    session.transcript.replace(drafts(*"abcy"), ARCHIVED)
    assert (list_texts(session, ACTIVE), list_texts(session, ARCHIVED)) == ([], list("abcy"))
    assert session.transcript.messages()[:3] == kept
    before = session.info()
    session.transcript.replace(drafts(*"abcy"), ARCHIVED)
    assert session.info() == before


def test_text_injected_by_a_context_is_not_part_of_a_list(session: Session) -> None:
    session.transcript.add(drafts("a"))
    report = session.transcript.replace(
        [*drafts("a"), *drafts(wrap_in_fence(["user: from memory"])), *drafts("b")]
    )
    assert report is not None
    assert (report.kept, list_texts(session)) == (1, ["a", "b"])


def test_the_list_of_a_deleted_session_raises(session: Session) -> None:
    (message,) = session.transcript.add(drafts("a")).stored
    session.delete()
    transcript = session.transcript
    uses: list[Callable[[], object]] = [
        transcript.messages,
        transcript.count,
        lambda: transcript.add(drafts("b")),
        lambda: transcript.add(drafts("b"), ARCHIVED),
        lambda: transcript.move_oldest(1, ARCHIVED),
        lambda: transcript.move_oldest(0, ARCHIVED),
        lambda: transcript.replace([]),
        lambda: transcript.replace(drafts("b")),
        session.set_aside,
    ]
    for use in uses:
        with pytest.raises(SessionNotFoundError, match="open a new one"):
            use()
    with pytest.raises(MessageNotFoundError):
        transcript.move([message.id], REMOVED)


def test_a_listing_can_be_given_as_a_string(session: Session) -> None:
    said: Any = "archived"
    session.transcript.add(drafts("a"))
    session.transcript.move_oldest(1, said)
    assert [message.content for message in session.transcript.messages([said])] == ["a"]
    assert session.transcript.count([said]) == 1


def test_invalid_input_changes_nothing(session: Session) -> None:
    (message,) = session.transcript.add(drafts("a")).stored
    before = session.info()
    transcript: Any = session.transcript
    wrong: list[Callable[[], object]] = [
        lambda: transcript.messages(ACTIVE),
        lambda: transcript.messages(["deleted"]),
        lambda: transcript.messages(7),
        lambda: transcript.messages(limit=-1),
        lambda: transcript.messages(limit=True),
        lambda: transcript.messages(limit="1"),
        lambda: transcript.messages(offset=-1),
        lambda: transcript.messages(offset=None),
        lambda: transcript.count("active"),
        lambda: transcript.count([None]),
        lambda: transcript.add("text"),
        lambda: transcript.add(drafts("b")[0]),
        lambda: transcript.add(["b"], ARCHIVED),
        lambda: transcript.add("text", ARCHIVED),
        lambda: transcript.add(drafts("b"), "gone"),
        lambda: transcript.add(drafts("b"), None),
        lambda: transcript.move(message.id, REMOVED),
        lambda: transcript.move(7, REMOVED),
        lambda: transcript.move([7], REMOVED),
        lambda: transcript.move([""], REMOVED),
        lambda: transcript.move([message.id], "gone"),
        lambda: transcript.move([message.id], ["removed"]),
        lambda: transcript.move_oldest(-1, ARCHIVED),
        lambda: transcript.move_oldest(1.0, ARCHIVED),
        lambda: transcript.move_oldest(1, None),
        lambda: transcript.replace("text"),
        lambda: transcript.replace(drafts("b")[0]),
        lambda: transcript.replace([*drafts("b"), "c"]),
        lambda: transcript.replace(None),
        lambda: transcript.replace(drafts("b"), "gone"),
        lambda: transcript.replace(drafts("b"), former=None),
    ]
    for use in wrong:
        with pytest.raises(InvalidInputError):
            use()
    assert (session.info(), list_texts(session)) == (before, ["a"])


def test_a_list_that_raises_while_iterated_replaces_nothing(session: Session) -> None:
    session.transcript.add(drafts("a"))

    def broken() -> Iterable[MessageDraft]:
        yield MessageDraft("user", "b")
        raise RuntimeError("broke off")

    transcript: Any = session.transcript
    for put in (transcript.replace, transcript.add, lambda some: transcript.add(some, ARCHIVED)):
        with pytest.raises(RuntimeError, match="broke off"):
            put(broken())
    assert list_texts(session) == record_texts(session) == ["a"]
