"""A context in the words of the answers: what is in it and where it comes from, what is not and why."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.context.builder import SUMMARY_SHARE
from langmem_tiers.context.knowledge_hits import MEMORIES_ID
from langmem_tiers.context.models import name_of
from langmem_tiers.context.session_context import KNOWLEDGE_SHARE, RECALLED_SHARE
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.server import response_models
from langmem_tiers.tasks.history import step_of
from langmem_tiers.text.token_counting import FRAME_TOKENS, count_messages

if TYPE_CHECKING:
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.context.entry_lookup import FoundEntry
    from langmem_tiers.context.models import Context
    from langmem_tiers.context.preview import Preview
    from langmem_tiers.erasure.models import ErasureReceipt
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.sessions.models import SessionInfo
    from langmem_tiers.tasks.history import SeenCycle, TaskInfo
    from langmem_tiers.tasks.models import MemoryEntry
    from langmem_tiers.tuning.models import EfficiencyReport, Snapshot


MOST_CHARACTERS = 2_000
"""Of a text in a list; ``GET /entries/{id}`` tells it whole."""
_MOST_NAME = 1_024
_TOLD_SIGNALS = 3


def clean(text: str) -> str:
    """A text as JSON can be written in UTF-8: half a surrogate pair becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _clean(text: str | None) -> str | None:
    return None if text is None else clean(text)


def short_name(name: str | None) -> str | None:
    """A name or a source for a list; one that is too long goes on with a mark."""
    if name is None or len(name) <= _MOST_NAME:
        return _clean(name)
    return f"{clean(name[:_MOST_NAME])}…"


def cut(text: str) -> dict[str, Any]:
    """A text for a list, and whether it goes on."""
    return {"text": clean(text[:MOST_CHARACTERS]), "cut": len(text) > MOST_CHARACTERS}


def said(message: Message) -> dict[str, Any]:
    """A message for a list."""
    return {
        "id": clean(message.id),
        "role": message.role.value,
        "name": short_name(message.name),
        "time": message.created_at,
        "tokens": message.token_count,
        **cut(message.content),
        "calls": calls_of(message),
    }


def calls_of(message: Message | None, *, whole: bool = False) -> list[response_models.CallItem]:
    """The calls of tools that a message makes; in lists their arguments are cut, as texts are, all together."""
    calls, left = list[response_models.CallItem](), MOST_CHARACTERS
    for call in () if message is None else message.tool_calls:
        told = call.arguments if whole else call.arguments[:left]
        left -= min(left, len(told))
        calls.append(
            response_models.CallItem(
                id=clean(call.id),
                name=clean(call.name) if whole else short_name(call.name) or "",
                arguments=clean(told),
                cut=len(told) < len(call.arguments),
            )
        )
    return calls


def session_item(info: SessionInfo) -> response_models.SessionItem:
    """A session."""
    return response_models.SessionItem(
        session=clean(info.name),
        messages=info.message_count,
        tokens=info.token_count,
        created_at=info.created_at,
        updated_at=info.updated_at,
        summary=info.compressed_count > 0,
    )


def status_of(report: EfficiencyReport) -> response_models.OptimizerStatus:
    """What the optimizer achieved."""
    return response_models.OptimizerStatus.model_validate(report.as_dict())


def run_of(snapshot: Snapshot) -> response_models.OptimizerRun:
    """What a run of the optimizer did."""
    return response_models.OptimizerRun(
        at=snapshot.created_at,
        reason=clean(snapshot.reason),
        tokens_before=snapshot.tokens_before,
        tokens_after=snapshot.tokens_after,
        tokens_saved=snapshot.tokens_saved,
        usage_before=snapshot.usage_before,
        usage_after=snapshot.usage_after,
        entries_compressed=snapshot.entries_compressed,
        entries_dropped=snapshot.entries_dropped,
        entries_promoted=snapshot.entries_promoted,
        is_reverted=snapshot.is_reverted,
        parameters=response_models.Parameters.model_validate(snapshot.parameters.as_dict()),
    )


