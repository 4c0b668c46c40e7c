"""Models of other libraries: named automatically, measured once, and validated."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import InvalidConfigError, InvalidInputError, LangmemTiersError
from langmem_tiers.recall.embedders.embedder_validation import CheckedEmbedder
from langmem_tiers.testing.threads import run_in_threads
from tests.forking import fork, wait
from tests.waiting import wait_until

if TYPE_CHECKING:
    from langmem_tiers.common.ports import Embedder


class Model:
    def __init__(self, **attributes: object) -> None:
        self.asked: list[list[str]] = []
        vars(self).update(attributes)

    def many(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        return [[1.0, 2.0, 3.0] for _ in texts]

    def one(self, text: str) -> list[float]:
        return [4.0, 5.0, 6.0]


def embedder(model: object, identity: str | None = None, dimension: int | None = None) -> CheckedEmbedder:
    return CheckedEmbedder(model, ("many", "one"), identity=identity, dimension=dimension)


def test_a_wrapped_model_is_an_embedder() -> None:
    port: Embedder = embedder(Model(model="m"))
    assert (port.identity, port.dimension) == ("Model:m", 3)


@pytest.mark.parametrize(
    ("attributes", "identity"),
    [
        ({"model": "small"}, "Model:small"),
        ({"model_name": " BAAI/bge-small-en "}, "Model:BAAI/bge-small-en"),
        ({"model_id": "amazon.titan"}, "Model:amazon.titan"),
        ({"deployment": "prod"}, "Model:prod"),
        ({"model": "small", "model_name": "small"}, "Model:small"),
        ({"model": "ada", "deployment": "prod"}, "Model:ada:prod"),
        ({"model": "small", "dimensions": 512}, "Model:small:dimensions=512"),
        ({"model": "small", "dimensions": None}, "Model:small"),
        ({"model": object(), "model_name": "small"}, "Model:small"),
        ({"model": "https://host.example/bge"}, "Model:https://host.example/bge"),
    ],
)
def test_a_model_is_named_by_its_class_and_its_own_attributes(
    attributes: dict[str, object], identity: str
) -> None:
    assert embedder(Model(**attributes)).identity == identity


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"model": ""},
        {"model_name": "unknown"},
        {"model": 3},
        {"dimensions": 512},
        {"model": "two\nlines"},
        {"model": "https://user:hunter2@host.example/bge"},
        {"model": "https://host.example/bge?key=hunter2"},
    ],
)
def test_a_model_without_a_name_requires_an_identity(attributes: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match=r"CheckedEmbedder\(\.\.\., identity='NAME'\)") as caught:
        embedder(Model(**attributes))
    assert "hunter2" not in str(caught.value)
    assert embedder(Model(**attributes), identity=" mine ").identity == "mine"


def test_a_default_deployment_is_not_part_of_the_identity() -> None:
    defaults: dict[str, Any] = {"model": "small", "deployment": "ada"}
    assert embedder(Model(**defaults, model_fields_set={"model"})).identity == "Model:small"
    assert embedder(Model(**defaults, model_fields_set={"deployment"})).identity == "Model:small:ada"


@pytest.mark.parametrize("identity", ["", "  ", "a\nb", "\x00", 3, SimpleNamespace(key="hunter2")])
def test_an_invalid_identity_is_refused_without_showing_objects(identity: Any) -> None:
    with pytest.raises(InvalidConfigError, match="identity must be") as caught:
        embedder(Model(), identity=identity)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("dimension", [0, -1, 1.5, True, "3", 2**21])
def test_an_invalid_dimension_is_refused(dimension: Any) -> None:
    with pytest.raises(InvalidConfigError, match="dimension must be"):
        embedder(Model(model="m"), dimension=dimension)


def test_an_object_without_model_methods_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"expected an embedding model, got str: it has no many\(\)"):
        embedder("openai:small")
    with pytest.raises(InvalidInputError, match="got the class Model"):
        embedder(Model)


def test_building_does_not_call_the_model() -> None:
    model = Model(model="m")
    assert repr(embedder(model)) == "CheckedEmbedder(identity='Model:m', dimension=None)"
    assert model.asked == []


def test_the_dimension_is_looked_up_once() -> None:
    model = Model(model="m")
    built = embedder(model)
    built.embed_documents(["a"])
    built.embed_query("b")
    assert built.embed_documents([]).shape == (0, built.dimension)
    assert model.asked == [["dimension"], ["a"]]


def test_a_given_dimension_is_not_looked_up() -> None:
    model = Model(model="m")
    assert embedder(model, dimension=3).embed_documents([]).shape == (0, 3)
    assert model.asked == []


def test_concurrent_threads_look_the_dimension_up_once() -> None:
    coming = list[int]()

    class Slow(Model):
        def many(self, texts: list[str]) -> list[list[float]]:
            wait_until(lambda: len(coming) == 8, "all threads look up the dimension")
            return super().many(texts)

    model = Slow(model="m")
    built = embedder(model)
    seen = list[int]()

    def look() -> None:
        coming.append(threading.get_ident())
        seen.append(built.dimension)

    run_in_threads(8, look)
    assert seen == [3] * 8
    assert model.asked == [["dimension"]]


def test_a_failed_look_up_is_retried() -> None:
    answers = iter([[[]], [[1.0, 2.0]]])
    built = embedder(Model(model="m", many=lambda _: next(answers)))
    with pytest.raises(InvalidInputError, match="returned invalid vectors"):
        _ = built.dimension
    assert built.dimension == 2


def test_a_child_forked_during_a_look_up_can_look_up_itself() -> None:
    built = embedder(Model(model="m"))

    def look() -> None:
        assert built.dimension == 3

    with built._lock:
        child = fork(look)
    assert wait(child) == 0


@pytest.mark.parametrize("texts", ["one text", [b"bytes"], [None], ["a", 3]])
def test_an_invalid_list_of_texts_is_refused_without_a_call(texts: Any) -> None:
    model = Model(model="m")
    with pytest.raises(InvalidInputError, match="text"):
        embedder(model).embed_documents(texts)
    with pytest.raises(InvalidInputError, match="must be a str"):
        embedder(model).embed_query(3)  # type: ignore[arg-type] # on purpose
    assert model.asked == []


def test_a_text_with_a_lone_surrogate_is_sent_as_valid_unicode() -> None:
    model = Model(model="m")
    embedder(model, dimension=3).embed_documents(["caf\u00e9 \ud83d"])
    assert model.asked == [["café ?"]]


class DeniedError(Exception):
    status_code = 401


def test_a_model_error_is_named_but_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    def fail(texts: list[str]) -> list[list[float]]:
        raise DeniedError("key sk-hunter2 is wrong")

    built = embedder(Model(model="m", many=fail))
    with caplog.at_level(logging.INFO), pytest.raises(LangmemTiersError) as caught:
        built.embed_documents(["a"])
    assert "'Model:m' failed (DeniedError, status 401)" in str(caught.value)
    assert "hunter2" not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_an_interrupt_propagates() -> None:
    def interrupted(texts: list[str]) -> list[list[float]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embedder(Model(model="m", many=interrupted)).embed_documents(["a"])
