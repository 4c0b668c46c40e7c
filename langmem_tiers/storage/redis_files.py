"""The files of a Redis that writes what it holds to the disk: they name what was erased until they are written anew."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from langmem_tiers.storage.waiting import in_time

if TYPE_CHECKING:
    from redis import Redis

_AT_WORK = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
_SUCCEEDED = ("aof_last_bgrewrite_status", "rdb_last_bgsave_status")


def write_anew(client: Redis, patience_seconds: float) -> str | None:
    """Have Redis write its files anew, if it has any; what was not done, and what to do about it."""
    redis: Any = importlib.import_module("redis")
    for name, command in (("BGREWRITEAOF", client.bgrewriteaof), ("BGSAVE", client.bgsave)):
        try:
            if not _is_needed(client, name):
                continue
            if not _is_quiet(client, patience_seconds):
                return f"it is at work on its files: run {name} there, later"
            command()
            if not _is_quiet(client, patience_seconds):
                return f"{name} is still at work there: wait until it is done"
        except redis.ResponseError as error:
            return f"it refused ({type(error).__name__}): run {name} there"
    told = client.info("persistence")
    failed = [name for name in _SUCCEEDED if told.get(name, "ok") != "ok"]
    return f"it failed there ({', '.join(failed)}): see its log" if failed else None


def _is_needed(client: Redis, name: str) -> bool:
    told = client.info("persistence")
    if name == "BGREWRITEAOF":
        return bool(told.get("aof_enabled"))
    if client.config_get("save").get("save"):
        return True
    started = client.time()[0] - client.info("server")["uptime_in_seconds"]
    return bool(told.get("rdb_last_save_time", 0) > started + 1)  # by hand, since then


def _is_quiet(client: Redis, patience_seconds: float) -> bool:
    def is_at_work() -> bool:
        told = client.info("persistence")
        return any(told.get(name) for name in _AT_WORK)

    return in_time(lambda: not is_at_work(), patience_seconds)
