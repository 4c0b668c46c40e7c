"""Made-up runs of agents, half of them loops, for `benchmarks.loops`. They are synthetic: no person labelled them.

Each maker in `loop_runs_held_out` and `loop_runs_tuned` writes one sort of run. Those held out were written
first; weights were tuned on the others, which are of other sites and written in other forms.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from langmem_tiers.tasks.loop_detection.detector import Step

Move = tuple[str, str, str]
"""An action, the address, and the name of what the page shows."""
Maker = Callable[[random.Random], list[Move]]
SEEN = ("all", "url", "action")
"""Information about each step: page and URL, the URL, or only the action."""
_FRAME = [f"part {part} of every page" for part in "abcdefghijklmnopqrst"]


@dataclass(frozen=True, slots=True)
class LabeledRun:
    """A run, and whether it loops."""

    name: str
    steps: tuple[Step, ...]
    loops: bool


def made_up_runs(makers: list[tuple[Maker, bool]], seed: int) -> Iterator[LabeledRun]:
    """Each maker's run three times: with pages and addresses, with addresses, with the actions alone."""
    for maker, loops in makers:
        for seen in SEEN:
            chance = random.Random(f"{seed} {maker.__name__} {seen}")  # noqa: S311 - chance, not secrets
            steps = tuple(_step(move, seen, at) for at, move in enumerate(maker(chance)))
            yield LabeledRun(f"{maker.__name__}/{seen}", steps, loops)


def _step(move: Move, seen: str, at: int) -> Step:
    action, url, page = move
    failed = page.startswith("error")
    return Step.of(
        action,
        url="" if seen == "action" else url,
        observation=_page(page, at) if seen == "all" and page else "",
        failed=failed and seen == "all",
    )


def _page(name: str, at: int) -> str:
    """A page of a few dozen lines, half of them the site's own, whose elements get new numbers each time."""
    words = random.Random(name)  # noqa: S311 - chance, not secrets
    own = [f"{name} {words.randint(0, 10**6):x}" for _ in range(20)]
    return "\n".join(f"[{at * 40 + line}] link '{text}'" for line, text in enumerate([*_FRAME, *own]))
