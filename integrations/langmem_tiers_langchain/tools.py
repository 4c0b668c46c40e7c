"""Tools with which an agent searches and manages memories."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from langchain_core.tools import StructuredTool, ToolException
from langgraph.config import get_store
from langgraph.store.base import InvalidNamespaceError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from langmem_tiers import InvalidConfigError, InvalidInputError, MemoryEngine
from langmem_tiers.integration_kit import (
    EngineMemoryBackend,
    MemoryChange,
    SearchRequest,
    build_unknown_memory_error,
    describe_tool_error,
    render_memories,
)
from langmem_tiers_langchain.namespaces import NamespaceTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langgraph.store.base import BaseStore, Item

    from langmem_tiers.integration_kit import MemoryBackend, NamespacePath


class StoreMemoryBackend:
    """Backend for memories that are items of a LangGraph store, as ``{"content": ...}``.

    Args:
        store: The store; None for the store of the running graph.
    """

    def __init__(self, store: BaseStore | None) -> None:
        self._store = store

    def search(self, namespace: NamespacePath, request: SearchRequest) -> list[dict[str, Any]]:
        """Return the items that match a query, in the order of the store."""
        found = self._require_store().search(
            namespace, query=request.query, limit=request.limit, offset=request.offset, filter=request.filter
        )
        return [_to_result(item, namespace) for item in found]

    async def asearch(self, namespace: NamespacePath, request: SearchRequest) -> list[dict[str, Any]]:
        """Run ``search`` with the store's async interface."""
        found = await self._require_store().asearch(
            namespace, query=request.query, limit=request.limit, offset=request.offset, filter=request.filter
        )
        return [_to_result(item, namespace) for item in found]

    def change(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Apply a change and return the id of the memory."""
        store, key = self._require_store(), change.id or str(uuid.uuid4())
        if change.id is not None and store.get(namespace, key) is None:
            raise build_unknown_memory_error(key)
        if change.action == "delete":
            store.delete(namespace, key)
        else:
            store.put(namespace, key, {"content": change.content})
        return key

    async def achange(self, namespace: NamespacePath, change: MemoryChange) -> str:
        """Run ``change`` with the store's async interface."""
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
        except (RuntimeError, KeyError):  # not inside a graph
            running = None
        if running is None:
            raise InvalidConfigError(
                "the memory tool has no store: pass engine= or store= to the tool, or compile the graph with a store"
            )
        return running


def _to_result(item: Item, namespace: NamespacePath) -> dict[str, Any]:
    value, fields = item.value, item.dict()
    shown = {name: fields[name] for name in ("created_at", "updated_at", "score") if name in fields}
    # The search also finds items of child namespaces. The tool cannot address those, so they are read-only.
    is_ours = tuple(item.namespace) == namespace
    return {
        "id": item.key,
        "content": value["content"] if set(value) == {"content"} else value,
        **({} if is_ours else {"namespace": list(item.namespace)}),
        **shown,
        "can_be_changed": is_ours,
    }


MemoryAction = Literal["create", "update", "delete"]
_ACTIONS: tuple[MemoryAction, ...] = get_args(MemoryAction)
_MAX_MEMORIES = 100  # maximum number of memories per search

SEARCH_INSTRUCTIONS = "Use it before you answer anything that may depend on an earlier conversation."
"""Default instructions of the search tool."""
MANAGE_INSTRUCTIONS = (
    "Use it proactively when you learn a preference of the user, when the user asks you to remember something, when "
    "your work reveals something that will matter later, and when a memory is wrong or outdated."
)
"""Default instructions of the manage tool."""


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
    """Create a tool that searches the memories of a namespace.

    The tool returns JSON, ``{"note": ..., "memories": [{"id": ..., "content": ...}, ...], "end": ...}``. It is
    fenced as data, so that memory does not store its own results as new messages. The model receives a failure
    as an error message, and the agent continues.

    Args:
        namespace: Labels; ``"{user_id}"`` is filled with the ``user_id`` of the run's configuration
            (``config["configurable"]``) or context.
        engine: Engine whose messages and knowledge are searched.
        store: LangGraph store to search, including child namespaces. If neither ``engine`` nor ``store`` is
            given, the store of the running graph is used.
        instructions: Part of the description that tells the model when to use the tool.
        name: Name of the tool.
        limit: Default number of memories, from 1 to 100; the model may request another number.
        response_format: ``"content_and_artifact"`` adds the memories as dicts.

    Raises:
        InvalidInputError: A setting is invalid.
    """
    memories, template = _choose_backend(engine, store), NamespaceTemplate(namespace)
    with_artifact = response_format == "content_and_artifact"

    def search(**arguments: Any) -> object:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            found = memories.search(template.fill(), SearchRequest(**arguments))
        return (render_memories(found), found) if with_artifact else render_memories(found)

    async def asearch(**arguments: Any) -> object:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            found = await memories.asearch(template.fill(), SearchRequest(**arguments))
        return (render_memories(found), found) if with_artifact else render_memories(found)

    return StructuredTool(
        name=name,
        description=f"Search memories from earlier conversations. {instructions}".strip(),
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
    """Create a tool that creates, updates and deletes memories of a namespace.

    With an engine, memories are notes of its knowledge: recall and contexts include them, and the history keeps
    updated and deleted versions. The model receives a failure as an error message, and the agent continues.

    Args:
        namespace: Labels; ``"{user_id}"`` is filled with the ``user_id`` of the run's configuration
            (``config["configurable"]``) or context.
        engine: Engine that stores the memories.
        store: LangGraph store that stores the memories. If neither ``engine`` nor ``store`` is given, the store
            of the running graph is used.
        instructions: Part of the description that tells the model when to use the tool.
        schema: Type of a memory: ``str``, or a pydantic model, which is stored as JSON.
        actions_permitted: Actions that the model may use. Default: all.
        name: Name of the tool.

    Raises:
        InvalidInputError: A setting is invalid.
    """
    memories, template = _choose_backend(engine, store), NamespaceTemplate(namespace)
    permitted = _check_actions(actions_permitted)

    def manage(**arguments: Any) -> str:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            change = _build_change(**arguments)
            return f"{change.action}d memory {memories.change(template.fill(), change)}"

    async def amanage(**arguments: Any) -> str:  # noqa: ANN401 - checked by the schema
        with _raise_tool_errors():
            change = _build_change(**arguments)
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
        raise InvalidConfigError("expected engine= or store= for a memory tool, got both: pass one of them")
    if not isinstance(engine, MemoryEngine):
        raise InvalidConfigError(
            f"engine must be a MemoryEngine, got a {type(engine).__name__}: open one with MemoryEngine(url)"
        )
    return EngineMemoryBackend(engine)


def _check_actions(actions: Sequence[MemoryAction]) -> tuple[MemoryAction, ...]:
    chosen = tuple(action for action in _ACTIONS if action in actions)
    if not chosen or isinstance(actions, str) or set(actions) - set(_ACTIONS):
        raise InvalidConfigError(
            f"actions_permitted must be a tuple of {', '.join(_ACTIONS)}, got {actions!r}: use for example ('create',)"
        )
    return chosen


def _build_search_arguments(limit: object, *, with_filter: bool) -> type[BaseModel]:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_MEMORIES:
        raise InvalidConfigError(
            f"expected a whole number from 1 to {_MAX_MEMORIES} for limit, got {limit!r}: use the offset for more"
        )
    fields: dict[str, Any] = {
        "query": (str, Field(description="A question or keywords.")),
        "limit": (int, Field(limit, ge=1, le=_MAX_MEMORIES, description="Maximum number of memories.")),
        "offset": (int, Field(0, ge=0, description="Number of best results to skip.")),
    }
    if with_filter:
        fields["filter"] = (
            dict[str, Any] | None,
            Field(None, description="Fields and values that must match exactly."),
        )
    arguments: type[BaseModel] = create_model(
        "search_memory", __config__=ConfigDict(extra="forbid"), **fields
    )
    return arguments


def _build_manage_arguments(schema: type[Any], permitted: tuple[MemoryAction, ...]) -> type[BaseModel]:
    # Each action has its own required arguments, so arguments of actions that are not permitted are left out.
    with_content = [action for action in permitted if action != "delete"]
    with_id = [action for action in permitted if action != "create"]
    fields: dict[str, Any] = {"action": (Literal[permitted], Field(permitted[0], description="The action."))}
    if with_content:
        fields["content"] = (
            schema | None,
            Field(None, description=f"The memory to {' or '.join(with_content)}."),
        )
    if with_id:
        description = f"The id, from a search, of the memory to {' or '.join(with_id)}."
        fields["id"] = (str | None, Field(None, description=description))
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
        raise InvalidInputError(f"a new memory gets its id automatically, got {id!r}: omit the id")
    if action != "create" and not id:
        raise InvalidInputError(
            f"the id is required to {action} a memory: search first and use the id of the memory"
        )
    plain = content.model_dump(mode="json") if isinstance(content, BaseModel) else content
    if action != "delete" and (plain is None or (isinstance(plain, str) and not plain.strip())):
        raise InvalidInputError(
            f"the content is required to {action} a memory, got {content!r}: pass the text to remember"
        )
    return MemoryChange(action=action, content=plain, id=id)


@contextmanager
def _raise_tool_errors() -> Iterator[None]:
    try:
        yield
    except InvalidNamespaceError as error:  # a usage error of LangGraph: its text is safe to show
        raise ToolException(str(error)) from error
    except Exception as error:
        raise ToolException(describe_tool_error(error)) from error


def _describe_validation_error(error: ValidationError | Any) -> str:  # noqa: ANN401 - the framework's type, of two pydantics
    problems = (f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
    return f"invalid arguments, nothing was changed: {'; '.join(problems)}"