def entry_of(found: FoundEntry) -> response_models.EntryAnswer:
    """A memory, whole."""
    entry, message = found.entry, found.message
    return response_models.EntryAnswer(
        id=clean(entry.id),
        kind=entry.kind,
        session=_clean(entry.session),
        role=None if entry.role is None else entry.role.value,
        name=None if message is None else _clean(message.name),
        time=entry.created_at,
        tokens=entry.token_count if message is None else message.token_count,
        text=clean(entry.content if message is None else message.content),
        calls=calls_of(message, whole=True),
        result=None if message is None else _clean(_came_of(message)),
        tier=entry.tier.value,
        state=entry.state.value,
        reason=clean(entry.reason),
        relevance=entry.relevance,
        importance=entry.importance,
        category=_clean(entry.category),
        source=_clean(entry.source),
        uses=entry.access_count,
    )


def task_item(task: TaskInfo) -> response_models.TaskItem:
    """A recorded run."""
    return response_models.TaskItem(
        task=clean(task.task), cycles=task.cycles, started_at=task.started_at, updated_at=task.updated_at
    )


def cycle_item(seen: SeenCycle) -> response_models.CycleItem:
    """One step of a run."""
    entry = seen.entry
    thought, parameters, result = map(
        cut, (entry.thought.content, entry.action.parameters_json, _result(entry))
    )
    return response_models.CycleItem(
        id=clean(entry.entry_id),
        number=seen.number,
        thought=thought["text"],
        action=clean(entry.action.tool_name),
        parameters=parameters["text"],
        result=result["text"],
        cut=thought["cut"] or parameters["cut"] or result["cut"],
        outcome=entry.outcome.value,
        success=not entry.outcome.is_failure,
        url=clean(entry.url),
        time=datetime.fromtimestamp(entry.timestamp, UTC),
        loop=None if seen.loop is None else clean(seen.loop.message),
    )


def _came_of(message: Message) -> str | None:
    try:
        step = step_of(message)
    except InvalidInputError:  # somebody else's payload
        return None
    return None if step is None else _result(step)


def _result(step: MemoryEntry) -> str:
    return step.error_message or ("" if step.observation is None else step.observation.text)


def erasure_of(receipt: ErasureReceipt) -> response_models.Erasure:
    """What was erased."""
    return response_models.Erasure(
        id=receipt.id,
        erased_at=receipt.erased_at,
        counts={name: count for name, count in asdict(receipt.counts).items() if count},
        remade=receipt.remade,
        elsewhere=dict(receipt.elsewhere),
        is_complete=receipt.is_complete,
        is_scrubbed=receipt.is_scrubbed,
        left=[clean(one) for one in receipt.left],
        notes=[clean(one) for one in receipt.notes],
    )


def knowledge_item(known: Knowledge) -> response_models.KnowledgeItem:
    """Something known."""
    value = cut(known.value)
    return response_models.KnowledgeItem(
        id=clean(known.id),
        category=clean(known.category),
        key=clean(known.key),
        value=value["text"],
        cut=value["cut"],
        confidence=known.confidence,
        created_at=known.created_at,
        updated_at=known.updated_at,
        uses=known.use_count,
        source=short_name(known.source),
    )


def hit_item(hit: Hit) -> response_models.HitItem:
    """A memory that was recalled."""
    entry = hit.entry
    return response_models.HitItem(
        id=clean(entry.id),
        kind=entry.kind,
        tier=entry.tier.value,
        session=_clean(entry.session),
        role=None if entry.role is None else entry.role.value,
        time=entry.created_at,
        **cut(entry.content),
        calls=calls_of(hit.message),
        score=hit.score,
        signals={name: round(value, 6) for name, value in hit.signals.items()},
        found_by=hit.found_by,
        why=why(hit),
    )


def why(hit: Hit) -> str:
    """Why a memory was found, in a sentence."""
    most = sorted(hit.signals.items(), key=lambda one: -abs(one[1]))[:_TOLD_SIGNALS]
    gave = ", ".join(f"{name} {value:+.3f}" for name, value in most if value)
    return f"found by {hit.found_by}" + (f": {gave}" if gave else "")


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
