"""What goes with what is erased, and what is told anew from what is left: decisions, before anything happens."""

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
from langmem_tiers.long_term.entry_factory import to_new_entry
from langmem_tiers.sessions.service import complete_drafts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from langmem_tiers.common.entries import Entry
    from langmem_tiers.common.messages import Message
    from langmem_tiers.erasure.records import ErasureImpact, MessageRef, SessionViewState
    from langmem_tiers.facts.models import ExtractedFact
    from langmem_tiers.long_term.records import NewEntry, StoredEntry
    from langmem_tiers.services import EngineServices

_MESSAGE_PREFIX = "message "  # before the id, where an entry says what it comes from
_MAX_SUMMARIZED_MESSAGES = 2000  # of the messages behind a summary that it is made anew from: the newest


def find_tool_groups(places: Sequence[MessageRef]) -> list[tuple[int, ...]]:
    """The places of each call with its results, as indexes; a result belongs to the latest call with its id."""
    opened: dict[str, int] = {}
    groups: dict[int, list[int]] = {}
    for index, place in enumerate(places):
        if place.tool_calls:
            groups[index] = [index]
            opened.update(dict.fromkeys((call.id for call in place.tool_calls), index))
        elif place.tool_call_id is not None and place.tool_call_id in opened:
            groups[opened[place.tool_call_id]].append(index)
    return [tuple(group) for group in groups.values()]


def complete_tool_groups(places: Sequence[MessageRef], ids: AbstractSet[str]) -> tuple[MessageRef, ...]:
    """The messages with these ids, and what a tool call among them belongs with."""
    wanted = {index for index, place in enumerate(places) if place.id in ids}
    for group in find_tool_groups(places):
        if wanted.intersection(group):
            wanted.update(group)
    return tuple(places[index] for index in sorted(wanted))


def find_old_groups(places: Sequence[MessageRef]) -> list[tuple[MessageRef, ...]]:
    """What is old enough to go: messages by themselves, and tool calls only with all of their results."""
    in_groups = {index: group for group in find_tool_groups(places) for index in group}
    goes = [place.is_old and not place.is_promoted and not place.is_summary for place in places]
    groups = dict.fromkeys(in_groups.get(index, (index,)) for index in range(len(places)) if goes[index])
    return [
        tuple(places[index] for index in group) for group in groups if all(goes[index] for index in group)
    ]


def plan_entry_erasure(parts: EngineServices, touched: ErasureImpact, entry_id: str) -> ErasurePlan:
    """What forgetting one entry comes to: its former versions and the facts that it comes from go along."""
    gone = {one.entry.id for one in touched.entries if one.entry.id == entry_id} | touched.versions
    return _build_plan(parts, touched, gone, [])


def plan_session_erasure(parts: EngineServices, touched: ErasureImpact, names: Sequence[str]) -> ErasurePlan:
    """What forgetting whole sessions comes to."""
    gone, put = _plan_entries(parts, touched, frozenset(names), None)
    removal = _build_plan(parts, touched, gone, put)
    return replace(removal, sessions=touched.sessions, context_names=tuple(names))


def plan_message_erasure(parts: EngineServices, touched: ErasureImpact, *, lasting: bool) -> ErasurePlan:
    """What erasing messages of a session comes to.

    Args:
        parts: The workers.
        touched: What comes from them.
        lasting: Whether what was learned from them for long goes too.
    """
    state = touched.state
    assert state is not None  # noqa: S101 - it is a session's
    ids = frozenset(one.id for one in touched.messages)
    gone: set[str] = set()
    put: list[NewEntry] = []
    if lasting:
        gone, put = _plan_entries(parts, touched, frozenset({state.session.name}), ids)
    removal = _build_plan(parts, touched, gone, put, all_facts=lasting)
    told, anew = _plan_chunks_and_episodes(parts, touched, state, ids)
    summary, digest = _rebuild_summary(parts, touched, state, ids)
    # An episode may lose both a link and what it quotes.
    retold = {one.entry.id: one for one in anew}
    linked = [
        one for one in removal.rewritten_entries if one.entry.id not in retold and one.entry.id not in told
    ]
    return replace(
        removal,
        state=state,
        messages=touched.messages,
        memories=(*removal.memories, *told),
        rewritten_entries=(*linked, *anew),
        summary=summary,
        digest=digest,
        is_clearing_query_vectors=lasting,
    )


