"""Adapter base for embedding models of other libraries: identity, dimension and validation."""

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
# Attributes may hold URLs. One with a user, a query or a fragment may contain a secret and is not used as a name.
_SECRET_PATTERN = re.compile(r"://.*[@?#]")
_SAMPLE_TEXT = "dimension"
_MAX_DIMENSION = 2**20


class CheckedEmbedder:
    """An ``Embedder`` that wraps a model of another library.

    Creating it does not call the model. Thread-safe if the model is.

    Args:
        model: The model.
        methods: Names of its methods that embed a list of texts, and one query.
        identity: Name of the model. None derives it from the attributes of the model.
        dimension: Length of its vectors. None measures it by embedding one word on first use.

    Raises:
        InvalidInputError: The model lacks one of the methods.
        InvalidConfigError: No identity could be derived, or identity or dimension is invalid.
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
        """Name of the model. Vectors of different identities are never compared."""
        return self._identity

    @property
    def dimension(self) -> int:
        """Length of each vector. The first access may call the model."""
        # Checked again under the lock, so that concurrent first accesses call the model once.
        if self._dimension is None:
            with self._lock:
                if self._dimension is None:
                    sample = self._call_model(self._documents_method, [_SAMPLE_TEXT])
                    self._dimension = validate_vectors(sample, 1, None, model=self._describe_model()).shape[1]
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per text.

        Raises:
            InvalidInputError: A text is not a str, or the model returned invalid vectors.
            LangmemTiersError: The model failed.
        """
        if isinstance(texts, str):
            raise InvalidInputError("texts must be a list of texts, got a single str")
        ready = [_to_sendable_text(text) for text in texts]
        dimension = self.dimension
        answer = self._call_model(self._documents_method, ready) if ready else []
        return validate_vectors(answer, len(ready), dimension, model=self._describe_model())

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a query, by the model's method for queries.

        Raises:
            InvalidInputError: The query is not a str, or the model returned an invalid vector.
            LangmemTiersError: The model failed.
        """
        ready, dimension = _to_sendable_text(text), self.dimension
        answer = [self._call_model(self._query_method, ready)]
        vector: NDArray[np.float32] = validate_vectors(answer, 1, dimension, model=self._describe_model())[0]
        return vector

    def before_fork(self) -> None:
        """Do nothing: waiting for a call to end could delay the fork without limit."""

    def after_fork(self) -> None:
        """Do nothing in the parent."""

    def after_fork_in_child(self) -> None:
        """Replace the lock: it may be held by a thread that does not exist in the child."""
        self._lock = threading.Lock()

    def _describe_model(self) -> str:
        return f"the embedding model {self._identity!r}"

    def _call_model(self, method: Callable[[Any], object], argument: object) -> object:
        try:
            return method(argument)
        except Exception as error:  # noqa: BLE001 - models raise any type, callers expect one
            _log.debug("%s failed", self._describe_model(), exc_info=True)
            status = getattr(error, "status_code", None)
            problem = type(error).__name__ + (f", status {status}" if isinstance(status, int) else "")
        # Raised outside of the except block, so that the original error is not chained: its message may contain texts,
        # or a URL with a key.
        raise LangmemTiersError(
            f"{self._describe_model()} failed ({problem}): check its key, limits and network, then try again; "
            "set the logger 'langmem_tiers' to DEBUG for details"
        )


def _get_method(model: object, name: str) -> Callable[[Any], object]:
    method: Callable[[Any], object] | None = getattr(model, name, None)
    if isinstance(model, type):
        raise InvalidInputError(
            f"expected an embedding model, got the class {model.__name__}: pass an instance of it"
        )
    if not callable(method):
        raise InvalidInputError(
            f"expected an embedding model, got a {type(model).__name__}: it has no {name}()"
        )
    return method


def _check_identity(identity: object) -> str:
    # The value is not quoted: somebody may have passed the model, whose repr may contain a key.
    if not isinstance(identity, str):
        raise InvalidConfigError(
            f"expected a str for identity, got {type(identity).__name__}: pass a name of the model"
        )
    if not identity.strip() or not identity.isprintable():
        raise InvalidConfigError(
            f"expected a printable name for identity, got {identity!r}: use for example 'my-model-2'"
        )
    return identity.strip()


def _derive_identity(model: object, adapter: type) -> str:
    # Class, names and sizes from known attributes. Other attributes are not read: they may contain secrets.
    kind = type(model).__name__
    names = dict.fromkeys(name for attribute in _NAME_ATTRIBUTES if (name := _read_name(model, attribute)))
    if not names:
        raise InvalidConfigError(
            f"cannot derive an identity from this {kind}, so its vectors could be mixed with those of another model: "
            f"use {adapter.__name__}(..., identity='NAME'), with a new NAME whenever the vectors change"
        )
    sizes = ((attribute, getattr(model, attribute, None)) for attribute in _SIZE_ATTRIBUTES)
    return ":".join([kind, *names, *(f"{name}={size}" for name, size in sizes if isinstance(size, int))])


def _read_name(model: object, attribute: str) -> str | None:
    value = getattr(model, attribute, None)
    if not isinstance(value, str) or not value.isprintable() or _SECRET_PATTERN.search(value):
        return None
    if attribute in _DEPLOYMENT_ATTRIBUTES and _is_left_at_default(model, attribute):
        # OpenAI's default deployment has the name of its oldest model, whichever model is used.
        return None
    return None if value.strip().lower() in _PLACEHOLDER_NAMES else value.strip()


def _is_left_at_default(model: object, attribute: str) -> bool:
    # Pydantic models record the fields that were passed explicitly.
    fields_set = getattr(model, "model_fields_set", None)
    return isinstance(fields_set, set) and attribute not in fields_set


def _to_sendable_text(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidInputError(
            f"expected a str to embed, got {type(text).__name__}: pass the text of the message"
        )
    # Replace lone surrogates, which cannot be sent as UTF-8.
    return text.encode("utf-8", "replace").decode()
