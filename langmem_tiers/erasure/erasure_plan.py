"""Planning of an erasure: which derived data is deleted, and which is rebuilt from the remaining data."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langmem_tiers.chunks.service import Chunks
from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.episodes.service import build_episode_entry, to_episode
from langmem_tiers.erasure.records import ErasurePlan
from langmem_tiers.facts.models import FactState
from langmem_tiers.long_term.rules import to_new_entry
from langmem_tiers.sessions.service import complete_drafts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.erasure.records import ErasureImpact, MessageRef, SessionViewState
    from langmem_tiers.facts.models import ExtractedFact
    from langmem_tiers.long_term.records import NewEntry, StoredEntry
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.repository import SessionRepository

_MESSAGE_PREFIX = "message "  # prefix of the id in the source of an entry
_MAX_SUMMARIZED_MESSAGES = 2000  # maximum number of messages, the newest ones, for rebuilding a summary


def find_tool_groups(messages: Sequence[MessageRef]) -> list[tuple[int, ...]]:
    """Return the indexes of each tool call with its results; a result belongs to the latest call with its id."""
    open_calls: dict[str, int] = {}
    groups: dict[int, list[int]] = {}
    for index, message in enumerate(messages):
        if message.tool_calls:
            groups[index] = [index]
            open_calls.update(dict.fromkeys((call.id for call in message.tool_calls), index))
        elif message.tool_call_id is not None and message.tool_call_id in open_calls:
            groups[open_calls[message.tool_call_id]].append(index)
    return [tuple(group) for group in groups.values()]


def complete_tool_groups(messages: Sequence[MessageRef], ids: AbstractSet[str]) -> tuple[MessageRef, ...]:
    """Return the messages with these ids, plus the other messages of their tool groups."""
    selected = {index for index, message in enumerate(messages) if message.id in ids}
    for group in find_tool_groups(messages):
        if selected.intersection(group):
            selected.update(group)
    return tuple(messages[index] for index in sorted(selected))


def find_old_groups(messages: Sequence[MessageRef]) -> list[tuple[MessageRef, ...]]:
    """Return the messages that retention may erase; a tool call is only erased with all of its results."""
    groups_by_index = {index: group for group in find_tool_groups(messages) for index in group}
    is_erasable = [
        message.is_old and not message.is_promoted and not message.is_summary for message in messages
    ]
    # A message without a tool group is a group of its own. The dict removes duplicates and keeps the order.
    groups = dict.fromkeys(
        groups_by_index.get(index, (index,)) for index in range(len(messages)) if is_erasable[index]
    )
    return [
        tuple(messages[index] for index in group)
        for group in groups
        if all(is_erasable[index] for index in group)
    ]


def plan_entry_erasure(services: EngineServices, impact: ErasureImpact, entry_id: str) -> ErasurePlan:
    """Plan the erasure of one entry, with its earlier versions and the facts that it comes from."""
    erased = {stored.entry.id for stored in impact.entries if stored.entry.id == entry_id} | impact.versions
    return _build_plan(services, impact, erased, [])


def plan_session_erasure(
    services: EngineServices, impact: ErasureImpact, names: Sequence[str]
) -> ErasurePlan:
    """Plan the erasure of complete sessions."""
    erased, rewritten = _plan_entries(services.counter, impact, frozenset(names), None)
    plan = _build_plan(services, impact, erased, rewritten)
    return replace(plan, sessions=impact.sessions, context_names=tuple(names))


def plan_message_erasure(
    services: EngineServices, impact: ErasureImpact, *, with_long_term: bool
) -> ErasurePlan:
    """Plan the erasure of messages of a session.

    Args:
        services: Services of the engine.
        impact: Data derived from the messages.
        with_long_term: Also erase long-term entries and knowledge that come from the messages.
    """
    state = impact.state
    assert state is not None  # noqa: S101 - set for the messages of a session
    ids = frozenset(message.id for message in impact.messages)
    erased: set[str] = set()
    rewritten: list[NewEntry] = []
    if with_long_term:
        erased, rewritten = _plan_entries(services.counter, impact, frozenset({state.session.name}), ids)
    plan = _build_plan(services, impact, erased, rewritten, all_facts=with_long_term)
    erased_spans, rebuilt_spans = _plan_chunks_and_episodes(services, impact, state, ids)
    summary, digest = _rebuild_summary(services, impact, state, ids)
    # An episode may be both unlinked in the plan and rebuilt or erased here. The result of this function wins:
    # otherwise the unlinked version would restore the erased quote.
    rebuilt_ids = {rebuilt.entry.id for rebuilt in rebuilt_spans}
    unlinked = [
        rewritten_entry
        for rewritten_entry in plan.rewritten_entries
        if rewritten_entry.entry.id not in rebuilt_ids and rewritten_entry.entry.id not in erased_spans
    ]
    return replace(
        plan,
        state=state,
        messages=impact.messages,
        memories=(*plan.memories, *erased_spans),
        rewritten_entries=(*unlinked, *rebuilt_spans),
        summary=summary,
        digest=digest,
        is_clearing_query_vectors=with_long_term,
    )


def _build_plan(
    services: EngineServices,
    impact: ErasureImpact,
    erased: set[str],
    rewritten: list[NewEntry],
    *,
    all_facts: bool = True,
) -> ErasurePlan:
    erased = _add_derived_entries(impact, erased)
    # Facts from other sources that support an erased entry say the same, so they are erased with it.
    supporting = {fact.id for entry_id in erased for fact in impact.facts_from_elsewhere.get(entry_id, ())}
    facts = {fact.id for fact in impact.facts if all_facts or fact.state is not FactState.PROMOTED}
    return ErasurePlan(
        namespace=impact.namespace,
        stamp=impact.stamp,
        memories=tuple(sorted({*erased, *impact.procedures})),
        versions=impact.versions,
        rewritten_entries=(
            *(entry for entry in rewritten if entry.entry.id not in erased),
            *_unlink_episodes(services.short_term.sessions, impact, erased),
        ),
        facts=tuple(sorted(facts | supporting)),
        knowledge=impact.knowledge,
        past_knowledge=impact.past_knowledge,
        sources=impact.sources,
    )


def _add_derived_entries(impact: ErasureImpact, erased: set[str]) -> set[str]:
    # A derived entry is erased if all entries that it was derived from are. Repeat until nothing is added, because
    # entries may be derived from derived entries.
    origins: dict[str, set[str]] = {}
    for relation in impact.derivations:
        origins.setdefault(relation.source, set()).add(relation.target)
    existing = {stored.entry.id for stored in impact.entries}
    found = set(erased)
    while more := {
        entry_id for entry_id, ids in origins.items() if entry_id in existing - found and ids <= found
    }:
        found |= more
    return found


def _plan_entries(
    counter: TokenCounter, impact: ErasureImpact, names: frozenset[str], ids: frozenset[str] | None
) -> tuple[set[str], list[NewEntry]]:
    erased_ids: set[str] = set()
    rewritten: list[NewEntry] = []
    for stored in impact.entries:
        entry = stored.entry
        erased_facts = [fact for fact in impact.facts if fact.entry_id == entry.id]
        other_facts = impact.facts_from_elsewhere.get(entry.id, ())
        # An entry without a session was stored by hand. It is kept, but must not name an erased message as its source.
        if entry.session is None:
            if any(_to_source(fact) == entry.source for fact in erased_facts):
                rewritten.append(to_new_entry(replace(entry, source=None)))
        elif _is_origin_erased(entry, erased_facts, other_facts, names, ids):
            if other_facts:
                rewritten.append(to_new_entry(_rewrite_entry(counter, entry, other_facts)))
            else:
                erased_ids.add(entry.id)
    return erased_ids, rewritten


def _is_origin_erased(
    entry: Entry,
    erased: Sequence[ExtractedFact],
    other_facts: Sequence[ExtractedFact],
    names: frozenset[str],
    ids: frozenset[str] | None,
) -> bool:
    source = entry.source or ""
    if any(_to_source(fact) == source for fact in erased):
        return True
    if entry.session not in names or any(_to_source(fact) == source for fact in other_facts):
        return False
    return ids is None or source.removeprefix(_MESSAGE_PREFIX) in ids


def _to_source(fact: ExtractedFact) -> str | None:
    return None if fact.source_message_id is None else f"{_MESSAGE_PREFIX}{fact.source_message_id}"


def _rewrite_entry(counter: TokenCounter, entry: Entry, other_facts: Sequence[ExtractedFact]) -> Entry:
    # The wording may come from the erased message, so it is replaced by that of another source.
    first = other_facts[0]
    return replace(
        entry,
        content=first.content,
        kind=first.kind,
        category=next((fact.category for fact in other_facts if fact.category), None),
        tags=frozenset(tag for fact in other_facts for tag in fact.tags),
        source=_to_source(first) or first.source,
        session=first.session,
        token_count=counter.count(first.content),
    )


def _unlink_episodes(sessions: SessionRepository, impact: ErasureImpact, erased: set[str]) -> list[NewEntry]:
    unlinked: list[NewEntry] = []
    keys: dict[str, int | None] = {}
    erased_sessions = {session.name for session in impact.sessions}
    for stored in impact.linking_episodes:
        episode = to_episode(stored)
        # Episodes that are erased themselves need no update.
        is_erased = episode.session in erased_sessions or episode.id in erased
        if is_erased or not erased.intersection(episode.linked):
            continue
        if episode.session not in keys:
            info = sessions.get(impact.namespace, episode.session)
            keys[episode.session] = None if info is None else info.key
        remaining = tuple(entry_id for entry_id in episode.linked if entry_id not in erased)
        unlinked.append(build_episode_entry(replace(episode, linked=remaining), keys[episode.session]))
    return unlinked


def _plan_chunks_and_episodes(
    services: EngineServices, impact: ErasureImpact, state: SessionViewState, ids: frozenset[str]
) -> tuple[list[str], list[NewEntry]]:
    numbers = sorted({message.number for message in impact.messages if not message.is_summary})
    chunks = Chunks(
        services.long_term,
        _build_extractive_summarizer(services),
        services.config.learning,
        namespace=impact.namespace,
        session=state.session.name,
        key=state.session.key,
    )
    erased: list[str] = []
    rewritten: list[NewEntry] = []
    for stored in impact.chunks_and_episodes:
        if stored.entry.tier is Tier.EPISODIC:
            rebuilt = _rewrite_episode(stored, impact, numbers, state.session.key)
            if rebuilt is not None:
                rewritten.append(rebuilt)
            elif _has_number_between(numbers, stored.details["first_turn"], stored.details["last_turn"]):
                erased.append(stored.entry.id)
        elif "turns" in stored.details and _has_number_between(numbers, *stored.details["turns"]):
            erased.append(stored.entry.id)
            # An archived chunk is erased, but not rebuilt.
            rebuilt = None if stored.archived_at is not None else chunks.rebuild_chunk(stored, ids)
            rewritten += [] if rebuilt is None else [rebuilt]
    return erased, rewritten


def _rewrite_episode(
    stored: StoredEntry, impact: ErasureImpact, numbers: Sequence[int], key: int
) -> NewEntry | None:
    # An episode that only quotes an erased message as its context loses the quote but is kept.
    episode = to_episode(stored)
    if not episode.context or _has_number_between(numbers, episode.first_turn, episode.last_turn):
        return None
    quotes = any(
        number < episode.first_turn and episode.last_turn <= until
        for number, until in impact.following_turns.items()
    )
    return build_episode_entry(replace(episode, context=""), key) if quotes else None


def _has_number_between(numbers: Sequence[int], first: int, last: int) -> bool:
    index = bisect_left(numbers, first)
    return index < len(numbers) and numbers[index] <= last


def _rebuild_summary(
    services: EngineServices, impact: ErasureImpact, state: SessionViewState, ids: frozenset[str]
) -> tuple[Message, dict[str, Any]] | tuple[None, None]:
    # The current summary only covers an erased message if it comes after it; see find_first_outdated_summary().
    since = min(message.number + (not message.is_summary) for message in impact.messages)
    if not state.view_key or state.view_number < since:
        return None, None
    # As many more as are erased, so that enough remain after filtering.
    covered = [
        message
        for message in services.erasure.list_summarized_messages(state, _MAX_SUMMARIZED_MESSAGES + len(ids))
        if message.id not in ids
    ]
    if not covered:
        return None, None
    summary = _build_extractive_summarizer(services).roll_up(
        covered[-_MAX_SUMMARIZED_MESSAGES:], services.config.summary.target_tokens
    )
    draft = MessageDraft(Role.SYSTEM, f"{SUMMARY_PREFIX}\n{summary.text}")
    return complete_drafts(services.short_term, [draft])[0], summary.digest


def _build_extractive_summarizer(services: EngineServices) -> Summarizer:
    # Without a language model: content around data that a user wants erased must not be sent to an external service.
    summarizer = services.summarizer
    return Summarizer(summarizer.counter, facts=summarizer.finder, config=services.config.summary)
