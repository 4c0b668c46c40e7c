"""Conversion of LlamaIndex messages: roles, texts, calls, tokens, and values unknown to JSON."""

from __future__ import annotations

import json
import uuid
import warnings
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from io import BytesIO, RawIOBase, StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import AnyUrl, BaseModel, SecretStr

from langmem_tiers import (
    CharCounter,
    ContentAwareCounter,
    InvalidMessageError,
    MemoryEngine,
    Message,
    MessageDraft,
    MessageToolCall,
    Role,
)
from langmem_tiers.common.prompt_fences import wrap_in_fence
from langmem_tiers.text.token_counting import (
    AUDIO_TOKENS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
)
from langmem_tiers_langchain import to_draft as from_langchain
from langmem_tiers_langchain import to_message as to_langchain

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.llms.types import (
        AudioBlock,
        CacheControl,
        CachePoint,
        ChatMessage,
        CitableBlock,
        CitationBlock,
        DocumentBlock,
        ImageBlock,
        MessageRole,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
        VideoBlock,
    )
    from llama_index.core.llms.llm import ToolSelection
    from llama_index.core.memory import Memory
    from llama_index.core.schema import ImageDocument

    from langmem_tiers_llamaindex import message_tokens, to_draft, to_message
    from langmem_tiers_llamaindex.convert import protect_placeholders, remove_memory, restore_placeholders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
WORDS = "Seven hits were found in the garden."
WORD_TOKENS = ContentAwareCounter().count(WORDS)
NOW = datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@cache
def shared() -> MemoryEngine:
    """Return the engine of all tests; each message has its own session."""
    return MemoryEngine(embedder=None)


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    shared().close()


def store_draft(draft: MessageDraft) -> Message:
    return shared().session("t", uuid.uuid4().hex).add(draft).message


def round_trip(message: ChatMessage) -> ChatMessage:
    return to_message(store_draft(to_draft(message)))


def build_message(*blocks: Any, role: str = "user", **kwargs: Any) -> ChatMessage:
    return ChatMessage(role=role, blocks=list(blocks), additional_kwargs=kwargs)


def construct_unvalidated(**fields: Any) -> ChatMessage:
    """Construct a message without validation."""
    return ChatMessage.model_construct(
        **{"role": MessageRole.USER, "blocks": [], "additional_kwargs": {}, **fields}
    )


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("system", Role.SYSTEM),
        ("developer", Role.SYSTEM),
        ("user", Role.USER),
        ("assistant", Role.ASSISTANT),
        ("chatbot", Role.ASSISTANT),
        ("model", Role.ASSISTANT),
        ("function", Role.TOOL),
        ("tool", Role.TOOL),
    ],
)
def test_each_role_maps_to_one_of_four_and_comes_back(role: str, expected: Role) -> None:
    message = ChatMessage("x", role=role)
    draft = to_draft(message)
    assert (draft.role, draft.content, draft.name) == (expected, "x", None)
    assert round_trip(message) == message
    assert round_trip(message).role is MessageRole(role)


def test_the_tested_roles_are_complete() -> None:
    assert {role.value for role in MessageRole} == {
        *("system", "developer", "user", "assistant", "chatbot", "model", "function", "tool")
    }


