"""Real agent runs from JSON Lines: a line each, with ``id`` and ``messages`` as chat APIs write them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers import MessageDraft, MessageToolCall

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run of an agent."""

    id: str
    source: str
    drafts: tuple[MessageDraft, ...]


def load_runs(folder: Path) -> list[Run]:
    """All runs of the folder, or an end with a clear message."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        sys.exit(f"{str(folder)!r} holds no *.jsonl files: pass the folder with the agent runs")
    return [_run(json.loads(line), path.stem) for path in files for line in path.read_text().splitlines()]


def _run(line: dict[str, Any], source: str) -> Run:
    return Run(str(line["id"]), source, tuple(_draft(message) for message in line["messages"]))


def _draft(message: dict[str, Any]) -> MessageDraft:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    answers = message.get("tool_call_id") or next(iter(message.get("tool_call_ids") or ()), None)
    calls = [
        MessageToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    return MessageDraft(message["role"], content, tool_calls=calls, tool_call_id=answers)
