"""The default embedder: static word vectors from the ``wordllama`` package.

The vector of a text is the mean of the vectors of its tokens. Embedding takes microseconds, needs neither a network
nor an accelerator, and gives the same result on every machine.
"""

from __future__ import annotations

import threading
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from langmem_tiers.common import fork_safety
from langmem_tiers.errors import MissingExtraError
from langmem_tiers.text.tokenize import is_mostly_unspaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

_MODEL = "l2_supercat_256"


class OfflineEmbedder:
    """Embedder with vectors of 256 numbers, from the weights in the ``wordllama`` package.

    The weights are loaded on first use, once per process. All engines share them.
    """

    identity = f"wordllama:{_MODEL}"
    dimension = 256
    is_quick = True
    """True, because embedding a text is faster than reading its vector from a cache."""
    share = 0.1
    """Weight of the cosines when items are ranked. Low, because words find more than means of word vectors."""

    _model: ClassVar[Any] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        fork_safety.register_fork_aware(self)

    def __repr__(self) -> str:
        return f"OfflineEmbedder({self.identity!r})"

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per text."""
        return self._embed(list(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a query."""
        vector: NDArray[np.float32] = self._embed([text])[0]
        return vector

    def before_fork(self) -> None:
        """Do nothing: the weights are read-only."""

    def after_fork(self) -> None:
        """Do nothing in the parent."""

    def after_fork_in_child(self) -> None:
        """Replace the lock: it may be held by a thread that does not exist in the child."""
        OfflineEmbedder._lock = threading.Lock()

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np  # noqa: PLC0415 - importing the package stays quick

        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        model = self._load_model()
        # Lone surrogates cannot be encoded. The tokenizer needs at least one character.
        clean = [text.encode("utf-8", "replace").decode() or " " for text in texts]
        encoded = model.tokenizer.encode_batch(clean, add_special_tokens=False)
        # The mean over the tokens of each text. The result is that of the package, but without padding all texts of the
        # batch to the longest one: the tokens of all texts are concatenated, and reduceat sums each section.
        token_ids = [encoding.ids or [0] for encoding in encoded]
        sizes = np.array([len(ids) for ids in token_ids])
        together = np.fromiter(chain.from_iterable(token_ids), np.int64, int(sizes.sum()))
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        rows = model.embedding[np.minimum(together, len(model.embedding) - 1)].astype(np.float32)
        means: NDArray[np.float32] = (np.add.reduceat(rows, starts, axis=0) / sizes[:, None]).astype(
            np.float32
        )
        # The model was trained on English. Scripts without spaces are tokenized as bytes, whose vectors are all alike.
        # A zero vector makes recall use words only.
        means[[n for n, text in enumerate(clean) if not text.isascii() and is_mostly_unspaced(text)]] = 0
        return means

    def _load_model(self) -> Any:  # noqa: ANN401 - the library has no types
        with OfflineEmbedder._lock:
            if OfflineEmbedder._model is None:
                try:
                    import wordllama  # noqa: PLC0415 - slow to import, only needed to embed
                except ImportError as error:
                    raise MissingExtraError(
                        "the offline embedder needs the package wordllama: pip install wordllama, "
                        "or pass embedder=None to recall by words only"
                    ) from error
                # The package contains the weights. Without these arguments it would look for them elsewhere, and might
                # download them.
                package_folder = Path(wordllama.__file__).parent
                model = wordllama.WordLlama.load(cache_dir=package_folder, disable_download=True)
                model.tokenizer.no_padding()
                OfflineEmbedder._model = model
            return OfflineEmbedder._model
