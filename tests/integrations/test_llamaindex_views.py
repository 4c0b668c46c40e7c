"""What a model is shown, for any conversation and any limit: whole, within its limit, and the newest always there."""

from __future__ import annotations

import logging
import uuid
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import MemoryEngine
from tests.hypothesis_settings import examples
from tests.integrations.test_llamaindex_memory import (
    INSERTS,
    LONG,
    assistant,
    memory_of,
    result,
    system,
    texts,
    tokens_of,
    user,
)
from tests.integrations.test_llamaindex_round_trip import messages as any_message

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ImageBlock,
        MessageRole,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )

    from langmem_tiers_llamaindex.layout import can_begin, cut_to_limit, find_unsafe_cuts
    from langmem_tiers_llamaindex.token_counter import TokenCountCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers_llamaindex import TieredMemory

TEXTS = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="日本語文字\N{WOMAN}é ", max_size=80),
    st.integers(1, 400).map(
        lambda n: f"The gate {n} is at https://gate.example/{n}, it opens at {n % 24}. " * 3
    ),
    st.integers(1, 60).map(lambda n: f"word{n} " * n * 5),
    st.just('{"rows": [' + ", ".join(f'{{"id": {n}, "name": "row {n}"}}' for n in range(60)) + "]}"),
    st.just("{query_str} <|endoftext|> \0 \ud83d"),
)
TOKENIZERS = st.sampled_from([None, list, str.split])  # LlamaIndex's own, letters, words
LIMITS = st.integers(1, 120) | st.integers(120, 4000)


def calls_in(message: ChatMessage) -> list[str]:
    return [block.tool_call_id or "" for block in message.blocks if isinstance(block, ToolCallBlock)]


def answered(message: ChatMessage) -> str | None:
    return message.additional_kwargs.get("tool_call_id") if message.role is MessageRole.TOOL else None


@st.composite
def conversations(draw: st.DrawFn) -> list[ChatMessage]:
    """A conversation as agents leave it: parallel calls, thoughts, results that never came, pictures, nothing."""
    said = [system(draw(TEXTS)) for _ in range(draw(st.integers(0, 2)))]
    if not draw(st.integers(0, 5)):
        said.append(assistant(draw(TEXTS)))
    for turn in range(draw(st.integers(1, 7))):
        picture = [ImageBlock(image=b"iVBORw0KGgo=", detail="low")] if not draw(st.integers(0, 9)) else []
        said.append(ChatMessage(role="user", blocks=[TextBlock(text=draw(TEXTS)), *picture]))
        for step in range(draw(st.integers(0, 3))):
            ids = [f"c{turn}-{step}-{n}" for n in range(draw(st.integers(1, 3)))]
            thought = [ThinkingBlock(content=draw(TEXTS))] if not draw(st.integers(0, 5)) else []
            calls = [
                ToolCallBlock(tool_call_id=one, tool_name="look_up", tool_kwargs={"what": draw(TEXTS)})
                for one in ids
            ]
            said.append(ChatMessage(role="assistant", blocks=[*thought, *calls]))
            came = [one for one in ids if draw(st.integers(0, 9))]
            said += [result(one[1:], draw(TEXTS)) for one in came]
        if draw(st.booleans()):
            said.append(assistant(draw(TEXTS)))
        if not draw(st.integers(0, 9)):
            said.append(ChatMessage(role="assistant"))
    return said


