"""Embedding models of other libraries as embedders: named, measured, and their answers checked."""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any

from langmem_tiers.common import fork_safety
from langmem_tiers.common.checks import check_whole
from langmem_tiers.errors import InvalidConfigError, InvalidInputError, LangmemTiersError
from langmem_tiers.recall.embedders.vectors import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

_log = logging.getLogger("langmem_tiers")

_NAMES = ("model", "model_name", "model_id", "repo_id", "deployment", "azure_deployment")
_DEPLOYMENTS = {"deployment", "azure_deployment"}
_SIZES = ("dimensions", "output_dimensionality", "output_dimension")
_NO_NAMES = {"", "unknown"}
_MAY_HOLD_A_SECRET = re.compile(r"://.*[@?#]")
_SAMPLE = "dimension"
_MOST_NUMBERS = 2**20


class CheckedEmbedder:
    """An ``Embedder`` around a model of another library.

    Building it asks the model nothing. Safe to share between threads if the model is.

    Args:
        model: The model.
        methods: Its methods that embed a list of texts, and one query.
        identity: Names the model; found in the model's own attributes if left out.
        dimension: The length of its vectors; found by embedding one word on first use if left out.

    Raises:
        InvalidInputError: The model lacks one of the methods.
        InvalidConfigError: Nothing names the model, or the dimension makes no sense.
    """

    def __init__(
        self, model: object, methods: tuple[str, str], *, identity: str | None, dimension: int | None
    ) -> None:
        embed_documents, embed_query = methods
        self._documents = _method(model, embed_documents)
        self._query = _method(model, embed_query)
        self._identity = _found(model, type(self)) if identity is None else _given(identity)
        self._dimension = None if dimension is None else check_whole(dimension, 1, "dimension", _MOST_NUMBERS)
        self._lock = threading.Lock()
        fork_safety.watch(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(identity={self._identity!r}, dimension={self._dimension!r})"

    @property
    def identity(self) -> str:
        """Names the model: vectors of two identities are never compared."""
        return self._identity

    @property
    def dimension(self) -> int:
        """The length of each vector; the first look may ask the model."""
        if self._dimension is None:
            with self._lock:
                if self._dimension is None:
                    sample = self._ask(self._documents, [_SAMPLE])
                    self._dimension = checked(sample, 1, None, model=self._called()).shape[1]
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text.

        Raises:
            InvalidInputError: A text is no text, or the model's answer cannot be used.
            LangmemTiersError: The model failed.
        """
        if isinstance(texts, str):
            raise InvalidInputError("texts is one text: give a list of texts")
        ready = [_sendable(text) for text in texts]
        dimension = self.dimension
        answer = self._ask(self._documents, ready) if ready else []
        return checked(answer, len(ready), dimension, model=self._called())

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """One vector, of the model's query side.

        Raises:
            InvalidInputError: It is no text, or the model's answer cannot be used.
            LangmemTiersError: The model failed.
        """
        ready, dimension = _sendable(text), self.dimension
        answer = [self._ask(self._query, ready)]
        vector: NDArray[np.float32] = checked(answer, 1, dimension, model=self._called())[0]
        return vector

    def before_fork(self) -> None:
        """Nothing to do: waiting for a model could keep the process from forking."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """The lock may be held by a thread that this process does not have."""
        self._lock = threading.Lock()

    def _called(self) -> str:
        return f"the embedding model {self._identity!r}"

    def _ask(self, method: Callable[[Any], object], what: object) -> object:
        try:
            return method(what)
        except Exception as error:  # noqa: BLE001 - whatever a model raises, callers see one kind of error
            _log.debug("%s failed", self._called(), exc_info=True)
            status = getattr(error, "status_code", None)
            problem = type(error).__name__ + (f", status {status}" if isinstance(status, int) else "")
        # Raised out here, so not chained: a client's error may quote an address with its key, or the texts.
        raise LangmemTiersError(
            f"{self._called()} failed ({problem}): check its key, limits and network, then try again; "
            "logging of 'langmem_tiers' at level DEBUG shows all of it"
        )


def _method(model: object, name: str) -> Callable[[Any], object]:
    method: Callable[[Any], object] | None = getattr(model, name, None)
    if isinstance(model, type):
        raise InvalidInputError(f"{model.__name__} is a class: give an object of it")
    if not callable(method):
        raise InvalidInputError(f"a {type(model).__name__} is no embedding model: it has no {name}()")
    return method


def _given(identity: object) -> str:
    if not isinstance(identity, str):  # not shown: a model's repr may hold its key
        raise InvalidConfigError(f"identity must be a name, got a {type(identity).__name__}")
    if not identity.strip() or not identity.isprintable():
        raise InvalidConfigError(f"identity must be a printable name, got {identity!r}")
    return identity.strip()


def _found(model: object, adapter: type) -> str:
    """The class, the names and the sizes that the model tells about itself; nothing else is looked at."""
    kind = type(model).__name__
    names = dict.fromkeys(name for attribute in _NAMES if (name := _name(model, attribute)))
    if not names:
        raise InvalidConfigError(
            f"nothing names the model of this {kind}, so its vectors could be taken for those of another: "
            f"use {adapter.__name__}(..., identity='NAME'), with a new NAME whenever the vectors change"
        )
    sizes = ((attribute, getattr(model, attribute, None)) for attribute in _SIZES)
    return ":".join([kind, *names, *(f"{name}={size}" for name, size in sizes if isinstance(size, int))])


def _name(model: object, attribute: str) -> str | None:
    value = getattr(model, attribute, None)
    if not isinstance(value, str) or not value.isprintable() or _MAY_HOLD_A_SECRET.search(value):
        return None
    if attribute in _DEPLOYMENTS and _is_left_at_default(model, attribute):
        return None  # OpenAI's default deployment is called like its oldest model, whichever is used
    return None if value.strip().lower() in _NO_NAMES else value.strip()


def _is_left_at_default(model: object, attribute: str) -> bool:
    chosen = getattr(model, "model_fields_set", None)  # of pydantic
    return isinstance(chosen, set) and attribute not in chosen


def _sendable(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidInputError(f"a text to embed must be a str, got a {type(text).__name__}")
    return text.encode("utf-8", "replace").decode()  # lone surrogates, which no model takes
