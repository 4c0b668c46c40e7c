"""These suites run with Redis before PostgreSQL, too."""

from __future__ import annotations

import pytest

from tests.backends import ALL_BACKENDS


@pytest.fixture(params=ALL_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend in turn."""
    return str(request.param)
