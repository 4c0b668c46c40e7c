"""Stored data is read back equal and only in its own place, on every database."""

from __future__ import annotations

import uuid
from datetime import UTC
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall, Role
from tests.backends import ALL_BACKENDS, open_backend_engine
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

# Every code point, lone surrogates and NUL among them; st.text() alone leaves surrogates out.
any_text = st.text(st.characters(codec=None, categories=None), max_size=200) | st.text(
    st.sampled_from("\0\ud83d\ude00\udfff😀\u202eשلمa\n%"), max_size=20
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=15,
)
hostile = st.text(st.sampled_from("%_*.':/aA\\\" \0-0"), min_size=1, max_size=6)
times = st.datetimes(timezones=st.just(UTC))
drafts = st.builds(
    MessageDraft,
    st.sampled_from(Role),
    any_text,
    created_at=st.none() | times,
    name=st.none() | any_text,
    tool_calls=st.lists(st.builds(MessageToolCall, any_text, any_text, any_text), max_size=2),
    tool_call_id=st.none() | any_text,
    payload=any_json,
    token_count=st.none() | st.integers(0, 2**31 - 1),
)


@pytest.fixture(scope="module", params=ALL_BACKENDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryEngine]:
    """One engine for all examples; each works in namespaces of its own."""
    with open_backend_engine(request.param, tmp_path_factory.mktemp("round-trip"), request) as engine:
        yield engine


@given(st.lists(drafts, min_size=1, max_size=5))
@example([MessageDraft("user", "\0"), MessageDraft("tool", "\ud83d\ude00", payload={"\ud83d\ude00": "\0"})])
@example([MessageDraft("user", "x", payload=-0.0), MessageDraft("user", "x", payload=10**400)])
@example([MessageDraft("user", "base64:AAAA", payload="base64:AAAA", name="base64:")])
def test_any_message_comes_back_equal(shared: MemoryEngine, given_drafts: list[MessageDraft]) -> None:
    session = shared.session(uuid.uuid4().hex, "s")
    stored = session.add_many(given_drafts).stored
    for draft, message in zip(given_drafts, stored, strict=True):
        for field in ("role", "content", "name", "tool_calls", "tool_call_id", "payload_json"):
            assert getattr(message, field) == getattr(draft, field)
        assert draft.created_at in (None, message.created_at)
        assert draft.token_count in (None, message.token_count)
    assert tuple(session.messages()) == stored
    assert session.latest(9) == stored
    assert tuple(session.get(message.id) for message in stored) == stored


@given(any_json)
def test_any_json_payload_comes_back_equal(shared: MemoryEngine, payload: object) -> None:
    session = shared.session(uuid.uuid4().hex, "s")
    session.add(MessageDraft("user", "x", payload=payload))
    (message,) = session.messages()
    assert message.payload == payload


@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "\u202eשלום" * 150_000, "😀" * 250_000, "\0" * 1_000_000, "word " * 200_000],
    ids=["ascii", "right-to-left", "emoji", "nul", "words"],
)
def test_a_megabyte_comes_back_equal(shared: MemoryEngine, text: str) -> None:
    session = shared.session(uuid.uuid4().hex, "s")
    session.add("tool", text)
    assert session.latest(1)[0].content == text


@examples(60)
@given(
    st.lists(
        st.tuples(st.lists(hostile, min_size=1, max_size=3).map(tuple), hostile), unique=True, max_size=6
    )
)
def test_sessions_with_any_name_contain_only_their_own_messages(
    shared: MemoryEngine, places: list[tuple[tuple[str, ...], str]]
) -> None:
    root = uuid.uuid4().hex
    for number, (labels, name) in enumerate(places):
        shared.session((root, *labels), name).add("user", f"walrus {number}")
    for number, (labels, name) in enumerate(places):
        session = shared.session((root, *labels), name)
        assert (session.namespace, session.name) == ((root, *labels), name)
        assert [m.content for m in session.messages()] == [f"walrus {number}"]
        namespace = shared.namespace(root, *labels)
        here = {f"walrus {n}" for n, (other, _) in enumerate(places) if other == labels}
        assert {hit.entry.content for hit in namespace.search("walrus", limit=50)} == here
        assert {info.name for info in namespace.sessions().sessions} == {s for o, s in places if o == labels}
        below = {(root, *o) for o, _ in places if o[: len(labels)] == labels}
        assert set(shared.namespaces((root, *labels))) == below


@examples(40)
@given(st.lists(hostile, min_size=1, max_size=4, unique=True), st.data())
def test_deleting_one_namespace_keeps_the_others(
    shared: MemoryEngine, labels: list[str], data: st.DataObject
) -> None:
    root = uuid.uuid4().hex
    for label in labels:
        shared.session((root, label), label).add("user", "x")
    deleted = data.draw(st.sampled_from(labels))
    assert shared.namespace(root, deleted).delete().messages == 1
    assert set(shared.namespaces(root)) == {(root, label) for label in labels if label != deleted}


turns = st.lists(st.sampled_from(["u", "a", "A1", "A2", "A12", "1", "2", "compress"]), max_size=30)


@examples(60)
@given(turns, st.integers(1, 12))
def test_no_view_ever_shows_a_result_without_its_call(
    shared: MemoryEngine, turns: list[str], limit: int
) -> None:
    session = shared.session(uuid.uuid4().hex, "s")
    for turn in turns:
        if turn == "compress":
            if record := session.latest(3):
                session.compress(older_than=record[-1].id, summary="so far")
            continue
        role = {"u": "user", "a": "assistant", "A": "assistant"}.get(turn[0], "tool")
        calls = [MessageToolCall(digit, "tool") for digit in turn[1:]]
        session.add(MessageDraft(role, turn, tool_calls=calls, tool_call_id=turn if role == "tool" else None))
    assert len(session.view(limit)) <= limit
    for view in (session.view(), session.view(limit)):
        open_calls: set[str] = set()
        for message in view:
            open_calls.update(call.id for call in message.tool_calls)
            assert message.tool_call_id is None or message.tool_call_id in open_calls
