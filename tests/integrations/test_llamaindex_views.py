"""Views of TieredMemory: complete, within the limit, and with the newest message."""

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
    count_tokens,
    create_memory,
    result,
    system,
    texts,
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

    from langmem_tiers_llamaindex.message_layout import can_begin, cut_to_limit, find_unsafe_cuts
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


def list_call_ids(message: ChatMessage) -> list[str]:
    return [block.tool_call_id or "" for block in message.blocks if isinstance(block, ToolCallBlock)]


def get_answered_id(message: ChatMessage) -> str | None:
    return message.additional_kwargs.get("tool_call_id") if message.role is MessageRole.TOOL else None


@st.composite
def conversations(draw: st.DrawFn) -> list[ChatMessage]:
    """Generate conversations with parallel calls, thoughts, missing results, pictures and empty messages."""
    messages = [system(draw(TEXTS)) for _ in range(draw(st.integers(0, 2)))]
    if not draw(st.integers(0, 5)):
        messages.append(assistant(draw(TEXTS)))
    for turn in range(draw(st.integers(1, 7))):
        picture = [ImageBlock(image=b"iVBORw0KGgo=", detail="low")] if not draw(st.integers(0, 9)) else []
        messages.append(ChatMessage(role="user", blocks=[TextBlock(text=draw(TEXTS)), *picture]))
        for step in range(draw(st.integers(0, 3))):
            ids = [f"c{turn}-{step}-{n}" for n in range(draw(st.integers(1, 3)))]
            thought = [ThinkingBlock(content=draw(TEXTS))] if not draw(st.integers(0, 5)) else []
            calls = [
                ToolCallBlock(tool_call_id=call_id, tool_name="look_up", tool_kwargs={"what": draw(TEXTS)})
                for call_id in ids
            ]
            messages.append(ChatMessage(role="assistant", blocks=[*thought, *calls]))
            answered_ids = [call_id for call_id in ids if draw(st.integers(0, 9))]
            messages += [result(call_id[1:], draw(TEXTS)) for call_id in answered_ids]
        if draw(st.booleans()):
            messages.append(assistant(draw(TEXTS)))
        if not draw(st.integers(0, 9)):
            messages.append(ChatMessage(role="assistant"))
    return messages


def newest_group(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    start = len(messages) - 1
    while messages[start].role is MessageRole.TOOL:
        start -= 1
    return messages[start:]


def check_view(
    memory: TieredMemory, messages: Sequence[ChatMessage], shown: Sequence[ChatMessage], limit: int
) -> None:
    pinned = messages[
        : next(
            (n for n, message in enumerate(messages) if message.role is not MessageRole.SYSTEM), len(messages)
        )
    ]
    # What the conversation begins with is there as it was said.
    for rule, first in zip(pinned, shown, strict=False):
        assert plain_texts(first)[: len(rule.blocks)] == plain_texts(rule)
    check_tool_calls(shown)
    talk = [message for message in shown if message.role is not MessageRole.SYSTEM]
    visible = [message for message in messages[len(pinned) :] if message.blocks or message.additional_kwargs]
    if any(message.role is MessageRole.USER for message in talk) and len(talk) < len(visible):
        assert can_begin(talk[0])
    if not messages[-1].blocks:  # an answer that never came is not shown
        return
    needed = count_tokens(memory, [*pinned, *newest_group(messages)])
    if needed <= limit:
        assert count_tokens(memory, shown) <= limit
    assert shown[-1].role is messages[-1].role
    if needed <= limit // 2:
        assert plain_texts(shown[-1])[-1:] == plain_texts(messages[-1])[-1:]
        assert list_call_ids(shown[-1]) == list_call_ids(messages[-1])


def plain_texts(message: ChatMessage) -> list[str]:
    found = [block.text for block in message.blocks if isinstance(block, TextBlock)]
    return [text.replace("\N{WORD JOINER}", "") for text in found]


def check_tool_calls(shown: Sequence[ChatMessage]) -> None:
    """Check that only other results of the same message are between a call and its result."""
    opened: set[str] = set()
    for message in shown:
        if (answer := get_answered_id(message)) is not None:
            assert answer in opened
            opened.remove(answer)
        else:
            opened = set(list_call_ids(message))


@pytest.fixture(scope="module")
def plain() -> Iterator[MemoryEngine]:
    """One engine for all examples; each example uses its own namespaces."""
    with MemoryEngine(embedder=None) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "langmem_tiers")  # limits that hold nothing are told of, each time


@examples(70)
@given(
    messages=conversations(),
    limit=LIMITS,
    initial_tokens=st.integers(0, 60),
    tokenizer=TOKENIZERS,
    insert=st.sampled_from(INSERTS),
    has_past=st.booleans(),
)
def test_a_view_is_complete_within_its_limit_and_ends_with_the_newest_message(
    plain: MemoryEngine,
    messages: list[ChatMessage],
    limit: int,
    initial_tokens: int,
    tokenizer: Any,
    insert: str,
    has_past: object,
) -> None:
    user_id = uuid.uuid4().hex
    if has_past:
        create_memory(plain, "past", user_id).put(
            user("word7 word8: the gate 12 is at https://gate.example/12")
        )
        plain.namespace(user_id).knowledge.store("preference", "tone", "brief")
    memory = create_memory(
        plain, user_id=user_id, token_limit=limit, insert_method=insert, tokenizer_fn=tokenizer
    )
    initial_tokens = min(initial_tokens, limit)
    put = 0
    for end in range(1, len(messages) + 1):  # turn after turn, as the conversation grows
        if (
            messages[end - 1].role is MessageRole.TOOL
            and end < len(messages)
            and messages[end].role is MessageRole.TOOL
        ):
            continue  # agents store the results of one message together
        memory.put_messages(messages[put:end])
        put = end
        if end == len(messages) or messages[end - 1].role is MessageRole.USER:
            shown = memory.get(initial_token_count=initial_tokens)
            check_view(memory, messages[:end], shown, limit - initial_tokens)
    assert memory.get_all() == messages
    assert create_memory(plain, user_id=user_id).get_all() == messages
    count = plain.session(user_id, "s").count()
    memory.set(memory.get_all())
    assert plain.session(user_id, "s").count() == count
    assert memory.failures == 0


