"""What every storage must do, as pytest classes. Needs pytest.

Subclass both in a test module of yours and give them your stores::

    class TestMySessions(SessionStoreConformance):
        @pytest.fixture
        def stores(self) -> Stores:
            return Stores(sessions=MySessionStore(...), messages=MyMessageStore(...))
"""

from langmem_tiers.testing.conformance.base import NOW, Stores
from langmem_tiers.testing.conformance.messages import MessageStoreConformance
from langmem_tiers.testing.conformance.sessions import SessionStoreConformance

__all__ = ["NOW", "MessageStoreConformance", "SessionStoreConformance", "Stores"]
