"""Contexts into the engine and out of it, without loss.

Entries become messages of a session, facts become knowledge, the long-term summary becomes the session's summary. What
the engine has no place for is kept as an item beside them, and comes back on the way out as it went in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.common.namespaces import CONTEXT_FILES_LABEL
from langmem_tiers.context_files.message_conversion import (
    GENERATED_ID_PREFIX,
    EntryIdGenerator,
    entry_to_draft,
    from_unix_seconds,
    hide_entry,
    is_hidden_entry,
    message_to_entry,
)
from langmem_tiers.context_files.models import ContextData, HistoryEntry
from langmem_tiers.context_files.serializer import context_from_dict, part_from_dict, part_to_dict
from langmem_tiers.knowledge.confidence import INITIAL_CONFIDENCE, collapse_spaces
from langmem_tiers.knowledge.models import NOTE_CATEGORY, Knowledge
from langmem_tiers.sessions.models import OUT_OF_LIST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.items.service import Items
    from langmem_tiers.knowledge.service import KnowledgeBase
    from langmem_tiers.session import Session

_SOURCE_PREFIX = "context file "


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextImportReport:
    """What became of a context that went into the engine."""

    stored: int
    """Messages that are new."""
    duplicates: int
    """Messages that the session had already."""
    facts: int
    """Facts that are newly known."""
    problems: tuple[str, ...] = ()
    """What the engine shows otherwise than the file; nothing of it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEndpoint:
    """The session of the engine that a context goes into, or comes from."""

    session: Session
    knowledge: KnowledgeBase
    items: Items
    counter: TokenCounter

    @property
    def item_namespace(self) -> NamespacePath:
        """The namespace of what is kept beside."""
        return (CONTEXT_FILES_LABEL, *self.session.namespace)

    def load_import_record(self) -> dict[str, Any]:
        """What was kept beside when a context last came in."""
        item = self.items.get(self.item_namespace, self.session.name)
        return {} if item is None else item.value


def import_context(side: EngineEndpoint, context: ContextData) -> ContextImportReport:
    """Take a context in. Again with the same context, nothing is stored twice.

    Args:
        side: Where to.
        context: What to take in.
    """
    remembered = side.load_import_record()
    drafts = _build_drafts(side, context)
    is_new = not side.session.latest(1)
    front = _build_summary_draft(context, drafts) if is_new else None
    report = side.session.add_many(drafts if front is None else [front, *drafts])
    stored = {one.id: one for one in (*report.stored, *report.duplicates)}
    facts, learned = _store_facts(side, context, remembered.get("facts", []))
    problems = _apply_summary(side, context, drafts, is_shown=front is not None)
    value = {
        "context": part_to_dict(replace(context, recent_history=())),
        "history": [
            _build_entry_record(entry, draft, stored.get(draft.id or ""))
            for entry, draft in zip(context.recent_history, drafts, strict=True)
        ],
        "facts": facts,
    }
    side.items.put(side.item_namespace, side.session.name, value, texts=())
    return ContextImportReport(
        stored=len(report.stored) - (front is not None and bool(report.stored)),
        duplicates=len(report.duplicates),
        facts=learned,
        problems=problems,
    )


def export_context(side: EngineEndpoint, session_id: str) -> ContextData:
    """The context of a session: the messages of its list, its summary, and what is known.

    A session that came from a context gives it back, with what was said and learned since. Another gives what its
    namespace knows as facts.

    Args:
        side: Where from.
        session_id: What the context is to be called.
    """
    remembered = side.load_import_record()
    messages = {message.id: message for message in side.session.messages()}
    came_in = {one["id"] for one in remembered.get("history", []) if not one.get("is_echo")}
    if came_in and came_in.isdisjoint(messages):
        remembered, came_in = {}, set()  # of a session that is gone
    for gone in side.session.transcript.messages(OUT_OF_LIST):
        del messages[gone.id]
    base = ContextData(session_id=session_id)
    if remembered:
        base = replace(context_from_dict(remembered["context"], session_id), session_id=session_id)
    facts = _export_facts(side, remembered)
    extra = base.extra if remembered else {**base.extra, **_export_knowledge(side.knowledge)}
    return replace(
        base,
        recent_history=tuple(_build_entries(remembered.get("history", []), messages)),
        long_term_summary=_find_summary(
            (one for one in messages.values() if one.id not in came_in), base.long_term_summary
        ),
        facts=tuple(facts),
        extra=extra,
    )


def _build_drafts(side: EngineEndpoint, context: ContextData) -> list[MessageDraft]:
    ids, seen = EntryIdGenerator(context.session_id), set[str]()
    drafts = []
    for entry in context.recent_history:
        draft = entry_to_draft(entry, ids.generate_id(entry), side.counter)
        if draft.id in seen:  # two entries under one id are two messages all the same
            draft = draft.with_id(ids.generate_id(entry))
        seen.add(draft.id or "")
        drafts.append(draft)
    return drafts


def _build_summary_draft(context: ContextData, drafts: Sequence[MessageDraft]) -> MessageDraft | None:
    # A summary of what is in no record any more is the first thing that the session shows.
    if not context.long_term_summary or any(map(is_hidden_entry, context.recent_history)):
        return None
    return MessageDraft(
        Role.SYSTEM,
        f"{SUMMARY_PREFIX}\n{context.long_term_summary}",
        id=f"{GENERATED_ID_PREFIX}summary",
        created_at=drafts[0].created_at
        if drafts
        else from_unix_seconds(context.last_known_environment.last_update),
    )


