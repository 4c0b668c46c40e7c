"""Lossless import of contexts into an engine, and export of sessions as contexts.

Entries become messages of a session, facts become knowledge, and the long-term summary becomes the summary of the
session. Values without a counterpart in the engine are stored as an item, the import record. The export reads them
from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.common.namespaces import CONTEXT_FILES_LABEL
from langmem_tiers.context_files.models import ContextData, HistoryEntry
from langmem_tiers.context_files.serializer import (
    GENERATED_ID_PREFIX,
    EntryIdGenerator,
    context_from_dict,
    entry_to_draft,
    from_unix_seconds,
    hide_entry,
    is_hidden_entry,
    message_to_entry,
    part_from_dict,
    part_to_dict,
)
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
    """Result of importing a context into an engine."""

    stored: int
    """Number of new messages."""
    duplicates: int
    """Number of messages that the session already contained."""
    facts: int
    """Number of new facts."""
    problems: tuple[str, ...] = ()
    """Parts of the context that the session does not show; they are stored and exported again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEndpoint:
    """The session of an engine that a context is imported into or exported from."""

    session: Session
    knowledge: KnowledgeBase
    items: Items
    counter: TokenCounter

    @property
    def item_namespace(self) -> NamespacePath:
        """Namespace of the import record."""
        return (CONTEXT_FILES_LABEL, *self.session.namespace)

    def load_import_record(self) -> dict[str, Any]:
        """Return the record of the last import, or an empty dict."""
        item = self.items.get(self.item_namespace, self.session.name)
        return {} if item is None else item.value


def import_context(side: EngineEndpoint, context: ContextData) -> ContextImportReport:
    """Import a context. Importing the same context again stores nothing twice.

    Args:
        side: The session to import into.
        context: The context to import.
    """
    record = side.load_import_record()
    drafts = _build_drafts(side, context)
    # The summary can only be the first message of the session if there are no messages yet.
    is_new = not side.session.latest(1)
    summary_draft = _build_summary_draft(context, drafts) if is_new else None
    report = side.session.add_many(drafts if summary_draft is None else [summary_draft, *drafts])
    stored = {message.id: message for message in (*report.stored, *report.duplicates)}
    facts, new_fact_count = _store_facts(side, context, record.get("facts", []))
    problems = _apply_summary(side, context, drafts, is_shown=summary_draft is not None)
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
        # The summary message is not an entry of the context and is not counted.
        stored=len(report.stored) - (summary_draft is not None and bool(report.stored)),
        duplicates=len(report.duplicates),
        facts=new_fact_count,
        problems=problems,
    )


def export_context(side: EngineEndpoint, session_id: str) -> ContextData:
    """Export a session as a context: its current messages, its summary and its knowledge.

    A session that was imported from a context returns that context with all later messages and facts. For any other
    session, the facts are the knowledge of its namespace.

    Args:
        side: The session to export.
        session_id: The session id of the context.
    """
    record = side.load_import_record()
    messages = {message.id: message for message in side.session.messages()}
    imported_ids = {entry["id"] for entry in record.get("history", []) if not entry.get("is_echo")}
    if imported_ids and imported_ids.isdisjoint(messages):
        # None of the imported messages exists: the record belongs to a deleted session of the same name.
        record, imported_ids = {}, set()
    for message in side.session.transcript.messages(OUT_OF_LIST):
        del messages[message.id]
    base = ContextData(session_id=session_id)
    if record:
        base = replace(context_from_dict(record["context"], session_id), session_id=session_id)
    facts = _export_facts(side, record)
    extra = base.extra if record else {**base.extra, **_export_knowledge(side.knowledge)}
    return replace(
        base,
        recent_history=tuple(_build_entries(record.get("history", []), messages)),
        # An imported entry may read like a summary; only messages added since can be summaries of this session.
        long_term_summary=_find_summary(
            (message for message in messages.values() if message.id not in imported_ids),
            base.long_term_summary,
        ),
        facts=tuple(facts),
        extra=extra,
    )


def _build_drafts(side: EngineEndpoint, context: ContextData) -> list[MessageDraft]:
    ids, seen = EntryIdGenerator(context.session_id), set[str]()
    drafts = []
    for entry in context.recent_history:
        draft = entry_to_draft(entry, ids.generate_id(entry), side.counter)
        if draft.id in seen:
            # Two entries with the same id are still two messages; the second gets a generated id.
            draft = draft.with_id(ids.generate_id(entry))
        seen.add(draft.id or "")
        drafts.append(draft)
    return drafts


def _build_summary_draft(context: ContextData, drafts: Sequence[MessageDraft]) -> MessageDraft | None:
    # Without hidden entries, the summarized messages no longer exist, and the summary becomes the first message.
    # With hidden entries, _apply_summary() compresses those instead.
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
    visible_ids = [draft.id for entry, draft in pairs if not is_hidden_entry(entry)]
    if any(map(is_hidden_entry, context.recent_history)) and visible_ids and visible_ids[0] is not None:
        # Hide everything before the first visible entry behind the summary.
        side.session.compress(older_than=visible_ids[0], summary=summary)
        return ()
    if any(message.is_summary for message in side.session.view()):
        return ()
    return ("the session already had messages: its long-term summary is kept, but not shown in the session",)


