"""Many workers on one PostgreSQL that is restarted during the run, and growth of cost with the stored memory.

The command starts its own servers from wheels. First eight processes add 200,000 messages of many tenants at a fixed
rate, and recall 20,000 times, while PostgreSQL and Redis are stopped and started in turn. Then all rows are read: none
lost, none duplicated, none with another tenant. Times start when a message is due. Then one database is filled to
10,000, 100,000 and 1,000,000 entries, and adding, recalling, disk and memory are measured at each size. The baseline of
both is the driver alone: an INSERT that commits, a full-text SELECT. Processes share the machine's cores with the
server: read the results together with ``cores`` and the load average of other processes.

    python -m benchmarks.scale                          everything; hours on a small machine
    python -m benchmarks.scale --growth "" --messages 20000 --recalls 2000
    python -m benchmarks.scale --messages 0 --growth 10000,100000
    python -m benchmarks.scale --json                   one JSON object
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks import scale_growth, scale_load
from benchmarks.servers import TemporaryPostgres, TemporaryRedis

RECALL_P95_MS = 50.0
PLAIN_SHARE = 10
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "maintenance_work_mem": "1GB",
}


def main() -> None:
    """Measure everything and print it."""
    options = _parser().parse_args()
    # Where there are more processes than cores, threads of the algebra in each only stand in each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sizes = [int(size) for size in options.growth.split(",") if size.strip()]
    with tempfile.TemporaryDirectory(prefix="langmem-tiers-scale-") as folder:
        Path(folder).chmod(0o755)  # the server runs as a user of its own
        with TemporaryPostgres(Path(folder) / "server", SETTINGS) as server:
            results = _machine(server.url)
            if options.messages:
                with nullcontext() if options.no_redis else TemporaryRedis() as redis:
                    results |= _load(server, redis, folder, options)
            if sizes:
                results["growth"] = scale_growth.grow(server.new_database(), sizes)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        _show(results, Console())
    if not results.get("load", {}).get("ok", True):
        sys.exit("a limit was exceeded")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--messages", type=int, default=200_000, metavar="N", help="0 leaves the load out")
    parser.add_argument("--recalls", type=int, default=20_000, metavar="N")
    parser.add_argument("--workers", type=int, default=8, metavar="N", help="processes")
    parser.add_argument("--tenants", type=int, default=100, metavar="N")
    parser.add_argument("--restarts", type=int, default=4, metavar="N", help="of each server, in the middle")
    parser.add_argument(
        "--rate",
        type=float,
        default=100.0,
        metavar="N",
        help="messages a second in all; 0: as many as can be",
    )
    parser.add_argument("--no-redis", action="store_true", help="PostgreSQL alone")
    parser.add_argument(
        "--growth", default="10000,100000,1000000", metavar="SIZES", help="entries; empty leaves it out"
    )
    return parser


def _machine(url: str) -> dict[str, Any]:
    with psycopg.connect(url) as connection:
        version = connection.execute("SHOW server_version").fetchone()
    return {
        "python": platform.python_version(),
        "postgresql": version[0] if version else None,
        "cores": os.cpu_count(),
        "load_average_before": os.getloadavg()[0],
    }


def _load(
    server: TemporaryPostgres, redis: TemporaryRedis | None, folder: str, options: argparse.Namespace
) -> dict[str, Any]:
    load = scale_load.Load(
        url=server.new_database(),
        folder=folder,
        messages=options.messages,
        recalls=options.recalls,
        workers=options.workers,
        tenants=options.tenants,
        rate=options.rate,
        redis_url=None if redis is None else redis.url,
    )
    ours = scale_load.run(load, server, redis, options.restarts)
    ours |= {"recall_p95_limit_ms": RECALL_P95_MS, "ok": _is_ok(load, ours)}
    fewer = replace(
        load,
        url=server.new_database(),
        messages=max(1, load.messages // PLAIN_SHARE),
        recalls=load.recalls // PLAIN_SHARE,
    )
    return {"load": ours, "plain": scale_load.run_plain(fewer)}


def _is_ok(load: scale_load.Load, results: dict[str, Any]) -> bool:
    whole = results["acknowledged"] == results["stored"] == load.messages
    sound = not (results["lost"] or results["doubled"] or results["wrong_tenant"] or results["unseen"])
    return (
        whole and sound and not results["crashes"] and results["recall_ms"].get("p95", 0.0) <= RECALL_P95_MS
    )


def _show(results: dict[str, Any], console: Console) -> None:
    if "load" in results:
        console.print(_load_table(results["load"], results["plain"], results["cores"]))
    if "growth" in results:
        console.print(_growth_table(results["growth"]))


def _load_table(ours: dict[str, Any], plain: dict[str, Any], cores: int) -> Table:
    table = Table(
        title=f"{ours['workers']} workers, {ours['tenants']} tenants, {ours['restarts']} restarts of PostgreSQL, "
        f"{ours['redis_restarts']} of Redis",
        caption=f"plain: INSERT and full-text SELECT by psycopg, no restart; all of it shares {cores} cores",
    )
    for heading in ("measure", "ours", "limit", "plain"):
        table.add_column(heading, justify="left" if heading == "measure" else "right", no_wrap=True)
    for name in ("messages", "acknowledged", "stored"):
        table.add_row(name, f"{ours[name]:,}", "", f"{plain[name]:,}" if name in plain else "")
    for name in ("lost", "doubled", "wrong_tenant", "unseen"):
        table.add_row(name.replace("_", " "), f"{ours[name]:,}", "0", "", style="red" if ours[name] else None)
    table.add_row("workers that crashed", str(len(ours["crashes"])), "0", str(len(plain["crashes"])))
    for name in ("messages_per_second", "recalls_per_second"):
        table.add_row(name.replace("_", " "), f"{ours[name]:,.0f}", "", f"{plain[name]:,.0f}")
    for name, limit in (("add_ms", None), ("recall_ms", RECALL_P95_MS), ("latest_ms", None)):
        for share in ("p50", "p95", "p99"):
            value, other = ours[name].get(share, 0.0), plain[name].get(share, 0.0)
            limit_text = f"{limit:g}" if limit and share == "p95" else ""
            over = bool(limit_text) and value > RECALL_P95_MS
            table.add_row(
                f"{name} {share}", f"{value:.1f}", limit_text, f"{other:.1f}", style="red" if over else None
            )
    return table


def _growth_table(growth: list[dict[str, Any]]) -> Table:
    table = Table(title="what one more entry costs, by how many there are", caption="p50, milliseconds")
    table.add_column("measure", no_wrap=True)
    for results in growth:
        table.add_column(f"{results['entries']:,}", justify="right", no_wrap=True)
    rows: dict[str, tuple[str, ...]] = {
        "add": ("ordinary", "add_ms", "p50"),
        "  plain INSERT": ("plain", "add_ms", "p50"),
        "embed and store a vector": ("ordinary", "embed_ms_each"),
        "  also into the index, if large": ("large", "index_ms_each"),
        "recall of 1,000": ("ordinary", "recall_ms", "p50"),
        "recall of 1,000, p95": ("ordinary", "recall_ms", "p95"),
        "  plain full-text SELECT": ("plain", "recall_ms", "p50"),
        "first recall of 1,000": ("ordinary", "first_recall_ms", "p50"),
        "recall of a tenth of all": ("large", "recall_ms", "p50"),
        "first recall of a tenth": ("large", "first_recall_ms", "p50"),
        "bytes on disk per entry": ("bytes", "per_entry"),
        "  plain": ("bytes", "plain_per_entry"),
        "memory of the process, MB": ("memory_mb", "peak"),
    }
    for name, path in rows.items():
        table.add_row(name, *(f"{_at(results, path):,.1f}" for results in growth))
    return table


def _at(results: dict[str, Any], path: tuple[str, ...]) -> float:
    value: Any = results
    for name in path:
        value = value[name]
    return float(value)


if __name__ == "__main__":
    main()
