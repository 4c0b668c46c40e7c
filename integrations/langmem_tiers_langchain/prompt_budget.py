"""Token budget of a prompt: the model's window minus system prompt and tools, in tokens of the model."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from langmem_tiers import BudgetExceededError, InvalidConfigError, TokenBudget
from langmem_tiers.integration_kit import FRAME_TOKENS, count_draft
from langmem_tiers_langchain.convert import to_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain.agents.middleware.types import ModelRequest
    from langchain_core.messages import BaseMessage

    from langmem_tiers import TokenCounter

_MIN_RATIO, _MAX_RATIO = 0.5, 3.0
"""Limits of the calibration ratio. A ratio outside these limits is a reporting error."""
_NEWEST_WEIGHT = 0.3
"""Weight of the newest report in the moving average."""
_MIN_REPORT_TOKENS = 200
"""Minimum size of a prompt for calibration; in shorter prompts fixed overhead dominates."""


@dataclass(frozen=True, slots=True)
class PromptAllowance:
    """Token budget of one model call, in tokens of the engine's counter."""

    base: TokenBudget
    total_tokens: int
    """Maximum number of tokens of the prompt."""
    system_tokens: int
    tool_tokens: int

    def conversation_budget(self, extra: int) -> TokenBudget:
        """Return the budget of the conversation after ``extra`` tokens are reserved."""
        fixed = self.system_tokens + self.tool_tokens + extra
        if fixed >= self.total_tokens:
            raise BudgetExceededError(
                f"the system prompt ({self.system_tokens} tokens), the tools ({self.tool_tokens}) and required "
                f"messages ({extra}) exceed the budget of {self.total_tokens} tokens: raise the budget or use "
                "fewer tools"
            )
        return self.base.resized(self.total_tokens - fixed)


class TokenCalibration:
    """Ratio of a model's token count to the engine's, learned from reported usage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ratios: dict[str, float] = {}

    def get_ratio(self, model: object) -> float:
        """Return the ratio of a model; 1.0 before its first report."""
        return self._ratios.get(_get_model_name(model), 1.0)

    def learn(self, model: object, counted: int, reported_tokens: int) -> None:
        """Update the ratio of a model.

        Args:
            model: Model that reported its usage.
            counted: Tokens of the prompt by the engine's counter.
            reported_tokens: Tokens of the prompt reported by the model.
        """
        if counted < _MIN_REPORT_TOKENS or reported_tokens <= 0:
            return
        ratio = min(_MAX_RATIO, max(_MIN_RATIO, reported_tokens / counted))
        with self._lock:
            known = self._ratios.get(_get_model_name(model))
            self._ratios[_get_model_name(model)] = (
                ratio if known is None else (1 - _NEWEST_WEIGHT) * known + _NEWEST_WEIGHT * ratio
            )


class PromptBudgeter:
    """Computes the token budget of model calls.

    Args:
        given: Budget set by the user, as a TokenBudget or as the tokens of a whole prompt. None uses the
            profile of the model, or ``default`` if the model has no profile.
        default: The engine's budget.
        counter: Token counter of the engine.
    """

    def __init__(self, budget: TokenBudget | int | None, default: TokenBudget, counter: TokenCounter) -> None:
        if (
            budget is not None
            and not isinstance(budget, TokenBudget)
            and (type(budget) is not int or budget < 1)
        ):
            raise InvalidConfigError(
                f"budget must be a TokenBudget or a number of tokens from 1, got {budget!r}: "
                "use TokenBudget.of(8000)"
            )
        self._requested = budget
        self._default = default
        self._counter = counter
        self._cached_tool_tokens: tuple[list[Any], int] = ([], 0)

    def compute_allowance(self, request: ModelRequest[Any], ratio: float) -> PromptAllowance:
        """Return the budget of a call, given the calibration ratio of the model."""
        base = self._find_base_budget(request.model)
        whole = base.context_tokens - base.response_tokens - base.working_tokens
        return PromptAllowance(
            base=base,
            total_tokens=max(1, int(whole / ratio)),
            system_tokens=0 if request.system_message is None else self.count_tokens(request.system_message),
            tool_tokens=self._count_tool_tokens(
                [*request.tools, *_list_answer_schemas(request.response_format)]
            ),
        )

    def count_tokens(self, message: BaseMessage) -> int:
        """Return the tokens of a message in a prompt."""
        draft = to_draft(message, self._counter)
        tokens = count_draft(self._counter, draft) if draft.token_count is None else draft.token_count
        return tokens + FRAME_TOKENS

    def _find_base_budget(self, model: object) -> TokenBudget:
        if isinstance(self._requested, TokenBudget):
            return self._requested
        if self._requested is not None:
            return self._default.resized(self._requested)
        profile = getattr(model, "profile", None) or {}
        limit = profile.get("max_input_tokens") if isinstance(profile, dict) else None
        return TokenBudget.agent(limit) if isinstance(limit, int) and limit > 0 else self._default

    def _count_tool_tokens(self, tools: Sequence[Any]) -> int:
        # Compared by identity: schemas are expensive to render, and the tools rarely change between calls.
        cached, tokens = self._cached_tool_tokens
        if len(cached) != len(tools) or any(old is not new for old, new in zip(cached, tools, strict=True)):
            tokens = sum(self._counter.count(_render_schema(tool)) + FRAME_TOKENS for tool in tools)
            self._cached_tool_tokens = (list(tools), tokens)
        return tokens


def _list_answer_schemas(response_format: object) -> list[object]:
    # Structured output is requested by a tool or by a schema, and both take about the same number of tokens.
    schema = getattr(response_format, "schema", response_format)
    return [] if schema is None else [schema]


def _get_model_name(model: object) -> str:
    for field in ("model_name", "model", "model_id"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _render_schema(tool: object) -> str:
    try:
        schema: object = convert_to_openai_tool(tool)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - a provider-specific or invalid tool: the model call reports an error
        schema = (
            tool
            if isinstance(tool, dict)
            else [getattr(tool, name, None) for name in ("name", "description")]
        )
    return json.dumps(schema, ensure_ascii=False, default=str)
