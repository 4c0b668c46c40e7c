"""Building blocks of framework adapters, in addition to the names of ``langmem_tiers``; see ``docs/adapters.md``.

- Arguments: ``check_engine``, ``check_name``, ``check_namespace``, ``check_strategy``, ``check_whole``,
  ``resolve_namespace`` and ``to_token_budget`` check what users pass.
- Messages: ``ValueCodec`` stores any value without loss; ``tag``, ``to_json``, ``to_plain_value``,
  ``read_extra_tool_calls`` and ``describe_unstored`` convert parts of messages.
- Fences: ``wrap_in_fence`` marks recalled text as data, and ``strip_fences`` removes it before storage.
- Tokens: ``count_draft``, ``FRAME_TOKENS`` and ``REPLY_TOKENS`` count a prompt; ``IMAGE_TOKENS`` and others
  estimate media.
- Storing: ``get_retry_queue`` keeps messages that could not be stored (``STORE_ERRORS``); ``Listing`` and ``IN_LIST``
  select which messages of a list are current.
- Tools: ``EngineMemoryBackend`` searches and changes memories; ``render_memories`` and ``describe_tool_error``
  write results for a model.
- Tasks: ``resolve_task_source`` and ``TaskRegistry`` open task memories; ``format_advice`` and its neighbors write
  the guard's messages.
- Locks: ``LockRegistry`` serializes the turns of a conversation.
- Package: ``lazy_exports`` builds ``__getattr__`` and ``__dir__``; ``Assistants`` is what the demo runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.common.checks import check_whole
    from langmem_tiers.common.json_values import JsonValue, to_json, to_plain_value
    from langmem_tiers.common.message_adapter import read_extra_tool_calls
    from langmem_tiers.common.namespaces import NamespacePath, check_name, check_namespace, is_archived_name
    from langmem_tiers.common.prompt_fences import (
        FENCE_CLOSING,
        FENCE_OPENING,
        TASK_FENCE_OPENING,
        is_only_fenced,
        neutralize_fence_tags,
        strip_fences,
        wrap_in_fence,
    )
    from langmem_tiers.common.recall_strategy import check_strategy
    from langmem_tiers.integration_kit.argument_checks import (
        CHAT_LABEL,
        check_engine,
        resolve_namespace,
        to_token_budget,
    )
    from langmem_tiers.integration_kit.codecs import TAG_KEY, ValueCodec, describe_unstored, tag
    from langmem_tiers.integration_kit.demo import Assistant, Assistants, Reply, quote_answer
    from langmem_tiers.integration_kit.hit_metadata import build_hit_metadata
    from langmem_tiers.integration_kit.lock_registry import LockRegistry
    from langmem_tiers.integration_kit.memory_tools import (
        EngineMemoryBackend,
        MemoryBackend,
        MemoryChange,
        SearchRequest,
        build_unknown_memory_error,
    )
    from langmem_tiers.integration_kit.retry_queue import STORE_ERRORS, RetryQueue, get_retry_queue
    from langmem_tiers.integration_kit.task_registry import (
        TaskRegistry,
        check_agent_memory,
        resolve_task_source,
    )
    from langmem_tiers.integration_kit.tool_messages import (
        ANSWER_TOOL,
        ANSWER_TOOL_DESCRIPTION,
        BLOCK_LIFTED,
        BLOCK_NOT_LIFTED,
        NO_RESULT_TEXT,
        describe_tool_error,
        format_advice,
        format_stop_message,
        is_block,
        render_memories,
    )
    from langmem_tiers.items.models import Item, ItemChange, ItemHit, NamespaceMatch
    from langmem_tiers.knowledge.models import KnowledgeHit
    from langmem_tiers.recall.embedders.embedder_validation import CheckedEmbedder
    from langmem_tiers.recall.item_records import to_search_text
    from langmem_tiers.sessions.models import IN_LIST, Listing
    from langmem_tiers.sessions.transcript import Transcript
    from langmem_tiers.tasks.guard import GuardAdvice
    from langmem_tiers.text.token_counting import (
        AUDIO_TOKENS,
        FILE_TOKENS,
        FRAME_TOKENS,
        IMAGE_TOKENS,
        REPLY_TOKENS,
        SMALL_IMAGE_TOKENS,
        VIDEO_TOKENS,
        count_draft,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "..common.checks": "check_whole",
            "..common.json_values": "JsonValue to_json to_plain_value",
            "..common.message_adapter": "read_extra_tool_calls",
            "..common.namespaces": "NamespacePath check_name check_namespace is_archived_name",
            "..common.prompt_fences": (
                "FENCE_CLOSING FENCE_OPENING TASK_FENCE_OPENING is_only_fenced "
                "neutralize_fence_tags strip_fences wrap_in_fence"
            ),
            "..common.recall_strategy": "check_strategy",
            ".argument_checks": "CHAT_LABEL check_engine resolve_namespace to_token_budget",
            ".codecs": "TAG_KEY ValueCodec describe_unstored tag",
            ".demo": "Assistant Assistants Reply quote_answer",
            ".hit_metadata": "build_hit_metadata",
            ".lock_registry": "LockRegistry",
            ".memory_tools": (
                "EngineMemoryBackend MemoryBackend MemoryChange SearchRequest build_unknown_memory_error"
            ),
            ".retry_queue": "STORE_ERRORS RetryQueue get_retry_queue",
            ".task_registry": "TaskRegistry check_agent_memory resolve_task_source",
            ".tool_messages": (
                "ANSWER_TOOL ANSWER_TOOL_DESCRIPTION BLOCK_LIFTED BLOCK_NOT_LIFTED NO_RESULT_TEXT "
                "describe_tool_error format_advice format_stop_message is_block render_memories"
            ),
            "..items.models": "Item ItemChange ItemHit NamespaceMatch",
            "..knowledge.models": "KnowledgeHit",
            "..recall.embedders.embedder_validation": "CheckedEmbedder",
            "..sessions.models": "IN_LIST Listing",
            "..sessions.transcript": "Transcript",
            "..text.token_counting": (
                "AUDIO_TOKENS FILE_TOKENS FRAME_TOKENS IMAGE_TOKENS REPLY_TOKENS "
                "SMALL_IMAGE_TOKENS VIDEO_TOKENS count_draft"
            ),
            "..recall.item_records": "to_search_text",
            "..tasks.guard": "GuardAdvice",
        },
    )

__all__ = [
    "ANSWER_TOOL",
    "ANSWER_TOOL_DESCRIPTION",
    "AUDIO_TOKENS",
    "BLOCK_LIFTED",
    "BLOCK_NOT_LIFTED",
    "CHAT_LABEL",
    "FENCE_CLOSING",
    "FENCE_OPENING",
    "FILE_TOKENS",
    "FRAME_TOKENS",
    "IMAGE_TOKENS",
    "IN_LIST",
    "NO_RESULT_TEXT",
    "REPLY_TOKENS",
    "SMALL_IMAGE_TOKENS",
    "STORE_ERRORS",
    "TAG_KEY",
    "TASK_FENCE_OPENING",
    "VIDEO_TOKENS",
    "Assistant",
    "Assistants",
    "CheckedEmbedder",
    "EngineMemoryBackend",
    "GuardAdvice",
    "Item",
    "ItemChange",
    "ItemHit",
    "JsonValue",
    "KnowledgeHit",
    "Listing",
    "LockRegistry",
    "MemoryBackend",
    "MemoryChange",
    "NamespaceMatch",
    "NamespacePath",
    "Reply",
    "RetryQueue",
    "SearchRequest",
    "TaskRegistry",
    "Transcript",
    "ValueCodec",
    "build_hit_metadata",
    "build_unknown_memory_error",
    "check_agent_memory",
    "check_engine",
    "check_name",
    "check_namespace",
    "check_strategy",
    "check_whole",
    "count_draft",
    "describe_tool_error",
    "describe_unstored",
    "format_advice",
    "format_stop_message",
    "get_retry_queue",
    "is_archived_name",
    "is_block",
    "is_only_fenced",
    "lazy_exports",
    "neutralize_fence_tags",
    "quote_answer",
    "read_extra_tool_calls",
    "render_memories",
    "resolve_namespace",
    "resolve_task_source",
    "strip_fences",
    "tag",
    "to_json",
    "to_plain_value",
    "to_search_text",
    "to_token_budget",
    "wrap_in_fence",
]
