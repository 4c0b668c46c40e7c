"""A child process that works on a task until it is killed and reports acknowledged steps."""

from __future__ import annotations

import os
import signal

from langmem_tiers import AgentAction, AgentMemory, MemoryEngine
from langmem_tiers.tasks import NavigationSnapshot, OperationMode

TASK = "the shop"
HOME = "https://shop.example.com"
STUCK = AgentAction("click", {"selector": "#buy"})
PHASE = 30
"""Steps of going in circles, then as many that get somewhere."""


def count_steps(engine: MemoryEngine) -> int:
    """How many are on the disk: each leaves one record in one of the two sessions of a task."""
    return sum(engine.session("agent", name).info().message_count for name in (TASK, f"{TASK}: notes"))


def do_step(memory: AgentMemory, number: int) -> None:
    """The step of that number, always the same."""
    if number == 0:
        memory.start_task("Find what every lamp of the shop costs")
    elif number == 1:
        memory.context_store.set_user_context({"currency": "EUR", "lamp": "any"})
    elif number == 2:
        memory.init_sitemap_graph(HOME)
    elif number % (6 * PHASE) == 0:
        memory.new_turn()  # within one, only so many answers lift a block
    elif number // PHASE % 2 == 0:
        memory.record_cycle(f"try {number}", STUCK, "Nothing happened", "failure", url=f"{HOME}/stuck")
    elif number % PHASE == 0:
        if not memory.answer_guard(f"the page was loaded anew at step {number}"):
            raise AssertionError(f"there is no block at step {number}")
    else:
        _get_somewhere(memory, number)


def _get_somewhere(memory: AgentMemory, number: int) -> None:
    page = f"{HOME}/lamps/{number}"
    match number % 9:
        case 0:
            memory.record_cycle("go on", AgentAction("goto", {"url": page}), f"Lamp {number}")
        case 1:
            memory.record_cycle("read", AgentAction("extract_text", {"n": number}), f"It costs {number} EUR")
        case 2:
            long = f"Lamp {number} costs {number} EUR, see {page}/terms for more of it. " * 300
            memory.record_cycle("read all", AgentAction("get_page_content", {"n": number}), long)
        case 3:
            memory.working.set_scratch(f"price {number % 40}", {"lamp": number, "price": [number, None]})
        case 4:
            memory.add_inferred_context(f"lamp {number % 50}", number, source=page)
        case 5:
            memory.mark_url_visited(f"{page}#top")
        case 6:
            memory.add_sitemap_links(HOME, [{"url": page, "text": f"Lamp {number}"}, "/about"], "content")
        case 7:
            state = NavigationSnapshot(
                snapshot_id=f"s{number}", timestamp=number, url=page, page_title="Lamp"
            )
            memory.working.record_navigation(state)
        case _:
            memory.set_operation_mode(list(OperationMode)[number % len(OperationMode)])


def work_until_killed(url: str, acknowledged: str, dies_blocked: bool = False) -> None:  # noqa: FBT001, FBT002 - of a process
    """Go on with the task, noting the number of each step once it was done; to the next block if that is asked for."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    engine = MemoryEngine(url, embedder=None)
    memory = AgentMemory(engine=engine, task=TASK)
    number = count_steps(engine)
    while True:
        do_step(memory, number)
        os.write(notes, f"{number}\n".encode())
        if dies_blocked and number % (2 * PHASE) == PHASE - 5:
            os.kill(os.getpid(), signal.SIGKILL)
        number += 1
