"""Every LlamaIndex message comes back equal, on every database."""

from __future__ import annotations

import json
import uuid
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import ContentAwareCounter, MemoryEngine
from langmem_tiers.common.prompt_fences import is_only_fenced
from tests.backends import ALL_BACKENDS, open_backend_engine
from tests.hypothesis_settings import examples
from tests.integrations.langchain_messages import same, scalars, text

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

    from langmem_tiers_llamaindex import TieredMemory, message_tokens, to_draft, to_message
    from langmem_tiers_llamaindex.message_codec import encode_chat_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

_keys = text | st.sampled_from(["$lmt", "value", "block", "chat_message", "tool_calls", "tool_call_id"])
_hashable = st.integers() | text | st.binary(max_size=4) | st.tuples(st.integers(), text)
# Pydantic refuses lone surrogates, so that no block that was validated has one outside of a value of any type.
_valid = st.text(max_size=40) | st.sampled_from(["$lmt", "\0", "{query_str}", "data:image/png;base64,AAAA"])
_urls = st.sampled_from(["https://x.example/a.png", "data:image/png;base64,iVBORw0KGgo=", "s3://b/k?x=%20#y"])
_data = st.binary(max_size=9)
_media: SearchStrategy[Any] = st.one_of(
    st.builds(TextBlock, text=_valid),
    st.builds(ImageBlock, image=_data, detail=st.none() | _valid),
    st.builds(ImageBlock, url=_urls),
    st.builds(DocumentBlock, data=_data, title=st.none() | _valid),
)
values: SearchStrategy[Any] = st.recursive(
    scalars | st.frozensets(_hashable, max_size=3) | st.sets(_hashable, max_size=3) | _media,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(_keys, inner, max_size=3)
        | st.dictionaries(_hashable, inner, max_size=3)
        | st.builds(
            ToolSelection, tool_id=_valid, tool_name=_valid, tool_kwargs=st.dictionaries(_valid, inner)
        )
        | st.builds(ChatMessage, _valid, additional_kwargs=st.dictionaries(_keys, inner, max_size=2))
    ),
    max_leaves=8,
)
_named = st.dictionaries(_keys, values, max_size=3)
_call = st.builds(
    ToolCallBlock,
    tool_call_id=st.none() | _valid,
    tool_name=_valid,
    tool_kwargs=st.dictionaries(_valid, values, max_size=2) | _valid,
)
blocks: SearchStrategy[Any] = st.one_of(
    _media,
    st.builds(AudioBlock, audio=_data, format=st.none() | _valid),
    st.builds(AudioBlock, url=_urls),
    st.builds(VideoBlock, video=_data, fps=st.none() | st.integers()),
    st.builds(VideoBlock, url=_urls),
    st.builds(CachePoint, cache_control=st.builds(CacheControl, type=_valid, ttl=_valid)),
    st.builds(CitableBlock, title=_valid, source=_valid, content=st.lists(_media, max_size=2)),
    st.builds(
        CitationBlock,
        cited_content=st.builds(TextBlock, text=_valid) | st.builds(ImageBlock, image=_data),
        source=_valid,
        title=_valid,
        additional_location_info=st.dictionaries(_valid, st.integers(), max_size=2),
    ),
    st.builds(
        ThinkingBlock,
        content=st.none() | _valid,
        num_tokens=st.none() | st.integers(),
        additional_information=st.dictionaries(_valid, values, max_size=2),
    ),
    _call,
)
messages: SearchStrategy[ChatMessage] = st.builds(
    ChatMessage,
    role=st.sampled_from(MessageRole),
    blocks=st.lists(blocks, max_size=4),
    additional_kwargs=st.just({}) | _named,
) | st.builds(ChatMessage, text, role=st.sampled_from(MessageRole))


@pytest.fixture(scope="module", params=ALL_BACKENDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryEngine]:
    """One engine for all examples; each example uses its own namespaces."""
    with open_backend_engine(
        request.param, tmp_path_factory.mktemp("messages"), request, embedder=None
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain() -> Iterator[MemoryEngine]:
    with MemoryEngine(embedder=None) as engine:
        yield engine


def check_same(before: Any, after: Any) -> None:
    """Check that two messages and all nested values are equal and of equal types."""
    assert type(before) is type(after)
    assert before == after
    for first, second in zip(before.blocks, after.blocks, strict=True):
        assert type(first) is type(second)
        assert same(first.__dict__, second.__dict__)
    assert same(before.additional_kwargs, after.additional_kwargs)


@given(st.lists(messages, min_size=1, max_size=4))
@examples(80)
def test_any_message_comes_back_equal(shared: MemoryEngine, originals: list[ChatMessage]) -> None:
    session = shared.session(uuid.uuid4().hex, "s")
    session.add_many(to_draft(message, shared.counter) for message in originals)
    found = [to_message(message) for message in session.messages()]
    for before, after in zip(originals, found, strict=True):
        check_same(before, after)


@given(messages)
@examples(60)
def test_a_restored_message_gives_the_same_draft(shared: MemoryEngine, message: ChatMessage) -> None:
    draft = to_draft(message, shared.counter, id="one")
    found = shared.session(uuid.uuid4().hex, "s").add(draft).message
    assert to_draft(to_message(found), shared.counter, id="one") == draft


@given(st.lists(messages, max_size=4), st.lists(messages, max_size=2))
@examples(40)
def test_setting_a_list_stores_only_its_new_messages(
    plain: MemoryEngine, originals: list[ChatMessage], more: list[ChatMessage]
) -> None:
    memory = TieredMemory(engine=plain, user_id=uuid.uuid4().hex, session_id="s")
    memory.put_messages(originals)
    memory.set(memory.get_all() or originals)
    session = memory.engine.session(memory.namespace, "s")
    assert session.count() == len(originals)
    memory.set([*memory.get_all(), *more])
    assert memory.get_all() == [*originals, *more]
    if originals:
        assert session.count() == len(originals) + len(more)


@given(messages)
@examples(200)
def test_a_draft_contains_the_text_and_counts_the_other_parts(message: ChatMessage) -> None:
    before, counter = json.dumps(encode_chat_message(message, "")), ContentAwareCounter()
    draft = to_draft(message, counter)
    texts = [block.text for block in message.blocks if isinstance(block, TextBlock)]
    assert all(text in draft.content for text in texts)
    assert not is_only_fenced(draft.content)
    tokens = message_tokens(message, counter.count)
    assert tokens >= counter.count(draft.content)
    thoughts = [
        block.content for block in message.blocks if isinstance(block, ThinkingBlock) and block.content
    ]
    if thoughts or any(isinstance(block, ToolCallBlock) for block in message.blocks):
        assert tokens > 0
    assert json.dumps(encode_chat_message(message, "")) == before
