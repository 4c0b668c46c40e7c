"""How the optimizer moves its parameters: by how far usage is from its target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langmem_tiers.core.tuning import TuningParameters

LEARNING_RATE = 0.05
OVER_BY = 0.10
UNDER_BY = 0.15
SMALL_SAVINGS = 0.05
WORSE_BY = 0.02
"""How much further from its target usage must be for a change to count as worse."""


def adapt(parameters: TuningParameters, usage: float, savings: float) -> tuple[TuningParameters, str]:
    """The next parameters, within their ranges, and why.

    Args:
        parameters: The present ones.
        usage: Tokens in use before the run, as a share of the budget.
        savings: What the run saved, as a share of the tokens before it.
    """
    trigger, window = parameters.compression_trigger, parameters.full_message_window
    relevance, target = parameters.min_relevance, parameters.target_usage
    reasons = []
    if usage > target + OVER_BY + 1e-9:
        trigger -= LEARNING_RATE
        window -= 2
        relevance += LEARNING_RATE
        reasons.append(f"usage {usage:.2f} is over {target + OVER_BY:.2f}")
    elif usage < target - UNDER_BY - 1e-9:
        trigger += LEARNING_RATE * 0.5
        window += 1
        relevance -= LEARNING_RATE * 0.5
        reasons.append(f"usage {usage:.2f} is under {target - UNDER_BY:.2f}")
    if savings < SMALL_SAVINGS and usage > target + 1e-9:
        trigger -= LEARNING_RATE * 2
        relevance += LEARNING_RATE * 2
        reasons.append(f"only {savings:.0%} were saved at usage {usage:.2f}")
    moved = replace(
        parameters, compression_trigger=trigger, full_message_window=window, min_relevance=relevance
    )
    return moved.clamped() if reasons else parameters, "; ".join(reasons) or "usage is near its target"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where parameters lead a session."""

    usage: float
    key_facts: int
    """Entries with key facts that stay in the context."""


def why_worse(now: Outcome, before: Outcome, target: float) -> str | None:
    """Why the parameters of now are worse for the same session than those before; None if they are not."""
    distance, former = abs(now.usage - target), abs(before.usage - target)
    if distance > former + WORSE_BY:
        return f"usage would be {now.usage:.2f}, before the change {before.usage:.2f}, the target is {target:.2f}"
    if now.key_facts < before.key_facts and before.usage <= target + OVER_BY:
        lost = before.key_facts - now.key_facts
        return f"{lost} entries with key facts would leave the context without need"
    return None
