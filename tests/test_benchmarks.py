from __future__ import annotations

import json
import subprocess
import sys

MEASURES = {"durable_add", "normal_add", "bulk_add", "latest_30_cold", "latest_30_cached"}


def test_the_speed_benchmark_prints_figures_beside_their_baselines() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", "--json", "--quick"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode in (0, 1), child.stderr  # 1: over a limit, which a busy machine may be
    figures = json.loads(child.stdout)["measures"]
    assert set(figures) == MEASURES
    for figure in figures.values():
        assert figure["ours"] > 0
    # Far from the limits themselves, so that only a change of kind fails here.
    assert figures["durable_add"]["ratio"] < 2 * figures["durable_add"]["limit"]
    assert figures["bulk_add"]["ratio"] < 2 * figures["bulk_add"]["limit"]
    assert figures["latest_30_cold"]["ours"] < 10 * figures["latest_30_cold"]["limit"]
