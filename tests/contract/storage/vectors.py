"""Contract of ``VectorRepository``."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pytest

from langmem_tiers.recall.records import Trust, TrustSampleRecord, VectorSearchFilter
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import ANY_TEXT, NOW, StoreConformance, Stores
from tests.contract.storage.indexed import SIZE, THREADS, VectorHelper, by_key, cosines_of, some_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from langmem_tiers.common.namespaces import NamespacePath

HOUR = timedelta(hours=1)


class VectorRepositoryConformance(StoreConformance):
    """What ``VectorRepository`` must do."""

    @pytest.fixture
    def helper(self, stores: Stores, namespace: NamespacePath, key: int) -> VectorHelper:
        """A session with nothing in it, and a model without vectors."""
        assert stores.index is not None, "hand in Stores(index=...) to run this suite"
        assert stores.vectors is not None, "hand in Stores(vectors=...) to run this suite"
        identity = f"model {uuid.uuid4().hex}"
        model = stores.vectors.register_model(identity, SIZE, NOW)
        return VectorHelper(stores, stores.index, namespace, key, stores.vectors, identity, model)

    def test_a_model_is_identified_by_its_name_and_dimension(self, helper: VectorHelper) -> None:
        models = [
            helper.vectors.register_model(identity, dimension, NOW)
            for identity in (helper.identity, f"{helper.identity} ", f"{helper.identity} é%_'")
            for dimension in (SIZE, SIZE + 1, 1)
        ]
        assert models[0] == helper.model == helper.vectors.register_model(helper.identity, SIZE, NOW)
        assert len(set(models)) == len(models)

    def test_vectors_are_read_back_exactly(self, helper: VectorHelper) -> None:
        keys, table = helper.fill(5), some_vectors(5)
        table[3] = [1e-30, 1e30, -0.1, 1 / 3] * (SIZE // 4)
        table[4] = 0
        helper.put(keys, table)
        expected = by_key(keys, table)
        assert helper.load_all() == helper.read_vectors([*keys, 2**40]) == expected
        assert (helper.read_vectors([keys[1]]), helper.read_vectors([])) == ({keys[1]: expected[keys[1]]}, {})

    @pytest.mark.parametrize("dimension", [1, 3, 2001])
    def test_vectors_of_every_dimension_are_read_back(self, helper: VectorHelper, dimension: int) -> None:
        keys, other = helper.fill(1), helper.other_model(dimension)
        table = np.linspace(0.5, 1, dimension, dtype=np.float32)[None, :]
        other.put(keys, table)
        assert other.load_all() == {keys[0]: table[0].tolist()}

    @pytest.mark.parametrize("limit", [1, 3, 7, 100])
    def test_pages_of_vectors_are_complete(self, helper: VectorHelper, limit: int) -> None:
        keys, table = helper.fill(7), some_vectors(7)
        assert helper.load_all(limit) == {}
        for some in (slice(3, 7), slice(0, 3), slice(0, 0)):
            helper.put(keys[some], table[some])
        assert helper.load_all(limit) == by_key(keys, table)

    def test_vectors_added_after_a_watermark_are_loaded(self, helper: VectorHelper) -> None:
        keys, table = helper.fill(3), some_vectors(3)
        helper.put(keys[1:], table[1:])
        _, _, mark = helper.vectors.load_vectors(helper.tenant().key, helper.model, 0, 100)
        helper.put(keys[:1], table[:1])
        new, _, after = helper.vectors.load_vectors(helper.tenant().key, helper.model, mark, 100)
        assert new.tolist() == keys[:1]
        assert len(helper.vectors.load_vectors(helper.tenant().key, helper.model, after, 100)[0]) == 0

    def test_many_vectors_are_written_and_read_in_one_call(self, helper: VectorHelper) -> None:
        keys, table = helper.fill(1200), some_vectors(1200)
        helper.put(keys, table)
        expected = by_key(keys, table)
        assert helper.load_all(500) == helper.read_vectors(keys) == expected
        assert len(helper.vectors.get_texts(helper.tenant(), keys)) == 1200

    def test_a_vector_that_is_put_again_replaces_the_one_before(self, helper: VectorHelper) -> None:
        keys = helper.fill(3)
        helper.put(keys, some_vectors(3))
        helper.put(keys[:2], some_vectors(2, seed=2))
        expected = [*some_vectors(2, seed=2).tolist(), some_vectors(3)[2].tolist()]
        assert helper.load_all() == helper.read_vectors(keys) == dict(zip(keys, expected, strict=True))

    def test_concurrent_writes_of_the_same_vectors_store_each_once(self, helper: VectorHelper) -> None:
        keys, table, start = helper.fill(20), some_vectors(20), threading.Barrier(THREADS, timeout=60)

        def put() -> None:
            start.wait()
            helper.put(keys, table)

        run_in_threads(THREADS, put)
        assert helper.load_all() == by_key(keys, table)

    def test_the_trust_of_a_model_is_stored_until_an_erasure(self, helper: VectorHelper) -> None:
        helper.fill(1)
        tenant, found = helper.tenant(), (TrustSampleRecord(9, 8, 7, 6), Trust(0.25, 1 / 3))
        assert helper.vectors.get_trust(tenant, helper.model) is None
        helper.vectors.update_trust(tenant, helper.model, *found)
        assert helper.vectors.get_trust(tenant, helper.model) == found
        assert (
            helper.vectors.get_trust(replace(tenant, erasure_epoch=tenant.erasure_epoch + 1), helper.model)
            is None
        )
        assert helper.vectors.get_trust(replace(tenant, key=tenant.key + 1), helper.model) is None
        assert helper.vectors.get_trust(tenant, helper.other_model(SIZE).model) is None

    def test_a_later_trust_replaces_the_earlier_one(self, helper: VectorHelper) -> None:
        helper.fill(1)
        tenant, last = helper.tenant(), (TrustSampleRecord(2, 2, 2, 2), Trust(0.2))
        helper.vectors.update_trust(tenant, helper.model, TrustSampleRecord(1, 1, 1, 1), Trust(0.1))
        helper.vectors.update_trust(tenant, helper.model, *last)
        assert helper.vectors.get_trust(tenant, helper.model) == last

    def test_trust_is_not_stored_for_a_deleted_namespace_or_after_an_erasure(
        self, helper: VectorHelper
    ) -> None:
        helper.fill(1)
        tenant, tried = helper.tenant(), TrustSampleRecord(1, 1, 1, 1)
        for other in (replace(tenant, key=2**40), replace(tenant, erasure_epoch=tenant.erasure_epoch + 1)):
            helper.vectors.update_trust(other, helper.model, tried, Trust(0.1))
            assert helper.vectors.get_trust(other, helper.model) is None

    def test_vectors_of_models_and_namespaces_are_isolated(self, helper: VectorHelper) -> None:
        elsewhere, other = helper.beside("session", "other"), helper.other_model(SIZE - 1)
        ours, theirs = helper.fill(2), elsewhere.fill(2)
        helper.put(ours, some_vectors(2))
        elsewhere.put(theirs, some_vectors(2, seed=2))
        other.put(ours[:1], some_vectors(1, seed=3)[:, 1:])
        assert helper.load_all() == by_key(ours, some_vectors(2))
        assert elsewhere.load_all() == by_key(theirs, some_vectors(2, seed=2))
        expected = {ours[0]: some_vectors(1, seed=3)[0, 1:].tolist()}
        assert other.load_all() == other.read_vectors(ours) == expected

    def test_vectors_of_deleted_messages_are_ignored(self, helper: VectorHelper) -> None:
        deleted = helper.beside("gone")
        keys = [*helper.fill(1), *deleted.fill(2)]
        deleted.erase()
        helper.put([2**40, *keys], some_vectors(4))
        assert helper.load_all() == {keys[0]: some_vectors(4)[1].tolist()}

    def test_vectors_of_messages_of_another_namespace_are_ignored(self, helper: VectorHelper) -> None:
        elsewhere = helper.beside("session", "other")
        theirs, ours = elsewhere.fill(2), helper.fill(1)
        helper.put([*theirs, *ours], some_vectors(3))
        assert (
            helper.load_all()
            == helper.read_vectors([*theirs, *ours])
            == {ours[0]: some_vectors(3)[2].tolist()}
        )
        elsewhere.put(theirs, some_vectors(2, seed=2))
        helper.put(theirs, some_vectors(2))
        assert elsewhere.load_all() == by_key(theirs, some_vectors(2, seed=2))

    def test_vectors_computed_before_an_erasure_are_refused(self, helper: VectorHelper) -> None:
        gone, elsewhere = helper.beside("gone"), helper.beside("session", "other")
        keys, before = helper.fill(2), helper.tenant()
        elsewhere.erase()
        assert helper.vectors.insert_vectors(before, helper.model, keys[:1], some_vectors(1))
        gone.erase()
        assert not helper.vectors.insert_vectors(before, helper.model, keys, some_vectors(2, seed=2))
        assert helper.load_all() == by_key(keys[:1], some_vectors(1))
        helper.erase("namespace")
        assert not helper.vectors.insert_vectors(before, helper.model, keys, some_vectors(2))

    @pytest.mark.parametrize("what", ["session", "namespace"])
    @pytest.mark.parametrize("labels", [(), ("elsewhere",)])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_the_vector_of_a_deleted_message_is_not_assigned_to_a_later_one(
        self, helper: VectorHelper, what: str, labels: tuple[str, ...], when: str
    ) -> None:
        keys, before = helper.fill(2), helper.tenant()
        if when == "before":
            helper.put(keys, some_vectors(2))
        helper.erase(what)
        later = helper.beside("later", *labels)
        new = later.fill(3)
        assert not helper.vectors.insert_vectors(before, helper.model, keys, some_vectors(2))
        assert later.load_all() == helper.read_vectors([*keys, *new]) == {}
        if labels:  # it holds as well for who knows that something was erased, but not that it was this
            helper.beside("here").put(keys, some_vectors(2))
            assert later.load_all() == helper.read_vectors([*keys, *new]) == {}

    def test_embedding_during_concurrent_erasure_assigns_no_foreign_vector(
        self, helper: VectorHelper
    ) -> None:
        start, numbers = threading.Barrier(THREADS, timeout=60), count()

        def vectors_of(texts: Mapping[int, str]) -> NDArray[np.float32]:
            return np.array([[float(text)] * SIZE for text in texts.values()], np.float32)

        def embed() -> None:
            refresh = helper.index.load_changes(helper.namespace, 0)
            assert refresh.tenant is not None
            texts = helper.vectors.get_texts(refresh.tenant, refresh.rows.keys.tolist())
            helper.vectors.insert_vectors(refresh.tenant, helper.model, list(texts), vectors_of(texts))

        def work() -> None:
            start.wait()
            for number in (next(numbers) for _ in range(10)):
                own = helper.beside(f"session {number}")
                own.say(f"{number}")
                embed()
                if number % 3:
                    own.erase()

        run_in_threads(THREADS, work)
        texts, loaded = helper.vectors.get_texts(helper.tenant(), helper.all_keys()), helper.load_all()
        expected = by_key(list(texts), vectors_of(texts))
        assert loaded == {key: expected[key] for key in loaded}

    def test_vectors_are_deleted_with_their_session(self, helper: VectorHelper) -> None:
        deleted = helper.beside("gone")
        stays, goes = helper.fill(2), deleted.fill(2)
        helper.put([*stays, *goes], some_vectors(4))
        deleted.erase()
        assert set(helper.load_all()) == set(helper.read_vectors([*stays, *goes])) == set(stays)
        helper.erase("namespace")
        assert helper.read_vectors(stays) == {}

    def test_unused_vectors_of_other_models_can_be_deleted(self, helper: VectorHelper) -> None:
        other, elsewhere = helper.other_model(), helper.beside("session", "other")
        keys, theirs = helper.fill(3), elsewhere.fill(1)
        for model in (helper.model, other.model):
            replace(helper, model=model).put(keys, some_vectors(3))
            replace(elsewhere, model=model).put(theirs, some_vectors(1))
        place, later = (helper.tenant().key, helper.model), NOW + timedelta(days=2)
        assert helper.vectors.delete_unused_vectors(*place, unused_since=NOW) == 0
        helper.vectors.register_model(other.identity, SIZE, later)
        assert helper.vectors.delete_unused_vectors(*place, unused_since=later) == 0
        assert helper.vectors.delete_unused_vectors(*place, unused_since=later + HOUR) == 3
        assert helper.vectors.delete_unused_vectors(*place, unused_since=later + HOUR) == 0
        assert (set(helper.load_all()), set(other.load_all())) == (set(keys), set())
        assert set(replace(other, namespace=elsewhere.namespace).load_all()) == set(theirs)

    def test_texts_are_returned_unchanged(self, helper: VectorHelper) -> None:
        texts = ("", "narwhal é 😀", "x" * 100_000)
        theirs = helper.beside("session", "other").fill(1)
        *keys, last = helper.say(*texts, ANY_TEXT)
        found = helper.vectors.get_texts(helper.tenant(), [*keys, last, *theirs, 2**40])
        assert [found[key] for key in keys] == list(texts)
        assert "שלום" in found[last]  # what no database holds may be replaced: models take it no better
        assert (set(found), dict(helper.vectors.get_texts(helper.tenant(), []))) == ({*keys, last}, {})

    def test_the_nearest_vectors_are_sorted_with_their_cosines(self, helper: VectorHelper) -> None:
        keys, table, query = helper.fill(300), some_vectors(300), some_vectors(1, seed=2)[0]
        elsewhere = helper.beside("session", "other")
        elsewhere.put(elsewhere.fill(5), np.array([query] * 5))
        helper.put(keys, table)
        helper.other_model().put(keys[:1], query[None, :])
        found = helper.vectors.find_nearest(
            helper.tenant().key, helper.model, query, 20, VectorSearchFilter(300)
        )
        if found is None:  # left to the reader, who needs the vectors for it
            assert helper.vectors.load_vectors(helper.tenant().key, helper.model, 0, 1)[1] is not None
            return
        cosines = cosines_of(table, query)
        best = np.argsort(-cosines)[:20]
        assert found[0].tolist() == [keys[row] for row in best]
        assert found[1] == pytest.approx(cosines[best], abs=1e-3)
        some, values = helper.vectors.compute_cosines(helper.model, query, np.array([*keys, 2**40], np.int64))
        order = np.argsort(some)
        assert some[order].tolist() == keys
        assert values[order] == pytest.approx(cosines, abs=1e-3)

    def test_a_vector_without_direction_is_neither_near_nor_far(self, helper: VectorHelper) -> None:
        keys, table = helper.fill(3), some_vectors(3)
        table[1] = 0
        helper.put(keys, table)
        found = helper.vectors.find_nearest(
            helper.tenant().key, helper.model, table[0], 3, VectorSearchFilter(3)
        )
        if found is None:  # left to the reader, who needs the vectors for it
            assert helper.vectors.load_vectors(helper.tenant().key, helper.model, 0, 1)[1] is not None
            return
        _, cosines = helper.vectors.compute_cosines(helper.model, table[0], np.array(keys[1:2], np.int64))
        assert found[0][0] == keys[0]
        assert np.isfinite(found[1]).all()
        assert cosines.tolist() in ([], [0.0])

    def test_vectors_of_texts_are_remembered_until_they_expire(self, helper: VectorHelper) -> None:
        one, two, other = b"1" * 16, b"\0" * 16, helper.other_model()
        helper.vectors.insert_cached_vectors(
            helper.model, {one: b"\0a", two: b"b"}, NOW, until=NOW + HOUR, keep=9
        )
        helper.vectors.insert_cached_vectors(helper.model, {one: b"new"}, NOW, until=NOW + 2 * HOUR, keep=9)
        helper.vectors.insert_cached_vectors(helper.model, {}, NOW, until=NOW + HOUR, keep=9)
        asked = [one, two, b"3" * 16]
        almost = NOW + HOUR - timedelta(microseconds=1)
        assert helper.vectors.get_cached_vectors(helper.model, asked, almost) == {one: b"new", two: b"b"}
        assert helper.vectors.get_cached_vectors(helper.model, asked, NOW + HOUR) == {one: b"new"}
        assert helper.vectors.get_cached_vectors(helper.model, asked, NOW + 2 * HOUR) == {}
        assert (
            helper.vectors.get_cached_vectors(other.model, asked, NOW)
            == helper.vectors.get_cached_vectors(helper.model, [], NOW)
            == {}
        )

    def test_the_newest_vectors_of_texts_are_kept(self, helper: VectorHelper) -> None:
        other, hashes = helper.other_model(), [bytes([n] * 16) for n in range(6)]
        helper.vectors.insert_cached_vectors(
            other.model, dict.fromkeys(hashes, b"v"), NOW, until=NOW + HOUR, keep=9
        )
        for number, each in enumerate(hashes):
            until = NOW + HOUR + timedelta(seconds=number)
            helper.vectors.insert_cached_vectors(helper.model, {each: b"v"}, NOW, until=until, keep=3)
        assert set(helper.vectors.get_cached_vectors(helper.model, hashes, NOW)) == set(hashes[3:])
        assert set(helper.vectors.get_cached_vectors(other.model, hashes, NOW)) == set(hashes)
        many = {number.to_bytes(16, "big"): b"v" for number in range(1200)}
        helper.vectors.insert_cached_vectors(helper.model, many, NOW, until=NOW + 2 * HOUR, keep=1200)
        assert helper.vectors.get_cached_vectors(helper.model, [*hashes, *many], NOW) == many

    def test_concurrent_caching_of_the_same_text_stores_it(self, helper: VectorHelper) -> None:
        texts, start = {bytes([n] * 16): b"v" for n in range(9)}, threading.Barrier(THREADS, timeout=60)

        def remember() -> None:
            start.wait()
            helper.vectors.insert_cached_vectors(helper.model, texts, NOW, until=NOW + HOUR, keep=99)

        run_in_threads(THREADS, remember)
        assert helper.vectors.get_cached_vectors(helper.model, list(texts), NOW) == texts
