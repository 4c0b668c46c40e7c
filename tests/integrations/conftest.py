"""These suites run on files and servers, and with Redis before PostgreSQL, too."""

from __future__ import annotations

import pytest

from tests.backends import ON_DISK


@pytest.fixture(params=ON_DISK)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend in turn."""
    return str(request.param)