BLOCKS = [
    TextBlock(text="a\0b \ud83d {query_str} ünï 😀"),
    TextBlock(text=""),
    ImageBlock(image=PNG),
    ImageBlock(image=PNG, image_mimetype="image/x-odd", detail="low"),
    ImageBlock(url="https://x.example/a.png?b=c#d"),
    ImageBlock(url="data:image/png;base64,iVBORw0KGgo="),
    AudioBlock(audio=b"RIFF....WAVE", format="wav"),
    AudioBlock(url="https://x.example/a.mp3"),
    VideoBlock(video=b"\0\0\0\x18ftypmp42", fps=3),
    VideoBlock(url="https://x.example/a.mp4", detail="high"),
    DocumentBlock(data=b"%PDF-1.4", title="report"),
    DocumentBlock(url="https://x.example/a.pdf"),
    DocumentBlock(path="no/such/file.txt"),
    CachePoint(cache_control=CacheControl(type="ephemeral", ttl="1h")),
    CitableBlock(
        title="A report",
        source="shelf",
        content=[TextBlock(text="It rains."), ImageBlock(image=PNG), DocumentBlock(data=b"x")],
    ),
    CitationBlock(
        cited_content=TextBlock(text="It rains."),
        source="shelf",
        title="A report",
        additional_location_info={"page": 3},
    ),
    CitationBlock(
        cited_content=ImageBlock(image=PNG), source="", title="", additional_location_info={"page": 0}
    ),
    ThinkingBlock(content="Hm.", num_tokens=3, additional_information={"signature": "sïg", "raw": b"\xff"}),
    ThinkingBlock(),
    ToolCallBlock(tool_call_id="c", tool_name="add", tool_kwargs={"a": 1, "b": [2, {"c": None}]}),
    ToolCallBlock(tool_name="broken", tool_kwargs='{"a": '),
    ToolCallBlock(
        tool_call_id="c",
        tool_name="odd",
        tool_kwargs={"at": NOW, "of": (1, {2}), "raw": b"\xff", "": {"$lmt": "bytes", "value": "AAAA"}},
    ),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{type(block).__name__} {str(block)[:30]!r}")
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_every_block_comes_back_equal(block: Any, role: str) -> None:
    message = build_message(block, role=role)
    found = round_trip(message)
    assert found == message
    assert [type(found_block) for found_block in found.blocks] == [type(block)]
    assert found.model_dump() == message.model_dump()


def test_the_tested_block_types_are_complete() -> None:
    kinds = {kind.__name__ for kind in map(type, BLOCKS)}
    known = ChatMessage.model_json_schema()["properties"]["blocks"]["items"]["discriminator"]["mapping"]
    assert kinds == {ref.rpartition("/")[2] for ref in known.values()}


def test_all_blocks_of_a_message_come_back_in_order() -> None:
    message = build_message(*BLOCKS, role="assistant")
    assert round_trip(message) == message
    draft = to_draft(message)
    assert draft.content == "a\0b \ud83d {query_str} ünï 😀\n\nIt rains.\nIt rains."
    assert [call.name for call in draft.tool_calls] == ["add", "broken", "odd"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(ImageBlock, "a.png"), (AudioBlock, "a.mp3"), (VideoBlock, "a.mp4"), (DocumentBlock, "a.pdf")],
)
def test_a_block_comes_back_equal_after_its_file_was_deleted(tmp_path: Path, kind: Any, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PNG)
    message = build_message(TextBlock(text="Look."), kind(path=path))
    draft = to_draft(message)
    path.unlink()
    assert to_message(store_draft(draft)) == message


def test_a_stream_is_read_completely_and_keeps_its_position() -> None:
    stream = BytesIO(PNG)
    stream.seek(5)
    found = round_trip(
        build_message(ImageBlock(image=stream, image_mimetype="image/png"), DocumentBlock(data=stream))
    )
    image, document = found.blocks
    assert isinstance(image, ImageBlock)
    assert isinstance(document, DocumentBlock)
    assert image.image == document.data == PNG
    assert image.resolve_image().read() == PNG
    assert stream.tell() == 5


class UnreadableStream(RawIOBase):
    """Stream that cannot be read again."""


@pytest.mark.parametrize(
    "stream", [UnreadableStream(), BytesIO(b"x"), StringIO("text")], ids=lambda stream: type(stream).__name__
)
def test_a_message_with_an_unreadable_stream_can_be_stored(stream: Any) -> None:
    if isinstance(stream, BytesIO):
        stream.close()
    found = round_trip(build_message(TextBlock(text="Look."), ImageBlock.model_construct(image=stream)))
    assert found.content == "Look."
    image = found.blocks[1]
    assert isinstance(image, ImageBlock)
    assert image.image == (
        "text"
        if isinstance(stream, StringIO)
        else f"[not stored: {type(stream).__module__}.{type(stream).__qualname__}]"
    )  # type: ignore[comparison-overlap]