def _build_entry_record(entry: HistoryEntry, draft: MessageDraft, message: Message | None) -> dict[str, Any]:
    # Convert the stored message back, as the export will do. The record keeps the original entry only if the
    # result differs from it. Visibility is ignored here; the export takes it from the session.
    exported = None if message is None else message_to_entry(replace(message, is_compressed=False))
    if is_hidden_entry(entry) and exported is not None:
        exported = hide_entry(exported)
    if exported is None:
        # The entry contained only text injected by the memory itself, which a session does not store.
        return {"id": draft.id, "entry": part_to_dict(entry), "is_echo": True}
    is_lossless = part_to_dict(exported) == part_to_dict(entry)
    return {"id": draft.id} if is_lossless else {"id": draft.id, "entry": part_to_dict(entry)}


def _build_entries(
    history: Iterable[Mapping[str, Any]], messages: Mapping[str, Message]
) -> Iterator[HistoryEntry]:
    # First the imported entries in their original order, then the messages that were added since.
    exported_ids = set[str]()
    for recorded in history:
        message = messages.get(recorded["id"])
        exported_ids.add(recorded["id"])
        # An entry whose message was deleted from the session is not exported, unless it never was a message.
        if "entry" in recorded and (message is not None or recorded.get("is_echo")):
            entry = part_from_dict(HistoryEntry, recorded["entry"], "history")
            yield hide_entry(entry) if message is not None and message.is_compressed else entry
        elif message is not None:
            yield message_to_entry(message)
    for message in messages.values():
        if message.id not in exported_ids and not message.is_summary:
            yield message_to_entry(message)


def _find_summary(messages: Iterable[Message], imported_summary: str) -> str:
    summaries = [message for message in messages if message.is_summary and not message.is_compressed]
    if not summaries:
        return imported_summary
    return summaries[-1].content.removeprefix(SUMMARY_PREFIX).removeprefix("\n")


def _store_facts(
    side: EngineEndpoint, context: ContextData, recorded_facts: Sequence[Sequence[Any]]
) -> tuple[list[list[Any]], int]:
    # Returns each fact with the category and key of its knowledge entry, and the number of new entries.
    source = f"{_SOURCE_PREFIX}{context.session_id}"
    imported_before = {fact: (category, key) for fact, category, key in recorded_facts}
    from_knowledge, new_count = _store_knowledge(side.knowledge, context.extra.get("knowledge"))
    facts: list[list[Any]] = []
    for fact in context.facts:
        name = from_knowledge.get(fact) or imported_before.get(fact)
        if not fact.strip():
            # Knowledge cannot be blank; the record alone keeps this fact.
            name = (None, None)
        elif name is None or name[1] is None or side.knowledge.get(*name, use=False) is None:
            report = side.knowledge.note(fact, source=source)
            name = (report.knowledge.category, report.knowledge.key)
            new_count += report.is_new
        facts.append([fact, *name])
    return facts, new_count


def _store_knowledge(
    knowledge: KnowledgeBase, entries: object
) -> tuple[dict[str, tuple[str | None, str | None]], int]:
    # Import the knowledge that _export_knowledge() of another engine wrote. ``entries`` comes from a file, so
    # invalid values are skipped. Returns the category and key by the text of the entry, and the number of new ones.
    stored: dict[str, tuple[str | None, str | None]] = {}
    new_count = 0
    for entry in entries if isinstance(entries, list) else []:
        names = ("category", "key", "value")
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(name), str) and entry[name] for name in names
        ):
            continue
        category, key, value = (str(entry[name]) for name in names)
        known = knowledge.get(category, key, use=False)
        if known is None or collapse_spaces(known.value) != collapse_spaces(value):
            confidence, source = entry.get("confidence"), entry.get("source")
            is_score = isinstance(confidence, int | float) and 0 <= confidence <= 1
            report = knowledge.store(
                category,
                key,
                value,
                confidence=float(confidence) if is_score else INITIAL_CONFIDENCE,  # type: ignore[arg-type] # a score
                source=source if isinstance(source, str) else None,
            )
            known, new_count = report.knowledge, new_count + report.is_new
        stored[known.text] = (category, key)
    return stored, new_count


def _export_knowledge(knowledge: KnowledgeBase) -> dict[str, Any]:
    exported = [
        {
            "category": entry.category,
            "key": entry.key,
            "value": entry.value,
            "confidence": entry.confidence,
            "source": entry.source,
        }
        for entry in knowledge
    ]
    return {"knowledge": exported} if exported else {}


def _export_facts(side: EngineEndpoint, record: Mapping[str, Any]) -> Iterator[str]:
    if not record:
        yield from dict.fromkeys(entry.text for entry in side.knowledge)
        return
    exported = set[tuple[str, str]]()
    for fact, category, key in record["facts"]:
        if key is None:
            yield fact
            continue
        known = side.knowledge.get(category, key, use=False)
        exported.add((category, key))
        # A fact that was forgotten since the import is not exported; a changed one has its new text.
        if known is not None:
            yield fact if _is_same_fact(known, fact) else known.text
    # The namespace may contain facts of other sessions. Add only notes that came from this context.
    source = f"{_SOURCE_PREFIX}{record['context']['session_id']}"
    for entry in side.knowledge.page(NOTE_CATEGORY, limit=1_000_000):
        if entry.source == source and (entry.category, entry.key) not in exported:
            yield entry.text


def _is_same_fact(known: Knowledge, fact: str) -> bool:
    return collapse_spaces(known.text) == collapse_spaces(fact)
