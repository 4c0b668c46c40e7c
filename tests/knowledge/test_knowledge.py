"""Cross-session knowledge through the public API, on every database."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    InvalidInputError,
    Knowledge,
    KnowledgeCategory,
    LangmemTiersError,
    MemoryEngine,
    RecallFilters,
)
from langmem_tiers.testing.threads import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langmem_tiers.knowledge import KnowledgeBase
    from langmem_tiers.testing import FrozenClock

SITE = KnowledgeCategory.WEBSITE_KNOWLEDGE


@pytest.fixture
def base(engine: MemoryEngine, tenant: str) -> KnowledgeBase:
    return engine.namespace(tenant).knowledge


def read_knowledge(base: KnowledgeBase, key: str = "cart", category: str = SITE) -> Knowledge:
    """What is known, without using it."""
    found = base.get(category, key, use=False)
    assert found is not None
    return found


def confidence(base: KnowledgeBase, key: str = "cart") -> float:
    return read_knowledge(base, key).confidence


def keys(base: KnowledgeBase, text: str, **options: Any) -> list[str]:
    """The keys that a text recalls, without using them."""
    return [hit.knowledge.key for hit in base.recall(text, use=False, **options)]


def test_new_knowledge_starts_at_one_half(base: KnowledgeBase, clock: FrozenClock) -> None:
    report = base.store(SITE, "cart", "Cart is at /cart", source="session 7")
    assert (report.is_new, report.superseded) == (True, None)
    assert report.knowledge == read_knowledge(base)
    assert report.knowledge == Knowledge(
        category="website_knowledge",
        key="cart",
        value="Cart is at /cart",
        confidence=0.5,
        created_at=clock.now(),
        updated_at=clock.now(),
        fresh_at=clock.now(),
        source="session 7",
    )


@pytest.mark.parametrize("given", [0.0, 0.1, 0.123456789, 0.9, 1.0])
def test_new_knowledge_starts_with_the_given_confidence(base: KnowledgeBase, given: float) -> None:
    assert base.store(SITE, "cart", "at /cart", confidence=given).knowledge.confidence == given
    assert confidence(base) == given


def test_each_repeated_store_adds_a_tenth_up_to_one(base: KnowledgeBase, clock: FrozenClock) -> None:
    start = clock.now()
    base.store(SITE, "cart", "at /cart", source="first")
    for number, expected in enumerate([0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0], start=2):
        clock.advance(minutes=1)
        report = base.store(SITE, "cart", "at /cart")
        assert (report.is_new, report.superseded) == (False, None)
        assert report.knowledge == read_knowledge(base)
        assert (report.knowledge.confidence, report.knowledge.store_count) == (expected, number)
        assert (report.knowledge.created_at, report.knowledge.updated_at) == (start, clock.now())
        assert report.knowledge.source == "first"
    assert base.history(SITE, "cart") == ()
    assert [item.key for item in base] == ["cart"]


def test_a_repeated_store_adds_a_tenth_for_any_given_confidence(base: KnowledgeBase) -> None:
    base.store(SITE, "cart", "at /cart", confidence=0.3)
    assert base.store(SITE, "cart", "at /cart", confidence=0.95).knowledge.confidence == 0.4
    base.store(SITE, "cart", "at /cart", confidence=0.0)
    assert confidence(base) == 0.5


def test_each_use_adds_a_twentieth_up_to_one(base: KnowledgeBase, clock: FrozenClock) -> None:
    base.store(SITE, "cart", "at /cart", confidence=0.8)
    for number, expected in enumerate([0.85, 0.9, 0.95, 1.0, 1.0], start=1):
        clock.advance(minutes=1)
        used = base.get(SITE, "cart")
        assert used == read_knowledge(base)
        assert used is not None
        assert (used.confidence, used.use_count, used.last_used_at) == (expected, number, clock.now())


def test_steps_accumulate_no_rounding_error(base: KnowledgeBase) -> None:
    base.store(SITE, "cart", "at /cart", confidence=0.0)
    for _ in range(10):
        base.get(SITE, "cart")
    assert confidence(base) == 0.5


@pytest.mark.parametrize("way", ["get", "recall", "use"])
def test_every_kind_of_use_counts_once(base: KnowledgeBase, way: str) -> None:
    item = base.store(SITE, "cart", "at /cart").knowledge
    ways: dict[str, Callable[[], object]] = {
        "get": lambda: base.get(SITE, "cart"),
        "recall": lambda: base.recall("where is the cart, the cart?"),
        "use": lambda: base.use([item]),
    }
    ways[way]()
    assert (read_knowledge(base).use_count, confidence(base)) == (1, 0.55)


def test_reading_without_use_changes_nothing(base: KnowledgeBase, clock: FrozenClock) -> None:
    before = base.store(SITE, "cart", "at /cart").knowledge
    clock.advance(days=1)
    assert base.get(SITE, "cart", use=False) == before
    assert [hit.knowledge for hit in base.recall("cart", use=False)] == [before]
    assert base.page() == (before,)
    assert list(base) == [before]
    base.use([])
    assert base.get(SITE, "cart", use=False) == before


def test_a_recent_use_is_counted_once(base: KnowledgeBase, clock: FrozenClock) -> None:
    item = base.store(SITE, "cart", "at /cart").knowledge
    asked = clock.advance(minutes=1)
    for _ in range(3):
        clock.advance(seconds=1)
        base.use([item], since=asked)
    assert read_knowledge(base).use_count == 1
    base.use([item], since=clock.advance(minutes=1))
    assert read_knowledge(base).use_count == 2


def test_using_removed_knowledge_does_not_restore_it(base: KnowledgeBase) -> None:
    item = base.store(SITE, "cart", "at /cart").knowledge
    base.remove(SITE, "cart")
    base.use([item])
    assert base.get(SITE, "cart") is None


def test_duplicate_items_are_used_without_an_error(base: KnowledgeBase) -> None:
    item = base.store(SITE, "cart", "at /cart").knowledge
    base.use([item, item])
    assert confidence(base) in {0.55, 0.6}


@pytest.mark.parametrize(
    ("unused", "expected"),
    [
        (timedelta(days=29, hours=23), 0.5),
        (timedelta(days=30, microseconds=-1), 0.5),
        (timedelta(days=30), 0.4),
        (timedelta(days=59, hours=23), 0.4),
        (timedelta(days=60), 0.3),
        (timedelta(days=95), 0.2),
    ],
    ids=str,
)
def test_a_tenth_is_lost_for_each_30_days_unused(
    base: KnowledgeBase, clock: FrozenClock, unused: timedelta, expected: float
) -> None:
    base.store(SITE, "cart", "at /cart")
    clock.advance(unused)
    report = base.decay()
    assert (report.decayed, report.pruned) == (int(expected < 0.5), 0)
    assert confidence(base) == expected


def test_decay_is_the_same_however_often_it_is_called(base: KnowledgeBase, clock: FrozenClock) -> None:
    base.store(SITE, "cart", "at /cart")
    seen = []
    for _ in range(95):
        clock.advance(days=1)
        base.decay()
        assert base.decay().decayed == 0
        seen.append(confidence(base))
    assert seen == [0.5] * 29 + [0.4] * 30 + [0.3] * 30 + [0.2] * 6


@pytest.mark.parametrize("way", ["get", "recall", "store"])
def test_a_use_or_a_store_restarts_the_30_days(base: KnowledgeBase, clock: FrozenClock, way: str) -> None:
    base.store(SITE, "cart", "at /cart")
    clock.advance(days=20)
    ways: dict[str, Callable[[], object]] = {
        "get": lambda: base.get(SITE, "cart"),
        "recall": lambda: base.recall("cart"),
        "store": lambda: base.store(SITE, "cart", "at /cart"),
    }
    ways[way]()
    before = confidence(base)
    clock.advance(days=29, hours=23)
    base.decay()
    assert confidence(base) == before
    clock.advance(hours=1)
    base.decay()
    assert confidence(base) == round(before - 0.1, 6)


def test_reading_without_use_does_not_restart_the_30_days(base: KnowledgeBase, clock: FrozenClock) -> None:
    base.store(SITE, "cart", "at /cart")
    clock.advance(days=20)
    base.get(SITE, "cart", use=False)
    base.recall("cart", use=False)
    clock.advance(days=10)
    assert base.decay().decayed == 1


@pytest.mark.parametrize(("start", "is_kept"), [(0.2, True), (0.19, False), (0.15, False), (0.1, False)])
def test_knowledge_below_a_tenth_is_pruned_and_at_a_tenth_is_kept(
    base: KnowledgeBase, clock: FrozenClock, start: float, *, is_kept: bool
) -> None:
    stored = base.store(SITE, "cart", "at /cart", confidence=start).knowledge
    clock.advance(days=30)
    report = base.decay()
    assert (report.decayed, report.pruned) == (1, 0 if is_kept else 1)
    found = base.get(SITE, "cart", use=False)
    if is_kept:
        assert found is not None
        assert found.confidence == 0.1
        assert base.history(SITE, "cart") == ()
    else:
        assert found is None
        assert keys(base, "cart") == []
        (past,) = base.history(SITE, "cart")
        assert (past.value, past.reason, past.confidence) == ("at /cart", "pruned", start)
        assert (past.valid_from, past.valid_until) == (stored.created_at, clock.now())


def test_pruned_knowledge_can_be_stored_again(base: KnowledgeBase, clock: FrozenClock) -> None:
    base.store(SITE, "cart", "at /cart")
    clock.advance(days=365)
    assert base.decay().pruned == 1
    report = base.store(SITE, "cart", "at /cart")
    assert (report.is_new, report.knowledge.confidence, report.knowledge.store_count) == (True, 0.5, 1)


@pytest.mark.soak
def test_decay_covers_more_than_one_batch(clock: FrozenClock, tenant: str) -> None:
    with MemoryEngine(clock=clock) as engine:
        base = engine.namespace(tenant).knowledge
        for n in range(1003):  # it works in batches of 500
            base.store("domain", f"{n}", "value", confidence=0.5 if n % 3 else 0.1)
        clock.advance(days=30)
        report = base.decay()
        assert (report.decayed, report.pruned) == (1003, 335)
        assert {item.confidence for item in base} == {0.4}
        assert base.decay().decayed == 0


def test_decay_skips_used_knowledge_and_other_tenants(
    engine: MemoryEngine, clock: FrozenClock, tenant: str
) -> None:
    ours, theirs = engine.namespace(tenant).knowledge, engine.namespace(tenant, "x").knowledge
    for base in (ours, theirs):
        base.store(SITE, "cart", "at /cart")
    clock.advance(days=15)
    ours.store(SITE, "login", "at /login")
    clock.advance(days=15)
    assert ours.decay().decayed == 1
    assert (confidence(ours), confidence(ours, "login"), confidence(theirs)) == (0.4, 0.5, 0.5)


def test_there_are_five_categories_and_any_other(base: KnowledgeBase) -> None:
    names = ["domain", "execution_pattern", "user_preference", "website_knowledge", "error_pattern"]
    assert [category.value for category in KnowledgeCategory] == names
    for category in (*KnowledgeCategory, "my own"):
        base.store(category, "same key", f"value of {category}")
    for name in (*names, "my own"):
        item = read_knowledge(base, "same key", name)
        assert (item.category, item.value) == (name, f"value of {name}")
        assert type(item.category) is str
        assert [item.category for item in base.page(name)] == [name]
    assert [item.category for item in base] == sorted([*names, "my own"])


def test_a_contradiction_supersedes_and_stays_in_the_history(base: KnowledgeBase, clock: FrozenClock) -> None:
    first = clock.now()
    base.store(SITE, "cart", "at /cart", confidence=0.9, source="old")
    base.get(SITE, "cart")
    second = clock.advance(days=1)
    report = base.store(SITE, "cart", "at /basket")
    assert not report.is_new
    assert report.knowledge == read_knowledge(base)
    assert report.knowledge == Knowledge(
        category=SITE.value,
        key="cart",
        value="at /basket",
        confidence=0.5,
        created_at=second,
        updated_at=second,
        fresh_at=second,
    )
    assert report.superseded is not None
    assert base.history(SITE, "cart") == (report.superseded,)
    past = report.superseded
    assert (past.category, past.key, past.value) == (SITE.value, "cart", "at /cart")
    assert (past.confidence, past.reason) == (0.95, "superseded")
    assert (past.valid_from, past.valid_until) == (first, second)
    assert keys(base, "cart basket") == ["cart"]
    assert base.store(SITE, "cart", "at /bag", confidence=0.2).knowledge.confidence == 0.2


def test_a_value_that_returns_keeps_both_in_the_history(base: KnowledgeBase, clock: FrozenClock) -> None:
    times = []
    for value in ("A", "B", "A"):
        times.append(clock.now())
        base.store(SITE, "cart", value, confidence=0.7)
        clock.advance(days=1)
    assert (read_knowledge(base).value, confidence(base), read_knowledge(base).store_count) == ("A", 0.7, 1)
    history = base.history(SITE, "cart")
    assert [(past.value, past.valid_from, past.valid_until) for past in history] == [
        ("A", times[0], times[1]),
        ("B", times[1], times[2]),
    ]
    assert read_knowledge(base).created_at == times[2]


@pytest.mark.parametrize(
    "again", ["Wait 2s for AJAX", " Wait 2s for AJAX", "  Wait 2s\n\tfor   AJAX ", "Wait 2s for AJAX\n"]
)
def test_text_with_other_spacing_is_a_repetition(base: KnowledgeBase, again: str) -> None:
    base.store("execution_pattern", "ajax", "Wait 2s for AJAX")
    report = base.store("execution_pattern", "ajax", again)
    assert (report.superseded, report.knowledge.confidence, report.knowledge.store_count) == (None, 0.6, 2)


@pytest.mark.parametrize(
    "other", ["Wait 3s for AJAX", "Wait 2 s for AJAX", "Do not wait 2s for AJAX", "wait 2s for ajax"]
)
def test_another_value_is_not_repeated(base: KnowledgeBase, other: str) -> None:
    base.store("execution_pattern", "ajax", "Wait 2s for AJAX")
    assert base.store("execution_pattern", "ajax", other).superseded is not None


def test_concurrent_stores_of_the_same_value_all_count(base: KnowledgeBase) -> None:
    run_in_threads(8, lambda: base.store(SITE, "cart", "at /cart", confidence=0.1))
    assert (read_knowledge(base).store_count, confidence(base)) == (8, 0.8)
    assert base.history(SITE, "cart") == ()


def test_knowledge_is_recalled_by_key_category_and_text(base: KnowledgeBase) -> None:
    base.store(SITE, "login form", "uses #email and #password")
    base.store(SITE, "cart", "at /cart")
    base.store("error_pattern", "login captcha", "appears after 3 requests")
    assert read_knowledge(base, "login form").value == "uses #email and #password"
    assert base.get("error_pattern", "login form") is None
    assert [item.key for item in base.page(SITE)] == ["cart", "login form"]
    assert sorted(keys(base, "How do I log in? LOGIN!")) == ["login captcha", "login form"]
    assert keys(base, "login", category="error_pattern") == ["login captcha"]
    assert keys(base, "which passwords?") == ["login form"]
    assert len(keys(base, "login", limit=1)) == 1
    assert keys(base, "unheard of") == keys(base, "?!") == keys(base, "") == []


def test_the_best_match_is_first(base: KnowledgeBase) -> None:
    base.store(SITE, "checkout", "the button is green and the page is long and loads slowly")
    base.store(SITE, "checkout button", "the checkout button is at the top")
    hits = base.recall("checkout button")
    assert [hit.knowledge.key for hit in hits] == ["checkout button", "checkout"]
    assert hits[0].score > hits[1].score


@pytest.mark.parametrize("question", ["Navigate to example.com", "Which page titles are there?", "example"])
def test_the_example_of_the_specification_is_recalled(base: KnowledgeBase, question: str) -> None:
    base.store(SITE, "example.com", "example.com uses #page-title for its title")
    base.store("domain", "other.org", "SPA with React, requires login")
    assert keys(base, question) == ["example.com"]


def test_recall_returns_knowledge_with_the_use_counted(base: KnowledgeBase) -> None:
    base.store(SITE, "cart", "at /cart")
    base.store(SITE, "login", "at /login")
    (hit,) = base.recall("cart")
    assert hit.knowledge == read_knowledge(base)
    assert (hit.knowledge.confidence, hit.knowledge.use_count) == (0.55, 1)
    assert (confidence(base, "login"), read_knowledge(base, "login").use_count) == (0.5, 0)


def test_removed_knowledge_stays_in_the_history(base: KnowledgeBase, clock: FrozenClock) -> None:
    start = clock.now()
    base.store(SITE, "cart", "at /cart")
    clock.advance(days=1)
    assert base.remove(SITE, "cart")
    assert base.get(SITE, "cart") is None
    assert list(base) == []
    assert keys(base, "cart") == []
    (past,) = base.history(SITE, "cart")
    assert (past.value, past.reason, past.confidence) == ("at /cart", "removed", 0.5)
    assert (past.valid_from, past.valid_until) == (start, clock.now())
    assert not base.remove(SITE, "cart")
    assert len(base.history(SITE, "cart")) == 1
    assert base.store(SITE, "cart", "at /cart").is_new


def test_pages_and_iteration_cover_everything(base: KnowledgeBase) -> None:
    names = [(category, f"key {n:03}") for category in ("a", "b") for n in range(101)]
    for category, key in reversed(names):
        base.store(category, key, "value")
    assert [(item.category, item.key) for item in base] == names  # it pages by 100
    seen: list[Knowledge] = []
    while page := base.page(after=seen[-1] if seen else None, limit=30):
        assert len(page) <= 30
        seen += page
    assert [(item.category, item.key) for item in seen] == names
    assert [item.key for item in base.page("b", after=base.page("b", limit=99)[-1])] == ["key 099", "key 100"]


def test_tenants_know_only_their_own(engine: MemoryEngine, tenant: str) -> None:
    names = ((tenant,), (tenant, "a"), (tenant, "A"), (tenant, "a%"), (tenant, "a", "b"), (tenant, "a/b"))
    for labels in names:
        engine.namespace(*labels).knowledge.store(SITE, "cart", f"at {labels}")
    engine.namespace(tenant, "a").knowledge.store(SITE, "cart", "elsewhere")
    for labels in names[2:]:
        base = engine.namespace(*labels).knowledge
        assert [hit.knowledge.value for hit in base.recall("cart", use=False)] == [f"at {labels}"]
        assert [item.value for item in base] == [f"at {labels}"]
        assert base.history(SITE, "cart") == ()
        assert base.remove(SITE, "cart")
    assert [read_knowledge(engine.namespace(*labels).knowledge).value for labels in names[:2]] == [
        f"at {(tenant,)}",
        "elsewhere",
    ]


def test_knowledge_survives_its_session_and_is_deleted_with_its_namespace(
    engine: MemoryEngine, tenant: str
) -> None:
    namespace = engine.namespace(tenant)
    session = namespace.session("s")
    session.add("user", "hello")
    namespace.knowledge.store(SITE, "cart", "at /cart")
    namespace.knowledge.store(SITE, "cart", "at /basket")
    session.delete()
    assert read_knowledge(namespace.knowledge).value == "at /basket"
    namespace.delete()
    assert list(namespace.knowledge) == []
    assert namespace.knowledge.history(SITE, "cart") == ()
    assert keys(namespace.knowledge, "cart basket") == []


def test_knowledge_survives_a_restart(file_url: str, tenant: str) -> None:
    with MemoryEngine(file_url) as engine:
        stored = engine.namespace(tenant).knowledge.store(SITE, "cart", "at /cart").knowledge
    with MemoryEngine(file_url) as engine:
        assert read_knowledge(engine.namespace(tenant).knowledge) == stored


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": ""},
        {"value": " \n\t"},
        {"value": None},
        {"value": 5},
        {"value": b"at /cart"},
        {"value": ["at /cart"]},
        {"key": ""},
        {"key": None},
        {"key": 5},
        {"key": "x" * 1025},
        {"category": ""},
        {"category": None},
        {"category": 5},
        {"confidence": 1.5},
        {"confidence": -0.1},
        {"confidence": float("nan")},
        {"confidence": float("inf")},
        {"confidence": "0.5"},
        {"confidence": None},
        {"source": 5},
        {"source": b"session"},
    ],
    ids=lambda wrong: repr(wrong)[:30],
)
def test_invalid_knowledge_is_refused_and_nothing_is_written(wrong: dict[str, Any], tenant: str) -> None:
    with MemoryEngine() as engine:
        base = engine.namespace(tenant).knowledge
        stored = base.store(SITE, "cart", "at /cart").knowledge
        given: dict[str, Any] = {"category": SITE, "key": "cart", "value": "at /basket"}
        with pytest.raises(LangmemTiersError) as caught:
            base.store(**given | wrong)
        assert isinstance(caught.value, ValueError)
        assert list(base) == [stored]
        assert base.history(SITE, "cart") == ()


@pytest.mark.parametrize("wrong", ["", None, 5, b"cart"], ids=repr)
@pytest.mark.parametrize("verb", ["get", "history", "remove"])
def test_an_invalid_name_is_refused(verb: str, wrong: Any, tenant: str) -> None:
    with MemoryEngine() as engine:
        base = engine.namespace(tenant).knowledge
        for names in ((wrong, "cart"), (SITE, wrong)):
            with pytest.raises(InvalidInputError):
                getattr(base, verb)(*names)


@pytest.mark.parametrize(
    ("verb", "arguments", "options"),
    [
        ("recall", (5,), {}),
        ("recall", (None,), {}),
        ("recall", ("cart",), {"limit": 0}),
        ("recall", ("cart",), {"category": 5}),
        ("page", (), {"limit": 0}),
        ("page", (), {"limit": True}),
        ("page", (5,), {}),
        ("page", (), {"after": "cart"}),
        ("use", (["cart"],), {}),
    ],
    ids=str,
)
def test_an_invalid_question_is_refused(
    verb: str, arguments: tuple[Any, ...], options: dict[str, Any], tenant: str
) -> None:
    with MemoryEngine() as engine:
        base = engine.namespace(tenant).knowledge
        base.store(SITE, "cart", "at /cart")
        with pytest.raises(InvalidInputError):
            getattr(base, verb)(*arguments, **options)


def test_knowledge_names_its_tenant(tenant: str) -> None:
    with MemoryEngine() as engine:
        assert repr(engine.namespace(tenant, "a").knowledge) == f"KnowledgeBase('{tenant}/a')"


def test_knowledge_at_a_past_time_can_be_queried(
    engine: MemoryEngine, tenant: str, base: KnowledgeBase, clock: FrozenClock
) -> None:
    base.store("domain", "payment provider", "Fjordpay")
    spring = clock.now()
    clock.advance(days=30)
    base.store("domain", "payment provider", "Nordpay")
    base.store("domain", "ledger", "Beancount")
    summer = clock.now()
    clock.advance(days=30)
    base.remove("domain", "ledger")

    def told(when: datetime) -> list[tuple[str, str]]:
        return [(item.key, item.value) for item in base.valid_at(when)]

    assert told(spring - timedelta(microseconds=1)) == []
    assert told(spring) == [("payment provider", "Fjordpay")]
    assert told(summer) == [("ledger", "Beancount"), ("payment provider", "Nordpay")]
    assert told(clock.now()) == [("payment provider", "Nordpay")]

    def recalled(query: str, when: datetime | None) -> list[str]:
        found = engine.namespace(tenant).recall(query, filters=RecallFilters(valid_at=when))
        return [hit.knowledge.value for hit in found if hit.knowledge is not None]

    assert recalled("which payment provider do we have?", None) == ["Nordpay"]
    assert recalled("which payment provider do we have?", spring) == ["Fjordpay"]
    assert recalled("the ledger", summer) == ["Beancount"]
    assert recalled("the ledger", None) == []


def test_a_search_uses_the_first_128_terms_of_a_long_text(base: KnowledgeBase) -> None:
    base.store("domain", "walrus", "lives in the north")
    words = [f"word{number}" for number in range(128)]
    assert base.recall(" ".join([*words[:127], "walrus"]))
    assert not base.recall(" ".join([*words, "walrus"]))


def test_the_score_is_bm25(base: KnowledgeBase) -> None:
    base.store("domain", "walrus", "one two three")
    base.store("domain", "seal", "one walrus walrus walrus two three four five")
    rarity = math.log1p((2 - 2 + 0.5) / (2 + 0.5))
    lengths = {"walrus": 4, "seal": 9}
    norms = {key: 1.2 * (0.25 + 0.75 * length / 6.5) for key, length in lengths.items()}
    expected = {
        key: rarity * count * 2.2 / (count + norms[key]) for key, count in {"walrus": 1, "seal": 3}.items()
    }
    assert {hit.knowledge.key: hit.score for hit in base.recall("walrus")} == pytest.approx(expected)