def test_images_in_additional_kwargs_are_stored_as_blocks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    documents = [ImageDocument(image_path=str(path)), ImageDocument(image="iVBORw0KGgo=")]
    message = ChatMessage("Look.", additional_kwargs={"images": documents, "mood": "fair"})
    draft = to_draft(message)
    path.unlink()
    found = to_message(store_draft(draft))
    assert found.blocks == message.blocks
    assert len(found.blocks) == 3
    assert found.additional_kwargs == {"mood": "fair"}
    assert ChatMessage.model_validate(found.model_dump()) == found  # which fails with them in that place


class Colour(Enum):
    RED = 1


@dataclass
class Point:
    x: int
    when: datetime


class Options(BaseModel):
    depth: int
    token: SecretStr


class FailingEquality:
    def __repr__(self) -> str:
        return "s3cret"

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("s3cret")

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\xff\0", b"\xff\0"),
        (NOW, NOW),
        ((1, {2, 3}), (1, {2, 3})),
        (ToolSelection(tool_id="c", tool_name="add", tool_kwargs={"a": b"\xff"}),) * 2,
        ([ToolSelection(tool_id="c", tool_name="add", tool_kwargs={})],) * 2,
        (ChatMessage("within", role="assistant", additional_kwargs={"a": b"x"}),) * 2,
        (ChatMessage(""),) * 2,
        (TextBlock(text="within"),) * 2,
        (ImageBlock(image=PNG),) * 2,
        (AnyUrl("https://x.example/"),) * 2,
        (np.float32(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        (Colour.RED, 1),
        (Point(1, NOW), {"x": 1, "when": NOW}),
        (
            Options(depth=2, token=SecretStr("s3cret")),
            {"depth": 2, "token": "[not stored: pydantic.types.SecretStr]"},
        ),
        (ValueError("s3cret"), "[not stored: builtins.ValueError]"),
        (FailingEquality(), f"[not stored: {__name__}.FailingEquality]"),
        (len, "[not stored: builtins.builtin_function_or_method]"),
        ({1: 2, None: 3, (4, 5): 6}, {1: 2, None: 3, (4, 5): 6}),
        ({"$lmt": "bytes", "value": "AAAA"}, {"$lmt": "bytes", "value": "AAAA"}),
        ({"block": "text", "text": "no block"}, {"block": "text", "text": "no block"}),
        ({"chat_message": "user"}, {"chat_message": "user"}),
        (10**5000, 10**5000),
        (float("inf"), float("inf")),
        ("\0\ud83d", "\0\ud83d"),
        ("x" * 1_000_000, "x" * 1_000_000),
    ],
    ids=lambda value: f"{type(value).__name__} {str(value)[:30] if not isinstance(value, int) else ''}",
)
def test_additional_values_come_back_or_become_placeholders(value: object, expected: object) -> None:
    draft = to_draft(ChatMessage("x", additional_kwargs={"value": value}))
    assert "s3cret" not in (draft.payload_json or "")
    found = to_message(store_draft(draft))
    assert found.additional_kwargs == {"value": expected}
    assert type(found.additional_kwargs["value"]) is type(expected)
    # Stored once more it says the same: otherwise a list that was handed back would be another one.
    assert to_draft(found).payload_json == draft.payload_json


def test_endlessly_nested_values_are_cut_with_a_placeholder() -> None:
    endless: list[Any] = []
    endless.append(endless)
    call = ToolCallBlock.model_construct(tool_call_id="c", tool_name="deep", tool_kwargs={"a": endless})
    found = round_trip(build_message(call, role="assistant", beside=endless))
    assert "nested too deeply" in json.dumps(found.additional_kwargs)
    assert "nested too deeply" in str(found.blocks)
    deep: Any = "bottom"
    for level in range(90):
        deep = {"down": deep} if level % 2 else [deep]
    message = build_message(role="assistant", deep=deep)
    assert round_trip(message) == message


