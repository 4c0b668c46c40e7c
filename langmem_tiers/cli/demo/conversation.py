"""The bundled conversation: a project of seven sessions, with decisions, errors and tool output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from langmem_tiers.common.messages import MessageDraft, MessageToolCall


@dataclass(frozen=True, slots=True)
class Chapter:
    """One session of the story."""

    session: str
    title: str
    messages: tuple[MessageDraft, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question asked weeks later, in a new session."""

    text: str
    search: str
    """Search words that find the answer."""
    answer: str
    evidence: tuple[str, ...]
    """Ids of the messages that contain the answer."""
    fact: str
    """Words of one of these messages that every correct answer contains."""


class StoryClock:
    """Clock of the story: its time is that of the newest message played so far."""

    def __init__(self) -> None:
        self._now = next(
            message.created_at
            for chapter in load_chapters()
            for message in chapter.messages
            if message.created_at
        )

    def now(self) -> datetime:
        """Return the time of the newest message."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start."""
        return self._now.timestamp()

    def advance_to(self, moment: datetime | None) -> None:
        """Advance the clock to a time; never back."""
        self._now = self._now if moment is None else max(self._now, moment)


@cache
def load_chapters() -> tuple[Chapter, ...]:
    """Return the sessions of the story in order."""
    lines = [json.loads(line) for line in _read_file("conversation.jsonl").splitlines()]
    drafts = [(line["session"], _to_draft(number, line)) for number, line in enumerate(lines, start=1)]
    return tuple(
        Chapter(
            session=info["session"],
            title=info["title"],
            messages=tuple(draft for session, draft in drafts if session == info["session"]),
        )
        for info in json.loads(_read_file("sessions.json"))
    )


@cache
def load_questions() -> tuple[Question, ...]:
    """Return the questions that the conversation answers."""
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
            MessageToolCall(call["id"], call["name"], json.dumps(call["arguments"], ensure_ascii=False))
            for call in line.get("tool_calls", ())
        ],
        tool_call_id=line.get("tool_call_id"),
    )


def _build_id(number: int) -> str:
    return f"tidepool-{number:03}"


def _read_file(name: str) -> str:
    return (files("langmem_tiers.cli.demo") / "tidepool" / name).read_text(encoding="utf-8")
