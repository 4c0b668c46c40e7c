"""A client of a server that runs in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.testclient import TestClient

from langmem_tiers.server import ServerConfig, create_app

if TYPE_CHECKING:
    from httpx2 import Response
    from prometheus_client import CollectorRegistry

    from langmem_tiers import MemoryEngine

ALICE = "acme/alice"


class ApiClient:
    """Asks as a program does, with a token or without."""

    def __init__(
        self,
        engine: MemoryEngine,
        config: ServerConfig | None = None,
        registry: CollectorRegistry | None = None,
        token: str | None = None,
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        app = create_app(engine, config=config, registry=registry)
        self.client = TestClient(app, base_url="http://localhost", headers=headers, follow_redirects=False)

    def get(self, path: str, **values: Any) -> Response:
        return self.client.get(path, params=values)

    def post(self, path: str, **values: Any) -> Response:
        return self.client.post(path, json=values)

    def get_json(self, path: str, **values: Any) -> Any:
        """The answer to a request that must be answered."""
        answer = self.get(path, **values)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post_json(self, path: str, **values: Any) -> Any:
        """The same for one that changes something, or asks memory."""
        answer = self.post(path, **values)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def get_all(self, path: str, **values: Any) -> list[Any]:
        """All items of a list, page by page."""
        items, cursor = [], None
        for _ in range(1000):
            page = self.get_json(path, **values, **({} if cursor is None else {"cursor": cursor}))
            items += page["items"]
            if (cursor := page["next"]) is None:
                return items
        raise AssertionError(f"{path} has no end")


def get_error_kind(answer: Response) -> str:
    """What is wrong, in one word; nothing else may be in it but a sentence."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"kind", "message"}
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    return str(body["error"]["kind"])
