"""Recall through the public API: results, reasons, order and access."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, RecallConfig, Strategy
from langmem_tiers.recall import TfIdfWeights
from langmem_tiers.recall.repository import RecallIndexRepository
from langmem_tiers.storage.schema import accesses
from langmem_tiers.testing import FrozenClock, HashEmbedder, seeded_ids
from tests.backends import ON_DISK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langmem_tiers import Namespace, Recall
    from langmem_tiers.recall.records import RecalledMessage, Tenant

MONDAY = datetime(2023, 5, 1, 9, tzinfo=UTC)
FILLER = "The ferry was late again, so everybody waited on the pier and talked about nothing much"


@pytest.fixture
def words() -> Iterator[MemoryEngine]:
    """An engine in memory that recalls by words alone."""
    with MemoryEngine(embedder=None, clock=FrozenClock(), ids=seeded_ids()) as opened:
        yield opened


def say(
    where: Namespace, session: str, *texts: str, when: datetime = MONDAY, name: str | None = None
) -> None:
    where.session(session).add_many(
        MessageDraft("user", text, created_at=when + timedelta(minutes=n), name=name)
        for n, text in enumerate(texts)
    )


def add_filler_sessions(where: Namespace, sessions: int = 3, each: int = 6) -> None:
    """Sessions with nothing of interest in them."""
    for number in range(sessions):
        when = MONDAY + timedelta(days=40 + number)
        say(where, f"filler {number}", *(f"{FILLER} {n}." for n in range(each)), when=when)


def texts(found: Recall) -> list[str]:
    return [hit.entry.content for hit in found]


def test_a_message_is_found_by_its_own_words_in_any_session(engine: MemoryEngine, tenant: str) -> None:
    where = engine.namespace(tenant)
    add_filler_sessions(where)
    say(where, "cats", "I have adopted a kitten called Oliver.")
    hit = where.recall("Who is Oliver the kitten?")[0]
    assert hit.entry.content == "I have adopted a kitten called Oliver."
    assert (hit.session, hit.entry.kind, hit.entry.namespace) == ("cats", "message", (tenant,))
    assert hit.message == where.session("cats").latest()[0]


def test_an_answer_is_found_by_the_words_of_its_question(words: MemoryEngine) -> None:
    where = words.namespace("a")
    add_filler_sessions(where)
    say(where, "talk", "How long have you been playing the cello?", "Three years now, with a break.")
    found = {hit.entry.content: hit for hit in where.recall("playing cello", limit=2)}
    answer = found["Three years now, with a break."]
    assert answer.found_by == "neighbors"
    assert answer.signals["message"] == 0


def test_a_hit_that_matches_nothing_is_not_reported_as_found_by_its_words(words: MemoryEngine) -> None:
    where = words.namespace("a")
    say(where, "talk", "The ferry leaves at noon from the old harbor.", name="Ann")
    (hit,) = where.recall("zzz")
    assert (hit.found_by, hit.signals["message"], hit.signals["neighbors"]) == ("form", 0, 0)
    (hit,) = where.recall("Ann?")
    assert (hit.found_by, hit.signals["message"]) == ("speaker", 0)


def test_messages_are_found_by_the_name_of_their_speaker(words: MemoryEngine) -> None:
    where = words.namespace("a")
    for name in ("Caroline", "Melanie"):
        say(where, f"with {name}", "I painted a sunrise over the lake.", name=name)
    best = where.recall("What did Melanie paint?")[0]
    assert best.message is not None
    assert best.message.name == "Melanie"
    assert best.signals["speaker"] > 0


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (("王芳", "王强"), "王强昨天看了什么？"),
        (("李小明", "陈小雨"), "小雨看了什么？"),
        (("田中太郎", "佐藤さくら"), "さくらさんは何を見ましたか"),
        (("김민수", "이지은"), "지은이는 무엇을 봤나요?"),
        (("Mike🐻", "sara_k"), "what did sara see"),
    ],
)
def test_the_speaker_in_a_query_is_recognized_in_every_script(
    words: MemoryEngine, names: tuple[str, str], asked: str
) -> None:
    where = words.namespace("a")
    for name in names:
        say(where, f"with {name}", "A sunrise over the lake.", name=name)
    best, other = where.recall(asked, limit=2)
    assert best.message is not None
    assert best.message.name == names[1]
    assert best.signals["speaker"] > other.signals["speaker"] == 0


@pytest.mark.parametrize(
    ("query", "now"),
    [
        ("2023年5月7日发生了什么？", None),
        ("上周三发生了什么？", datetime(2023, 5, 17, tzinfo=UTC)),
        ("What happened on 7 May 2023?", None),
        ("What happened last week?", datetime(2023, 5, 17, tzinfo=UTC)),
    ],
)
def test_messages_from_the_time_named_in_the_query_rank_first(
    words: MemoryEngine, query: str, now: datetime | None
) -> None:
    where = words.namespace("a")
    wanted = datetime(2023, 5, 7 if now is None else 10, 12, tzinfo=UTC)
    for month in (1, 3, 9, 11):
        say(where, f"month {month}", "We went out and had a look.", when=datetime(2023, month, 7, tzinfo=UTC))
    say(where, "wanted", "We went out and had a look.", when=wanted)
    best = where.recall(query, now=now)[0]
    assert best.session == "wanted"
    assert best.signals["time"] > 0


@pytest.mark.parametrize("strategy", list(Strategy))
def test_every_hit_explains_its_score(strategy: Strategy) -> None:
    with MemoryEngine(embedder=HashEmbedder(), clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        add_filler_sessions(where)
        say(where, "talk", "Is the ferry late?", "Yes, an hour at least.", name="Ann")
        found = where.recall("When did Ann say that the ferry is late?", strategy=strategy)
    assert len(found) > 0
    for hit in found:
        assert sum(hit.signals.values()) == pytest.approx(hit.score, abs=1e-6)
        assert hit.found_by in hit.signals
        assert 0 <= hit.entry.importance <= 1


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("She was painting all the fences.", "paint fence"),
        ("We met at the café in Zürich.", "cafe zurich"),
        ("我昨天在北京大学见了她。", "北京大学"),
        ("Встретились в Москве вечером.", "москве"),
    ],
)
def test_word_forms_accents_and_scripts_without_spaces_are_found(
    engine: MemoryEngine, tenant: str, said: str, asked: str
) -> None:
    where = engine.namespace(tenant)
    add_filler_sessions(where, 1)
    say(where, "talk", said)
    assert where.search(asked)[0].entry.content == said
    assert texts(where.recall(asked))[0] == said


@pytest.mark.parametrize("strategy", list(Strategy))
def test_summaries_are_never_recalled(strategy: Strategy) -> None:
    with MemoryEngine(embedder=HashEmbedder(), clock=FrozenClock()) as engine:
        session = engine.session("a", "s")
        added = session.add_many(MessageDraft("user", f"The boat number {n} is red.") for n in range(4))
        session.compress(added.stored[2].id, "Boats, all of them red.")
        found = engine.namespace("a").recall("red boats", strategy=strategy)
        assert {hit.entry.id for hit in found} == {message.id for message in added.stored}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_same_query_has_the_same_results_within_its_limit(strategy: Strategy) -> None:
    with MemoryEngine(embedder=HashEmbedder(), clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        add_filler_sessions(where)
        first, again, more = (where.recall("the late ferry", strategy=strategy, limit=n) for n in (5, 5, 12))
    assert first == again
    assert len(first) == 5
    assert len(more) == 12
    scores = [hit.score for hit in more]
    assert scores == sorted(scores, reverse=True)
    if strategy not in {Strategy.HYBRID, Strategy.RECENCY}:  # theirs depend on how many are asked for
        assert more.hits[:5] == first.hits


def test_recency_returns_the_newest_first_in_any_order_of_writing(words: MemoryEngine) -> None:
    where = words.namespace("a")
    for day in (3, 1, 4, 2):
        say(where, "s", f"day {day}", when=MONDAY + timedelta(days=day))
    found = where.recall("", strategy="recency")
    assert texts(found) == ["day 4", "day 3", "day 2", "day 1"]
    assert found.strategy is Strategy.RECENCY


def test_importance_returns_the_most_important_first(words: MemoryEngine) -> None:
    where = words.namespace("a")
    say(where, "s", "ok", "Remember that my name is Ann and I prefer tea.", "fine")
    found = where.recall(" ", strategy="importance")
    assert texts(found)[0].startswith("Remember")
    weights = [hit.entry.importance for hit in found]
    assert weights == sorted(weights, reverse=True) == [hit.score for hit in found]


def test_importance_decreases_within_two_days_and_increases_with_use(clock: FrozenClock) -> None:
    with MemoryEngine(embedder=None, clock=clock) as engine:
        where = engine.namespace("a")

        def importance() -> float:
            (hit,) = where.search("boat")  # which is not counted as a use
            return hit.entry.importance

        say(where, "s", "the boat", when=clock.now() + timedelta(hours=1))
        found = []
        for hours in (0, 1, 6, 18, 23, 1, 999):
            clock.advance(hours=hours)
            found.append(importance())
        old = found[-1]
        assert 0 < old < 0.7  # below the upper limit in all cases
        assert found == pytest.approx([old + more for more in (0.2, 0.2, 0.175, 0.1, 0.1 / 24, 0, 0)])
        for uses, more in ((1, 0.02), (3, 0.08), (1, 0.1), (3, 0.1)):
            for _ in range(uses):
                where.recall("boat")
            engine._services.retriever._write_accesses()
            assert importance() == pytest.approx(old + more)


def test_similarity_is_the_cosine_and_requires_an_embedder(words: MemoryEngine) -> None:
    embedder = HashEmbedder()
    with MemoryEngine(embedder=embedder) as engine:
        for opened in (engine, words):
            say(opened.namespace("a"), "s", "red boat", "green house by the sea", "red boat by the sea")
        found = engine.namespace("a").recall("red boat", strategy="similarity")
    assert found.embedder == embedder.identity
    query = embedder.embed_query("red boat")
    by_hand = {text: float(embedder.embed_query(text) @ query) for text in texts(found)}
    assert {hit.entry.content: hit.score for hit in found} == pytest.approx(by_hand, abs=1e-5)
    assert len(by_hand) == 3
    without = words.namespace("a").recall("red boat", strategy="similarity")
    assert (without.hits, without.embedder) == ((), None)
    assert "no embedder" in without.problems[0]


def test_hybrid_adds_up_recency_similarity_and_importance_by_their_weights() -> None:
    with MemoryEngine(embedder=HashEmbedder(), clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        say(where, "s", "a red boat", "a green house", "remember that it is blue")
        best = where.recall("a red boat", strategy="hybrid", limit=1)[0]
        alike = where.recall("a red boat", strategy="similarity", limit=1)[0]
    assert best.entry.content == alike.entry.content == "a red boat"
    assert best.signals["similarity"] == pytest.approx(0.5 * alike.score)
    assert best.signals["recency"] == pytest.approx(0.3 * (1 - 2 / 3))
    assert best.signals["importance"] == pytest.approx(0.2 * best.entry.importance, abs=1e-6)


def test_tf_idf_prefers_messages_with_more_and_rarer_query_words(words: MemoryEngine) -> None:
    where = words.namespace("a")
    say(where, "s", "a boat", "a boat and a zebra", "a boat in town", "nothing")
    assert texts(where.recall("boat zebra", strategy="tf_idf"))[0] == "a boat and a zebra"


def test_words_and_search_return_only_messages_with_a_query_word(engine: MemoryEngine, tenant: str) -> None:
    where = engine.namespace(tenant)
    say(where, "s", "the red boat", "next to it", "boats and more boats", "gone")
    found = where.recall("boat", strategy=Strategy.WORDS)
    assert set(texts(found)) == {"the red boat", "boats and more boats"}
    assert where.search("boat") == found.hits
    assert where.search("boat", limit=1) == found.hits[:1]
    assert where.search("zebra") == where.search("  ") == ()


def test_other_namespaces_do_not_change_ranks_or_scores(engine: MemoryEngine, tenant: str) -> None:
    where = engine.namespace(tenant, "mine")
    add_filler_sessions(where)
    say(where, "talk", "The red boat sails at noon.", "Who told you that?", "The harbour master.")
    before = where.recall("When does the red boat sail?")
    for number in range(200):
        say(engine.namespace(tenant, f"other {number}"), "s", "The red boat sails at night.")
    after = where.recall("When does the red boat sail?")
    assert [(hit.entry.id, hit.score) for hit in after] == [(hit.entry.id, hit.score) for hit in before]
    assert after == before


def test_messages_of_a_deleted_session_are_not_recalled(engine: MemoryEngine, tenant: str) -> None:
    where = engine.namespace(tenant)
    say(where, "gone", "the red boat", "sails at noon")
    say(where, "stays", "the green boat")
    assert len(where.recall("boat")) == 3
    where.session("gone").delete()
    for strategy in ("best", "recency", "similarity", "tf_idf"):
        assert texts(where.recall("red boat at noon", strategy=strategy)) == ["the green boat"]
    where.delete()
    assert texts(where.recall("boat")) == []


@pytest.mark.parametrize("backend", ON_DISK)
def test_writes_and_erasures_of_one_engine_are_visible_to_another_immediately(
    url: str, config: EngineConfig, tenant: str
) -> None:
    with MemoryEngine(url, config=config) as one, MemoryEngine(url, config=config) as two:
        here, there = one.namespace(tenant), two.namespace(tenant)
        for number in range(3):
            say(here, f"s{number}", f"boat number {number}")
            assert len(there.recall("boat")) == len(here.recall("boat")) == number + 1
            assert texts(there.recall(f"number {number}"))[0] == f"boat number {number}"
        there.session("s1").delete()
        assert sorted(texts(here.recall("boat"))) == ["boat number 0", "boat number 2"]
        here.delete()
        assert texts(there.recall("boat")) == []
        say(there, "new", "a boat made anew")
        assert texts(here.recall("boat")) == texts(there.recall("boat")) == ["a boat made anew"]


def test_accesses_are_counted_on_close_and_do_not_change_the_best(file_url: str) -> None:
    with MemoryEngine(file_url, clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        say(where, "s", "the red boat", "the green boat", "the blue boat")
        before = where.recall("boat")
        for _ in range(4):
            where.recall("green boat", limit=1)
        where.search("boat")  # looking is not using
    with MemoryEngine(file_url, clock=FrozenClock()) as engine:
        with engine._database.read() as connection:
            assert sorted(connection.execute(select(accesses.c.count)).scalars()) == [1, 1, 5]
        after = engine.namespace("a").recall("boat")
    assert [(hit.entry.id, hit.score) for hit in after] == [(hit.entry.id, hit.score) for hit in before]


def test_a_second_look_follows_entities_found_by_the_first(words: MemoryEngine) -> None:
    where = words.namespace("a")
    said = [
        ("Peter", "The town library closes early on Monday."),
        ("Anna", "My cousin Lena adopted a grey parrot."),
        ("Peter", "The choir sings in June."),
        ("Lena", "Four in the morning, and the bakery smells of bread."),
        ("Peter", "My bicycle has a flat tyre."),
        ("Anna", "The garden is a swamp after the rain."),
    ]
    for number, (name, text) in enumerate(said):
        where.session(f"day {number}").add(MessageDraft("user", text, name=name))
    question = "Which smell does whoever adopted that parrot wake up to?"
    lead, found = said[1][1], said[3][1]
    answers = [hit.entry.content for hit in where.recall(question, limit=2, strategy="second_look")]
    assert set(answers) == {lead, found}
    hits = where.recall("Who has adopted the parrot?", limit=6, strategy="second_look").hits
    by_text = {hit.entry.content: hit for hit in hits}
    assert hits[0].entry.content == lead
    assert by_text[lead].signals["second look"] == 0
    assert by_text[found].signals["second look"] > 0
    assert by_text[found].score == pytest.approx(sum(by_text[found].signals.values()))


def test_accesses_count_after_they_are_written(file_url: str) -> None:
    by_access = RecallConfig(tf_idf=TfIdfWeights(semantic=0, keyword=0, recency=0, importance=0, access=1))
    config = EngineConfig(recall=by_access)
    with MemoryEngine(file_url, embedder=None, config=config, clock=FrozenClock()) as engine:
        where = engine.namespace("a")
        say(where, "s", "the red boat", "the green house")
        for _ in range(4):
            where.recall("boat", limit=1)
        assert [hit.score for hit in where.recall("boat", strategy="tf_idf")] == [0, 0]
        engine._services.retriever._write_accesses()
        first_recall = where.recall("boat", strategy="tf_idf")
        with MemoryEngine(file_url, embedder=None, config=config, clock=FrozenClock()) as other:
            fresh = other.namespace("a").recall("boat", strategy="tf_idf")
        assert texts(first_recall) == ["the red boat", "the green house"]
        assert [hit.score for hit in first_recall] == pytest.approx([0.5, 0.1])
        assert [(hit.entry.id, hit.score) for hit in first_recall] == [
            (hit.entry.id, hit.score) for hit in fresh
        ]


class Shrinking(RecallIndexRepository):
    """Reads from a memory of which somebody erases a part each time before it is read."""

    where: Namespace
    erased = count()

    def get_messages(self, tenant: Tenant, keys: Sequence[int]) -> Mapping[int, RecalledMessage]:
        self.where.session(f"filler {next(self.erased)}").delete()
        return super().get_messages(tenant, keys)


def test_a_recall_disturbed_by_repeated_erasures_reports_a_problem(words: MemoryEngine) -> None:
    where = words.namespace("a")
    add_filler_sessions(where, sessions=9)
    store = words._services.retriever.index = Shrinking(words._database)
    store.where = where
    found = where.recall("ferry")
    assert (len(found), len(found.problems)) == (0, 1)
    assert "erased" in found.problems[0]
    assert found.candidates == 0
    words._services.retriever.index = RecallIndexRepository(words._database)
    assert where.recall("ferry").problems == ()