@pytest.mark.parametrize(
    "tag",
    [
        {"$lmt": "datetime", "value": "no time"},
        {"$lmt": "uuid", "value": None},
        {"$lmt": "dict", "value": [[[], 1]]},
        {"$lmt": "tool_selection", "value": 5},
        {"$lmt": "url", "value": "no url"},
        {"$lmt": "os.system", "value": "true"},
        {"$lmt": ["x"]},
    ],
    ids=str,
)
def test_an_invalid_type_tag_comes_back_as_plain_data(tag: dict[str, Any]) -> None:
    payload = {"chat_message": {"role": "user", "blocks": [], "kwargs": {"a": tag}}}
    found = to_message(store_draft(MessageDraft("user", "x", payload=payload)))
    assert found.additional_kwargs == {"a": tag}


@pytest.mark.parametrize(
    "payload",
    [
        "alien",
        5,
        None,
        [],
        {"role": "alien", "blocks": []},
        {"role": "user"},
        {"role": "user", "blocks": [{"block": "alien"}]},
        {"role": "user", "blocks": ["text"]},
        {"role": ["user"], "blocks": []},
    ],
    ids=str,
)
def test_an_invalid_payload_leaves_the_role_and_the_text(payload: Any) -> None:
    found = to_message(store_draft(MessageDraft("assistant", "hello", payload={"chat_message": payload})))
    assert found == ChatMessage("hello", role="assistant")


@pytest.mark.parametrize("value", ["text", ("user", "hi"), {"role": "user"}, None, HumanMessage("hi")])
def test_a_value_that_is_not_a_message_is_rejected(value: Any) -> None:
    with pytest.raises(
        InvalidMessageError, match=f"expected a LlamaIndex message, got {type(value).__name__}"
    ):
        to_draft(value)


class Hologram(BaseModel):
    text: str = "x"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (construct_unvalidated(role="alien"), "unknown role 'alien': use one of system, developer, user"),
        (construct_unvalidated(role=None), "unknown role None"),
        (construct_unvalidated(role=["user"]), r"unknown role \['user'\]"),
        (construct_unvalidated(blocks=[Hologram()]), "expected a LlamaIndex content block, got Hologram"),
        (construct_unvalidated(blocks=["text"]), "expected a LlamaIndex content block, got str"),
        (
            construct_unvalidated(blocks=[ChatMessage("x")]),
            "expected a LlamaIndex content block, got ChatMessage",
        ),
        (construct_unvalidated(blocks=None), "blocks to be a list .* got NoneType and dict"),
        (
            construct_unvalidated(additional_kwargs=None),
            "additional_kwargs to be a dict, got list and NoneType",
        ),
        (
            construct_unvalidated(
                role="assistant",
                blocks=[ToolCallBlock.model_construct(tool_call_id=5, tool_name="x", tool_kwargs={})],
            ),
            "id must be a str, got int",
        ),
    ],
)
def test_invalid_roles_and_blocks_are_rejected_by_name(message: ChatMessage, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        to_draft(message)


@pytest.mark.parametrize(
    "block",
    [
        TextBlock.model_construct(text=None),
        TextBlock.model_construct(text=5),
        CitableBlock.model_construct(title="t", source="s", content=None),
        CitationBlock.model_construct(title="t", source="s", cited_content=None, additional_location_info={}),
        ThinkingBlock(num_tokens=-3),
        ThinkingBlock(num_tokens=10**12),
    ],
    ids=lambda block: str(block)[:40],
)
def test_blocks_with_invalid_values_are_stored_unchanged(block: Any) -> None:
    message = construct_unvalidated(blocks=[block])
    assert round_trip(message) == message


def test_a_custom_block_class_comes_back_as_its_nearest_base() -> None:
    class Loud(TextBlock):
        volume: int = 11

    found = round_trip(construct_unvalidated(blocks=[Loud(text="HEY")]))
    assert type(found.blocks[0]) is TextBlock
    assert found.content == "HEY"


def test_calls_in_blocks_and_additional_kwargs_have_stable_ids() -> None:
    extra_call = {"id": "c2", "type": "function", "function": {"name": "sub", "arguments": '{"a": 2}'}}
    message = build_message(
        ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs={"a": "å"}),
        ToolCallBlock(tool_name="now"),
        role="assistant",
        tool_calls=[extra_call, {**extra_call, "id": "c1"}],
    )
    first, second, third = to_draft(message).tool_calls
    assert first == MessageToolCall("c1", "add", '{"a": "å"}')
    assert (second.name, second.arguments) == ("now", "{}")
    assert second.id
    assert third == MessageToolCall("c2", "sub", '{"a": 2}')
    assert to_draft(message).tool_calls == to_draft(round_trip(message)).tool_calls
    assert to_draft(ChatMessage("x", additional_kwargs={"tool_calls": [extra_call]})).tool_calls == ()


