"""A memory shared by the tests of views, plots and frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.display.html_page import Memory, small_memory

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """Read it; do not write to it."""
    made = small_memory(tmp_path_factory.mktemp("memory"))
    yield made
    made.engine.close()
