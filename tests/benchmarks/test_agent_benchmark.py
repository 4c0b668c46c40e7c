from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import agents


@pytest.mark.soak
def test_the_agent_benchmark_prints_figures_with_baselines() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.agents", "--json", "--quick"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode in (0, 1), child.stderr  # 1: over a limit, which a busy machine may be
    figures = json.loads(child.stdout)
    assert figures["cycles"] == agents.QUICK
    for name in ("record", "session_add", "sqlite", "format"):
        assert 0 < figures[f"{name}_ms"]["p50"] <= figures[f"{name}_ms"]["p95"]
    assert figures["limits"]["the same prompt after a restart"]
    assert child.returncode == (0 if all(figures["limits"].values()) else 1)
    assert min(figures["record_to_session_add"], figures["resume_ms"]) > 0


def test_generated_cycles_are_deterministic_and_use_several_tools() -> None:
    made = list(agents.cycles(50))
    assert made == list(agents.cycles(50))
    assert {action.tool_name for _, action, _ in made} == {"click", "goto", "extract_text"}
    assert len({action.parameters_json for _, action, _ in made}) == 50