def _build_plan(
    parts: EngineServices,
    touched: ErasureImpact,
    gone: set[str],
    put: list[NewEntry],
    *,
    all_facts: bool = True,
) -> ErasurePlan:
    gone = _add_derived(touched, gone)
    said_by = {fact.id for name in gone for fact in touched.facts_from_elsewhere.get(name, ())}
    facts = {one.id for one in touched.facts if all_facts or one.state is not FactState.PROMOTED} | said_by
    return ErasurePlan(
        namespace=touched.namespace,
        stamp=touched.stamp,
        memories=tuple(sorted({*gone, *touched.procedures})),
        versions=touched.versions,
        rewritten_entries=(
            *(one for one in put if one.entry.id not in gone),
            *_unlink_episodes(parts, touched, gone),
        ),
        facts=tuple(sorted(facts)),
        knowledge=touched.knowledge,
        past_knowledge=touched.past_knowledge,
        sources=touched.sources,
    )


def _add_derived(touched: ErasureImpact, gone: set[str]) -> set[str]:
    # What was derived from others goes once all of them are gone.
    targets: dict[str, set[str]] = {}
    for relation in touched.derivations:
        targets.setdefault(relation.source, set()).add(relation.target)
    there = {one.entry.id for one in touched.entries}
    found = set(gone)
    while more := {name for name, of in targets.items() if name in there - found and of <= found}:
        found |= more
    return found


def _plan_entries(
    parts: EngineServices, touched: ErasureImpact, names: frozenset[str], ids: frozenset[str] | None
) -> tuple[set[str], list[NewEntry]]:
    gone: set[str] = set()
    put: list[NewEntry] = []
    for kept in touched.entries:
        entry = kept.entry
        erased = [fact for fact in touched.facts if fact.entry_id == entry.id]
        others = touched.facts_from_elsewhere.get(entry.id, ())
        if entry.session is None:  # by hand: it stays, and names no message that is not there
            if any(_to_source(fact) == entry.source for fact in erased):
                put.append(to_new_entry(replace(entry, source=None)))
        elif _is_origin_erased(entry, erased, others, names, ids):
            if others:
                put.append(to_new_entry(_rewrite_entry(parts, entry, others)))
            else:
                gone.add(entry.id)
    return gone, put


def _is_origin_erased(
    entry: Entry,
    erased: Sequence[ExtractedFact],
    others: Sequence[ExtractedFact],
    names: frozenset[str],
    ids: frozenset[str] | None,
) -> bool:
    source = entry.source or ""
    if any(_to_source(fact) == source for fact in erased):
        return True
    if entry.session not in names or any(_to_source(fact) == source for fact in others):
        return False
    return ids is None or source.removeprefix(_MESSAGE_PREFIX) in ids


def _to_source(fact: ExtractedFact) -> str | None:
    return None if fact.source_message_id is None else f"{_MESSAGE_PREFIX}{fact.source_message_id}"


def _rewrite_entry(parts: EngineServices, entry: Entry, others: Sequence[ExtractedFact]) -> Entry:
    # In the words of those who said so too.
    first = others[0]
    return replace(
        entry,
        content=first.content,
        kind=first.kind,
        category=next((fact.category for fact in others if fact.category), None),
        tags=frozenset(tag for fact in others for tag in fact.tags),
        source=_to_source(first) or first.source,
        session=first.session,
        token_count=parts.counter.count(first.content),
    )


