"""The two agents that the demo asks. They are made by an adapter, which is loaded when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from langmem_tiers.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine

    AssistantFactory = Callable[[MemoryEngine, NamespacePath, int], "Assistants"]

_FACTORY_NAME = "make_assistants"


class Framework(StrEnum):
    """Whose agents can be asked."""

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


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent answered, and from what."""

    text: str
    prompt: str
    """All that the model was shown."""
    prompt_tokens: int
    """As the model reports them."""


class Assistant(Protocol):
    """An agent of a framework."""

    def ask(self, question: str, thread: str) -> Reply:
        """Ask it something in a thread."""


@dataclass(frozen=True, slots=True)
class Assistants:
    """The same agent twice, with the same model and the same threads behind it."""

    without_memory: Assistant
    with_memory: Assistant


def load_assistant_factory(framework: Framework = Framework.LANGCHAIN) -> AssistantFactory:
    """The function that makes the agents from an engine, a namespace and the tokens of a prompt.

    Args:
        framework: Whose agents.

    Raises:
        MissingExtraError: The framework is not installed.
    """
    adapter = _ADAPTERS[framework]
    try:
        maker: AssistantFactory = getattr(import_module(adapter.module), _FACTORY_NAME)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in adapter.required_packages:
            raise
        raise MissingExtraError(
            f"the demo runs a {adapter.name} agent and needs {error.name!r}, which is not installed: "
            f"pip install 'langmem-tiers[{framework}]', or ask another with --framework "
            f"{next(other for other in Framework if other is not framework)}"
        ) from error
    return maker
