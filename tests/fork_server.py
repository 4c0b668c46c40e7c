"""Fast child processes for tests: a server imports all modules once, and each child is forked from it.

Python has one such server per process and passes it the list of imports once, when it starts. So there is one list for
all tests: with a list per test, the children of all but the first test would import everything again.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

_PRELOADED = (
    "cronsim",
    "langmem_tiers.recall.item_ranking",
    "psycopg",
    "pytest",  # without xdist it is the main module, which each child imports
    "snowballstemmer",
    "sqlalchemy.dialects.postgresql",
    "tests.backup.child_processes",
    "tests.faults.agent_writer",
    "tests.faults.batch_writer",
    "tests.faults.context_writer",
    "tests.faults.erasure_processes",
    "tests.faults.list_writers",
    "tests.faults.memory_writers",
    "tests.faults.pool_writers",
    "tests.faults.engine_starter",
    "tests.faults.thread_writers",
    "tests.faults.message_writer",
    "tests.facts.learning_processes",
    "tests.integrations.store_writer",
)


def fork_server() -> ForkServerContext:
    """Return the context that creates processes; each child opens its own database."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    return context
