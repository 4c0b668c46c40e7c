"""Made-up messages of many tenants: repeatable, and each tells whose it is."""

from __future__ import annotations

import functools
import itertools
import random

PER_SESSION = 20
_COMMON, _WORDS = 150, 6_000


def tenant_name(number: int) -> str:
    """A tenant's namespace."""
    return f"tenant-{number}"


def get_tenant_word(tenant: int) -> str:
    """A word that only this tenant's messages hold."""
    return f"mark{tenant}x"


def make_text(tenant: int, number: int) -> str:
    """The message with that number of a tenant; twenty in a row share a topic."""
    rng = random.Random(f"{tenant} {number}")  # noqa: S311 - repeatable on purpose
    words = [*_choose_words(rng, rng.randint(6, 24)), *rng.sample(_topic(tenant, number // PER_SESSION), 4)]
    rng.shuffle(words)
    return f"{' '.join(words).capitalize()} {get_tenant_word(tenant)}."


def make_question(tenant: int, sessions: int, seed: int) -> str:
    """A question about the topic of one of a tenant's sessions."""
    rng = random.Random(f"question {tenant} {seed}")  # noqa: S311 - repeatable on purpose
    topic = _topic(tenant, rng.randrange(max(1, sessions)))
    return f"What did you say about the {' '.join([*rng.sample(topic, 3), *_choose_words(rng, 1)])}?"


@functools.lru_cache(maxsize=4096)
def _topic(tenant: int, session: int) -> list[str]:
    rng = random.Random(f"topic {tenant} {session}")  # noqa: S311 - repeatable on purpose
    return rng.sample(_vocabulary()[0][_COMMON:], 12)


def _choose_words(rng: random.Random, count: int) -> list[str]:
    words, weights = _vocabulary()
    return rng.choices(words, cum_weights=weights, k=count)


@functools.cache
def _vocabulary() -> tuple[list[str], list[float]]:
    rng = random.Random(3)  # noqa: S311 - repeatable on purpose
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    made = dict.fromkeys("".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(2 * _WORDS))
    words = list(made)[:_WORDS]
    return words, list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
