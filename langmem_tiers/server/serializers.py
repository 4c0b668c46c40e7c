"""Conversion of the engine's objects to response bodies."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from langmem_tiers.common.messages import Message, Role
from langmem_tiers.context.builder import MAX_SUMMARY_SHARE
from langmem_tiers.context.knowledge_hits import MEMORIES_MESSAGE_ID_PREFIX
from langmem_tiers.context.models import get_reason_key
from langmem_tiers.context.session_context import MAX_KNOWLEDGE_SHARE, MAX_RECALLED_SHARE
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.server import response_models
from langmem_tiers.tasks.history import parse_cycle_message
from langmem_tiers.text.token_counting import FRAME_TOKENS, count_messages

if TYPE_CHECKING:
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.context.entry_lookup import FoundEntry
    from langmem_tiers.context.models import MemoryContext
    from langmem_tiers.context.preview import Preview
    from langmem_tiers.erasure.models import ErasureReceipt
    from langmem_tiers.knowledge.models import Knowledge
    from langmem_tiers.recall.models import Hit
    from langmem_tiers.sessions.models import SessionInfo
    from langmem_tiers.tasks.history import TaskCycle, TaskInfo
    from langmem_tiers.tasks.models import Cycle
    from langmem_tiers.tuning.models import EfficiencyReport, TuningSnapshot


MAX_LISTED_CHARACTERS = 2_000
"""Maximum length of a text in a list; ``GET /entries/{id}`` returns the complete text."""
_MAX_NAME_CHARACTERS = 1_024
_MAX_EXPLAINED_SIGNALS = 3


def replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates by U+FFFD, because UTF-8 cannot encode them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _replace_surrogates_or_none(text: str | None) -> str | None:
    return None if text is None else replace_surrogates(text)


def shorten_name(name: str | None) -> str | None:
    """Return a name or a source for a list; if it is too long, it is cut and ends with an ellipsis."""
    if name is None or len(name) <= _MAX_NAME_CHARACTERS:
        return _replace_surrogates_or_none(name)
    return f"{replace_surrogates(name[:_MAX_NAME_CHARACTERS])}…"


def truncate_text(text: str) -> dict[str, Any]:
    """Return a text for a list, and ``cut``: True if it was truncated."""
    return {
        "text": replace_surrogates(text[:MAX_LISTED_CHARACTERS]),
        "cut": len(text) > MAX_LISTED_CHARACTERS,
    }


def serialize_message(message: Message) -> dict[str, Any]:
    """Convert a message to the fields of a list item."""
    return {
        "id": replace_surrogates(message.id),
        "role": message.role.value,
        "name": shorten_name(message.name),
        "time": message.created_at,
        "tokens": message.token_count,
        **truncate_text(message.content),
        "calls": serialize_tool_calls(message),
    }


def serialize_tool_calls(
    message: Message | None, *, whole: bool = False
) -> list[response_models.ToolCallItem]:
    """Convert the tool calls of a message.

    Args:
        message: Message with the calls, if any.
        whole: Keep the complete arguments. Otherwise all calls together are cut to ``MAX_LISTED_CHARACTERS``.
    """
    calls, remaining = list[response_models.ToolCallItem](), MAX_LISTED_CHARACTERS
    for call in () if message is None else message.tool_calls:
        arguments = call.arguments if whole else call.arguments[:remaining]
        remaining -= min(remaining, len(arguments))
        calls.append(
            response_models.ToolCallItem(
                id=replace_surrogates(call.id),
                name=replace_surrogates(call.name) if whole else shorten_name(call.name) or "",
                arguments=replace_surrogates(arguments),
                cut=len(arguments) < len(call.arguments),
            )
        )
    return calls


def serialize_session(info: SessionInfo) -> response_models.SessionItem:
    """Convert the description of a session."""
    return response_models.SessionItem(
        session=replace_surrogates(info.name),
        messages=info.message_count,
        tokens=info.token_count,
        created_at=info.created_at,
        updated_at=info.updated_at,
        summary=info.compressed_count > 0,
    )


def serialize_optimizer_status(report: EfficiencyReport) -> response_models.OptimizerStatus:
    """Convert the report of the optimizer."""
    return response_models.OptimizerStatus.model_validate(report.as_dict())


def serialize_optimizer_run(snapshot: TuningSnapshot) -> response_models.OptimizerRun:
    """Convert the snapshot of an optimizer run."""
    return response_models.OptimizerRun(
        at=snapshot.created_at,
        reason=replace_surrogates(snapshot.reason),
        tokens_before=snapshot.tokens_before,
        tokens_after=snapshot.tokens_after,
        tokens_saved=snapshot.tokens_saved,
        usage_before=snapshot.usage_before,
        usage_after=snapshot.usage_after,
        entries_compressed=snapshot.entries_compressed,
        entries_dropped=snapshot.entries_dropped,
        entries_promoted=snapshot.entries_promoted,
        is_reverted=snapshot.is_reverted,
        parameters=response_models.OptimizerParameters.model_validate(snapshot.parameters.as_dict()),
    )


def serialize_entry(found: FoundEntry) -> response_models.EntryResponse:
    """Convert a memory with its complete content."""
    entry, message = found.entry, found.message
    return response_models.EntryResponse(
        id=replace_surrogates(entry.id),
        kind=entry.kind,
        session=_replace_surrogates_or_none(entry.session),
        role=None if entry.role is None else entry.role.value,
        name=None if message is None else _replace_surrogates_or_none(message.name),
        time=entry.created_at,
        tokens=entry.token_count if message is None else message.token_count,
        text=replace_surrogates(entry.content if message is None else message.content),
        calls=serialize_tool_calls(message, whole=True),
        result=None if message is None else _replace_surrogates_or_none(_get_step_result(message)),
        tier=entry.tier.value,
        state=entry.state.value,
        reason=replace_surrogates(entry.reason),
        relevance=entry.relevance,
        importance=entry.importance,
        category=_replace_surrogates_or_none(entry.category),
        source=_replace_surrogates_or_none(entry.source),
        uses=entry.access_count,
    )


def serialize_task(task: TaskInfo) -> response_models.TaskItem:
    """Convert the description of a task."""
    return response_models.TaskItem(
        task=replace_surrogates(task.task),
        cycles=task.cycles,
        started_at=task.started_at,
        updated_at=task.updated_at,
    )


def serialize_cycle(cycle: TaskCycle) -> response_models.CycleItem:
    """Convert a step of a task."""
    entry = cycle.entry
    thought, parameters, result = map(
        truncate_text, (entry.thought.content, entry.action.parameters_json, _get_result_text(entry))
    )
    return response_models.CycleItem(
        id=replace_surrogates(entry.entry_id),
        number=cycle.number,
        thought=thought["text"],
        action=replace_surrogates(entry.action.tool_name),
        parameters=parameters["text"],
        result=result["text"],
        cut=thought["cut"] or parameters["cut"] or result["cut"],
        outcome=entry.outcome.value,
        success=not entry.outcome.is_failure,
        url=replace_surrogates(entry.url),
        time=datetime.fromtimestamp(entry.timestamp, UTC),
        loop=None if cycle.loop is None else replace_surrogates(cycle.loop.message),
    )


def _get_step_result(message: Message) -> str | None:
    try:
        step = parse_cycle_message(message)
    except InvalidInputError:  # a payload of another program
        return None
    return None if step is None else _get_result_text(step)


def _get_result_text(step: Cycle) -> str:
    return step.error_message or ("" if step.observation is None else step.observation.text)


def serialize_erasure(receipt: ErasureReceipt) -> response_models.ErasureResponse:
    """Convert the receipt of an erasure."""
    return response_models.ErasureResponse(
        id=receipt.id,
        erased_at=receipt.erased_at,
        counts={name: count for name, count in asdict(receipt.counts).items() if count},
        remade=receipt.remade,
        elsewhere=dict(receipt.elsewhere),
        is_complete=receipt.is_complete,
        is_scrubbed=receipt.is_scrubbed,
        left=[replace_surrogates(text) for text in receipt.left],
        notes=[replace_surrogates(text) for text in receipt.notes],
    )


def serialize_knowledge(known: Knowledge) -> response_models.KnowledgeItem:
    """Convert an item of knowledge."""
    value = truncate_text(known.value)
    return response_models.KnowledgeItem(
        id=replace_surrogates(known.id),
        category=replace_surrogates(known.category),
        key=replace_surrogates(known.key),
        value=value["text"],
        cut=value["cut"],
        confidence=known.confidence,
        created_at=known.created_at,
        updated_at=known.updated_at,
        uses=known.use_count,
        source=shorten_name(known.source),
    )


def serialize_hit(hit: Hit) -> response_models.HitItem:
    """Convert a recalled memory."""
    entry = hit.entry
    return response_models.HitItem(
        id=replace_surrogates(entry.id),
        kind=entry.kind,
        tier=entry.tier.value,
        session=_replace_surrogates_or_none(entry.session),
        role=None if entry.role is None else entry.role.value,
        time=entry.created_at,
        **truncate_text(entry.content),
        calls=serialize_tool_calls(hit.message),
        score=hit.score,
        signals={name: round(value, 6) for name, value in hit.signals.items()},
        found_by=hit.found_by,
        why=explain_hit(hit),
    )


def explain_hit(hit: Hit) -> str:
    """Describe why a memory was found, with its strongest signals."""
    strongest = sorted(hit.signals.items(), key=lambda signal: -abs(signal[1]))[:_MAX_EXPLAINED_SIGNALS]
    breakdown = ", ".join(f"{name} {value:+.3f}" for name, value in strongest if value)
    return f"found by {hit.found_by}" + (f": {breakdown}" if breakdown else "")


_SECTION_SHARES = {"summary": MAX_SUMMARY_SHARE, "known": MAX_KNOWLEDGE_SHARE, "memories": MAX_RECALLED_SHARE}
"""Maximum share of each section; the conversation gets the remaining tokens."""
_MAX_LEFT_OUT = 200


def count_system_tokens(counter: TokenCounter, text: str | None) -> int:
    """Return the tokens of a system prompt in a context, including its message frame."""
    return counter.count(text) + FRAME_TOKENS if text else 0


def serialize_context(
    preview: Preview, counter: TokenCounter, *, budget: int, system: str | None
) -> response_models.ContextResponse:
    """Convert a context, with the system prompt before it.

    Args:
        preview: Context, with the memories that are not in it.
        counter: Token counter.
        budget: Token budget for the context and the system prompt together.
        system: System prompt, if any.
    """
    context = preview.context
    system_items = [_build_system_item(counter, system)] if system else []
    sections = _build_sections(context, counter, system)
    return response_models.ContextResponse(
        budget=budget,
        used=sum(section.tokens for section in sections),
        sections=sections,
        messages=[*system_items, *_serialize_messages(context)],
        left_out=_serialize_left_out(preview, counter)[:_MAX_LEFT_OUT],
        left_out_count=_count_left_out(preview),
        warnings=list(preview.warnings),
        problems=[replace_surrogates(problem) for problem in context.problems],
    )


def _build_system_item(counter: TokenCounter, text: str) -> response_models.ContextMessageItem:
    return response_models.ContextMessageItem(
        id=None,
        role=Role.SYSTEM.value,
        name=None,
        text=text,
        calls=[],
        tokens=counter.count(text),
        origin="system",
        reason="the system prompt",
    )


def _build_sections(
    context: MemoryContext, counter: TokenCounter, system: str | None
) -> list[response_models.SectionItem]:
    budget, system_tokens = context.token_budget, count_system_tokens(counter, system)
    used = dict(context.sections)
    # An empty context has no frame of its own, but with a system prompt there is a list of messages to frame.
    if system_tokens and not context.messages:
        used["frame"] = count_messages(counter, ())
    sizes = {"system": (system_tokens, system_tokens)} if system_tokens else {}
    sizes |= {name: (tokens, int(budget * _SECTION_SHARES.get(name, 1.0))) for name, tokens in used.items()}
    return [
        response_models.SectionItem(name=name, tokens=tokens, limit=limit)
        for name, (tokens, limit) in sizes.items()
    ]


def _serialize_messages(context: MemoryContext) -> list[response_models.ContextMessageItem]:
    full, compressed = set(context.full), set(context.compressed)
    has_knowledge = bool(context.knowledge)

    def origin(message: Message) -> Literal["full", "compressed", "recalled", "knowledge", "system"]:
        if message.id in full:
            return "full"
        if message.id in compressed or message.is_summary:
            return "compressed"
        # Only two kinds of messages remain: the one with recalled memories and the one with knowledge.
        is_recalled = message.id.startswith(MEMORIES_MESSAGE_ID_PREFIX) or not has_knowledge
        return "recalled" if is_recalled else "knowledge"

    return [
        response_models.ContextMessageItem(
            id=replace_surrogates(message.id),
            role=message.role.value,
            name=None if message.name is None else replace_surrogates(message.name),
            text=replace_surrogates(message.content),
            calls=serialize_tool_calls(message, whole=True),
            tokens=message.token_count,
            origin=origin(message),
            reason=replace_surrogates(context.reasons.get(message.id, "")),
        )
        for message in context.messages
    ]


def _serialize_left_out(preview: Preview, counter: TokenCounter) -> list[response_models.LeftOutItem]:
    context = preview.context
    shortened = {get_reason_key(hit, preview.session) for hit in context.summarized}
    hits = {get_reason_key(hit, preview.session): hit for hit in _get_left_out_hits(context)}
    recalled = [
        response_models.LeftOutItem(
            id=replace_surrogates(hit.entry.id),
            session=None if hit.session is None else replace_surrogates(hit.session),
            role=None if hit.entry.role is None else hit.entry.role.value,
            **truncate_text(hit.entry.content),
            calls=serialize_tool_calls(hit.message),
            tokens=hit.entry.token_count,
            origin="compressed" if key in shortened else "dropped",
            reason=replace_surrogates(context.reasons[key]),
        )
        for key, hit in hits.items()
    ]
    known = [
        response_models.LeftOutItem(
            id=replace_surrogates(hit.knowledge.id),
            session=None,
            role=None,
            **truncate_text(hit.knowledge.text),
            calls=[],
            tokens=counter.count(hit.knowledge.text),
            origin="dropped",
            reason=replace_surrogates(context.reasons[hit.knowledge.id]),
        )
        for hit in context.knowledge_left_out
    ]
    dropped = [
        response_models.LeftOutItem(
            id=replace_surrogates(message.id),
            session=replace_surrogates(preview.session),
            role=message.role.value,
            **truncate_text(message.content),
            calls=serialize_tool_calls(message),
            tokens=message.token_count,
            origin="dropped",
            reason=replace_surrogates(preview.reason_of(message)),
        )
        for message in preview.dropped
        if message.id not in hits
    ]
    return [*recalled, *known, *dropped]


def _count_left_out(preview: Preview) -> int:
    context = preview.context
    dropped = set(context.dropped)

    def is_counted_separately(hit: Hit) -> bool:
        # A message of this session is already counted among the dropped or unseen messages, unless it is compressed
        # and therefore hidden from both.
        if hit.session != preview.session or hit.message is None:
            return True
        return hit.entry.id not in dropped and (preview.is_whole or hit.message.is_compressed)

    others = sum(map(is_counted_separately, _get_left_out_hits(context))) + len(context.knowledge_left_out)
    return len(dropped) + preview.unseen + others


def _get_left_out_hits(context: MemoryContext) -> tuple[Hit, ...]:
    return (*context.left_out, *context.passed_over)