def newest_group(said: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    start = len(said) - 1
    while said[start].role is MessageRole.TOOL:
        start -= 1
    return said[start:]


def check_view(
    memory: TieredMemory, said: Sequence[ChatMessage], shown: Sequence[ChatMessage], limit: int
) -> None:
    pinned = said[: next((n for n, one in enumerate(said) if one.role is not MessageRole.SYSTEM), len(said))]
    # What the conversation begins with is there as it was said.
    for rule, first in zip(pinned, shown, strict=False):
        assert plain_texts(first)[: len(rule.blocks)] == plain_texts(rule)
    check_whole(shown)
    talk = [one for one in shown if one.role is not MessageRole.SYSTEM]
    there = [one for one in said[len(pinned) :] if one.blocks or one.additional_kwargs]
    if any(one.role is MessageRole.USER for one in talk) and len(talk) < len(there):
        assert can_begin(talk[0])
    if not said[-1].blocks:  # an answer that never came is not shown
        return
    needed = tokens_of(memory, [*pinned, *newest_group(said)])
    if needed <= limit:
        assert tokens_of(memory, shown) <= limit
    assert shown[-1].role is said[-1].role
    if needed <= limit // 2:
        assert plain_texts(shown[-1])[-1:] == plain_texts(said[-1])[-1:]
        assert calls_in(shown[-1]) == calls_in(said[-1])


def plain_texts(message: ChatMessage) -> list[str]:
    found = [block.text for block in message.blocks if isinstance(block, TextBlock)]
    return [text.replace("\N{WORD JOINER}", "") for text in found]


def check_whole(shown: Sequence[ChatMessage]) -> None:
    """Each result follows its call, and between them stand only others of the same message."""
    opened: set[str] = set()
    for message in shown:
        if (answer := answered(message)) is not None:
            assert answer in opened
            opened.remove(answer)
        else:
            opened = set(calls_in(message))


@pytest.fixture(scope="module")
def plain() -> Iterator[MemoryEngine]:
    """One engine for all examples; each works in namespaces of its own."""
    with MemoryEngine(embedder=None) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "langmem_tiers")  # limits that hold nothing are told of, each time


@examples(70)
@given(
    said=conversations(),
    limit=LIMITS,
    taken=st.integers(0, 60),
    tokenizer=TOKENIZERS,
    insert=st.sampled_from(INSERTS),
    has_past=st.booleans(),
)
def test_a_view_is_whole_within_its_limit_and_ends_with_what_was_said_last(
    plain: MemoryEngine,
    said: list[ChatMessage],
    limit: int,
    taken: int,
    tokenizer: Any,
    insert: str,
    has_past: object,
) -> None:
    who = uuid.uuid4().hex
    if has_past:
        memory_of(plain, "past", who).put(user("word7 word8: the gate 12 is at https://gate.example/12"))
        plain.namespace(who).knowledge.store("preference", "tone", "brief")
    memory = memory_of(plain, who=who, token_limit=limit, insert_method=insert, tokenizer_fn=tokenizer)
    taken = min(taken, limit)
    put = 0
    for end in range(1, len(said) + 1):  # turn after turn, as the conversation grows
        if said[end - 1].role is MessageRole.TOOL and end < len(said) and said[end].role is MessageRole.TOOL:
            continue  # agents store the results of one message together
        memory.put_messages(said[put:end])
        put = end
        if end == len(said) or said[end - 1].role is MessageRole.USER:
            shown = memory.get(initial_token_count=taken)
            check_view(memory, said[:end], shown, limit - taken)
    assert memory.get_all() == said
    assert memory_of(plain, who=who).get_all() == said
    count = plain.session(who, "s").count()
    memory.set(memory.get_all())
    assert plain.session(who, "s").count() == count
    assert memory.failures == 0


@examples(60)
@given(st.lists(any_message, max_size=8), LIMITS, TOKENIZERS, st.sampled_from(INSERTS), st.none() | TEXTS)
def test_whatever_is_said_nothing_raises_and_nothing_is_lost(
    plain: MemoryEngine, said: list[ChatMessage], limit: int, tokenizer: Any, insert: str, query: str | None
) -> None:
    memory = memory_of(
        plain, who=uuid.uuid4().hex, token_limit=limit, insert_method=insert, tokenizer_fn=tokenizer
    )
    for message in said:
        memory.put(message)
        memory.get(query)
    assert memory.get_all() == said
    count = plain.session(memory.namespace, "s").count()
    memory.set(memory.get_all() or said)
    if said:
        assert plain.session(memory.namespace, "s").count() == count
    memory.set(said[1:])
    assert memory.get_all() == said[1:]


