"""Every LangChain message comes back equal, on every database."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.common.prompt_fences import is_only_fenced
from langmem_tiers_langchain.convert import part_tokens, to_draft, to_message
from langmem_tiers_langchain.message_codec import decode, decode_base_message, encode
from tests.backends import ALL_BACKENDS, open_backend_engine
from tests.hypothesis_settings import examples
from tests.integrations.langchain_messages import messages, same, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage

    from langmem_tiers import MemoryEngine


@pytest.fixture(scope="module", params=ALL_BACKENDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryEngine]:
    """One engine for all examples; each example uses its own namespaces."""
    with open_backend_engine(
        request.param, tmp_path_factory.mktemp("messages"), request, embedder=None
    ) as engine:
        yield engine


def unique_by_id(originals: list[BaseMessage]) -> list[BaseMessage]:
    return list({message.id or str(index): message for index, message in enumerate(originals)}.values())


@given(st.lists(messages, min_size=1, max_size=4).map(unique_by_id))
def test_any_message_comes_back_equal(shared: MemoryEngine, originals: list[BaseMessage]) -> None:
    session = shared.session(uuid.uuid4().hex, "s")
    session.add_many(to_draft(message, shared.counter) for message in originals)
    found = [to_message(message) for message in session.messages()]
    assert [type(message) for message in found] == [type(message) for message in originals]
    assert found == originals
    for before, after in zip(originals, found, strict=True):
        assert same(before.__dict__, after.__dict__)
        assert same(before.__pydantic_extra__, after.__pydantic_extra__)


@given(messages)
def test_the_same_message_twice_is_stored_once(shared: MemoryEngine, message: BaseMessage) -> None:
    session = shared.session(uuid.uuid4().hex, "s")
    for _ in range(2):
        session.add(to_draft(message, shared.counter, id="one"))
    assert len(session.latest(9)) == 1


@given(values)
@examples(300)
def test_any_value_comes_back_equal(value: object) -> None:
    assert same(decode(encode(value)), value)


@given(messages)
@examples(200)
def test_a_draft_contains_the_text_and_counts_the_other_parts(message: BaseMessage) -> None:
    draft = to_draft(message)
    assert draft.content == str(message.text)
    assert not is_only_fenced(draft.content)
    assert (draft.token_count is None) == (part_tokens(message) == 0)
    if draft.token_count is not None:
        assert draft.token_count >= part_tokens(message)


@pytest.mark.parametrize("kind", [[], {}, None, 5, "nothing of the kind"])
def test_a_payload_with_an_unknown_type_is_not_a_message(kind: object) -> None:
    assert decode_base_message({"type": kind, "data": {"content": "hello"}}) is None
