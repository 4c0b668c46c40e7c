"""Benchmark of the middleware: the time that it adds to a model call.

A user has 10,000 messages in 500 earlier threads. A thread of 30 turns continues, each with a tool call; the
model answers at once, so all time is the middleware's: writing back, recalling, laying out the prompt, and
writing the answer. Baseline of the same run: recall alone.
Part of ``python -m benchmarks.speed``.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.runtime import ExecutionInfo, Runtime

from benchmarks.recall_speed import fill, questions
from langmem_tiers import MemoryEngine
from langmem_tiers_langchain import TieredMemoryMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT_MS = 15.0
REMEMBERED, TURNS = 10_000, 30
_USER = "bench"


def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Measure milliseconds per call."""
    remembered = 1_000 if quick else REMEMBERED
    path = folder / "agent.db"
    fill(path, [_USER], remembered)
    with MemoryEngine(path) as engine:
        middleware, taken = TieredMemoryMiddleware(engine), list[float]()
        for request, answer in _calls(remembered):
            start = time.perf_counter()
            middleware.wrap_model_call(request, _build_handler(answer))
            taken.append((time.perf_counter() - start) * 1e3)
        if middleware.stats.failures:
            raise RuntimeError(f"memory failed: {middleware.stats.failures}")
        recall = [_ms_of_recall(engine, question) for question in questions(_USER, remembered, seed=7)]
    p50 = statistics.median(taken[4:])  # the first load the index and the model
    return {
        "remembered": remembered,
        "calls": len(taken),
        "p50": p50,
        "p95": statistics.quantiles(taken[4:], n=20)[-1],
        "recall_p50": statistics.median(recall),
        "limit": LIMIT_MS,
        "ok": p50 <= LIMIT_MS,
    }


def show(results: dict[str, Any]) -> None:
    """Print the results in one line."""
    print(
        f"middleware: {results['p50']:.1f} ms a model call (p50; limit {results['limit']:.0f}), "
        f"p95 {results['p95']:.1f}, with {results['remembered']:,} messages remembered; "
        f"recall alone {results['recall_p50']:.1f}"
    )


def _calls(remembered: int) -> Iterator[tuple[ModelRequest[Any], AIMessage]]:
    """Questions of the calls and answers of the model."""
    thread: list[BaseMessage] = []
    for turn, question in enumerate(questions(_USER, remembered, seed=3)[:TURNS]):
        call = {"name": "look_up", "args": {"what": question}, "id": f"c{turn}"}
        thread.append(HumanMessage(question, id=f"q{turn}"))
        asks = AIMessage("", id=f"a{turn}", tool_calls=[call])
        yield _request(thread), asks
        thread += [asks, ToolMessage(f"Nothing about {question}", tool_call_id=f"c{turn}", id=f"r{turn}")]
        answers = AIMessage(f"It is not in the book: {question}", id=f"e{turn}")
        yield _request(thread), answers
        thread.append(answers)


def _build_handler(answer: AIMessage) -> Callable[[ModelRequest[Any]], ModelResponse[Any]]:
    return lambda _: ModelResponse(result=[answer])


def _request(thread: list[BaseMessage]) -> ModelRequest[Any]:
    info = ExecutionInfo(checkpoint_id="", checkpoint_ns="", task_id="", thread_id="now")
    return ModelRequest(
        model=FakeListChatModel(responses=["fine"]),
        messages=list(thread),  # type: ignore[arg-type]
        state={"messages": list(thread)},  # type: ignore[arg-type]
        runtime=Runtime(context={"user_id": _USER}, execution_info=info),
    )


def _ms_of_recall(engine: MemoryEngine, question: str) -> float:
    start = time.perf_counter()
    engine.namespace(_USER).recall(question)
    return (time.perf_counter() - start) * 1e3
