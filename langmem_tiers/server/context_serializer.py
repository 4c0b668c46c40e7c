"""A context in the words of the answers: what is in it and where it comes from, what is not and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from langmem_tiers.core.context import name_of
from langmem_tiers.core.messages import Message, Role
from langmem_tiers.flows.context import SUMMARY_SHARE
from langmem_tiers.flows.known import MEMORIES_ID
from langmem_tiers.flows.session_context import KNOWLEDGE_SHARE, RECALLED_SHARE
from langmem_tiers.scoring.tokens import count_messages
from langmem_tiers.scoring.tokens.lists import FRAME_TOKENS
from langmem_tiers.server import response_models
from langmem_tiers.server.serializers import calls_of, clean, cut

if TYPE_CHECKING:
    from langmem_tiers.core.context import Context
    from langmem_tiers.core.ports import TokenCounter
    from langmem_tiers.core.previews import Preview
    from langmem_tiers.core.recall import Hit

_SHARES = {"summary": SUMMARY_SHARE, "known": KNOWLEDGE_SHARE, "memories": RECALLED_SHARE}
"""What each part may take at most; the conversation has all that is left."""
_MOST_LEFT_OUT = 200


def system_tokens(counter: TokenCounter, text: str | None) -> int:
    """What a system prompt takes of a context, with its frame."""
    return counter.count(text) + FRAME_TOKENS if text else 0


def told(
    preview: Preview, counter: TokenCounter, *, budget: int, system: str | None
) -> response_models.ContextAnswer:
    """A context, with the system prompt before it.

    Args:
        preview: The context, and what is not in it.
        counter: Counts tokens.
        budget: What there is for both.
        system: The system prompt, if there is one.
    """
    context = preview.context
    before = [_system_part(counter, system)] if system else []
    sections = _sections(context, counter, system)
    return response_models.ContextAnswer(
        budget=budget,
        used=sum(one.tokens for one in sections),
        sections=sections,
        messages=[*before, *_messages(context)],
        left_out=_left_out(preview, counter)[:_MOST_LEFT_OUT],
        left_out_count=_left_out_count(preview),
        warnings=list(preview.warnings),
        problems=[clean(one) for one in context.problems],
    )


def _system_part(counter: TokenCounter, text: str) -> response_models.PartItem:
    return response_models.PartItem(
        id=None,
        role=Role.SYSTEM.value,
        name=None,
        text=text,
        calls=[],
        tokens=counter.count(text),
        origin="system",
        reason="the system prompt",
    )


def _sections(
    context: Context, counter: TokenCounter, system: str | None
) -> list[response_models.SectionItem]:
    room, taken = context.token_budget, system_tokens(counter, system)
    used = dict(context.sections)
    if taken and not context.messages:
        used["frame"] = count_messages(counter, ())
    parts = {"system": (taken, taken)} if taken else {}
    parts |= {name: (tokens, int(room * _SHARES.get(name, 1.0))) for name, tokens in used.items()}
    return [
        response_models.SectionItem(name=name, tokens=tokens, limit=most)
        for name, (tokens, most) in parts.items()
    ]


def _messages(context: Context) -> list[response_models.PartItem]:
    full, compressed = set(context.full), set(context.compressed)
    knows = bool(context.knowledge)

    def origin(message: Message) -> Literal["full", "compressed", "recalled", "knowledge", "system"]:
        if message.id in full:
            return "full"
        if message.id in compressed or message.is_summary:
            return "compressed"
        return "recalled" if message.id.startswith(MEMORIES_ID) or not knows else "knowledge"

    return [
        response_models.PartItem(
            id=clean(one.id),
            role=one.role.value,
            name=None if one.name is None else clean(one.name),
            text=clean(one.content),
            calls=calls_of(one, whole=True),
            tokens=one.token_count,
            origin=origin(one),
            reason=clean(context.reasons.get(one.id, "")),
        )
        for one in context.messages
    ]


def _left_out(preview: Preview, counter: TokenCounter) -> list[response_models.LeftOutItem]:
    context = preview.context
    in_few_words = {name_of(hit, preview.session) for hit in context.summarised}
    hits = {name_of(hit, preview.session): hit for hit in _hits(context)}
    recalled = [
        response_models.LeftOutItem(
            id=clean(hit.entry.id),
            session=None if hit.session is None else clean(hit.session),
            role=None if hit.entry.role is None else hit.entry.role.value,
            **cut(hit.entry.content),
            calls=calls_of(hit.message),
            tokens=hit.entry.token_count,
            origin="compressed" if name in in_few_words else "dropped",
            reason=clean(context.reasons[name]),
        )
        for name, hit in hits.items()
    ]
    known = [
        response_models.LeftOutItem(
            id=clean(hit.knowledge.id),
            session=None,
            role=None,
            **cut(hit.knowledge.told),
            calls=[],
            tokens=counter.count(hit.knowledge.told),
            origin="dropped",
            reason=clean(context.reasons[hit.knowledge.id]),
        )
        for hit in context.knowledge_left_out
    ]
    dropped = [
        response_models.LeftOutItem(
            id=clean(one.id),
            session=clean(preview.session),
            role=one.role.value,
            **cut(one.content),
            calls=calls_of(one),
            tokens=one.token_count,
            origin="dropped",
            reason=clean(preview.reason_of(one)),
        )
        for one in preview.dropped
        if one.id not in hits
    ]
    return [*recalled, *known, *dropped]


def _left_out_count(preview: Preview) -> int:
    context = preview.context
    dropped = set(context.dropped)

    def is_one_more(hit: Hit) -> bool:
        # A message of the session is among those without room, unless it is hidden.
        if hit.session != preview.session or hit.message is None:
            return True
        return hit.entry.id not in dropped and (preview.is_whole or hit.message.is_compressed)

    others = sum(map(is_one_more, _hits(context))) + len(context.knowledge_left_out)
    return len(dropped) + preview.unseen + others


def _hits(context: Context) -> tuple[Hit, ...]:
    return (*context.left_out, *context.passed_over)
