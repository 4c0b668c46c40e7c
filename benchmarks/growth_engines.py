"""Cases of `benchmarks.growth` on a whole engine, with SQLite in memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from benchmarks.growth_cases import CONSTANT, HOME, LINEAR, NOW, Case, repeat_to_size
from langmem_tiers import AgentAction, AgentMemory, MemoryEngine, MessageDraft
from langmem_tiers.long_term.models import EntryDraft, Relation
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.tasks import LearnedPattern, Observation
from langmem_tiers.testing import FrozenClock, HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


QUERY_UNITS = ("boat ", "x", "北", "7 May 2023 ", "last week ", "'\"", "\u0301", "?? ", "1.", "a-b_c/")
BLANKS = (" ", "\t", "\n", "- ", "[1] ")


@dataclass(frozen=True, slots=True)
class EngineWork:
    """An engine in memory and the work to measure on it."""

    engine: MemoryEngine
    work: Callable[[], object]

    def run(self) -> object:
        """Do the work."""
        return self.work()

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()


def _engine(clock: FrozenClock | None = None) -> MemoryEngine:
    return MemoryEngine(embedder=None, clock=clock or FrozenClock())


def _recall(unit: str, size: int) -> EngineWork:
    engine = MemoryEngine(embedder=HashEmbedder())
    engine.session("a", "s").add_many([MessageDraft("user", "the red boat"), MessageDraft("user", "at noon")])
    query = repeat_to_size(unit, size)
    return EngineWork(engine, lambda: engine.namespace("a").recall(query))


def chain(engine: MemoryEngine, count: int) -> list[str]:
    """Store entries of which each supersedes the previous one, and return their ids."""
    memory = engine.namespace("a").long_term
    drafts = [EntryDraft(content=f"Room {number} is blue.") for number in range(count)]
    receipts = memory.store_many(drafts, compared=True)
    ids = [receipt.entry.id for receipt in receipts if receipt.entry is not None]
    pairs = reversed(list(zip(ids[1:], ids, strict=False)))  # the newest first, so that no path is searched
    made = (Relation(source=newer, target=older, kind="supersedes", created_at=NOW) for newer, older in pairs)
    engine.services.long_term.store.commit(("a",), MemoryWrite(relate=tuple(made)), NOW)
    return ids


def _chain_history(count: int) -> EngineWork:
    engine = _engine()
    ids = chain(engine, count)
    return EngineWork(engine, lambda: engine.namespace("a").long_term.history(ids[count // 2]))


def _chain_top(count: int) -> EngineWork:
    clock = FrozenClock()
    engine = _engine(clock)
    memory = engine.namespace("a").long_term
    ids = chain(engine, count)
    last = memory.store("The deadline is March 31.").entry
    if last is not None:
        memory.relate(last.id, ids[-1], "supersedes")

    def change() -> None:
        for day in range(1, 6):
            clock.advance(timedelta(days=1))
            memory.store(f"The deadline is March {day}.")

    return EngineWork(engine, change)


def _learning(count: int) -> EngineWork:
    engine = _engine()
    memory = AgentMemory(engine=engine)
    for number in range(90):
        steps = ({"tool": "click", "selector": f"#p{number}"},)
        memory.learn_pattern(
            LearnedPattern(
                pattern_id=f"p{number}",
                domain="example.com",
                description=f"p{number}",
                pattern_type="navigation",
                steps=steps,
                success_count=1,
            )
        )
    for number in range(count):
        action = AgentAction("type", {"selector": f"#{number * number % 97}", "text": f"words {number}"})
        memory.record_cycle("", action, url=HOME)
    return EngineWork(engine, memory.learn_from_success)


def _recording(thought: str = "", seen: str | Observation = "x", value: object = "x") -> EngineWork:
    engine = _engine()
    memory = AgentMemory(engine=engine)
    action = AgentAction("extract_text", {"value": value})
    return EngineWork(engine, lambda: memory.record_cycle(thought, action, seen))


def _many_words(size: int) -> str:
    return repeat_to_size("so many words ", size, "begin ", " end")


LARGE_CYCLES: dict[str, Callable[[int], EngineWork]] = {
    "observation": lambda n: _recording(seen=_many_words(n)),
    "summary": lambda n: _recording(seen=Observation("x", _many_words(n))),
    "thought": lambda n: _recording(thought=_many_words(n)),
    "text parameter": lambda n: _recording(value=_many_words(n)),
}
"""Cycles of an agent with one large part."""


def _engine_case(
    name: str,
    detail: str,
    size: int,
    build: Callable[[int], EngineWork],
    unit: str = "characters",
    limit: float = LINEAR,
) -> Case[EngineWork]:
    return Case(name=name, detail=detail, size=size, build=build, call=EngineWork.run, unit=unit, limit=limit)


def engine_cases() -> Iterator[Case[Any]]:
    """Calls on an engine, with SQLite in memory."""
    for unit in QUERY_UNITS:
        yield _engine_case("recall_query", repr(unit), 2**18, lambda n, unit=unit: _recall(unit, n))  # type: ignore[misc] # bound now
    yield _engine_case("supersession", "history of a long chain", 250, _chain_history, unit="entries")
    yield _engine_case(
        "supersession", "5 new entries on a long chain", 250, _chain_top, unit="entries", limit=CONSTANT
    )
    yield _engine_case("learn_from_success", "full tiers", 250, _learning, unit="cycles")
    for detail, build in LARGE_CYCLES.items():
        yield _engine_case("record_cycle", detail, 2_500_000, build)
    for blank in BLANKS:
        yield _engine_case(
            "record_cycle",
            f"page with a run of {blank!r}",
            12_500,
            lambda n, blank=blank: _recording(  # type: ignore[misc] # bound now
                seen="Some ordinary words of a page. " * 600 + "\n" + blank * n + "end"
            ),
        )
    yield _engine_case(
        "record_cycle",
        "list parameter",
        250_000,
        lambda n: _recording(value=list(range(n))),
        unit="numbers",
    )
