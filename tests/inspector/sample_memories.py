"""Sample memories of the inspector tests: a project, hostile texts, and a long session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers import AgentAction, AgentMemory, ExecutionOutcome, KnowledgeCategory, MessageDraft
from langmem_tiers.cli.demo.conversation import load_chapters

if TYPE_CHECKING:
    from langmem_tiers import MemoryEngine

STORY = ("tidepool", "mara")
HOSTILE = ("hostile", "<img src=x onerror=alert(1)>")
FORGETTABLE = ("forgettable",)
LONG = ("long",)
UNTOUCHED = ("untouched",)
HOSTILE_SESSION = "<b>a/b</b>?x=1&y=2#z"
SCRIPT = "<script>window.ran = true; alert('ran')</script><img src=x onerror='window.ran = true'>"
RIGHT_TO_LEFT = "שלום עולם, this is \u202eevil\u202c text"
OVERRIDING = "\u202ekcab"
LONG_NAME = "n" * 1_000
LONG_SESSION = "a line"
LONG_LINE = "x" * 1_000_000
LONG_VALUE = "y" * 5_000
LONG_TASK, LONG_THOUGHT, LONG_RESULT = "a long step", "t" * 5_000, "r" * 15_000


def fill(engine: MemoryEngine) -> None:
    """Fill a memory with all samples."""
    _fill_story(engine)
    _fill_hostile(engine)
    for number in (1, 2):
        forgettable = engine.session(FORGETTABLE, f"session {number}")
        forgettable.add_many([MessageDraft("user", f"remark {n} of session {number}") for n in range(3)])
    for name in ("left False", "left True", "kept"):
        engine.session(UNTOUCHED, name).add_many([MessageDraft("user", f"remark {n}") for n in range(2)])
    long = engine.session(LONG, "all")
    long.add_many([MessageDraft("user", f"remark number {n}") for n in range(3_000)])


def _fill_story(engine: MemoryEngine) -> None:
    tenant = engine.namespace(*STORY)
    for chapter in load_chapters():
        tenant.session(chapter.session).add_many(chapter.messages)
        engine.optimizer.run(STORY)
    tenant.knowledge.store(KnowledgeCategory.DOMAIN, "payment provider", "Fjordpay", confidence=0.9)
    tenant.knowledge.store(KnowledgeCategory.USER_PREFERENCE, "spelling", "British", confidence=0.45)
    record_loop(AgentMemory(engine=engine, namespace=STORY, task="ferry"))


def record_loop(memory: AgentMemory) -> None:
    """Record a task of an agent that is stuck in a loop."""
    memory.start_task("Find the cheapest ferry to Smögen", task="ferry")
    memory.record_cycle("Start", AgentAction("goto", {"url": "https://ferry.example"}), "Timetable of 2025")
    click = AgentAction("click", {"selector": "#search"})
    for _ in range(5):
        memory.record_cycle("Search", click, "Nothing happened", ExecutionOutcome.FAILURE)


def _fill_hostile(engine: MemoryEngine) -> None:
    session = engine.session(HOSTILE, HOSTILE_SESSION)
    session.add_many(
        [
            MessageDraft("user", SCRIPT, id="script", name='"><script>window.ran = true</script>'),
            MessageDraft("user", RIGHT_TO_LEFT, id="right-to-left"),
            MessageDraft("user", "", id="empty"),
            MessageDraft("user", "backwards", id="backwards", name=OVERRIDING),
        ]
    )
    engine.session(HOSTILE, LONG_NAME).add("user", "A long name.")
    engine.session(HOSTILE, LONG_SESSION).add("assistant", LONG_LINE)
    engine.namespace(*HOSTILE).knowledge.store("<i>kind</i>", SCRIPT, SCRIPT)
    engine.namespace(*HOSTILE).knowledge.store("domain", "long", LONG_VALUE)
    with AgentMemory(engine=engine, namespace=HOSTILE, task=LONG_TASK) as agent:
        agent.record_cycle(LONG_THOUGHT, AgentAction("look"), LONG_RESULT)