@pytest.mark.parametrize(
    "value",
    [
        object(),
        FailingEquality(),
        {3, 1, 2},
        {"b", "a"},
        b"\xff",
        NOW,
        (1, 2),
        ToolSelection(tool_id="a", tool_name="b", tool_kwargs={}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_call_with_unusual_arguments_comes_back_equal(value: object) -> None:
    call = ToolCallBlock.model_construct(tool_call_id="c", tool_name="x", tool_kwargs={"v": value, "n": 1})
    message = construct_unvalidated(role=MessageRole.ASSISTANT, blocks=[call])
    draft = to_draft(message)
    again = to_draft(to_message(store_draft(draft)))
    assert (again.tool_calls, again.payload_json) == (draft.tool_calls, draft.payload_json)
    assert "s3cret" not in f"{draft.tool_calls}"


def test_a_tool_result_keeps_the_id_of_its_call() -> None:
    assert to_draft(build_message(TextBlock(text="3"), role="tool", tool_call_id="c")).tool_call_id == "c"
    assert to_draft(build_message(TextBlock(text="3"), role="tool", tool_call_id=5)).tool_call_id is None
    assert to_draft(build_message(TextBlock(text="3"), role="user", tool_call_id="c")).tool_call_id is None
    message = build_message(TextBlock(text="3"), role="function", name="add", tool_call_id="c")
    assert round_trip(message) == message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (MessageDraft("user", "hi", name="Mara"), ChatMessage("hi")),
        (MessageDraft("system", "hi"), ChatMessage("hi", role="system")),
        (
            MessageDraft("tool", "3", tool_call_id="c"),
            build_message(TextBlock(text="3"), role="tool", tool_call_id="c"),
        ),
        (MessageDraft("tool", "3"), ChatMessage("3", role="tool")),
        (
            MessageDraft(
                "assistant",
                "",
                tool_calls=[MessageToolCall("c", "add", '{"a": 1}'), MessageToolCall("d", "add", "[1]")],
            ),
            build_message(
                ToolCallBlock(tool_call_id="c", tool_name="add", tool_kwargs={"a": 1}),
                ToolCallBlock(tool_call_id="d", tool_name="add", tool_kwargs="[1]"),
                role="assistant",
            ),
        ),
        (MessageDraft("assistant", ""), ChatMessage("", role="assistant")),
        (MessageDraft("user", "hi", payload=["$lmt"]), ChatMessage("hi")),
    ],
)
def test_a_message_without_a_llamaindex_payload_becomes_the_message_of_its_role(
    message: MessageDraft, expected: ChatMessage
) -> None:
    assert to_message(store_draft(message)) == expected


def test_each_framework_reads_messages_stored_by_the_other() -> None:
    langchain_messages = [
        SystemMessage("Be brief."),
        HumanMessage([{"type": "text", "text": "Look"}, {"type": "image", "url": "https://x.example/a.png"}]),
        AIMessage("", tool_calls=[{"id": "c", "name": "add", "args": {"a": 1}}]),
        ToolMessage("3", tool_call_id="c"),
        AIMessage("It is 3."),
    ]
    llamaindex_messages = [
        ChatMessage("Be brief.", role="system"),
        ChatMessage("Look"),
        build_message(
            ToolCallBlock(tool_call_id="c", tool_name="add", tool_kwargs={"a": 1}), role="assistant"
        ),
        build_message(TextBlock(text="3"), role="tool", tool_call_id="c"),
        ChatMessage("It is 3.", role="assistant"),
    ]
    with MemoryEngine(embedder=None) as engine:
        session = engine.session("t", "s")
        session.add_many(map(from_langchain, langchain_messages))
        assert [to_message(message) for message in session.messages()] == llamaindex_messages
        session = engine.session("t", "back")
        session.add_many(map(to_draft, llamaindex_messages))
        found = [to_langchain(message) for message in session.messages()]
    assert [(message.type, message.text) for message in found] == [
        (message.type, message.text) for message in langchain_messages
    ]
    called, answered = found[2:4]
    assert isinstance(called, AIMessage)
    assert isinstance(answered, ToolMessage)
    assert [(call["id"], call["name"], call["args"]) for call in called.tool_calls] == [
        ("c", "add", {"a": 1})
    ]
    assert answered.tool_call_id == "c"


def test_a_compressed_message_keeps_its_compressed_text() -> None:
    text = "\n".join(f"Line {n} of the report, which says little." for n in range(40))
    result = build_message(TextBlock(text=text), role="tool", tool_call_id="c", mood="fair")
    with MemoryEngine(embedder=None) as engine:
        session = engine.session("t", "s")
        session.add_many([to_draft(result, id="long"), to_draft(ChatMessage("Short."), id="new")])
        compressed = engine._services.analyzer.compressor.compress_message(session.get("long"))
    shown = to_message(compressed)
    assert shown == build_message(TextBlock(text=compressed.content), role="tool", tool_call_id="c")
    assert shown.content != text


CALL = ToolCallBlock(tool_call_id="c", tool_name="add", tool_kwargs={"words": WORDS})


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        (ThinkingBlock(content=WORDS), WORD_TOKENS),
        (ThinkingBlock(content=WORDS, num_tokens=99), 99),
        (ThinkingBlock(num_tokens=99), 99),
        (ThinkingBlock(content=WORDS, num_tokens=-1), WORD_TOKENS),
        (ThinkingBlock(content=WORDS, num_tokens=10**12), WORD_TOKENS),
        (ImageBlock(image=PNG * 10_000), IMAGE_TOKENS),
        (ImageBlock(image=PNG, detail="low"), SMALL_IMAGE_TOKENS),
        (AudioBlock(audio=b"x"), AUDIO_TOKENS),
        (VideoBlock(video=b"x"), VIDEO_TOKENS),
        (DocumentBlock(data=b"x"), FILE_TOKENS),
        (CitableBlock(title="a", source="b", content=[ImageBlock(image=PNG)]), IMAGE_TOKENS),
        (
            CitationBlock(
                cited_content=ImageBlock(image=PNG), title="", source="", additional_location_info={}
            ),
            IMAGE_TOKENS,
        ),
        (CachePoint(cache_control=CacheControl(type="ephemeral")), 0),
    ],
    ids=lambda value: str(value)[:40],
)
def test_parts_count_by_their_text_or_by_published_token_costs(block: Any, tokens: int) -> None:
    counter = ContentAwareCounter()
    message = build_message(TextBlock(text=WORDS), block, role="assistant")
    titles = counter.count("a b") if isinstance(block, CitableBlock) else 0
    assert message_tokens(message, counter.count) == WORD_TOKENS + tokens + titles
    assert store_draft(to_draft(message, counter)).token_count == WORD_TOKENS + tokens + titles


