"""The offline embedder in LlamaIndex indexes and pipelines."""

from __future__ import annotations

import copy
import math
import pickle
import threading
import warnings
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.recall.embedders.wordllama_embedder import OfflineEmbedder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core import VectorStoreIndex
    from llama_index.core.base.embeddings.base import similarity
    from llama_index.core.indices.query.embedding_utils import get_top_k_embeddings
    from llama_index.core.schema import TextNode

    from langmem_tiers_llamaindex import LlamaIndexEmbedder
    from langmem_tiers_llamaindex.models import OfflineEmbedding

CAT, SHARES = "The cat sleeps on the sofa.", "Shares fell on Monday."


async def test_an_index_finds_similar_texts() -> None:
    nodes = [TextNode(text=CAT), TextNode(text=SHARES)]
    index = VectorStoreIndex(nodes, embed_model=OfflineEmbedding())
    retriever = index.as_retriever(similarity_top_k=1)
    for (found,) in (retriever.retrieve("a kitten naps"), await retriever.aretrieve("a kitten naps")):
        assert found.text == CAT


async def test_every_way_to_embed_returns_the_vectors_of_the_engine() -> None:
    model, embedder = OfflineEmbedding(embed_batch_size=2), OfflineEmbedder()
    texts = [CAT, SHARES, "x"]
    rows = embedder.embed_documents(texts).tolist()
    assert model.get_text_embedding_batch(texts) == rows
    assert await model.aget_text_embedding_batch(texts) == rows
    assert model.get_text_embedding(CAT) == await model.aget_text_embedding(CAT) == rows[0]
    assert model.get_query_embedding(CAT) == await model.aget_query_embedding(CAT) == rows[0]
    assert [node.embedding for node in model([TextNode(text=CAT)])] == [rows[0]]
    assert [node.embedding for node in await model.acall([TextNode(text=CAT)])] == [rows[0]]
    assert model.get_text_embedding_batch([]) == await model.aget_text_embedding_batch([]) == []


async def test_async_leaves_the_event_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    model, threads, embed = OfflineEmbedding(), set[int](), OfflineEmbedder.embed_documents

    def watched(self: OfflineEmbedder, texts: list[str]) -> object:
        threads.add(threading.get_ident())
        return embed(self, texts)

    monkeypatch.setattr(OfflineEmbedder, "embed_documents", watched)
    await model.aget_text_embedding("x")
    await model.aget_query_embedding("x")
    await model.aget_text_embedding_batch(["x", "y"])
    assert threads
    assert threading.get_ident() not in threads


@given(text=st.text() | st.sampled_from(["", " ", "日本語", "half \ud83d", "x" * 100_000]))
def test_every_text_has_a_finite_vector_with_a_direction(text: str) -> None:
    vector = OFFLINE.get_query_embedding(text)
    assert len(vector) == 256
    assert all(map(math.isfinite, vector))
    assert OFFLINE.get_text_embedding_batch([text]) == [vector]
    assert -1.001 <= similarity(vector, OFFLINE.get_text_embedding(CAT)) <= 1.001


OFFLINE = OfflineEmbedding()


@pytest.mark.parametrize("count", [1, 2])
def test_texts_without_a_vector_do_not_change_the_order_of_others(count: int) -> None:
    query = OFFLINE.get_query_embedding("a kitten naps")
    for texts in permutations([CAT, "日本語", SHARES, "中文", "한국어"]):
        rows = OFFLINE.get_text_embedding_batch(list(texts))
        scores, indexes = get_top_k_embeddings(query, rows, similarity_top_k=count)
        assert texts[indexes[0]] == CAT
        assert all(map(math.isfinite, scores))


def test_the_embedding_model_is_serialized_and_restored(caplog: pytest.LogCaptureFixture) -> None:
    model = OfflineEmbedding(embed_batch_size=7)
    expected = model.get_text_embedding(CAT)
    copies = [
        pickle.loads(pickle.dumps(model)),  # noqa: S301 - our own
        copy.deepcopy(model),
        copy.copy(model),
        OfflineEmbedding.from_dict(model.to_dict()),
        OfflineEmbedding.from_json(model.to_json()),
        OfflineEmbedding(**{k: v for k, v in model.model_dump().items() if k != "class_name"}),
    ]
    for restored in copies:
        assert restored.embed_batch_size == 7
        assert restored.get_text_embedding(CAT) == expected
    assert model.to_dict()["class_name"] == "OfflineEmbedding"
    assert caplog.records == []


def test_the_model_name_identifies_the_wordllama_model() -> None:
    assert OfflineEmbedding().model_name == "wordllama:l2_supercat_256"
    embedder = LlamaIndexEmbedder(OfflineEmbedding())
    assert embedder.identity == "OfflineEmbedding:wordllama:l2_supercat_256"
    np.testing.assert_array_equal(embedder.embed_query(CAT), OfflineEmbedder().embed_query(CAT))