def _apply_summary(
    side: EngineEndpoint, context: ContextData, drafts: Sequence[MessageDraft], *, is_shown: bool
) -> tuple[str, ...]:
    summary = context.long_term_summary
    if not summary or is_shown or side.session.info().compressed_count:
        return ()
    pairs = zip(context.recent_history, drafts, strict=True)
    shown = [draft.id for entry, draft in pairs if not is_hidden_entry(entry)]
    if any(map(is_hidden_entry, context.recent_history)) and shown and shown[0] is not None:
        side.session.compress(older_than=shown[0], summary=summary)
        return ()
    if any(message.is_summary for message in side.session.view()):
        return ()
    return ("the session had messages before: its long-term summary is kept, and not shown in it",)


def _build_entry_record(entry: HistoryEntry, draft: MessageDraft, message: Message | None) -> dict[str, Any]:
    came_back = None if message is None else message_to_entry(replace(message, is_compressed=False))
    if is_hidden_entry(entry) and came_back is not None:
        came_back = hide_entry(came_back)
    if came_back is None:  # nothing but what memory had injected: no session stores it
        return {"id": draft.id, "entry": part_to_dict(entry), "is_echo": True}
    same = part_to_dict(came_back) == part_to_dict(entry)
    return {"id": draft.id} if same else {"id": draft.id, "entry": part_to_dict(entry)}


def _build_entries(
    history: Iterable[Mapping[str, Any]], messages: Mapping[str, Message]
) -> Iterator[HistoryEntry]:
    done = set[str]()
    for one in history:
        message = messages.get(one["id"])
        done.add(one["id"])
        if "entry" in one and (message is not None or one.get("is_echo")):
            entry = part_from_dict(HistoryEntry, one["entry"], "history")
            yield hide_entry(entry) if message is not None and message.is_compressed else entry
        elif message is not None:
            yield message_to_entry(message)
    for message in messages.values():
        if message.id not in done and not message.is_summary:
            yield message_to_entry(message)


def _find_summary(messages: Iterable[Message], remembered: str) -> str:
    in_force = [one for one in messages if one.is_summary and not one.is_compressed]
    if not in_force:
        return remembered
    return in_force[-1].content.removeprefix(SUMMARY_PREFIX).removeprefix("\n")


def _store_facts(
    side: EngineEndpoint, context: ContextData, remembered: Sequence[Sequence[Any]]
) -> tuple[list[list[Any]], int]:
    source = f"{_SOURCE_PREFIX}{context.session_id}"
    before = {fact: (category, key) for fact, category, key in remembered}
    told, learned = _store_knowledge(side.knowledge, context.extra.get("knowledge"))
    facts: list[list[Any]] = []
    for fact in context.facts:
        name = told.get(fact) or before.get(fact)
        if not fact.strip():
            name = (None, None)
        elif name is None or name[1] is None or side.knowledge.get(*name, use=False) is None:
            report = side.knowledge.note(fact, source=source)
            name = (report.knowledge.category, report.knowledge.key)
            learned += report.is_new
        facts.append([fact, *name])
    return facts, learned


def _store_knowledge(
    knowledge: KnowledgeBase, entries: object
) -> tuple[dict[str, tuple[str | None, str | None]], int]:
    # What another engine knew comes with category, key and confidence.
    told: dict[str, tuple[str | None, str | None]] = {}
    learned = 0
    for one in entries if isinstance(entries, list) else []:
        names = ("category", "key", "value")
        if not isinstance(one, dict) or not all(
            isinstance(one.get(name), str) and one[name] for name in names
        ):
            continue
        category, key, value = (str(one[name]) for name in names)
        known = knowledge.get(category, key, use=False)
        if known is None or collapse_spaces(known.value) != collapse_spaces(value):
            confidence, source = one.get("confidence"), one.get("source")
            is_score = isinstance(confidence, int | float) and 0 <= confidence <= 1
            report = knowledge.store(
                category,
                key,
                value,
                confidence=float(confidence) if is_score else INITIAL_CONFIDENCE,  # type: ignore[arg-type] # a score
                source=source if isinstance(source, str) else None,
            )
            known, learned = report.knowledge, learned + report.is_new
        told[known.text] = (category, key)
    return told, learned


def _export_knowledge(knowledge: KnowledgeBase) -> dict[str, Any]:
    known = [
        {
            "category": one.category,
            "key": one.key,
            "value": one.value,
            "confidence": one.confidence,
            "source": one.source,
        }
        for one in knowledge
    ]
    return {"knowledge": known} if known else {}


def _export_facts(side: EngineEndpoint, remembered: Mapping[str, Any]) -> Iterator[str]:
    if not remembered:
        yield from dict.fromkeys(one.text for one in side.knowledge)
        return
    done = set[tuple[str, str]]()
    for fact, category, key in remembered["facts"]:
        if key is None:
            yield fact
            continue
        known = side.knowledge.get(category, key, use=False)
        done.add((category, key))
        if known is not None:  # or it was taken out of force since
            yield fact if _is_same_fact(known, fact) else known.text
    source = f"{_SOURCE_PREFIX}{remembered['context']['session_id']}"
    for one in side.knowledge.page(NOTE_CATEGORY, limit=1_000_000):
        if one.source == source and (one.category, one.key) not in done:
            yield one.text


def _is_same_fact(known: Knowledge, fact: str) -> bool:
    return collapse_spaces(known.text) == collapse_spaces(fact)
