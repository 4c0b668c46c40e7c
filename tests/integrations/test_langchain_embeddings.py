"""LangChain embedding models as embedders of the engine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings, FakeEmbeddings
from pydantic import BaseModel, SecretStr

from langmem_tiers import InvalidConfigError, InvalidInputError, LangmemTiersError
from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers_langchain import LangChainEmbedder
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers import Embedder

NAN = float("nan")


class Asymmetric(Embeddings):
    """Embedding model with documents on one axis and queries on the other."""

    def __init__(self) -> None:
        self.model = "two-sided"
        self.requests: list[list[str]] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.requests.append(texts)
        return [[float(len(text)), 0.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [0.0, float(len(text))]


class Scripted(Embeddings):
    """Embedding model that returns the given vectors."""

    def __init__(self, documents: Any, query: Any = None) -> None:
        self._documents, self._query = documents, query

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._documents  # type: ignore[no-any-return] # wrong on purpose

    def embed_query(self, text: str) -> list[float]:
        return self._query  # type: ignore[no-any-return] # wrong on purpose


class Provider(BaseModel, Embeddings):
    """Pydantic model like those of providers, with an API key and a default deployment."""

    model: str = "text-small"
    deployment: str | None = "text-oldest"
    dimensions: int | None = None
    api_key: SecretStr | str = SecretStr("sk-hunter2")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError(f"POST https://api.example/?key=sk-hunter2 {texts}")

    def embed_query(self, text: str) -> list[float]:
        raise ConnectionError(f"POST https://api.example/?key=sk-hunter2 {text}")


def test_a_langchain_model_returns_its_vectors_as_float32() -> None:
    model = DeterministicFakeEmbedding(size=12)
    embedder: Embedder = LangChainEmbedder(model, identity="fake-12")
    texts = ["the cat", "", "日本語", "half \ud83d"]
    rows = embedder.embed_documents(texts)
    assert rows.dtype == np.float32
    assert (rows.shape, embedder.dimension) == ((4, 12), 12)
    np.testing.assert_allclose(rows[:3], model.embed_documents(texts[:3]), rtol=1e-6)
    query = embedder.embed_query("the cat")
    assert query.dtype == np.float32
    assert query.shape == (12,)
    np.testing.assert_array_equal(query, rows[0])


def test_documents_may_be_any_sequence_of_texts() -> None:
    embedder = LangChainEmbedder(FakeEmbeddings(size=5), identity="fake")
    assert embedder.embed_documents(("a", "b")).shape == (2, 5)
    assert embedder.embed_documents([]).shape == (0, 5)


def test_queries_are_embedded_with_embed_query() -> None:
    embedder = LangChainEmbedder(Asymmetric())
    assert embedder.embed_documents(["abc"]).tolist() == [[3.0, 0.0]]
    assert embedder.embed_query("abc").tolist() == [0.0, 3.0]


def test_a_model_without_a_name_requires_an_identity() -> None:
    with pytest.raises(InvalidConfigError, match=r"use LangChainEmbedder\(\.\.\., identity='NAME'\)"):
        LangChainEmbedder(DeterministicFakeEmbedding(size=12))


@pytest.mark.parametrize(
    ("model", "identity"),
    [
        (Asymmetric(), "Asymmetric:two-sided"),
        (Provider(), "Provider:text-small"),
        (Provider(dimensions=256), "Provider:text-small:dimensions=256"),
        (Provider(deployment="prod"), "Provider:text-small:prod"),
        (Provider(model="unknown", deployment="prod"), "Provider:prod"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_identity_contains_class_model_and_size(model: Embeddings, identity: str) -> None:
    assert LangChainEmbedder(model).identity == identity
    assert LangChainEmbedder(model, identity="mine").identity == "mine"


def test_repr_identity_and_errors_contain_no_secret_and_no_text() -> None:
    embedder = LangChainEmbedder(Provider(api_key="sk-hunter2"), dimension=2)
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
    model = Asymmetric()
    embedder = LangChainEmbedder(model)
    assert model.requests == []
    assert (embedder.dimension, embedder.dimension) == (2, 2)
    embedder.embed_documents(["a", "b"])
    assert model.requests == [["dimension"], ["a", "b"]]


def test_concurrent_threads_request_the_dimension_once() -> None:
    waiting_threads = list[int]()

    class Slow(Asymmetric):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            wait_until(lambda: len(waiting_threads) == 6, "all threads ask for the dimension")
            return super().embed_documents(texts)

    model = Slow()
    embedder = LangChainEmbedder(model)
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
        (["ab", "cd"], "list of numbers"),
        (None, "list of numbers"),
    ],
)
def test_invalid_document_vectors_are_rejected(answer: object, problem: str) -> None:
    embedder = LangChainEmbedder(Scripted(answer), identity="odd", dimension=2)
    with pytest.raises(InvalidInputError, match=problem):
        embedder.embed_documents(["a", "b"])


@pytest.mark.parametrize("answer", [[1.0], [1.0, NAN], [[1.0, 2.0]], [], None, "ab"])
def test_invalid_query_vectors_are_rejected(answer: object) -> None:
    embedder = LangChainEmbedder(Scripted([[1.0, 2.0]], answer), identity="odd")
    with pytest.raises(InvalidInputError, match="'odd' returned"):
        embedder.embed_query("a")


def test_a_value_that_is_not_an_embedding_model_is_rejected() -> None:
    model_name: Any = "openai:text-embedding-3-small"
    with pytest.raises(
        InvalidInputError, match=r"expected an embedding model, got str: it has no embed_documents\(\)"
    ):
        LangChainEmbedder(model_name)
