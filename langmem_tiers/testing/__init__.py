"""Fakes for tests, also for your own.

Contract tests for your own storage are in :mod:`tests.contract.storage` and
need pytest.
"""

from langmem_tiers.testing.fakes import FrozenClock, HashEmbedder, ScriptedLLM, seeded_ids

__all__ = ["FrozenClock", "HashEmbedder", "ScriptedLLM", "seeded_ids"]