def test_tool_calls_and_thoughts_count_as_tokens() -> None:
    message = build_message(CALL, ThinkingBlock(content=WORDS), role="assistant")
    assert Memory.from_defaults()._estimate_token_count(message) == 0
    assert message_tokens(message, CharCounter().count) > 2 * CharCounter().count(WORDS)
    assert (
        to_draft(message, CharCounter()).token_count
        == store_draft(to_draft(message, CharCounter())).token_count
    )
    assert store_draft(to_draft(build_message(CALL, role="assistant"))).token_count >= WORD_TOKENS
    assert message_tokens(
        build_message(role="assistant", tool_calls=[{"id": "c", "name": "n", "arguments": WORDS}]), len
    ) > len(WORDS)


def test_plain_text_is_counted_by_the_engine() -> None:
    assert to_draft(ChatMessage(WORDS)).token_count is None
    assert message_tokens(ChatMessage(WORDS), CharCounter().count) == CharCounter().count(WORDS)


TRACE = """Thought: The current language of the user is: English. I need to use a tool.
Action: look_up
Action Input: {'what': 'door'}
Observation: The door of house 7 is vermilion.
Thought: I can answer without using any more tools.
Answer: It is vermilion.

Action: none is needed.
Thought: of as final."""


def test_recall_sees_only_observations_and_answers_of_an_agent_trace() -> None:
    message = ChatMessage(TRACE, role="assistant")
    draft = to_draft(message)
    assert draft.content == (
        "The door of house 7 is vermilion.\nIt is vermilion.\n\nAction: none is needed.\nThought: of as final."
    )
    assert round_trip(message) == message
    assert store_draft(draft).token_count >= ContentAwareCounter().count(TRACE)
    with MemoryEngine() as engine:
        engine.session("t", "s").add(draft)
        (hit,) = engine.namespace("t").search("vermilion")
        assert "current language" not in hit.entry.content
        assert not engine.namespace("t").search("current language of the user")


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (TRACE, "user"),
        (TRACE.partition("Answer:")[0], "assistant"),
        (f"So:\n{TRACE}", "assistant"),
        ("Thought: Answer: 42", "assistant"),
        ("Thought:", "assistant"),
    ],
)
def test_an_incomplete_agent_trace_is_kept_unchanged(text: str, role: str) -> None:
    assert to_draft(ChatMessage(text, role=role)).content == text


