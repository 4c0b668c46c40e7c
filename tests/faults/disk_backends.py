"""The databases that processes can share."""

from __future__ import annotations

import pytest

ON_DISK = pytest.mark.parametrize("backend", ["sqlite-file", "postgresql"])
QUICKLY_ON_SQLITE = pytest.mark.parametrize(
    "backend", [pytest.param("sqlite-file", marks=pytest.mark.smoke), "postgresql"]
)
"""For fault tests that are quick enough for the fast suite on SQLite."""
