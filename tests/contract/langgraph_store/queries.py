"""Queries: the best result first, each item once, on every page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph.store.base import PutOp, SearchOp

from tests.contract.langgraph_store.base import Conformance, keys_of

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore


class QueryConformance(Conformance):
    """Needs ``indexed_store``."""

    def test_results_are_sorted_by_descending_score(self, indexed_store: BaseStore, root: str) -> None:
        indexed_store.put((root,), "cat", {"text": "the cat sleeps on the red sofa"})
        indexed_store.put((root,), "boat", {"text": "a boat sails over the lake"})
        indexed_store.put((root,), "tax", {"text": "tax forms are due in april"})
        found = indexed_store.search((root,), query="boat on the lake")
        assert found[0].key == "boat"
        scores = [item.score for item in found if item.score is not None]
        assert len(scores) >= 1
        assert scores == sorted(scores, reverse=True)

    def test_every_page_is_correct(self, indexed_store: BaseStore, root: str) -> None:
        texts = [f"memo {n} about boats " + "and more boats " * (n % 7) for n in range(23)]
        indexed_store.batch([PutOp((root,), f"k{n}", {"text": text}) for n, text in enumerate(texts)])
        whole = keys_of(indexed_store.search((root,), query="boats", limit=50))
        assert sorted(whole) == sorted(f"k{n}" for n in range(23))
        pages = [
            keys_of(indexed_store.search((root,), query="boats", limit=4, offset=at))
            for at in range(0, 24, 4)
        ]
        assert [key for page in pages for key in page] == whole

    def test_an_item_with_many_texts_is_found_once_by_its_best(
        self, indexed_store: BaseStore, root: str
    ) -> None:
        for n in range(5):
            indexed_store.put((root,), f"k{n}", {"notes": [f"boat {n}", "lake", f"note {n}", "red boat"]})
        for limit in (1, 3, 5, 50):
            found = keys_of(indexed_store.search((root,), query="boat", limit=limit))
            assert len(found) == len(set(found)) == min(limit, 5)
        assert keys_of(indexed_store.search((root,), query="note 3", limit=1)) == ["k3"]

    def test_identical_texts_in_one_batch_are_both_stored(self, indexed_store: BaseStore, root: str) -> None:
        indexed_store.batch([PutOp((root,), key, {"text": "the same words"}) for key in ("a", "b")])
        assert set(keys_of(indexed_store.search((root,), query="the same words"))) == {"a", "b"}

    def test_several_queries_in_a_batch_are_each_answered(self, indexed_store: BaseStore, root: str) -> None:
        for word in ("boat", "cat", "tax"):
            indexed_store.put((root,), word, {"text": f"about a {word}"})
        ops = [SearchOp((root,), query=word, limit=1) for word in ("tax", "boat", "cat", "tax")]
        results = indexed_store.batch(ops)
        assert [keys_of(found) for found in results] == [["tax"], ["boat"], ["cat"], ["tax"]]  # type: ignore[arg-type]

    def test_a_new_value_is_found_only_by_its_new_text(self, indexed_store: BaseStore, root: str) -> None:
        indexed_store.put((root,), "changes", {"text": "boat on the lake"})
        indexed_store.put((root,), "stays", {"text": "boat in the harbour"})
        indexed_store.put((root,), "changes", {"text": "tax forms"})
        assert keys_of(indexed_store.search((root,), query="boat", limit=1)) == ["stays"]
        assert keys_of(indexed_store.search((root,), query="tax forms", limit=1)) == ["changes"]

    def test_a_deleted_text_is_not_found_after_its_key_is_reused(
        self, indexed_store: BaseStore, root: str
    ) -> None:
        indexed_store.put((root,), "k", {"text": "boat on the lake"})
        indexed_store.put((root,), "other", {"text": "boat"})
        indexed_store.delete((root,), "k")
        assert keys_of(indexed_store.search((root,), query="boat on the lake")) == ["other"]
        indexed_store.put((root,), "k", {"text": "tax forms"})
        assert keys_of(indexed_store.search((root,), query="boat on the lake", limit=1)) == ["other"]

    def test_unindexed_items_never_rank_before_indexed_ones(
        self, indexed_store: BaseStore, root: str
    ) -> None:
        indexed_store.put((root,), "hidden", {"text": "boat boat boat"}, index=False)
        indexed_store.put((root,), "shown", {"text": "a boat"})
        found = indexed_store.search((root,), query="boat")
        assert found[0].key == "shown"
        assert [item.score for item in found if item.key == "hidden"] in ([], [None])
        assert set(keys_of(indexed_store.search((root,)))) == {"hidden", "shown"}

    def test_index_paths_of_a_put_override_those_of_the_store(
        self, indexed_store: BaseStore, root: str
    ) -> None:
        value = {"text": "tax", "deep": {"title": "boat"}, "list": [{"t": "cat"}, {"t": "lake"}]}
        indexed_store.put((root,), "title", value, index=["deep.title"])
        indexed_store.put((root,), "each", value, index=["list[*].t"])
        indexed_store.put((root,), "last", value, index=["list[-1].t"])
        indexed_store.put((root,), "plain", value)
        best = {
            word: indexed_store.search((root,), query=word, limit=1)[0].key for word in ("boat", "cat", "tax")
        }
        assert best == {"boat": "title", "cat": "each", "tax": "plain"}
        assert set(keys_of(indexed_store.search((root,), query="lake", limit=2))) == {"each", "last"}

    def test_a_query_combines_with_filter_and_prefix(self, indexed_store: BaseStore, root: str) -> None:
        for place in ("x", "y"):
            for n in range(6):
                indexed_store.put((root, place), f"{place}{n}", {"text": f"boat {n}", "even": n % 2 == 0})
        found = indexed_store.search((root, "x"), query="boat 4", filter={"even": True}, limit=3)
        assert found[0].key == "x4"
        assert set(keys_of(found)) == {"x0", "x2", "x4"}

    def test_an_empty_query_lists_all_items(self, indexed_store: BaseStore, root: str) -> None:
        indexed_store.put((root,), "k", {"text": "boat"})
        assert keys_of(indexed_store.search((root,), query="")) == ["k"]
        assert keys_of(indexed_store.search((root,), query="?!")) == ["k"]
