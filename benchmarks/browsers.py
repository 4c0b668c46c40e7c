"""A real browser, and a server in a thread for it to look at."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_START_MILLISECONDS = 120_000
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def browser_path() -> str:
    """Return the path of the browser: the value of ``CHROMIUM``, or the first that is installed.

    Raises:
        RuntimeError: There is none.
    """
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        wanted = f"CHROMIUM={named!r} is no program" if named else f"there is none of {', '.join(_NAMES)}"
        raise RuntimeError(
            f"no browser: {wanted}. Install Chromium (Debian: apt-get install chromium) or set CHROMIUM to its path"
        )
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it takes a while, and not all need it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path(), args=list(_ARGUMENTS), timeout=_START_MILLISECONDS
        )
        yield browser
        browser.close()


@contextmanager
def serve_app(app: FastAPI) -> Iterator[str]:
    """The URL of the app, served on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
