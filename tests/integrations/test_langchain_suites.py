"""LangChain's published integration suites on every database, without overridden tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    ToolsIntegrationTests,
)
from langchain_tests.unit_tests import EmbeddingsUnitTests, ToolsUnitTests
from langgraph.store.memory import InMemoryStore

from langmem_tiers_langchain import (
    OfflineEmbeddings,
    TieredMemoryRetriever,
    create_manage_memory_tool,
    create_search_memory_tool,
)

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import BaseTool

    from langmem_tiers import MemoryEngine


@pytest.fixture
def memory(request: pytest.FixtureRequest, engine: MemoryEngine, tenant: str) -> None:
    """Fill the engine for a suite."""
    session = engine.session(tenant, "talk")
    for instrument in ("cello", "piano", "harp", "flute"):
        session.add("user", f"Bob plays the {instrument}.")
    engine.namespace(tenant).knowledge.note("Bob plays in an orchestra.")
    request.instance.engine, request.instance.tenant = engine, tenant


@pytest.mark.usefixtures("memory")
class _OnEveryDatabase:
    engine: MemoryEngine
    tenant: str


class TestRetriever(_OnEveryDatabase, RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return TieredMemoryRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"engine": self.engine, "namespace": self.tenant}

    @property
    def retriever_query_example(self) -> str:
        return "What does Bob play?"


class _SearchTool(_OnEveryDatabase):
    @property
    def tool_constructor(self) -> BaseTool:
        return create_search_memory_tool(self.tenant, engine=self.engine)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "What does Bob play?", "limit": 2}


class TestSearchToolUnit(_SearchTool, ToolsUnitTests):
    pass


class TestSearchToolIntegration(_SearchTool, ToolsIntegrationTests):
    pass


class TestSearchToolWithArtifact(_SearchTool, ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return create_search_memory_tool(
            self.tenant, engine=self.engine, response_format="content_and_artifact"
        )


class TestSearchToolOfAStore(_SearchTool, ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return create_search_memory_tool("ada", store=InMemoryStore())


class _ManageTool(_OnEveryDatabase):
    @property
    def tool_constructor(self) -> BaseTool:
        return create_manage_memory_tool(self.tenant, engine=self.engine)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"content": "Bob plays the viola.", "action": "create"}


class TestManageToolUnit(_ManageTool, ToolsUnitTests):
    pass


class TestManageToolIntegration(_ManageTool, ToolsIntegrationTests):
    pass


class TestManageToolOfAStore(_ManageTool, ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return create_manage_memory_tool("ada", store=InMemoryStore())


class TestOfflineEmbeddingsUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return OfflineEmbeddings


class TestOfflineEmbeddingsIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return OfflineEmbeddings
