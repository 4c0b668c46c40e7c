"""After forget(x) no table contains data of x, and everything else is unchanged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall
from langmem_tiers.testing import seeded_ids
from tests.erasure_helpers import open_test_engine
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("plain", "decision", "preference", "goal", "call")
SAID = {
    "plain": "The {} lay on the table.",
    "decision": "We decided to use {} for the billing service.",
    "preference": "I prefer {} in the morning.",
    "goal": "Our goal is to open {} in March.",
}


@dataclass(frozen=True)
class Talk:
    """A session as it is going to be."""

    kinds: tuple[str, ...]
    learns: bool
    cuts: tuple[int, ...]
    promoted: int | None


talks = st.builds(
    Talk,
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=14).map(tuple),
    learns=st.booleans(),
    cuts=st.lists(st.integers(1, 20), max_size=2).map(sorted).map(tuple),
    promoted=st.none() | st.integers(0, 20),
)


def word(session: int, index: int) -> str:
    return f"zq{chr(97 + session)}{chr(97 + index)}vk"


def add_talk(engine: MemoryEngine, path: tuple[str, ...], number: int, talk: Talk) -> list[list[str]]:
    """Say all of it; the ids of the messages that belong together, in their order."""
    session = engine.session(path, f"s{number}")
    groups = []
    for index, kind in enumerate(talk.kinds):
        said = word(number, index)
        if kind == "call":
            call = MessageToolCall(f"c{index}", "look", f'{{"at": "{said}"}}')
            drafts = [
                MessageDraft("assistant", "", tool_calls=[call]),
                MessageDraft("tool", f"It is {said}.", tool_call_id=f"c{index}"),
            ]
        else:
            drafts = [MessageDraft("user", SAID[kind].format(said))]
        groups.append([message.id for message in session.add_many(drafts).stored])
    if talk.learns:
        session.learn(whole=True)
    for cut in talk.cuts:
        if cut < len(groups):
            told = ", ".join(word(number, index) for index in range(cut))
            session.compress(groups[cut][0], f"They spoke of {told}.")
    if talk.promoted is not None and talk.promoted < len(groups):
        session.promote(groups[talk.promoted][0])
    knowledge = engine.namespace(path).knowledge
    knowledge.store("domain", f"k{number}", word(number, 0), source=f"session s{number}")
    return groups


def rows(engine: MemoryEngine) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    with engine._database.read() as connection:
        names = connection.execute(
            text("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'lmt%'")
        )
        return {
            name: [str(tuple(row)) for row in connection.execute(text(f"SELECT * FROM {name}"))]
            for name in names.scalars().all()
            if not name.endswith("_data")  # pages of the index are tested byte by byte
        }


def read_contents(engine: MemoryEngine, path: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """All that a namespace holds, by kind and id."""
    namespace = engine.namespace(path)
    found: dict[str, dict[str, Any]] = {
        "entries": {entry.id: entry for entry in namespace.long_term.entries(valid_at=None, archived=True)},
        "facts": {fact.id: fact for fact in namespace.facts},
        "episodes": {episode.id: replace(episode, linked=()) for episode in namespace.episodes},
        "knowledge": {item.id: item for item in namespace.knowledge},
    }
    for info in namespace.sessions().sessions:
        session = namespace.session(info.name)
        found[info.name] = {
            message.id: replace(message, is_compressed=False)
            for message in session.messages()
            if not message.is_summary
        }
        found[f"{info.name} view"] = {
            message.id: message for message in session.view() if not message.is_summary
        }
    return found


def assert_rest_is_equal(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], gone: Sequence[str]
) -> None:
    """Nothing is new or changed, and nothing is gone that does not tell of what was erased."""
    for kind, things in before.items():
        left = after.get(kind, {})
        assert left.keys() <= things.keys()
        for name, thing in things.items():
            tells = any(each in str(thing) for each in gone)
            if name in left and not tells:
                assert left[name] == thing
            if not tells and kind != "episodes":
                assert name in left, (kind, thing)


@examples(25)
@given(st.lists(talks, min_size=1, max_size=3), st.data())
def test_forgetting_a_message_leaves_no_trace_and_keeps_the_rest_equal(
    held: list[Talk], data: st.DataObject
) -> None:
    path = ("acme", "alice")
    with open_test_engine("sqlite://", ids=seeded_ids()) as engine:
        groups = [add_talk(engine, path, number, talk) for number, talk in enumerate(held)]
        number = data.draw(st.integers(0, len(held) - 1))
        index = data.draw(st.integers(0, len(groups[number]) - 1))
        before = read_contents(engine, path)
        gone = groups[number][index]
        receipt = engine.forget(
            namespace=path, session=f"s{number}", message=data.draw(st.sampled_from(gone)), scrub=False
        )
        assert receipt.counts.messages == len(gone)
        after = read_contents(engine, path)
        erased = word(number, index)
        left = {name: found for name, found in rows(engine).items() if any(erased in row for row in found)}
        if index == 0:  # what is known names the session as its source, and not the message
            left = {name: found for name, found in left.items() if "knowledge" not in name}
        assert left == {}
        assert_rest_is_equal(before, after, [erased, *gone])
        session = engine.session(path, f"s{number}")
        messages = list(session.messages())
        info = session.info()
        assert info.message_count == len(messages)
        assert info.token_count == sum(message.token_count for message in messages)
        assert info.compressed_count == sum(message.is_compressed for message in messages)
        for chunk in session.chunks():
            assert erased not in chunk.summary
            assert chunk.message_count == len(session.messages_of(chunk))


@examples(25)
@given(st.lists(talks, min_size=1, max_size=3), st.data())
def test_forgetting_a_session_or_user_leaves_no_trace_and_keeps_the_rest_equal(
    held: list[Talk], data: st.DataObject
) -> None:
    mine, others = ("acme", "alice"), ("acme", "alice2")
    with open_test_engine("sqlite://", ids=seeded_ids()) as engine:
        for number, talk in enumerate(held):
            add_talk(engine, mine, number, talk)
        add_talk(engine, others, 9, held[0])
        number = data.draw(st.integers(0, len(held) - 1))
        before, apart = read_contents(engine, mine), read_contents(engine, others)
        engine.forget(namespace=mine, session=f"s{number}", scrub=False)
        words = [word(number, index) for index in range(len(held[number].kinds))]
        found = {
            name: [row for row in got if any(map(row.__contains__, words))]
            for name, got in rows(engine).items()
        }
        assert {name: got for name, got in found.items() if got} == {}
        after = read_contents(engine, mine)
        erased = [*words, f"'s{number}'"]
        left = {kind: things for kind, things in before.items() if not kind.startswith(f"s{number}")}
        assert_rest_is_equal(left, after, erased)
        engine.forget(user="alice", scrub=False)
        assert read_contents(engine, others) == apart
        assert [path for path in engine.namespaces() if "alice" in path] == []
        assert all("zqa" not in row for name, got in rows(engine).items() for row in got)
