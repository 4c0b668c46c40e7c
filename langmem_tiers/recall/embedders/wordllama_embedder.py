"""The embedder that is there without being asked for: static word vectors, shipped with their package.

A text's vector is the mean of the vectors of its pieces, so embedding costs microseconds, needs no
network and no accelerator, and is the same on every machine.
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
    """256 numbers for each text, from the weights inside the ``wordllama`` package.

    The weights are loaded on first use, once per process: all engines share them.
    """

    identity = f"wordllama:{_MODEL}"
    dimension = 256
    is_quick = True
    """So quick that looking a vector up in a cache would take longer than making it."""
    share = 0.1
    """What its cosines count beside words where items are ranked: words find more than means of their vectors."""

    _model: ClassVar[Any] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        fork_safety.register_fork_aware(self)

    def __repr__(self) -> str:
        return f"OfflineEmbedder({self.identity!r})"

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text."""
        return self._embed(list(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """One vector."""
        vector: NDArray[np.float32] = self._embed([text])[0]
        return vector

    def before_fork(self) -> None:
        """Nothing to do: the weights are only read."""

    def after_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """Replace the lock: a thread that this process does not have may hold it."""
        OfflineEmbedder._lock = threading.Lock()

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np  # noqa: PLC0415 - importing the package stays quick

        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        model = self._load_model()
        clean = [text.encode("utf-8", "replace").decode() or " " for text in texts]
        encoded = model.tokenizer.encode_batch(clean, add_special_tokens=False)
        # The mean over each text's own pieces: the same as the package's, without filling up to the longest.
        pieces = [one.ids or [0] for one in encoded]
        sizes = np.array([len(ids) for ids in pieces])
        together = np.fromiter(chain.from_iterable(pieces), np.int64, int(sizes.sum()))
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        rows = model.embedding[np.minimum(together, len(model.embedding) - 1)].astype(np.float32)
        means: NDArray[np.float32] = (np.add.reduceat(rows, starts, axis=0) / sizes[:, None]).astype(
            np.float32
        )
        # It has learned from English: of other scripts its pieces are mere bytes, all alike.
        means[[n for n, text in enumerate(clean) if not text.isascii() and is_mostly_unspaced(text)]] = 0
        return means

    def _load_model(self) -> Any:  # noqa: ANN401 - the library has no types
        with OfflineEmbedder._lock:
            if OfflineEmbedder._model is None:
                try:
                    import wordllama  # noqa: PLC0415 - loaded when the first text is embedded
                except ImportError as error:
                    raise MissingExtraError(
                        "the offline embedder needs the package wordllama: pip install wordllama, "
                        "or pass embedder=None to recall by words alone"
                    ) from error
                inside = Path(wordllama.__file__).parent
                model = wordllama.WordLlama.load(cache_dir=inside, disable_download=True)
                model.tokenizer.no_padding()
                OfflineEmbedder._model = model
            return OfflineEmbedder._model
