"""A context in the words of the answers: what is in it and where it comes from, what is not and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from langmem_tiers.core.context import NO_ROOM
from langmem_tiers.core.messages import Message, Role
from langmem_tiers.flows.context import SUMMARY_SHARE
from langmem_tiers.flows.known import MEMORIES_ID
from langmem_tiers.flows.session_context import KNOWLEDGE_SHARE, RECALLED_SHARE
from langmem_tiers.server import answers
from langmem_tiers.server.wording import clean, cut

if TYPE_CHECKING:
    from langmem_tiers.core.context import Context
    from langmem_tiers.core.ports import TokenCounter
    from langmem_tiers.core.previews import Preview

_SHARES = {"summary": SUMMARY_SHARE, "known": KNOWLEDGE_SHARE, "memories": RECALLED_SHARE}
"""What each part may take at most; the conversation has all that is left."""
_MOST_LEFT_OUT = 200


def system_part(counter: TokenCounter, text: str | None) -> answers.PartItem | None:
    """A system prompt as the first message of a context."""
    if not text:
        return None
    return answers.PartItem(
        id=None,
        role=Role.SYSTEM.value,
        name=None,
        text=text,
        tokens=counter.count(text),
        origin="system",
        reason="the system prompt",
    )


def told(preview: Preview, budget: int, system: answers.PartItem | None) -> answers.ContextAnswer:
    """A context, with the system prompt before it."""
    context = preview.context
    left_out = _left_out(preview)
    taken = 0 if system is None else system.tokens
    return answers.ContextAnswer(
        budget=budget,
        used=context.token_count + taken,
        sections=_sections(context, taken),
        messages=[*([] if system is None else [system]), *_messages(context)],
        left_out=left_out[:_MOST_LEFT_OUT],
        warnings=list(context.warnings),
        problems=[clean(one) for one in context.problems],
    )


def _sections(context: Context, system: int) -> list[answers.SectionItem]:
    room = context.token_budget
    parts = {"system": (system, system)} if system else {}
    parts |= {name: (used, int(room * _SHARES.get(name, 1.0))) for name, used in context.sections.items()}
    return [answers.SectionItem(name=name, tokens=used, limit=most) for name, (used, most) in parts.items()]


def _messages(context: Context) -> list[answers.PartItem]:
    full, compressed = set(context.full), set(context.compressed)
    knows = bool(context.knowledge)

    def origin(message: Message) -> Literal["full", "compressed", "recalled", "knowledge", "system"]:
        if message.id in full:
            return "full"
        if message.id in compressed or message.is_summary:
            return "compressed"
        return "recalled" if message.id.startswith(MEMORIES_ID) or not knows else "knowledge"

    return [
        answers.PartItem(
            id=clean(one.id),
            role=one.role.value,
            name=None if one.name is None else clean(one.name),
            text=clean(one.content),
            tokens=one.token_count,
            origin=origin(one),
            reason=clean(context.reasons.get(one.id, "")),
        )
        for one in context.messages
    ]


def _left_out(preview: Preview) -> list[answers.LeftOutItem]:
    context = preview.context
    recalled = [
        answers.LeftOutItem(
            id=clean(hit.entry.id),
            session=None if hit.session is None else clean(hit.session),
            role=None if hit.entry.role is None else hit.entry.role.value,
            **cut(hit.entry.content),
            tokens=hit.entry.token_count,
            reason=f"recalled, and {NO_ROOM}",
        )
        for hit in context.left_out
    ]
    dropped = [
        answers.LeftOutItem(
            id=clean(one.id),
            session=clean(preview.session),
            role=one.role.value,
            **cut(one.content),
            tokens=one.token_count,
            reason=clean(preview.reason_of(one)),
        )
        for one in preview.dropped
    ]
    return [*recalled, *dropped]
