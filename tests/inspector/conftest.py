"""One browser and one server process for all tests of the pages.

They are of the package: the browser holds an event loop, which tests elsewhere want for themselves.
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
    with open_browser() as found:
        yield found


@pytest.fixture(scope="package")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server process answers."""
    path = tmp_path_factory.mktemp("inspector") / "memory.db"
    with MemoryEngine(path, embedder=None) as engine:
        fill(engine)
    command = [sys.executable, "-m", "langmem_tiers", "serve", "-d", str(path), "--port", "0"]
    wanted = {**os.environ, "LANGMEM_TIERS_TOKEN": SECRET}
    with subprocess.Popen(command, env=wanted, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert told is not None
        yield told[0]
        process.terminate()


@pytest.fixture
def looking(browser: Browser, address: str) -> Iterator[Callable[..., InspectorPage]]:
    """Opens a page at a width; what went wrong in it fails the test at its end."""
    opened: list[InspectorPage] = []

    def look(width: int = 1200, scheme: str = "light", secret: str | None = SECRET) -> InspectorPage:
        opened.append(InspectorPage(browser, address, width, scheme, secret))
        return opened[-1]

    yield look
    for one in opened:
        one.close()
    for one in opened:
        one.check()
