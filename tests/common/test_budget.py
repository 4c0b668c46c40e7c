from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, asdict
from decimal import Decimal
from typing import Any

import pytest

from langmem_tiers import InvalidConfigError, TokenBudget

WHOLE = (
    "context_tokens",
    "system_tokens",
    "response_tokens",
    "tools_tokens",
    "working_tokens",
    "full_message_window",
)
SHARES = ("compression_trigger", "target_usage", "full_share", "compressed_share", "compressed_ratio")


def test_the_default_budget_leaves_190904_tokens() -> None:
    assert TokenBudget().available == 190_904


def test_the_default_budget_is_that_of_the_design_document() -> None:
    assert asdict(TokenBudget()) == {
        "context_tokens": 200_000,
        "system_tokens": 5_000,
        "response_tokens": 4_096,
        "tools_tokens": 0,
        "working_tokens": 0,
        "full_message_window": 30,
        "compression_trigger": 0.7,
        "target_usage": 0.65,
        "full_share": 0.85,
        "compressed_share": 0.95,
        "compressed_ratio": 0.2,
    }


@pytest.mark.parametrize(
    ("budget", "context", "reserves", "window", "available"),
    [
        (TokenBudget.browser_agent(), 200_000, (5_000, 4_096, 0, 0), 30, 190_904),
        (TokenBudget.assistant(), 128_000, (2_000, 0, 0, 8_000), 20, 118_000),
        (TokenBudget.task_agent(), 64_000, (0, 0, 0, 16_000), 50, 48_000),
        (TokenBudget.context_files(), 100_000, (0, 0, 0, 0), 30, 100_000),
        (TokenBudget.of(1), 1, (0, 0, 0, 0), 30, 1),
        (TokenBudget.of(12_345), 12_345, (0, 0, 0, 0), 30, 12_345),
        (TokenBudget.agent(), 128_000, (4_000, 4_000, 0, 0), 30, 120_000),
        (TokenBudget.agent(tools=12), 128_000, (4_000, 4_000, 6_000, 0), 30, 114_000),
        (TokenBudget.agent(200_000), 200_000, (4_000, 4_000, 0, 0), 30, 192_000),
        (TokenBudget.agent(80_000), 80_000, (4_000, 4_000, 0, 0), 30, 72_000),  # 5 % are just 4,000
        (TokenBudget.agent(79_980), 79_980, (3_999, 4_000, 0, 0), 30, 71_981),
        (TokenBudget.agent(40_000), 40_000, (2_000, 4_000, 0, 0), 30, 34_000),  # 10 % are just 4,000
        (TokenBudget.agent(39_990), 39_990, (1_999, 3_999, 0, 0), 30, 33_992),
        (TokenBudget.agent(8_000, tools=1), 8_000, (400, 800, 500, 0), 30, 6_300),
        (TokenBudget.agent(1), 1, (0, 0, 0, 0), 30, 1),
    ],
)
def test_each_preset_reserves_the_documented_tokens(
    budget: TokenBudget, context: int, reserves: tuple[int, int, int, int], window: int, available: int
) -> None:
    assert budget.context_tokens == context
    assert (
        budget.system_tokens,
        budget.response_tokens,
        budget.tools_tokens,
        budget.working_tokens,
    ) == reserves
    assert budget.full_message_window == window
    assert budget.reserved == sum(reserves)
    assert budget.available == available


def test_the_browser_agent_preset_compresses_at_70_percent() -> None:
    assert TokenBudget.browser_agent().compression_trigger == 0.7


def test_every_reserve_is_subtracted_from_the_window() -> None:
    budget = TokenBudget(
        context_tokens=1_000, system_tokens=100, response_tokens=20, tools_tokens=3, working_tokens=400
    )
    assert (budget.reserved, budget.available) == (523, 477)


@pytest.mark.parametrize(
    ("tokens", "fraction", "share"),
    [
        (190_904, 0.65, 124_087),
        (190_904, 0.7, 133_632),
        (190_904, 0.85, 162_268),
        (190_904, 0.95, 181_358),
        (190_904, 0.0, 0),
        (190_904, 1.0, 190_904),
        (10, 0.85, 8),  # rounded down
        (100, 0.85, 85),
        (100, 0.29, 29),  # 28.999999999999996 in binary
        (100, 0.57, 57),  # 56.99999999999999
        (1, 0.99, 0),
    ],
)
def test_a_share_is_a_fraction_of_the_available_tokens_rounded_down(
    tokens: int, fraction: float, share: int
) -> None:
    assert TokenBudget.of(tokens).share(fraction) == share


