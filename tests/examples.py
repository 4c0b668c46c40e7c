"""Number of Hypothesis examples, by the suite that runs."""

from __future__ import annotations

from hypothesis import settings

FAST_EXAMPLES = 20
THOROUGH_EXAMPLES = 60


def examples(count: int, **others: int) -> settings:
    """Return settings for `count` examples in `make test-all`, and a third of them in `make test`."""
    share = settings.default.max_examples / THOROUGH_EXAMPLES
    return settings(max_examples=max(5, round(count * share)), **others)
