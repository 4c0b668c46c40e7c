"""Loads the function that creates the two agents of the demo from an adapter, which is imported on demand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING

from langmem_tiers.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.integration_kit.demo_agents import Assistants

    AssistantFactory = Callable[[MemoryEngine, NamespacePath, int], Assistants]

_FACTORY_NAME = "make_assistants"


class Framework(StrEnum):
    """Frameworks whose agents the demo can run."""

    LANGCHAIN = "langchain"
    LLAMA_INDEX = "llama-index"


@dataclass(frozen=True, slots=True)
class _Adapter:
    module: str
    name: str
    required_packages: tuple[str, ...]


_ADAPTERS = {
    Framework.LANGCHAIN: _Adapter(
        "langmem_tiers_langchain.demo",
        "LangChain",
        ("langchain", "langchain_core", "langgraph", "langmem_tiers_langchain"),
    ),
    Framework.LLAMA_INDEX: _Adapter(
        "langmem_tiers_llamaindex.demo", "LlamaIndex", ("llama_index", "langmem_tiers_llamaindex")
    ),
}


def load_assistant_factory(framework: Framework = Framework.LANGCHAIN) -> AssistantFactory:
    """Return the function that creates the agents from an engine, a namespace and a token budget.

    Args:
        framework: Framework of the agents.

    Raises:
        MissingExtraError: The framework is not installed.
    """
    adapter = _ADAPTERS[framework]
    try:
        factory: AssistantFactory = getattr(import_module(adapter.module), _FACTORY_NAME)
    except ModuleNotFoundError as error:
        # Any other missing module is a defect, not a framework that is not installed.
        if (error.name or "").partition(".")[0] not in adapter.required_packages:
            raise
        raise MissingExtraError(
            f"the demo runs a {adapter.name} agent and needs {error.name!r}, which is not installed: "
            f"pip install 'langmem-tiers[{framework}]', or choose another framework with --framework "
            f"{next(other for other in Framework if other is not framework)}"
        ) from error
    return factory
