"""Runs a command as a user or a script does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from langmem_tiers.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def parsed(self) -> Any:
        return json.loads(self.out)


def run(
    *words: object,
    input: str | bytes | None = None,  # noqa: A002 - the name that CliRunner uses
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    done = CliRunner().invoke(
        app, [str(word) for word in words], input=input, env={"COLUMNS": "120", **(env or {})}
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CommandResult(done.exit_code, done.stdout, done.stderr)
