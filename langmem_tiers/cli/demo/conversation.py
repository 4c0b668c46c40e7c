"""The bundled conversation: a project of seven sessions, with decisions, errors and tool output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from langmem_tiers.common.messages import MessageDraft, ToolCall


@dataclass(frozen=True, slots=True)
class Chapter:
    """One session of the story."""

    session: str
    title: str
    messages: tuple[MessageDraft, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """Something asked weeks later, in a session that has seen nothing of it."""

    text: str
    search: str
    """Key words that lead to the answer."""
    answer: str
    evidence: tuple[str, ...]
    """Ids of the messages that hold the answer."""
    fact: str
    """Words of one of them without which nothing is an answer."""


class StoryClock:
    """Tells the time of the story: that of the message that was said last."""

    def __init__(self) -> None:
        self._now = next(
            m.created_at for chapter in load_chapters() for m in chapter.messages if m.created_at
        )

    def now(self) -> datetime:
        """When the last message was said."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self._now.timestamp()

    def advance_to(self, moment: datetime | None) -> None:
        """Go on to that time."""
        self._now = self._now if moment is None else max(self._now, moment)


@cache
def load_chapters() -> tuple[Chapter, ...]:
    """The sessions in order."""
    lines = [json.loads(line) for line in _read_file("conversation.jsonl").splitlines()]
    drafts = [(line["session"], _to_draft(number, line)) for number, line in enumerate(lines, start=1)]
    return tuple(
        Chapter(
            session=about["session"],
            title=about["title"],
            messages=tuple(draft for session, draft in drafts if session == about["session"]),
        )
        for about in json.loads(_read_file("sessions.json"))
    )


@cache
def load_questions() -> tuple[Question, ...]:
    """Questions whose answers stand in the conversation."""
    return tuple(
        Question(
            text=item["question"],
            search=item["search"],
            answer=item["answer"],
            evidence=tuple(_build_id(number) for number in item["evidence"]),
            fact=item["fact"],
        )
        for item in json.loads(_read_file("questions.json"))
    )


def _to_draft(number: int, line: dict[str, Any]) -> MessageDraft:
    return MessageDraft(
        line["role"],
        line["content"],
        id=_build_id(number),
        created_at=datetime.fromisoformat(line["at"]),
        name=line.get("name"),
        tool_calls=[
            ToolCall(call["id"], call["name"], json.dumps(call["arguments"], ensure_ascii=False))
            for call in line.get("tool_calls", ())
        ],
        tool_call_id=line.get("tool_call_id"),
    )


def _build_id(number: int) -> str:
    return f"tidepool-{number:03}"


def _read_file(name: str) -> str:
    return (files("langmem_tiers.cli.demo") / "tidepool" / name).read_text(encoding="utf-8")
