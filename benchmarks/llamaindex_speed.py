"""Benchmark of memory for a LlamaIndex agent: the time of ``aget`` with 10,000 messages stored.

The messages are in 500 earlier conversations, or in the current one. Each turn makes the calls of an agent with one
round of tools: put, get, get for the question, put the results, get. The baselines of the same run are recall
alone, and LlamaIndex's own buffer, which recalls nothing. The buffer gets only the newest 1,200 messages: it counts
the rest again for each message that it drops, so that 10,000 would take minutes.
Part of ``python -m benchmarks.speed``.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.memory import ChatMemoryBuffer
from llama_index_instrumentation import get_dispatcher

from benchmarks.recall_speed import fill, questions
from langmem_tiers import MemoryEngine
from langmem_tiers_llamaindex import MemoryRetrievedEvent, TieredMemory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from llama_index.core.instrumentation.events import BaseEvent

LIMIT_MS = 15.0
STORED, TURNS, WARM = 10_000, 30, 4
SHIPPED = 1_200
_USER, _TOKENS = "bench", 30_000


class _Recalls(BaseEventHandler):
    """Counts how often memory was asked."""

    views: int = 0
    recalls: int = 0

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "_Recalls"

    def handle(self, event: BaseEvent, **_: Any) -> None:  # noqa: ANN401 - the framework's signature
        """Count."""
        if isinstance(event, MemoryRetrievedEvent):
            self.views += 1
            self.recalls += not event.is_from_turn


def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Measure milliseconds per call."""
    stored = STORED // 10 if quick else STORED
    queries = questions(_USER, stored, seed=3)[:TURNS]
    across, within = folder / "across.db", folder / "within.db"
    fill(across, [_USER], stored)
    fill(within, [_USER], stored)
    with MemoryEngine(across) as engine:
        memory = TieredMemory(engine=engine, user_id=_USER, session_id="now", token_limit=_TOKENS)
        results = asyncio.run(_turns(memory, queries))
        recall = [_ms_of_recall(engine, question) for question in questions(_USER, stored, seed=7)]
    with MemoryEngine(within) as engine:
        memory = TieredMemory(engine=engine, user_id="other", session_id="long", token_limit=_TOKENS)
        conversation = _talk(engine)
        memory.put_messages(conversation)
        engine.namespace("other").embed()
        long = asyncio.run(_turns(memory, queries))
    buffer = asyncio.run(_measure_shipped_buffer(conversation, queries[0]))
    return {
        "stored": stored,
        "across": results,
        "within": long,
        "recall_p50": statistics.median(recall),
        "shipped_buffer": buffer,
        "limit": LIMIT_MS,
        "ok": max(results["p50"], long["p50"]) <= LIMIT_MS
        and results["recalls_per_turn"] == long["recalls_per_turn"] == 1,
    }


def show(results: dict[str, Any]) -> None:
    """Print the results."""
    for name, where in (("across", "in earlier conversations"), ("within", "in the same conversation")):
        timing = results[name]
        print(
            f"LlamaIndex aget: {timing['p50']:.1f} ms (p50; limit {results['limit']:.0f}), p95 {timing['p95']:.1f}, "
            f"with {results['stored']:,} messages {where}; again in the same turn {timing['again_p50']:.1f}; "
            f"{timing['recalls_per_turn']:.0f} recall for {timing['views_per_turn']:.0f} calls"
        )
    print(
        f"baselines: recall alone {results['recall_p50']:.1f} ms, LlamaIndex's own buffer with {SHIPPED:,} messages "
        f"{results['shipped_buffer']:.0f} ms"
    )


async def _turns(memory: TieredMemory, queries: Sequence[str]) -> dict[str, float]:
    counted, dispatcher = _Recalls(), get_dispatcher("langmem_tiers.llamaindex")
    first, again = list[float](), list[float]()
    await memory.aget(queries[0])  # tidies what was put in at once
    dispatcher.add_event_handler(counted)
    try:
        for turn, question in enumerate(queries):
            await memory.aput(ChatMessage(question))
            first.append(await _ms(memory))
            again.append(await _ms(memory, question))
            await memory.aput_messages(_make_tool_round(turn, question))
            again.append(await _ms(memory))
    finally:
        dispatcher.event_handlers.remove(counted)
    return {
        "p50": statistics.median(first[WARM:]),
        "p95": statistics.quantiles(first[WARM:], n=20)[-1],
        "again_p50": statistics.median(again[2 * WARM :]),
        "recalls_per_turn": counted.recalls / len(queries),
        "views_per_turn": counted.views / len(queries),
    }


async def _measure_shipped_buffer(conversation: list[ChatMessage], question: str) -> float:
    memory = ChatMemoryBuffer.from_defaults(chat_history=conversation[-SHIPPED:], token_limit=_TOKENS)
    await memory.aput(ChatMessage(question))
    return await _ms(memory)


async def _ms(memory: TieredMemory | ChatMemoryBuffer, question: str | None = None) -> float:
    start = time.perf_counter()
    await memory.aget(input=question)
    return (time.perf_counter() - start) * 1e3


def _make_tool_round(turn: int, question: str) -> list[ChatMessage]:
    call = ToolCallBlock(tool_call_id=f"c{turn}", tool_name="look_up", tool_kwargs={"what": question})
    return [
        ChatMessage(role="assistant", blocks=[call]),
        ChatMessage(role="tool", content="Nothing.", additional_kwargs={"tool_call_id": f"c{turn}"}),
        ChatMessage(role="assistant", content=f"It is not in the book: {question}"),
    ]


def _talk(engine: MemoryEngine) -> list[ChatMessage]:
    tenant, after, conversation = engine.namespace(_USER), None, list[ChatMessage]()
    while True:
        page = tenant.sessions(after=after, limit=100)
        for info in page.sessions:
            messages = tenant.session(info.name).messages()
            conversation += [
                ChatMessage(role=str(message.role), content=message.content) for message in messages
            ]
        after = page.next_after
        if after is None:
            return conversation


def _ms_of_recall(engine: MemoryEngine, question: str) -> float:
    start = time.perf_counter()
    engine.namespace(_USER).recall(question)
    return (time.perf_counter() - start) * 1e3
