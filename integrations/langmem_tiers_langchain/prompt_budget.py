"""What a prompt may take: the model's window less system prompt and tools, in the tokens that the model counts."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.errors import BudgetExceededError, InvalidConfigError
from langmem_tiers.text.token_counting import FRAME_TOKENS, count_draft
from langmem_tiers_langchain.convert import to_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain.agents.middleware.types import ModelRequest
    from langchain_core.messages import BaseMessage

    from langmem_tiers.common.ports import TokenCounter

_MIN_RATIO, _MAX_RATIO = 0.5, 3.0
"""How far a model's own count may move ours: what lies beyond is a mistake of somebody."""
_NEWEST_WEIGHT = 0.3
_MIN_REPORT_TOKENS = 200
"""Of a prompt from which on its count says something about others."""


@dataclass(frozen=True, slots=True)
class PromptAllowance:
    """What one call may take, by our counter."""

    base: TokenBudget
    total_tokens: int
    """Tokens of the prompt."""
    system_tokens: int
    tool_tokens: int

    def conversation_budget(self, extra: int) -> TokenBudget:
        """The budget of the conversation when something else takes so many tokens as well."""
        fixed = self.system_tokens + self.tool_tokens + extra
        if fixed >= self.total_tokens:
            raise BudgetExceededError(
                f"the system prompt ({self.system_tokens} tokens), the tools ({self.tool_tokens}) and "
                f"what must be in sight "
                f"({extra}) leave nothing of {self.total_tokens}: raise the budget or give the agent fewer tools"
            )
        return self.base.resized(self.total_tokens - fixed)


class TokenCalibration:
    """How many tokens a model counts where our counter counts one, learned from its own reports."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ratios: dict[str, float] = {}

    def get_ratio(self, model: object) -> float:
        """1.0 until a model has said what it counts."""
        return self._ratios.get(_get_model_name(model), 1.0)

    def learn(self, model: object, counted: int, told: int) -> None:
        """Take a report in.

        Args:
            model: Whose.
            counted: What our counter said of the prompt.
            told: What the model said of it.
        """
        if counted < _MIN_REPORT_TOKENS or told <= 0:
            return
        seen = min(_MAX_RATIO, max(_MIN_RATIO, told / counted))
        with self._lock:
            known = self._ratios.get(_get_model_name(model))
            self._ratios[_get_model_name(model)] = (
                seen if known is None else (1 - _NEWEST_WEIGHT) * known + _NEWEST_WEIGHT * seen
            )


class PromptBudgeter:
    """Finds what a call may take.

    Args:
        given: What the user gave: a budget, or the tokens of a whole prompt; None takes the model's own
            profile and, where there is none, the engine's budget.
        default: The engine's budget.
        counter: Counts tokens.
    """

    def __init__(self, given: TokenBudget | int | None, default: TokenBudget, counter: TokenCounter) -> None:
        if given is not None and not isinstance(given, TokenBudget) and (type(given) is not int or given < 1):
            raise InvalidConfigError(
                f"budget must be a TokenBudget or a number of tokens from 1, got {given!r}"
            )
        self._requested = given
        self._default = default
        self._counter = counter
        self._cached_tool_tokens: tuple[list[Any], int] = ([], 0)

    def compute_allowance(self, request: ModelRequest[Any], ratio: float) -> PromptAllowance:
        """What a call may take, if the model counts ``ratio`` tokens where we count one."""
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
        """What a message takes in a prompt."""
        draft = to_draft(message, self._counter)
        tokens = count_draft(self._counter, draft) if draft.token_count is None else draft.token_count
        return tokens + FRAME_TOKENS

    def _find_base_budget(self, model: object) -> TokenBudget:
        if isinstance(self._requested, TokenBudget):
            return self._requested
        if self._requested is not None:
            return self._default.resized(self._requested)
        profile = getattr(model, "profile", None) or {}
        most = profile.get("max_input_tokens") if isinstance(profile, dict) else None
        return TokenBudget.agent(most) if isinstance(most, int) and most > 0 else self._default

    def _count_tool_tokens(self, tools: Sequence[Any]) -> int:
        known, tokens = self._cached_tool_tokens
        if len(known) != len(tools) or any(one is not other for one, other in zip(known, tools, strict=True)):
            tokens = sum(self._counter.count(_render_schema(tool)) + FRAME_TOKENS for tool in tools)
            self._cached_tool_tokens = (list(tools), tokens)
        return tokens


def _list_answer_schemas(wanted: object) -> list[object]:
    # An answer of a certain form is asked for by a tool, or by a schema of the same size.
    schema = getattr(wanted, "schema", wanted)
    return [] if schema is None else [schema]


def _get_model_name(model: object) -> str:
    """What a model is called."""
    for field in ("model_name", "model", "model_id"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _render_schema(tool: object) -> str:
    try:
        told: object = convert_to_openai_tool(tool)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - a provider's own form, or one that cannot be told: its model will say so
        told = (
            tool
            if isinstance(tool, dict)
            else [getattr(tool, name, None) for name in ("name", "description")]
        )
    return json.dumps(told, ensure_ascii=False, default=str)