def _unlink_episodes(parts: EngineServices, touched: ErasureImpact, gone: set[str]) -> list[NewEntry]:
    found: list[NewEntry] = []
    keys: dict[str, int | None] = {}
    whole = {one.name for one in touched.sessions}
    for kept in touched.linking_episodes:
        episode = to_episode(kept)
        if not gone.intersection(episode.linked) or episode.session in whole or episode.id in gone:
            continue
        if episode.session not in keys:
            session = parts.short_term.sessions.get(touched.namespace, episode.session)
            keys[episode.session] = None if session is None else session.key
        left = tuple(name for name in episode.linked if name not in gone)
        found.append(build_episode_entry(replace(episode, linked=left), keys[episode.session]))
    return found


def _plan_chunks_and_episodes(
    parts: EngineServices, touched: ErasureImpact, state: SessionViewState, ids: frozenset[str]
) -> tuple[list[str], list[NewEntry]]:
    numbers = sorted({one.number for one in touched.messages if not one.is_summary})
    chunks = Chunks(
        parts.long_term,
        _build_extractive_summarizer(parts),
        parts.config.learning,
        namespace=touched.namespace,
        session=state.session.name,
        key=state.session.key,
    )
    gone: list[str] = []
    put: list[NewEntry] = []
    for kept in touched.chunks_and_episodes:
        if kept.entry.tier is Tier.EPISODIC:
            anew = _rewrite_episode(kept, touched, numbers, state.session.key)
            if anew is not None:
                put.append(anew)
            elif _has_number_between(numbers, kept.details["first_turn"], kept.details["last_turn"]):
                gone.append(kept.entry.id)
        elif "turns" in kept.details and _has_number_between(numbers, *kept.details["turns"]):
            gone.append(kept.entry.id)
            anew = None if kept.archived_at is not None else chunks.rebuild_chunk(kept, ids)
            put += [] if anew is None else [anew]
    return gone, put


def _rewrite_episode(
    kept: StoredEntry, touched: ErasureImpact, numbers: Sequence[int], key: int
) -> NewEntry | None:
    # One that only quotes what is erased, as what was said before it, quotes nothing any more.
    episode = to_episode(kept)
    if not episode.context or _has_number_between(numbers, episode.first_turn, episode.last_turn):
        return None
    quotes = any(
        number < episode.first_turn and episode.last_turn <= until
        for number, until in touched.following_turns.items()
    )
    return build_episode_entry(replace(episode, context=""), key) if quotes else None


def _has_number_between(numbers: Sequence[int], first: int, last: int) -> bool:
    place = bisect_left(numbers, first)
    return place < len(numbers) and numbers[place] <= last


def _rebuild_summary(
    parts: EngineServices, touched: ErasureImpact, state: SessionViewState, ids: frozenset[str]
) -> tuple[Message, dict[str, Any]] | tuple[None, None]:
    since = min(one.number + (not one.is_summary) for one in touched.messages)
    if not state.view_key or state.view_number < since:
        return None, None
    behind = [
        one
        for one in parts.erasure.list_summarized_messages(state, _MAX_SUMMARIZED_MESSAGES + len(ids))
        if one.id not in ids
    ]
    if not behind:
        return None, None
    rolled = _build_extractive_summarizer(parts).roll_up(
        behind[-_MAX_SUMMARIZED_MESSAGES:], parts.config.summary.target_tokens
    )
    draft = MessageDraft(Role.SYSTEM, f"{SUMMARY_PREFIX}\n{rolled.text}")
    return complete_drafts(parts.short_term, [draft])[0], rolled.digest


def _build_extractive_summarizer(parts: EngineServices) -> Summarizer:
    # What somebody wants to be forgotten is shown to nobody.
    summarizer = parts.summarizer
    return Summarizer(summarizer.counter, facts=summarizer.finder, config=parts.config.summary)
