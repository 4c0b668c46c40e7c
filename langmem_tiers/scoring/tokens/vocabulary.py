"""tiktoken without a download: its vocabulary is looked for on this machine only.

Reading that file once, when the counter is built, is the only I/O in this layer; counting
itself is pure.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import InvalidConfigError
from langmem_tiers.scoring.tokens.estimates import ContentAwareCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tiktoken

    from langmem_tiers.core.ports import TokenCounter

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_said: set[str] = set()

_CACHE_VARIABLE = "TIKTOKEN_CACHE_DIR"

# tiktoken's own name of each cached file, and the hash it checks; a file with another hash
# would make tiktoken delete it and go to the network, so it is never offered to it.
_VOCABULARIES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}


class TiktokenCounter:
    """Exact counts for models with that vocabulary.

    Args:
        encoding: ``cl100k_base`` or ``o200k_base``.
        cache_dir: Where the vocabulary lies; found by itself if left out.

    Raises:
        InvalidConfigError: The vocabulary is not on this machine. Nothing is downloaded.
    """

    def __init__(
        self, encoding: str = "cl100k_base", cache_dir: str | os.PathLike[str] | None = None
    ) -> None:
        if encoding not in _VOCABULARIES:
            raise InvalidConfigError(f"unknown encoding {encoding!r}: use one of {', '.join(_VOCABULARIES)}")
        places = [Path(cache_dir)] if cache_dir is not None else list(_places())
        folder = next((place for place in places if _holds(place, encoding)), None)
        if folder is None:
            raise InvalidConfigError(
                f"no vocabulary of {encoding!r} on this machine: set {_CACHE_VARIABLE} to its folder, "
                "or pip install 'langmem-tiers[llama-index]', which brings one"
            )
        self.name = encoding
        self._encoding = _load(encoding, folder)

    def count(self, text: str) -> int:
        """Tokens of the text; words that look like control tokens count as plain text."""
        try:
            return len(self._encoding.encode_ordinary(text))
        except UnicodeEncodeError:  # lone surrogates, which no model ever sees
            return len(self._encoding.encode_ordinary(text.encode("utf-8", "replace").decode()))


def tiktoken_or_estimate(encoding: str = "cl100k_base") -> TokenCounter:
    """Tiktoken where its vocabulary is at hand, else the content-aware estimate, saying so once."""
    try:
        return TiktokenCounter(encoding)
    except InvalidConfigError as error:
        if encoding not in _VOCABULARIES:
            raise
        with _lock:
            if encoding not in _said:
                _said.add(encoding)
                _log.warning("tokens are estimated by content: %s", error)
        return ContentAwareCounter()


def _places() -> Iterator[Path]:
    if folder := os.environ.get(_CACHE_VARIABLE):
        yield Path(folder)
    # Found without importing llama_index, which would take seconds.
    spec = importlib.util.find_spec("llama_index")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        yield Path(folder) / "core" / "_static" / "tiktoken_cache"


def _holds(folder: Path, encoding: str) -> bool:
    file_name, expected = _VOCABULARIES[encoding]
    try:
        return hashlib.sha256((folder / file_name).read_bytes()).hexdigest() == expected
    except OSError:
        return False


def _load(encoding: str, folder: Path) -> tiktoken.Encoding:
    import tiktoken  # noqa: PLC0415 - the only user of it; most programs never come here

    with _lock:
        before = os.environ.get(_CACHE_VARIABLE)
        os.environ[_CACHE_VARIABLE] = str(folder)  # tiktoken takes its folder from nowhere else
        try:
            return tiktoken.get_encoding(encoding)
        finally:
            if before is None:
                del os.environ[_CACHE_VARIABLE]
            else:
                os.environ[_CACHE_VARIABLE] = before
