"""Number of Hypothesis examples, by the suite that runs."""

from __future__ import annotations

from hypothesis import settings

FAST_EXAMPLES = 20
THOROUGH_EXAMPLES = 60


def examples(count: int, *, steps: int = 50) -> settings:
    """Return settings for `count` examples in `make test-all`, and a third of them in `make test`.

    Args:
        count: int, number of examples in the full suite.
        steps: int, number of steps of a state machine. Default: 50, as in Hypothesis.
    """
    share = settings().max_examples / THOROUGH_EXAMPLES
    return settings(max_examples=max(5, round(count * share)), stateful_step_count=steps)