def test_a_share_excludes_the_reserves() -> None:
    assert TokenBudget(context_tokens=300, system_tokens=100, response_tokens=100).share(0.5) == 50


@pytest.mark.parametrize("reserve", ["system_tokens", "response_tokens", "tools_tokens", "working_tokens"])
@pytest.mark.parametrize("tokens", [1_000, 1_001, 5_000])
def test_reserves_of_the_whole_context_are_refused(reserve: str, tokens: int) -> None:
    settings: dict[str, Any] = {"system_tokens": 0, "response_tokens": 0, reserve: tokens}
    with pytest.raises(InvalidConfigError, match=rf"context of 1000 tokens .* {tokens} reserved"):
        TokenBudget(context_tokens=1_000, **settings)


def test_reserves_are_refused_by_their_sum() -> None:
    with pytest.raises(InvalidConfigError, match="4 reserved"):
        TokenBudget(context_tokens=4, system_tokens=1, response_tokens=1, tools_tokens=1, working_tokens=1)


def test_reserves_can_leave_a_single_token() -> None:
    assert TokenBudget(context_tokens=1_000, system_tokens=999, response_tokens=0).available == 1


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize("value", [-1, True, False, 2.0, math.nan, "30", None, Decimal(30), 2**40 + 1])
def test_an_invalid_integer_is_refused_by_name_and_value(field: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        TokenBudget(**{field: value})
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", ["context_tokens", "full_message_window"])
def test_a_window_of_0_is_refused(field: str) -> None:
    settings: dict[str, Any] = {field: 0}
    with pytest.raises(InvalidConfigError, match=f"{field} .* got 0"):
        TokenBudget(**settings)


@pytest.mark.parametrize("field", SHARES)
@pytest.mark.parametrize(
    "value",
    [-0.01, 1.01, 2, True, False, math.nan, math.inf, -math.inf, "0.7", None, Decimal("0.7"), 10**400],
    ids=lambda value: repr(value)[:20],
)
def test_an_invalid_fraction_is_refused_by_name_and_value(field: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        TokenBudget(**{field: value})
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", SHARES)
@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0])
def test_a_fraction_can_be_0_or_1(field: str, value: float) -> None:
    settings: dict[str, Any] = {"full_share": 0.0, "compressed_share": 1.0, field: value}
    assert getattr(TokenBudget(**settings), field) == value


def test_full_share_cannot_exceed_compressed_share() -> None:
    with pytest.raises(InvalidConfigError, match=r"full_share 0\.96 .* compressed_share 0\.95"):
        TokenBudget(full_share=0.96)


def test_full_share_can_equal_compressed_share() -> None:
    assert TokenBudget(full_share=0.95).full_share == 0.95


@pytest.mark.parametrize(
    ("context", "tools", "name"),
    [
        (0, 0, "context_tokens"),
        (-128_000, 0, "context_tokens"),
        (True, 0, "context_tokens"),
        (128_000.0, 0, "context_tokens"),
        ("128000", 0, "context_tokens"),
        (128_000, -1, "tools"),
        (128_000, True, "tools"),
        (128_000, 1.5, "tools"),
        (128_000, None, "tools"),
    ],
)
def test_an_agent_with_invalid_numbers_is_refused(context: Any, tools: Any, name: str) -> None:
    value = context if name == "context_tokens" else tools
    with pytest.raises(InvalidConfigError) as caught:
        TokenBudget.agent(context, tools=tools)
    assert str(caught.value).startswith(name)
    assert repr(value) in str(caught.value)


def test_an_agent_with_more_tools_than_fit_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="context of 8000 tokens"):
        TokenBudget.agent(8_000, tools=14)


@pytest.mark.parametrize("tokens", [0, -5, True, 1.5, None])
def test_a_budget_of_0_is_refused(tokens: Any) -> None:
    with pytest.raises(InvalidConfigError, match="context_tokens"):
        TokenBudget.of(tokens)


def test_a_budget_is_immutable() -> None:
    budget = TokenBudget()
    with pytest.raises(FrozenInstanceError):
        budget.system_tokens = 0  # type: ignore[misc]  # the claim


def test_budget_arguments_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        TokenBudget(200_000)  # type: ignore[call-arg]  # the claim
