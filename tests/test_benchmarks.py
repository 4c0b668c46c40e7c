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
        check=True,
    )
    figures = json.loads(child.stdout)["measures"]
    assert set(figures) == MEASURES
    for figure in figures.values():
        assert figure["ours"] > 0
        if figure["baseline"] is not None:
            assert figure["ratio"] == figure["ours"] / figure["baseline"]