@examples(60)
@given(st.lists(any_message, max_size=8), LIMITS, TOKENIZERS, st.sampled_from(INSERTS), st.none() | TEXTS)
def test_any_messages_are_stored_and_shown_without_errors(
    plain: MemoryEngine,
    messages: list[ChatMessage],
    limit: int,
    tokenizer: Any,
    insert: str,
    query: str | None,
) -> None:
    memory = create_memory(
        plain, user_id=uuid.uuid4().hex, token_limit=limit, insert_method=insert, tokenizer_fn=tokenizer
    )
    for message in messages:
        memory.put(message)
        memory.get(query)
    assert memory.get_all() == messages
    count = plain.session(memory.namespace, "s").count()
    memory.set(memory.get_all() or messages)
    if messages:
        assert plain.session(memory.namespace, "s").count() == count
    memory.set(messages[1:])
    assert memory.get_all() == messages[1:]


@examples(200)
@given(conversations(), st.integers(0, 1500))
def test_a_plain_cut_is_complete_and_contains_as_much_as_fits(
    messages: list[ChatMessage], limit: int
) -> None:
    sizes = TokenCountCache(list)
    pinned, talk = messages[:1], messages[1:]
    shown, tokens = cut_to_limit(pinned, talk, limit, sizes)
    assert shown[:1] == pinned
    assert tokens == sizes.count_messages(shown)
    start = len(messages) - len(shown)
    assert shown[1:] == talk[start:]
    assert start == len(talk) == 0 or shown[-1] == talk[-1]
    assert start not in find_unsafe_cuts(talk)
    if tokens > limit:
        assert len(shown) == 1 or shown[1:] == list(newest_group(talk))
    elif start > 0 and shown[1:] != list(newest_group(talk)):
        assert can_begin(shown[1])


def test_a_user_message_between_a_call_and_its_result_keeps_them_together(plain: MemoryEngine) -> None:
    memory = create_memory(plain, user_id=uuid.uuid4().hex, token_limit=60, tokenizer_fn=str.split)
    block = ToolCallBlock(tool_call_id="c1", tool_name="look_up", tool_kwargs={"what": "x " * 20})
    messages = [
        user("old " * 20),
        ChatMessage(role="assistant", blocks=[block]),
        user("Wait."),
        result(1, "r " * 20),
    ]
    memory.put_messages(messages)
    check_tool_calls(memory.get())
    memory.put(user("Go on."))
    shown = memory.get()
    check_tool_calls(shown)
    assert texts(shown)[-1] == "Go on."
    assert count_tokens(memory, shown) <= 60


@pytest.mark.parametrize("tokenizer", [list, str.split, None])
def test_a_tokenizer_other_than_that_of_the_engine_leaves_room_for_summary_and_memories(
    tokenizer: Any,
) -> None:
    with MemoryEngine() as engine:
        create_memory(engine, "past").put(user("The gate of the garden is green."))
        size = len(LONG if tokenizer is list else LONG.split())
        memory = create_memory(engine, token_limit=8 * size, tokenizer_fn=tokenizer)
        memory.put_messages(
            [message for n in range(30) for message in (user(f"{n}: {LONG}"), assistant(f"{n}: {LONG}"))]
        )
        memory.put(user("Which colour has the gate of the garden?"))
        shown = memory.get()
        assert "green" in str(shown)
        assert "[CONTEXT SUMMARY]" in str(shown)
        assert len(shown) > 1
        assert count_tokens(memory, shown) <= 8 * size


def test_a_limit_below_the_newest_message_shows_it_and_logs_a_warning(
    plain: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    memory = create_memory(plain, user_id=uuid.uuid4().hex, token_limit=10)
    memory.put_messages([system("Be brief."), user("secret " * 40), user("secret " * 50)])
    with caplog.at_level(logging.WARNING, "langmem_tiers"):
        assert memory.get() == [system("Be brief."), user("secret " * 50)]
    assert "the limit is 10: its newest message does not fit, raise token_limit" in caplog.text
    assert "secret" not in caplog.text


def test_a_limit_below_the_minimum_of_the_engine_cuts_hundreds_of_messages(plain: MemoryEngine) -> None:
    memory = create_memory(plain, user_id=uuid.uuid4().hex, token_limit=40, tokenizer_fn=str.split)
    memory.put_messages([message for n in range(300) for message in (user(f"q {n}"), assistant(f"a {n}"))])
    shown = memory.get()
    assert count_tokens(memory, shown) <= 40
    assert (shown[0].role, shown[-1]) == (MessageRole.USER, assistant("a 299"))