@examples(200)
@given(conversations(), st.integers(0, 1500))
def test_a_plain_cut_is_whole_and_holds_as_much_as_fits(said: list[ChatMessage], limit: int) -> None:
    sizes = TokenCountCache(list)
    pinned, talk = said[:1], said[1:]
    shown, tokens = cut_to_limit(pinned, talk, limit, sizes)
    assert shown[:1] == pinned
    assert tokens == sizes.count_messages(shown)
    start = len(said) - len(shown)
    assert shown[1:] == talk[start:]
    assert start == len(talk) == 0 or shown[-1] == talk[-1]
    assert start not in find_unsafe_cuts(talk)
    if tokens > limit:
        assert len(shown) == 1 or shown[1:] == list(newest_group(talk))
    elif start > 0 and shown[1:] != list(newest_group(talk)):
        assert can_begin(shown[1])


def test_a_user_who_speaks_between_a_call_and_its_result_parts_neither(plain: MemoryEngine) -> None:
    memory = memory_of(plain, who=uuid.uuid4().hex, token_limit=60, tokenizer_fn=str.split)
    block = ToolCallBlock(tool_call_id="c1", tool_name="look_up", tool_kwargs={"what": "x " * 20})
    said = [
        user("old " * 20),
        ChatMessage(role="assistant", blocks=[block]),
        user("Wait."),
        result(1, "r " * 20),
    ]
    memory.put_messages(said)
    check_whole(memory.get())
    memory.put(user("Go on."))
    shown = memory.get()
    check_whole(shown)
    assert texts(shown)[-1] == "Go on."
    assert tokens_of(memory, shown) <= 60


@pytest.mark.parametrize("tokenizer", [list, str.split, None])
def test_a_tokenizer_that_counts_otherwise_than_the_engine_leaves_summary_and_memories(
    tokenizer: Any,
) -> None:
    with MemoryEngine() as engine:
        memory_of(engine, "past").put(user("The gate of the garden is green."))
        size = len(LONG if tokenizer is list else LONG.split())
        memory = memory_of(engine, token_limit=8 * size, tokenizer_fn=tokenizer)
        memory.put_messages(
            [one for n in range(30) for one in (user(f"{n}: {LONG}"), assistant(f"{n}: {LONG}"))]
        )
        memory.put(user("Which colour has the gate of the garden?"))
        shown = memory.get()
        assert "green" in str(shown)
        assert "[CONTEXT SUMMARY]" in str(shown)
        assert len(shown) > 1
        assert tokens_of(memory, shown) <= 8 * size


def test_a_limit_that_holds_not_even_the_newest_message_shows_it_and_says_so(
    plain: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    memory = memory_of(plain, who=uuid.uuid4().hex, token_limit=10)
    memory.put_messages([system("Be brief."), user("secret " * 40), user("secret " * 50)])
    with caplog.at_level(logging.WARNING, "langmem_tiers"):
        assert memory.get() == [system("Be brief."), user("secret " * 50)]
    assert "the limit is 10: its newest message does not fit, raise token_limit" in caplog.text
    assert "secret" not in caplog.text


def test_hundreds_of_messages_in_a_limit_that_is_too_small_for_the_engine(plain: MemoryEngine) -> None:
    memory = memory_of(plain, who=uuid.uuid4().hex, token_limit=40, tokenizer_fn=str.split)
    memory.put_messages([one for n in range(300) for one in (user(f"q {n}"), assistant(f"a {n}"))])
    shown = memory.get()
    assert tokens_of(memory, shown) <= 40
    assert (shown[0].role, shown[-1]) == (MessageRole.USER, assistant("a 299"))
