"""For tests, ours and yours: fakes to hand in.

Suites that a storage of your own must pass are in :mod:`tests.contract.storage`,
which needs pytest.
"""

from langmem_tiers.testing.fakes import FrozenClock, HashEmbedder, ScriptedLLM, seeded_ids

__all__ = ["FrozenClock", "HashEmbedder", "ScriptedLLM", "seeded_ids"]
