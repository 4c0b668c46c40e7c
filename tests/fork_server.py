"""Child processes for tests, made quickly: a server imports what they need once, and each is forked from it.

Python has one such server for a process and tells it what to import once, when it starts. So there is one list for all
tests: with lists of their own, all but the first would import everything in each child anew.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

_PRELOADED = (
    "langmem_tiers.retrieval.item_ranking",
    "psycopg",
    "sqlalchemy.dialects.postgresql",
    "tests.backups.children",
    "tests.faults.agent_writer",
    "tests.faults.batch_writer",
    "tests.faults.context_writer",
    "tests.faults.forgetters",
    "tests.faults.list_writers",
    "tests.faults.memory_writers",
    "tests.faults.pool_writers",
    "tests.faults.starters",
    "tests.faults.writer",
    "tests.flows.learners",
    "tests.integrations.store_writer",
)


def fork_server() -> ForkServerContext:
    """What makes the processes; each opens its database anew."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    return context