MEMORY = wrap_in_fence(["user: My cat is called Pixel."])


@pytest.mark.parametrize("role", ["user", "system", "developer"])
@pytest.mark.parametrize(
    "blocks",
    [
        [MEMORY, "What is my cat called?"],
        ["What is my cat called?", MEMORY],
        [MEMORY, "What is my cat called?", MEMORY],
        [f"{MEMORY}\n{MEMORY}", "What is my cat called?"],
        [f"{MEMORY}\nWhat is my cat called?"],
        [f"What is my cat called?\n{MEMORY}"],
    ],
    ids=len,
)
def test_text_that_memory_added_to_a_message_is_not_stored(blocks: list[str], role: str) -> None:
    message = build_message(*(TextBlock(text=text) for text in blocks), role=role)
    assert round_trip(message) == ChatMessage("What is my cat called?", role=role)
    assert len(message.blocks) == len(blocks)
    assert remove_memory(message) == ChatMessage("What is my cat called?", role=role)


def test_a_message_of_memory_text_only_is_not_stored() -> None:
    message = build_message(TextBlock(text=MEMORY), TextBlock(text=MEMORY), role="system")
    assert remove_memory(message) is None
    with MemoryEngine() as engine:
        assert engine.session("t", "s").add(to_draft(message)).stored == ()


def test_a_tool_result_with_memories_is_stored_and_not_recalled() -> None:
    result = build_message(TextBlock(text=MEMORY), role="tool", tool_call_id="c")
    draft = to_draft(result)
    found = store_draft(draft)
    assert to_message(found) == result
    assert found.token_count >= ContentAwareCounter().count(MEMORY)
    with MemoryEngine() as engine:
        engine.session("t", "s").add(draft)
        assert engine.namespace("t").search("Pixel") == ()


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_memory_text_quoted_by_an_assistant_or_a_tool_is_stored_unchanged(role: str) -> None:
    message = build_message(TextBlock(text=f"{MEMORY}\nSo it is Pixel."), role=role, tool_call_id="c")
    assert round_trip(message) == message


@pytest.mark.parametrize(
    ("text", "is_changed"),
    [
        ("{query_str}", True),
        ("{{context_str}}", True),
        ("a {context_msg} b {existing_answer} c", True),
        ("{query_string} {query_str {query} {} { query_str }", False),
        ('{"query_str": 1}', False),
        ("def f(): return {'a': {1}}", False),
    ],
)
def test_placeholders_are_protected_and_restored(text: str, is_changed: object) -> None:
    assert (protect_placeholders(text) != text) is is_changed
    assert protect_placeholders(protect_placeholders(text)) == protect_placeholders(text)
    assert restore_placeholders(protect_placeholders(text)) == text
    assert round_trip(ChatMessage(protect_placeholders(text))) == ChatMessage(text)
    assert round_trip(ChatMessage(text, role="assistant")) == ChatMessage(text, role="assistant")
