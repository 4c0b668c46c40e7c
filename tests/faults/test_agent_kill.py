"""An agent task resumes after a kill as if nothing had happened."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import AgentMemory, MemoryEngine
from langmem_tiers.tasks import AdviceLevel
from tests.faults.agent_writer import HOME, STUCK, TASK, count_steps, do_step, work_until_killed
from tests.faults.killable_child import pause, start

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault

_ID = re.compile(r"\b0m[0-9a-z]{7}-[0-9a-f]{16}\b")


def is_blocked(memory: AgentMemory) -> bool:
    advice = memory.check_action(STUCK, f"{HOME}/stuck")
    return advice is not None and advice.level is AdviceLevel.BLOCK


def assert_same(found: AgentMemory, wanted: AgentMemory) -> None:
    assert [entry.thought for entry in found.short_term.entries] == [
        entry.thought for entry in wanted.short_term.entries
    ]
    assert found.working.current_goal == wanted.working.current_goal
    assert found.working.cycle_count == wanted.working.cycle_count
    assert found.working.scratch_keys == wanted.working.scratch_keys
    for key in wanted.working.scratch_keys:
        assert found.working.get_scratch(key) == wanted.working.get_scratch(key)
    assert found.working.get_navigation_history() == wanted.working.get_navigation_history()
    assert found.context_store.get_all() == wanted.context_store.get_all()
    assert found.visited_urls == wanted.visited_urls
    assert found.get_operation_mode() == wanted.get_operation_mode()
    assert found.guard.state() == wanted.guard.state()
    assert (found.advice, found.warnings()) == (wanted.advice, wanted.warnings())
    assert found.check_action(STUCK, f"{HOME}/stuck") == wanted.check_action(STUCK, f"{HOME}/stuck")
    assert found.get_task_summary() == wanted.get_task_summary()
    if wanted.sitemap is None:
        assert found.sitemap is None
    else:
        assert found.format_site_exploration_summary() == wanted.format_site_exploration_summary()
        assert found.get_next_page_to_visit() == wanted.get_next_page_to_visit()
    for limit in (None, 700, 60):
        prompt = found.format_for_prompt(max_tokens=limit)
        # Cycles are named by ids that are made by chance.
        assert _ID.sub("id", prompt) == _ID.sub("id", wanted.format_for_prompt(max_tokens=limit))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [pytest.param(5, marks=pytest.mark.smoke), 20])
def test_a_killed_task_resumes_with_every_acknowledged_step(tmp_path: Path, kills: int) -> None:
    chance, notes = random.Random(2025), tmp_path / "notes"
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    last = 0
    with MemoryEngine(url, embedder=None) as engine, AgentMemory(task=TASK) as never_killed:
        for kill in range(kills):
            dies_blocked = kill % 5 == 4  # the others die at a random point
            child = start(work_until_killed, (url, str(notes), dies_blocked), notes)
            if dies_blocked:
                child.join_killed()
            else:
                child.wait_for(last + chance.randint(1, 6))
                pause(chance)
                child.kill()
            acknowledged = int(child.list_acknowledged()[-1]) + 1
            done = count_steps(engine)
            assert last < acknowledged <= done <= acknowledged + 1
            for number in range(last, done):
                do_step(never_killed, number)
            last = done
            resumed = AgentMemory(engine=engine, task=TASK)
            assert_same(resumed, never_killed)
            assert is_blocked(resumed) or not dies_blocked
