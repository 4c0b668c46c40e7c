from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest


def run(*arguments: str) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode in (0, 1), child.stderr  # 1: over a limit, which a busy machine may be
    figures: dict[str, Any] = json.loads(child.stdout)
    return figures


@pytest.mark.soak
def test_the_scale_benchmark_loses_nothing_and_prints_figures_with_baselines() -> None:
    figures = run(
        *("--messages", "200", "--recalls", "20", "--workers", "2", "--tenants", "5", "--restarts", "1"),
        *("--growth", "2000", "--rate", "0"),
    )
    load = figures["load"]
    assert (load["acknowledged"], load["stored"], load["recalls"], load["restarts"]) == (200, 200, 20, 1)
    assert load["redis_restarts"] == 1
    assert (load["lost"], load["doubled"], load["wrong_tenant"], load["unseen"], load["crashes"]) == (
        0,
        0,
        0,
        0,
        [],
    )
    assert load["messages_per_second"] > 0 < load["recall_ms"]["p95"]
    assert figures["plain"]["messages"] == 20
    (size,) = figures["growth"]
    assert size["entries"] == 2000
    assert size["ordinary"]["add_ms"]["p50"] > 0 < size["plain"]["add_ms"]["p50"]
    assert size["ordinary"]["recall_ms"]["p50"] > 0 < size["large"]["recall_ms"]["p50"]
    assert size["bytes"]["per_entry"] > 1000
    assert size["memory_mb"]["before"] < size["memory_mb"]["peak"] < 2000
