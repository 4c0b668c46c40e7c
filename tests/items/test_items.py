"""Items of an engine, used without a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langmem_tiers import (
    EngineConfig,
    InvalidConfigError,
    InvalidInputError,
    InvalidNameError,
    MemoryEngine,
    RecallConfig,
)
from langmem_tiers.items import ItemChange, NamespaceMatch
from langmem_tiers.recall.item_records import to_search_text
from langmem_tiers.testing import HashEmbedder
from tests.work_counters import count_statements

if TYPE_CHECKING:
    from langmem_tiers.items import Items
    from langmem_tiers.testing import FrozenClock


def test_a_value_is_stored_found_and_erased(engine: MemoryEngine, tenant: str) -> None:
    items = engine.items
    items.put((tenant, "alice"), "likes", {"text": "Alice sails boats"})
    found = items.get((tenant, "alice"), "likes")
    assert found is not None
    assert found.value == {"text": "Alice sails boats"}
    assert [hit.item.key for hit in items.search(tenant, "boat")] == ["likes"]
    assert items.namespaces([NamespaceMatch("prefix", (tenant,))]) == ((tenant, "alice"),)
    assert items.delete((tenant, "alice"), "likes")
    assert not items.delete((tenant, "alice"), "likes")
    assert items.search(tenant) == ()


def test_items_and_sessions_of_one_name_do_not_mix(engine: MemoryEngine, tenant: str) -> None:
    engine.items.put(tenant, "k", {"text": "boats"})
    assert engine.namespaces(tenant) == ()
    engine.session(tenant, "s").add("user", "I like boats")
    engine.namespace(tenant).delete()
    assert engine.items.get(tenant, "k") is not None


def test_one_invalid_change_prevents_all_others(engine: MemoryEngine, tenant: str) -> None:
    engine.items.put(tenant, "there", {})
    good = [
        ItemChange(namespace=(tenant,), key="new", value={}),
        ItemChange(namespace=(tenant,), key="there", value=None),
    ]
    bad = ItemChange(namespace=(tenant,), key="bad", value={"x": {1, 2}})
    with pytest.raises(InvalidInputError, match=r"the value of 'bad'\['x'\] is a set.*nothing was written"):
        engine.items.write([*good, bad])
    assert [hit.item.key for hit in engine.items.search(tenant)] == ["there"]


def test_vectors_are_computed_for_the_first_query(clock: FrozenClock) -> None:
    embedder = HashEmbedder()
    with MemoryEngine(embedder=embedder, clock=clock) as engine:
        for n in range(4):
            engine.items.put("a", str(n), {"text": f"boat {n}"})
        hits = engine.items.search("a", "boat 3")
        assert hits[0].item.key == "3"
        assert hits[0].score is not None
        # Another who looks at the same items finds the vectors made.
        assert engine.items.using(embedder).search("a", "boat 3")[0].score == hits[0].score


def test_an_engine_without_an_embedder_finds_by_words(tenant: str) -> None:
    with MemoryEngine(embedder=None) as engine:
        engine.items.put(tenant, "boat", {"text": "a boat"})
        engine.items.put(tenant, "tax", {"text": "tax forms"})
        hits = engine.items.search(tenant, "boats")
        assert [hit.item.key for hit in hits] == ["boat", "tax"]
        assert hits[1].score == 0


def test_a_search_after_changes_matches_a_fresh_search() -> None:
    embedder = HashEmbedder()

    def write(**values: str | None) -> None:
        engine.items.write(
            ItemChange(namespace=("a", key[0]), key=key, value=None if text is None else {"text": text})
            for key, text in values.items()
        )

    def found(items: Items) -> list[tuple[str, float | None]]:
        return [(hit.item.key, hit.score) for hit in items.search("a", "red boat on the lake", limit=99)]

    with MemoryEngine(embedder=embedder) as engine:
        write(**{f"a{n}": f"boat {n} of {n % 5} on the {'red ' * (n % 3)} pier" for n in range(40)})
        first = found(engine.items)
        assert len(first) == 40
        write(**{f"a{n}": None for n in range(25)})
        fewer = found(engine.items)
        assert len(fewer) == 15
        assert fewer == found(engine.items.using(embedder))
        assert dict(fewer).items() != {key: dict(first)[key] for key, _ in fewer}.items()
        write(**{f"a{n}": "a lake" for n in range(30, 35)}, **{f"b{n}": f"lake {n}" for n in range(30)})
        more = found(engine.items)
        assert len(more) == 45
        assert more == found(engine.items.using(embedder))
        write(**{f"b{n}": None for n in range(30)})  # a whole namespace
        assert found(engine.items) == found(engine.items.using(embedder))


def test_the_least_recently_searched_items_are_evicted_first() -> None:
    config = EngineConfig(recall=RecallConfig(index_megabytes=1))
    with MemoryEngine(config=config, embedder=None) as engine:

        def work(prefix: str) -> int:
            return count_statements(engine, lambda: engine.items.search(prefix, "boat"))

        for name in "abc":  # there is room for two of them
            engine.items.put(name, "k", {}, texts=[f"boat {n}" for n in range(300)])
        reads = work("a")
        assert work("a") < reads
        searched = [(name, work(name) == reads) for name in "bacbab"]
        assert searched == [
            ("b", True),
            ("a", False),
            ("c", True),  # in place of b
            ("b", True),  # in place of a
            ("a", True),
            ("b", False),
        ]


@pytest.mark.parametrize("page", [{"limit": -1}, {"offset": -1}, {"limit": 1.5}, {"limit": True}])
def test_an_invalid_page_is_refused(page: dict[str, int]) -> None:
    with MemoryEngine() as engine, pytest.raises(InvalidInputError):
        engine.items.search("a", **page)  # type: ignore[arg-type]


def test_a_page_with_limit_0_is_empty(engine: MemoryEngine, tenant: str) -> None:
    engine.items.put(tenant, "k", {"text": "boat"})
    assert engine.items.search(tenant, limit=0) == engine.items.search(tenant, "boat", limit=0) == ()


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True])
def test_a_time_to_live_must_be_above_zero(ttl: float) -> None:
    with MemoryEngine() as engine, pytest.raises(InvalidConfigError, match="ttl_seconds"):
        engine.items.put("a", "k", {}, ttl_seconds=ttl)


def test_names_that_are_too_long_are_refused() -> None:
    with MemoryEngine() as engine, pytest.raises(InvalidNameError, match="at most 1024 bytes"):
        engine.items.put("a", "k" * 2000, {})


def test_a_nested_value_is_flattened_to_search_text() -> None:
    value = {"user": {"name": "Ann", "age": 7}, "tags": ["a\nb", True], "none": None}
    assert to_search_text(value) == "user name: Ann\nuser age: 7\ntags: a\nb\ntags: True"
