"""Episodes: recorded, paged, forgotten and arranged in a narrative arc, on every database."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import EngineConfig, InvalidConfigError, InvalidInputError, MemoryEngine, MessageDraft
from langmem_tiers.config import LearningConfig
from langmem_tiers.episodes.models import EpisodeDraft, EpisodeKind
from langmem_tiers.errors import EntryNotFoundError
from langmem_tiers.testing import FrozenClock, seeded_ids

if TYPE_CHECKING:
    from langmem_tiers import Namespace, Session
    from langmem_tiers.episodes.service import Episodes


@pytest.fixture
def namespace(engine: MemoryEngine, tenant: str) -> Namespace:
    return engine.namespace(tenant)


@pytest.fixture
def session(namespace: Namespace) -> Session:
    found = namespace.session("s")
    found.add_many([MessageDraft("user", f"Line {n}") for n in range(1, 10)])
    return found


@pytest.fixture
def episodes(namespace: Namespace, session: Session) -> Episodes:
    return namespace.episodes


def draft(title: str = "Chose tea", *, turn: int = 1, **about: Any) -> EpisodeDraft:
    words: dict[str, Any] = {"first_turn": turn, "last_turn": turn, "kind": EpisodeKind.DECISION_MADE} | about
    return EpisodeDraft(title=title, summary=f"{title}, as it was told.", **words)


def titles(found: tuple[Any, ...]) -> list[str]:
    return [episode.title for episode in found]


def test_an_episode_is_recorded_and_read_back_equal(
    namespace: Namespace, episodes: Episodes, clock: FrozenClock
) -> None:
    entry = namespace.long_term.store("The kettle is blue.").entry
    assert entry is not None
    given = EpisodeDraft(
        kind=EpisodeKind.BREAKTHROUGH,
        title="The kettle boils 🫖",
        summary="It was the fuse.",
        context="user: why is it cold?",
        participants=("Ada", "assistant"),
        outcome="Tea at four.",
        valence=-0.25,
        significance=0.65,
        linked=(entry.id,),
        first_turn=2,
        last_turn=5,
    )
    recorded = episodes.record("s", given)
    assert episodes.get(recorded.id) == recorded
    for name in EpisodeDraft.__dataclass_fields__:
        assert getattr(recorded, name) == getattr(given, name)
    assert (recorded.session, recorded.namespace) == ("s", namespace.path)
    assert (recorded.created_at, recorded.last_access_at) == (clock.now(), clock.now())
    assert (recorded.access_count, recorded.is_archived, recorded.is_key_moment) == (0, False, False)
    assert recorded.token_count > 0


@pytest.mark.parametrize("kind", EpisodeKind)
def test_each_of_the_six_kinds_is_stored(episodes: Episodes, kind: EpisodeKind) -> None:
    recorded = episodes.record("s", draft(kind=kind.value))
    found = episodes.get(recorded.id)
    assert found is not None
    assert found.kind is kind
    assert titles(episodes.page(kinds={kind.value})) == ["Chose tea"]
    others = {other.value for other in EpisodeKind} - {kind.value}
    assert episodes.page(kinds=others) == ()


def test_there_are_six_kinds() -> None:
    assert {kind.value for kind in EpisodeKind} == {
        "decision_made",
        "problem_solved",
        "breakthrough",
        "issue_identified",
        "task_completed",
        "pivot",
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"valence": 2}, r"valence must be in \[-1, 1\], got 2"),
        ({"valence": -1.01}, r"valence must be in \[-1, 1\], got -1.01"),
        ({"valence": float("nan")}, r"valence must be in \[-1, 1\], got nan"),
        ({"valence": True}, r"valence must be in \[-1, 1\], got True"),
        ({"significance": -1}, r"significance must be in \[0, 1\], got -1"),
        ({"significance": 1.5}, r"significance must be in \[0, 1\], got 1.5"),
        ({"significance": "high"}, "significance must be a number, got str"),
        ({"first_turn": 5, "last_turn": 4}, "last_turn 4 must not precede first_turn 5"),
        ({"first_turn": 0}, "first_turn must be a whole number from 1 to .* got 0"),
        ({"last_turn": 1.5}, "last_turn must be a whole number from 1 to .* got 1.5"),
        ({"kind": "party"}, "unknown kind of episode 'party': use one of decision_made, problem_solved"),
        ({"kind": None}, "unknown kind of episode None"),
    ],
)
def test_an_invalid_draft_is_refused_with_its_value(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        draft(**wrong)


@pytest.mark.parametrize("name", ["title", "summary"])
@pytest.mark.parametrize("value", ["", "  \n", None, 7])
def test_an_episode_requires_title_and_summary(name: str, value: object) -> None:
    words: dict[str, Any] = {"title": "a", "summary": "b", name: value}
    with pytest.raises(InvalidInputError, match=re.escape(f"an episode needs a {name}, got {value!r}")):
        EpisodeDraft(kind=EpisodeKind.PIVOT, first_turn=1, last_turn=1, **words)


def test_the_bounds_themselves_are_allowed() -> None:
    for valence, significance in ((-1, 0), (1, 1), (-1.0, 0.0), (1.0, 1.0)):
        assert draft(valence=valence, significance=significance).valence == valence


def test_unknown_sessions_and_entries_are_refused_and_nothing_is_stored(
    namespace: Namespace, episodes: Episodes
) -> None:
    with pytest.raises(EntryNotFoundError, match="no session 'nope'"):
        episodes.record("nope", draft())
    assert namespace.find_session("nope") is None
    with pytest.raises(EntryNotFoundError, match="no entry 'e-404' to link .* nothing was stored"):
        episodes.record("s", draft(linked=("e-404",)))
    with pytest.raises(EntryNotFoundError, match="no session 'nope'"):
        episodes.arc("nope")
    with pytest.raises(InvalidInputError, match="record\\(\\) expects an EpisodeDraft, got str"):
        episodes.record("s", "a party")  # type: ignore[arg-type] # refused
    with pytest.raises(InvalidInputError, match="limit must be .* got 0"):
        episodes.page(limit=0)
    assert episodes.page() == ()


def test_entries_of_another_namespace_cannot_be_linked(engine: MemoryEngine, episodes: Episodes) -> None:
    entry = engine.namespace("somebody", "else").long_term.store("The kettle is blue.").entry
    assert entry is not None
    with pytest.raises(EntryNotFoundError, match=entry.id):
        episodes.record("s", draft(linked=(entry.id,)))


def test_pages_are_sorted_from_last_to_first_recorded(episodes: Episodes) -> None:
    recorded = [episodes.record("s", draft(f"Moment {n}", turn=n)) for n in range(1, 8)]
    newest_first = [f"Moment {n}" for n in range(7, 0, -1)]
    assert titles(episodes.page()) == newest_first
    assert titles(tuple(episodes)) == newest_first
    seen: list[str] = []
    last: str | None = None
    while page := episodes.page(limit=3, before=last):
        seen += titles(page)
        last = page[-1].id
    assert seen == newest_first
    assert episodes.page(before=recorded[0].id) == ()


def test_a_page_before_an_unknown_episode_is_refused(episodes: Episodes) -> None:
    recorded = episodes.record("s", draft())
    with pytest.raises(EntryNotFoundError, match="'nope'"):
        episodes.page(before="nope")
    episodes.forget(recorded.id)
    with pytest.raises(EntryNotFoundError, match=recorded.id):
        episodes.page(before=recorded.id)


def test_pages_are_filtered(namespace: Namespace, episodes: Episodes, clock: FrozenClock) -> None:
    namespace.session("other")
    episodes.record("s", draft("Small", significance=0.2))
    noon = clock.advance(hours=2)
    episodes.record("other", draft("Large", significance=0.9))
    assert titles(episodes.page(min_importance=0.5)) == ["Large"]
    assert titles(episodes.page(sessions={"s"})) == ["Small"]
    assert titles(episodes.page(since=noon)) == ["Large"]
    assert titles(episodes.page(until=noon)) == ["Small"]


def test_a_forgotten_episode_is_deleted(namespace: Namespace, episodes: Episodes) -> None:
    entry = namespace.long_term.store("The kettle is blue.").entry
    assert entry is not None
    recorded = episodes.record("s", draft(linked=(entry.id,)))
    assert episodes.forget(recorded.id)
    assert episodes.get(recorded.id) is None
    assert episodes.page() == ()
    assert not episodes.forget(recorded.id)
    assert not episodes.forget(entry.id)  # an entry is no episode
    assert namespace.long_term.get(entry.id) is not None
    assert episodes.get(entry.id) is None


def test_episodes_are_deleted_with_their_session(
    episodes: Episodes, session: Session, namespace: Namespace
) -> None:
    namespace.session("other")
    recorded = episodes.record("s", draft("Gone"))
    episodes.record("other", draft("Kept"))
    session.delete()
    assert titles(episodes.page()) == ["Kept"]
    assert episodes.get(recorded.id) is None


def test_an_episode_is_recalled_with_messages(namespace: Namespace, episodes: Episodes) -> None:
    recorded = episodes.record("s", draft("The zeppelin landed in Oslo", kind=EpisodeKind.TASK_COMPLETED))
    found = namespace.recall("Where did the zeppelin land?")
    assert recorded.id in [hit.entry.id for hit in found]


def test_the_arc_divides_a_session_into_thirds(episodes: Episodes, session: Session) -> None:
    for turn in (9, 7, 6, 4, 3, 1):  # of nine turns, recorded in any order
        episodes.record("s", draft(f"Turn {turn}", turn=turn, significance=0.1 * turn))
    arc = episodes.arc("s")
    assert (arc.session, arc.turns) == ("s", 9)
    assert titles(arc.beginning) == ["Turn 1", "Turn 3"]
    assert titles(arc.middle) == ["Turn 4", "Turn 6"]
    assert titles(arc.end) == ["Turn 7", "Turn 9"]
    assert session.arc() == arc


def test_key_moments_are_those_of_seven_tenths_and_more(episodes: Episodes) -> None:
    for turn, significance in enumerate((0.69, 0.7, 0.71, 1.0, 0.0), 1):
        episodes.record("s", draft(f"{significance}", turn=turn, significance=significance))
    arc = episodes.arc("s")
    assert titles(arc.key_moments) == ["0.7", "0.71", "1.0"]
    assert all(moment.is_key_moment for moment in arc.key_moments)


def test_a_session_without_episodes_has_an_empty_arc(episodes: Episodes, namespace: Namespace) -> None:
    namespace.session("silent")
    arc = episodes.arc("silent")
    assert (arc.turns, arc.beginning, arc.middle, arc.end, arc.key_moments) == (0, (), (), (), ())


def test_the_arc_covers_one_session_only(episodes: Episodes, namespace: Namespace) -> None:
    namespace.session("other")
    episodes.record("other", draft("Elsewhere"))
    assert episodes.arc("s").beginning == ()


def test_100_episodes_stay_unarchived(episodes: Episodes) -> None:
    first = episodes.record("s", draft("Least", significance=0.1))
    for number in range(99):
        episodes.record("s", draft(f"More {number}", significance=0.5))
    assert len(episodes.page(limit=200)) == 100
    episodes.record("s", draft("One too many", significance=0.4))
    kept = episodes.page(limit=200)
    assert len(kept) == 100
    assert first.id not in [episode.id for episode in kept]
    assert "One too many" in titles(kept)
    archived = episodes.get(first.id)
    assert archived == replace(first, is_archived=True)  # kept, and not shown
    assert first.id in [episode.id for episode in episodes.page(limit=200, archived=True)]
    assert "Least" not in titles(episodes.arc("s").beginning)


def test_the_cap_is_configurable_and_archives_the_least_significant() -> None:
    config = EngineConfig(learning=LearningConfig(max_episodes=3))
    with MemoryEngine(config=config, embedder=None, clock=FrozenClock(), ids=seeded_ids()) as engine:
        engine.session("t", "s")
        engine.session("u", "s")
        episodes = engine.namespace("t").episodes
        for significance in (0.5, 0.2, 0.9, 0.3, 0.8):
            episodes.record("s", draft(f"{significance}", significance=significance))
        assert titles(episodes.page()) == ["0.8", "0.9", "0.5"]
        engine.namespace("u").episodes.record("s", draft("0.01", significance=0.01))
        assert titles(engine.namespace("u").episodes.page()) == ["0.01"]  # each namespace has its own


def test_learned_episodes_respect_the_limit_too() -> None:
    config = EngineConfig(learning=LearningConfig(max_episodes=2))
    with MemoryEngine(config=config, embedder=None, clock=FrozenClock(), ids=seeded_ids()) as engine:
        session = engine.session("t", "s")
        decided = ("use PostgreSQL", "paint the kitchen green", "hire Priya", "visit Oslo in June")
        session.add_many([MessageDraft("user", f"We decided to {what}.") for what in decided])
        assert len(session.learn().episodes) == 4
        assert len(engine.namespace("t").episodes.page()) == 2


def test_the_cap_is_100_by_default() -> None:
    assert LearningConfig().max_episodes == 100
    with pytest.raises(InvalidConfigError, match="max_episodes must be .* got 0"):
        LearningConfig(max_episodes=0)
