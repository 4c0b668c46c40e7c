"""Tools with which an agent searches and manages its memories."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from langchain_core.tools import StructuredTool, ToolException
from langgraph.config import get_store
from langgraph.store.base import InvalidNamespaceError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidConfigError, InvalidInputError
from langmem_tiers.integration_kit.memory_tools import (
    EngineMemoryBackend,
    MemoryChange,
    SearchRequest,
    build_unknown_memory_error,
)
from langmem_tiers.integration_kit.tool_messages import describe_tool_error, render_memories
from langmem_tiers_langchain.namespaces import NamespaceTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langgraph.store.base import BaseStore, Item

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.integration_kit.memory_tools import MemoryBackend


class StoreMemoryBackend:
    """The items of a LangGraph store, as ``{"content": ...}``.

    Args:
        store: The store; that of the graph that runs, if left out.
    """

    def __init__(self, store: BaseStore | None) -> None:
        self._store = store

    def search(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """What answers a query, in the store's own order."""
        found = self._require_store().search(
            namespace, query=wish.query, limit=wish.limit, offset=wish.offset, filter=wish.filter
        )
        return [_to_result(item, namespace) for item in found]

    async def asearch(self, namespace: NamespacePath, wish: SearchRequest) -> list[dict[str, Any]]:
        """The same without blocking."""
        found = await self._require_store().asearch(
            namespace, query=wish.query, limit=wish.limit, offset=wish.offset, filter=wish.filter
        )
        return [_to_result(item, namespace) for item in found]

    def change(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Carry a change out; the id of the memory."""
        store, key = self._require_store(), change.id or str(uuid.uuid4())
        if change.id is not None and store.get(namespace, key) is None:
            raise build_unknown_memory_error(key)
        if change.action == "delete":
            store.delete(namespace, key)
        else:
            store.put(namespace, key, {"content": change.content})
        return key

    async def achange(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """The same without blocking."""
        store, key = self._require_store(), change.id or str(uuid.uuid4())
        if change.id is not None and await store.aget(namespace, key) is None:
            raise build_unknown_memory_error(key)
        if change.action == "delete":
            await store.adelete(namespace, key)
        else:
            await store.aput(namespace, key, {"content": change.content})
        return key

    def _require_store(self) -> BaseStore:
        if self._store is not None:
            return self._store
        try:
            running: BaseStore | None = get_store()
        except (RuntimeError, KeyError):  # outside of a graph
            running = None
        if running is None:
            raise InvalidConfigError(
                "the memory tool has no store: pass engine= or store= to it, or a store to the graph"
            )
        return running


def _to_result(item: Item, namespace: NamespacePath) -> dict[str, Any]:
    value, there = item.value, item.dict()
    told = {name: there[name] for name in ("created_at", "updated_at", "score") if name in there}
    is_ours = tuple(item.namespace) == namespace
    return {
        "id": item.key,
        "content": value["content"] if set(value) == {"content"} else value,
        **({} if is_ours else {"namespace": list(item.namespace)}),
        **told,
        "can_be_changed": is_ours,
    }


MemoryAction = Literal["create", "update", "delete"]
_ACTIONS: tuple[MemoryAction, ...] = get_args(MemoryAction)
_MAX_MEMORIES = 100  # memories that a model may ask for at once

SEARCH_INSTRUCTIONS = "Use it before you answer whatever may depend on an earlier conversation."
"""The default instructions of the search tool."""
MANAGE_INSTRUCTIONS = (
    "Use it without being asked when you learn what the user prefers, when the user asks you to remember "
    "something, when your work brought up what will matter later, and when a memory is wrong or out of date."
)
"""The default instructions of the manage tool."""


def create_search_memory_tool(
    namespace: str | Iterable[str],
    *,
    engine: MemoryEngine | None = None,
    store: BaseStore | None = None,
    instructions: str = SEARCH_INSTRUCTIONS,
    name: str = "search_memory",
    limit: int = 10,
    response_format: Literal["content", "content_and_artifact"] = "content",
) -> StructuredTool:
    """A tool that searches the memories of a namespace.

    It answers JSON, ``{"note": ..., "memories": [{"id": ..., "content": ...}, ...], "end": ...}``, fenced
    as data: what memory tells an agent is never stored as something new. A failure is told to the
    model as an error; the agent goes on.

    Args:
        namespace: Labels; ``"{user_id}"`` is filled with the ``user_id`` of the run's configuration
            (``config["configurable"]``) or context.
        engine: Searches the messages and the knowledge of an engine.
        store: Searches a LangGraph store, which looks into namespaces that begin with these labels as well.
            With neither, that of the graph that runs.
        instructions: Tells the model when to use the tool.
        name: The tool's name.
        limit: How many memories come if the model does not say.
        response_format: ``"content_and_artifact"`` adds the memories as dicts.

    Raises:
        InvalidInputError: A setting makes no sense.
    """
    memories, template = _choose_backend(engine, store), NamespaceTemplate(namespace)
    with_artifact = response_format == "content_and_artifact"

    def search(**asked: Any) -> object:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            found = memories.search(template.fill(), SearchRequest(**asked))
        return (render_memories(found), found) if with_artifact else render_memories(found)

    async def asearch(**asked: Any) -> object:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            found = await memories.asearch(template.fill(), SearchRequest(**asked))
        return (render_memories(found), found) if with_artifact else render_memories(found)

    return StructuredTool(
        name=name,
        description=f"Search what is remembered from earlier conversations. {instructions}".strip(),
        args_schema=_build_search_arguments(limit, with_filter=engine is None),
        func=search,
        coroutine=asearch,
        response_format=response_format,
        handle_tool_error=True,
        handle_validation_error=_describe_validation_error,
    )


def create_manage_memory_tool(
    namespace: str | Iterable[str],
    *,
    engine: MemoryEngine | None = None,
    store: BaseStore | None = None,
    instructions: str = MANAGE_INSTRUCTIONS,
    schema: type[Any] = str,
    actions_permitted: Sequence[MemoryAction] = _ACTIONS,
    name: str = "manage_memory",
) -> StructuredTool:
    """A tool that creates, updates and deletes memories of a namespace.

    With an engine memories are notes among its knowledge: recall and contexts find them, and what was
    updated or deleted stays in its history. A failure is told to the model as an error; the agent
    goes on.

    Args:
        namespace: Labels; ``"{user_id}"`` is filled with the ``user_id`` of the run's configuration
            (``config["configurable"]``) or context.
        engine: Keeps the memories in an engine.
        store: Keeps them in a LangGraph store. With neither, in that of the graph that runs.
        instructions: Tells the model when to use the tool.
        schema: What a memory is: text, or a pydantic model, which is kept as JSON.
        actions_permitted: What the model may do.
        name: The tool's name.

    Raises:
        InvalidInputError: A setting makes no sense.
    """
    memories, template = _choose_backend(engine, store), NamespaceTemplate(namespace)
    permitted = _check_actions(actions_permitted)

    def manage(**asked: Any) -> str:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            change = _build_change(**asked)
            return f"{change.action}d memory {memories.change(template.fill(), change)}"

    async def amanage(**asked: Any) -> str:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            change = _build_change(**asked)
            return f"{change.action}d memory {await memories.achange(template.fill(), change)}"

    verbs = " or ".join(permitted)
    return StructuredTool(
        name=name,
        description=f"{verbs.capitalize()} a memory that later conversations can use. {instructions}".strip(),
        args_schema=_build_manage_arguments(schema, permitted),
        func=manage,
        coroutine=amanage,
        handle_tool_error=True,
        handle_validation_error=_describe_validation_error,
    )


def _choose_backend(engine: object, store: BaseStore | None) -> MemoryBackend:
    if engine is None:
        return StoreMemoryBackend(store)
    if store is not None:
        raise InvalidConfigError("a memory tool has one place for memories: pass engine= or store=, not both")
    if not isinstance(engine, MemoryEngine):
        raise InvalidConfigError(
            f"engine must be a MemoryEngine, got a {type(engine).__name__}: open one with MemoryEngine(url)"
        )
    return EngineMemoryBackend(engine)


def _check_actions(actions: Sequence[MemoryAction]) -> tuple[MemoryAction, ...]:
    chosen = tuple(action for action in _ACTIONS if action in actions)
    if not chosen or isinstance(actions, str) or set(actions) - set(_ACTIONS):
        raise InvalidConfigError(
            f"actions_permitted must name some of {', '.join(_ACTIONS)}, got {actions!r}: use e.g. ('create',)"
        )
    return chosen


def _build_search_arguments(limit: object, *, with_filter: bool) -> type[BaseModel]:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_MEMORIES:
        raise InvalidConfigError(f"limit must be a whole number from 1 to {_MAX_MEMORIES}, got {limit!r}")
    fields: dict[str, Any] = {
        "query": (str, Field(description="A question or words.")),
        "limit": (int, Field(limit, ge=1, le=_MAX_MEMORIES, description="How many memories at most.")),
        "offset": (int, Field(0, ge=0, description="How many of the best to pass over.")),
    }
    if with_filter:
        fields["filter"] = (dict[str, Any] | None, Field(None, description="Values that must be the same."))
    arguments: type[BaseModel] = create_model(
        "search_memory", __config__=ConfigDict(extra="forbid"), **fields
    )
    return arguments


def _build_manage_arguments(schema: type[Any], permitted: tuple[MemoryAction, ...]) -> type[BaseModel]:
    says, names = [one for one in permitted if one != "delete"], [one for one in permitted if one != "create"]
    fields: dict[str, Any] = {"action": (Literal[permitted], Field(permitted[0], description="What to do."))}
    if says:
        fields["content"] = (
            schema | None,
            Field(None, description=f"The memory, to {' or '.join(says)} it."),
        )
    if names:
        told = f"Of the memory to {' or '.join(names)}, as a search gave it."
        fields["id"] = (str | None, Field(None, description=told))
    arguments: type[BaseModel] = create_model(
        "manage_memory", __config__=ConfigDict(extra="forbid"), **fields
    )
    return arguments


def _build_change(
    content: object = None,
    action: MemoryAction = "create",
    id: str | None = None,  # noqa: A002 - the argument name that models see
) -> MemoryChange:
    if action == "create" and id is not None:
        raise InvalidInputError(f"a new memory gets its id by itself, got {id!r}: leave the id out")
    if action != "create" and not id:
        raise InvalidInputError(
            f"to {action} a memory its id is needed: search first and use the id of the memory"
        )
    plain = content.model_dump(mode="json") if isinstance(content, BaseModel) else content
    if action != "delete" and (plain is None or (isinstance(plain, str) and not plain.strip())):
        raise InvalidInputError(
            f"to {action} a memory its content is needed, got {content!r}: say what to remember"
        )
    return MemoryChange(action=action, content=plain, id=id)


@contextmanager
def _raise_tool_errors() -> Iterator[None]:
    try:
        yield
    except InvalidNamespaceError as error:
        raise ToolException(str(error)) from error
    except Exception as error:
        raise ToolException(describe_tool_error(error)) from error


def _describe_validation_error(error: ValidationError | Any) -> str:  # noqa: ANN401 - the framework's type, of two pydantics
    problems = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return f"the tool was called wrongly, nothing was done: {'; '.join(problems)}"
