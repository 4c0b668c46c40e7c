"""Run these tests on files and servers, including PostgreSQL with Redis."""

from __future__ import annotations

import pytest

from tests.backends import ON_DISK


@pytest.fixture(params=ON_DISK)
def backend(request: pytest.FixtureRequest) -> str:
    """Name of the backend."""
    return str(request.param)
