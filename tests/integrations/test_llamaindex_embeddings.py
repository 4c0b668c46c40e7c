"""LlamaIndex embedding models as embedders of the engine."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from langmem_tiers import InvalidConfigError, InvalidInputError, LangmemTiersError
from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers_llamaindex import LlamaIndexEmbedder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.embeddings import MockEmbedding
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers import Embedder

NAN = float("nan")


class Asymmetric(BaseEmbedding):
    """Embedding model with documents on one axis and queries on the other."""

    requests: list[list[str]] = []  # noqa: RUF012 - pydantic copies it

    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(len(text)), 0.0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.requests.append(list(texts))
        return [self._get_text_embedding(text) for text in texts]

    def _get_query_embedding(self, query: str) -> list[float]:
        return [0.0, float(len(query))]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class Scripted(Asymmetric):
    """Embedding model that returns the given vectors."""

    documents: Any = None
    query: Any = None

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self.documents  # type: ignore[no-any-return] # wrong on purpose

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.query  # type: ignore[no-any-return] # wrong on purpose


class Provider(Asymmetric):
    """Embedding model like those of providers, with a plain API key."""

    azure_deployment: str | None = None
    dimensions: int | None = None
    api_key: str = "sk-hunter2"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError(f"POST https://api.example/?key={self.api_key} {texts}")

    def _get_query_embedding(self, query: str) -> list[float]:
        raise ConnectionError(f"POST https://api.example/?key={self.api_key} {query}")


def test_a_llamaindex_model_returns_its_vectors_as_float32() -> None:
    embedder: Embedder = LlamaIndexEmbedder(MockEmbedding(embed_dim=12), identity="mock-12")
    rows = embedder.embed_documents(["the cat", "", "日本語", "half \ud83d"])
    assert rows.dtype == np.float32
    assert (rows.shape, embedder.dimension) == ((4, 12), 12)
    assert (rows == 0.5).all()
    query = embedder.embed_query("the cat")
    assert query.dtype == np.float32
    assert query.shape == (12,)


def test_documents_may_be_any_sequence_of_any_length() -> None:
    embedder = LlamaIndexEmbedder(Asymmetric(model_name="m", embed_batch_size=2))
    texts = tuple("x" * length for length in range(7))
    assert embedder.embed_documents(texts)[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert embedder.embed_documents([]).shape == (0, 2)


def test_queries_are_embedded_as_queries() -> None:
    embedder = LlamaIndexEmbedder(Asymmetric(model_name="two-sided"))
    assert embedder.embed_documents(["abc"]).tolist() == [[3.0, 0.0]]
    assert embedder.embed_query("abc").tolist() == [0.0, 3.0]


def test_a_model_named_unknown_requires_an_identity() -> None:
    model = MockEmbedding(embed_dim=12)
    assert model.model_name == "unknown"
    with pytest.raises(InvalidConfigError, match=r"use LlamaIndexEmbedder\(\.\.\., identity='NAME'\)"):
        LlamaIndexEmbedder(model)


@pytest.mark.parametrize(
    ("model", "identity"),
    [
        (MockEmbedding(embed_dim=3, model_name="mock"), "MockEmbedding:mock"),
        (Provider(model_name="text-small"), "Provider:text-small"),
        (Provider(model_name="text-small", dimensions=256), "Provider:text-small:dimensions=256"),
        (Provider(model_name="text-small", azure_deployment="prod"), "Provider:text-small:prod"),
        (Provider(azure_deployment="prod"), "Provider:prod"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_identity_contains_class_model_and_size(model: BaseEmbedding, identity: str) -> None:
    assert LlamaIndexEmbedder(model).identity == identity
    assert LlamaIndexEmbedder(model, identity="mine").identity == "mine"


def test_repr_identity_and_errors_contain_no_secret_and_no_text() -> None:
    embedder = LlamaIndexEmbedder(Provider(model_name="text-small"), dimension=2)
    shown = [repr(embedder), embedder.identity]
    calls: list[Callable[[], object]] = [
        lambda: embedder.embed_documents(["private"]),
        lambda: embedder.embed_query("private"),
    ]
    for call in calls:
        with pytest.raises(LangmemTiersError, match=r"'Provider:text-small' failed \(ConnectionError\)") as e:
            call()
        assert e.value.__cause__ is e.value.__context__ is None
        shown.append(str(e.value))
    assert not [text for text in shown if "hunter2" in text or "private" in text]


def test_the_dimension_is_requested_once_and_not_at_construction() -> None:
    model = Asymmetric(model_name="m")
    embedder = LlamaIndexEmbedder(model)
    assert model.requests == []
    assert (embedder.dimension, embedder.dimension) == (2, 2)
    embedder.embed_documents(["a", "b"])
    assert model.requests == [["dimension"], ["a", "b"]]


def test_concurrent_threads_request_the_dimension_once() -> None:
    waiting_threads = list[int]()

    class Slow(Asymmetric):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            wait_until(lambda: len(waiting_threads) == 6, "all threads ask for the dimension")
            return super()._get_text_embeddings(texts)

    model = Slow(model_name="m")
    embedder = LlamaIndexEmbedder(model)
    seen = list[int]()

    def read_dimension() -> None:
        waiting_threads.append(threading.get_ident())
        seen.append(embedder.dimension)

    run_in_threads(6, read_dimension)
    assert (seen, model.requests) == ([2] * 6, [["dimension"]])


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([[1.0, 2.0]], "returned 1 vectors for 2 texts"),
        ([[1.0, 2.0]] * 3, "returned 3 vectors for 2 texts"),
        ([[1.0], [2.0]], "of 1 numbers, expected 2"),
        ([[1.0, 2.0], [1.0]], "of equal length"),
        ([[1.0, 2.0], [NAN, 2.0]], "not finite for text 2 of 2"),
        ([[float("inf"), 0.0], [1.0, 2.0]], "not finite for text 1 of 2"),
    ],
)
def test_invalid_document_vectors_are_rejected(answer: object, problem: str) -> None:
    embedder = LlamaIndexEmbedder(Scripted(documents=answer), identity="odd", dimension=2)
    with pytest.raises(InvalidInputError, match=problem):
        embedder.embed_documents(["a", "b"])


@pytest.mark.parametrize("answer", [[[1.0, 2.0], None], [["a"], ["b"]], None])
def test_vectors_rejected_by_llamaindex_raise_a_langmem_tiers_error(answer: object) -> None:
    embedder = LlamaIndexEmbedder(Scripted(documents=answer), identity="odd", dimension=2)
    with pytest.raises(LangmemTiersError, match="'odd' failed"):
        embedder.embed_documents(["a", "b"])


@pytest.mark.parametrize("answer", [[1.0], [1.0, NAN], [[1.0, 2.0]], []])
def test_invalid_query_vectors_are_rejected(answer: object) -> None:
    embedder = LlamaIndexEmbedder(Scripted(documents=[[1.0, 2.0]], query=answer), identity="odd")
    with pytest.raises(LangmemTiersError, match="'odd'"):
        embedder.embed_query("a")


def test_a_value_that_is_not_an_embedding_model_is_rejected() -> None:
    model_name: Any = "local:BAAI/bge-small-en"
    with pytest.raises(InvalidInputError, match=r"got str: it has no get_text_embedding_batch\(\)"):
        LlamaIndexEmbedder(model_name)
