"""Embedding models of other libraries as embedders: named, measured, and their answers checked."""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any

from langmem_tiers.common import fork_safety
from langmem_tiers.common.checks import check_whole
from langmem_tiers.errors import InvalidConfigError, InvalidInputError, LangmemTiersError
from langmem_tiers.recall.embedders.vectors import validate_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

_log = logging.getLogger("langmem_tiers")

_NAME_ATTRIBUTES = ("model", "model_name", "model_id", "repo_id", "deployment", "azure_deployment")
_DEPLOYMENT_ATTRIBUTES = {"deployment", "azure_deployment"}
_SIZE_ATTRIBUTES = ("dimensions", "output_dimensionality", "output_dimension")
_PLACEHOLDER_NAMES = {"", "unknown"}
_SECRET_PATTERN = re.compile(r"://.*[@?#]")
_SAMPLE_TEXT = "dimension"
_MAX_DIMENSION = 2**20


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
        self._documents_method = _get_method(model, embed_documents)
        self._query_method = _get_method(model, embed_query)
        self._identity = (
            _derive_identity(model, type(self)) if identity is None else _check_identity(identity)
        )
        self._dimension = (
            None if dimension is None else check_whole(dimension, 1, "dimension", _MAX_DIMENSION)
        )
        self._lock = threading.Lock()
        fork_safety.register_fork_aware(self)

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
                    sample = self._call_model(self._documents_method, [_SAMPLE_TEXT])
                    self._dimension = validate_vectors(sample, 1, None, model=self._describe_model()).shape[1]
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text.

        Raises:
            InvalidInputError: A text is no text, or the model's answer cannot be used.
            LangmemTiersError: The model failed.
        """
        if isinstance(texts, str):
            raise InvalidInputError("texts is one text: give a list of texts")
        ready = [_to_sendable_text(text) for text in texts]
        dimension = self.dimension
        answer = self._call_model(self._documents_method, ready) if ready else []
        return validate_vectors(answer, len(ready), dimension, model=self._describe_model())

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """One vector, of the model's query side.

        Raises:
            InvalidInputError: It is no text, or the model's answer cannot be used.
            LangmemTiersError: The model failed.
        """
        ready, dimension = _to_sendable_text(text), self.dimension
        answer = [self._call_model(self._query_method, ready)]
        vector: NDArray[np.float32] = validate_vectors(answer, 1, dimension, model=self._describe_model())[0]
        return vector

    def before_fork(self) -> None:
        """Nothing to do: waiting for a model could keep the process from forking."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """The lock may be held by a thread that this process does not have."""
        self._lock = threading.Lock()

    def _describe_model(self) -> str:
        return f"the embedding model {self._identity!r}"

    def _call_model(self, method: Callable[[Any], object], what: object) -> object:
        try:
            return method(what)
        except Exception as error:  # noqa: BLE001 - whatever a model raises, callers see one kind of error
            _log.debug("%s failed", self._describe_model(), exc_info=True)
            status = getattr(error, "status_code", None)
            problem = type(error).__name__ + (f", status {status}" if isinstance(status, int) else "")
        # Raised out here, so not chained: a client's error may quote an address with its key, or the texts.
        raise LangmemTiersError(
            f"{self._describe_model()} failed ({problem}): check its key, limits and network, then try again; "
            "logging of 'langmem_tiers' at level DEBUG shows all of it"
        )


def _get_method(model: object, name: str) -> Callable[[Any], object]:
    method: Callable[[Any], object] | None = getattr(model, name, None)
    if isinstance(model, type):
        raise InvalidInputError(f"{model.__name__} is a class: give an object of it")
    if not callable(method):
        raise InvalidInputError(f"a {type(model).__name__} is no embedding model: it has no {name}()")
    return method


def _check_identity(identity: object) -> str:
    if not isinstance(identity, str):  # not shown: a model's repr may hold its key
        raise InvalidConfigError(f"identity must be a name, got a {type(identity).__name__}")
    if not identity.strip() or not identity.isprintable():
        raise InvalidConfigError(f"identity must be a printable name, got {identity!r}")
    return identity.strip()


def _derive_identity(model: object, adapter: type) -> str:
    """The class, the names and the sizes that the model tells about itself; nothing else is looked at."""
    kind = type(model).__name__
    names = dict.fromkeys(name for attribute in _NAME_ATTRIBUTES if (name := _read_name(model, attribute)))
    if not names:
        raise InvalidConfigError(
            f"nothing names the model of this {kind}, so its vectors could be taken for those of another: "
            f"use {adapter.__name__}(..., identity='NAME'), with a new NAME whenever the vectors change"
        )
    sizes = ((attribute, getattr(model, attribute, None)) for attribute in _SIZE_ATTRIBUTES)
    return ":".join([kind, *names, *(f"{name}={size}" for name, size in sizes if isinstance(size, int))])


def _read_name(model: object, attribute: str) -> str | None:
    value = getattr(model, attribute, None)
    if not isinstance(value, str) or not value.isprintable() or _SECRET_PATTERN.search(value):
        return None
    if attribute in _DEPLOYMENT_ATTRIBUTES and _is_left_at_default(model, attribute):
        return None  # OpenAI's default deployment is called like its oldest model, whichever is used
    return None if value.strip().lower() in _PLACEHOLDER_NAMES else value.strip()


def _is_left_at_default(model: object, attribute: str) -> bool:
    chosen = getattr(model, "model_fields_set", None)  # of pydantic
    return isinstance(chosen, set) and attribute not in chosen


def _to_sendable_text(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidInputError(f"a text to embed must be a str, got a {type(text).__name__}")
    return text.encode("utf-8", "replace").decode()  # lone surrogates, which no model takes
