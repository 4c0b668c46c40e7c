"""A task goes on after a kill as if there had been none."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import AdviceLevel, AgentMemory, MemoryEngine
from tests.faults.agent_writer import HOME, STUCK, TASK, do_step, steps_done, work_until_killed
from tests.fork_server import fork_server

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 20
_ID = re.compile(r"\b0m[0-9a-z]{7}-[0-9a-f]{16}\b")


def is_blocked(memory: AgentMemory) -> bool:
    advice = memory.check_action(STUCK, f"{HOME}/stuck")
    return advice is not None and advice.level is AdviceLevel.BLOCK


def assert_same(found: AgentMemory, wanted: AgentMemory) -> None:
    assert [one.thought for one in found.short_term.entries] == [
        one.thought for one in wanted.short_term.entries
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
        told = found.format_for_prompt(max_tokens=limit)
        # Cycles are named by ids that are made by chance.
        assert _ID.sub("id", told) == _ID.sub("id", wanted.format_for_prompt(max_tokens=limit))


@pytest.mark.timeout(120)
def test_no_kill_in_the_middle_of_a_task_changes_what_it_knows(tmp_path: Path) -> None:
    context = fork_server()
    chance, notes = random.Random(2025), tmp_path / "notes"
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    last = 0
    with MemoryEngine(url, embedder=None) as engine, AgentMemory(task=TASK) as never_died:
        for kill in range(KILLS):
            dies_blocked = kill % 10 == 9  # the others at any moment
            child = context.Process(target=work_until_killed, args=(url, str(notes), dies_blocked))
            child.start()
            if not dies_blocked:
                time.sleep(
                    0.6 if kill == 0 else chance.random() * 0.25
                )  # the first one waits for the imports
                assert child.pid is not None
                os.kill(child.pid, signal.SIGKILL)
            child.join(30)
            assert child.exitcode == -signal.SIGKILL
            acknowledged = int(notes.read_text().split("\n")[-2]) + 1 if notes.exists() else 0
            done = steps_done(engine)
            assert acknowledged <= done <= max(acknowledged, last) + 1
            for number in range(last, done):
                do_step(never_died, number)
            last = done
            resumed = AgentMemory(engine=engine, task=TASK)
            assert_same(resumed, never_died)
            assert is_blocked(resumed) or not dies_blocked
        assert last > KILLS * 2  # or nothing was put to the test
