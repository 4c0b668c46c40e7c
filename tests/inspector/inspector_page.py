"""Page object of the inspector that records problems."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlencode

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Request

_HEIGHT = 800
_LIMIT_MS = 120_000  # guards against hanging; no claim depends on it
expect.set_options(timeout=_LIMIT_MS)
_EXPECTED_REFUSALS = (
    "status of 401",
    "status of 404",
    "status of 409",
    "status of 422",
)  # the browser tells of each refusal


class InspectorPage:
    """Inspector page with its requests and console errors."""

    def __init__(self, browser: Browser, address: str, width: int, scheme: str, secret: str | None) -> None:
        self.address = address
        self.problems: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": _HEIGHT},
            color_scheme=cast("Literal['dark', 'light']", scheme),
            reduced_motion="reduce",
        )
        if secret is not None:
            token = json.dumps(secret)
            self.context.add_init_script(f"sessionStorage.setItem('langmem-tiers-token', {token})")
        self.context.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('CSP ' + e.violatedDirective))"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(_LIMIT_MS)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)

    def go_to(
        self, page: str, namespace: tuple[str, ...] | None = None, **parameters: object
    ) -> InspectorPage:
        """Open a page and wait until it is loaded."""
        query = {} if namespace is None else {"ns": "/".join(namespace)}
        self.page.goto(f"{self.address}inspector/#/{page}?{urlencode(query | parameters)}")
        return self.wait_until_settled()

    def wait_until_settled(self) -> InspectorPage:
        """Wait until all requests are finished."""
        self.page.evaluate(
            "new Promise((done) => setTimeout(done, 30))"
        )  # a link that was followed has begun
        expect(self.page.locator("h1")).to_be_visible()
        expect(self.page.locator("[aria-busy]")).to_have_count(0)
        return self

    def rows(self) -> Locator:
        """The rows of the lists."""
        return self.page.get_by_role("listitem").and_(self.page.locator("article"))

    @property
    def width(self) -> int:
        """Width of the document in pixels."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def close(self) -> None:
        """Close the page."""
        self.context.close()

    def check(self) -> None:
        """Fail if the page had a problem."""
        assert self.problems == []

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(
            text in message.text for text in _EXPECTED_REFUSALS
        ):
            self.problems.append(f"console: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"a script asked: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        if not request.url.startswith(self.address):
            self.problems.append(f"asked elsewhere: {request.url}")
