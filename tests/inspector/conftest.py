"""One browser and one server process for all inspector tests.

Their scope is the package because the browser holds an event loop, which conflicts with other tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.browsers import open_browser
from langmem_tiers import MemoryEngine
from tests.inspector.inspector_page import InspectorPage
from tests.inspector.sample_memories import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

SECRET = "a-token-for-tests"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with open_browser() as chromium:
        yield chromium


@pytest.fixture(scope="package")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the server process."""
    path = tmp_path_factory.mktemp("inspector") / "memory.db"
    with MemoryEngine(path, embedder=None) as engine:
        fill(engine)
    command = [sys.executable, "-m", "langmem_tiers", "serve", "-d", str(path), "--port", "0"]
    environment = {**os.environ, "LANGMEM_TIERS_TOKEN": SECRET}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert match is not None
        yield match[0]
        process.terminate()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Callable[..., InspectorPage]]:
    """Function that opens a page at a width. Problems of a page fail the test at its end."""
    opened: list[InspectorPage] = []

    def open_inspector_page(
        width: int = 1200, scheme: str = "light", secret: str | None = SECRET
    ) -> InspectorPage:
        opened.append(InspectorPage(browser, address, width, scheme, secret))
        return opened[-1]

    yield open_inspector_page
    for page in opened:
        page.close()
    for page in opened:
        page.check()
