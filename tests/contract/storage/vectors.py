"""What ``VectorRepository`` must do."""

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
from tests.contract.storage.indexed import SIZE, THREADS, Shelf, by_key, cosines_of, some_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from langmem_tiers.common.namespaces import NamespacePath

HOUR = timedelta(hours=1)


class VectorRepositoryConformance(StoreConformance):
    """What ``VectorRepository`` must do."""

    @pytest.fixture
    def shelf(self, stores: Stores, namespace: NamespacePath, key: int) -> Shelf:
        """A session with nothing in it, and a model without vectors."""
        assert stores.index is not None, "hand in Stores(index=...) to run this suite"
        assert stores.vectors is not None, "hand in Stores(vectors=...) to run this suite"
        identity = f"model {uuid.uuid4().hex}"
        model = stores.vectors.register_model(identity, SIZE, NOW)
        return Shelf(stores, stores.index, namespace, key, stores.vectors, identity, model)

    def test_a_model_is_known_by_its_name_and_its_dimension(self, shelf: Shelf) -> None:
        models = [
            shelf.vectors.register_model(identity, dimension, NOW)
            for identity in (shelf.identity, f"{shelf.identity} ", f"{shelf.identity} é%_'")
            for dimension in (SIZE, SIZE + 1, 1)
        ]
        assert models[0] == shelf.model == shelf.vectors.register_model(shelf.identity, SIZE, NOW)
        assert len(set(models)) == len(models)

    def test_vectors_come_back_exactly(self, shelf: Shelf) -> None:
        keys, table = shelf.fill(5), some_vectors(5)
        table[3] = [1e-30, 1e30, -0.1, 1 / 3] * (SIZE // 4)
        table[4] = 0
        shelf.put(keys, table)
        expected = by_key(keys, table)
        assert shelf.loaded() == shelf.given([*keys, 2**40]) == expected
        assert (shelf.given([keys[1]]), shelf.given([])) == ({keys[1]: expected[keys[1]]}, {})

    @pytest.mark.parametrize("dimension", [1, 3, 2001])
    def test_vectors_of_every_dimension_come_back(self, shelf: Shelf, dimension: int) -> None:
        keys, other = shelf.fill(1), shelf.other_model(dimension)
        table = np.linspace(0.5, 1, dimension, dtype=np.float32)[None, :]
        other.put(keys, table)
        assert other.loaded() == {keys[0]: table[0].tolist()}

    @pytest.mark.parametrize("limit", [1, 3, 7, 100])
    def test_pages_join_to_all_vectors(self, shelf: Shelf, limit: int) -> None:
        keys, table = shelf.fill(7), some_vectors(7)
        assert shelf.loaded(limit) == {}
        for some in (slice(3, 7), slice(0, 3), slice(0, 0)):
            shelf.put(keys[some], table[some])
        assert shelf.loaded(limit) == by_key(keys, table)

    def test_behind_a_mark_come_the_vectors_that_were_put_since(self, shelf: Shelf) -> None:
        keys, table = shelf.fill(3), some_vectors(3)
        shelf.put(keys[1:], table[1:])
        _, _, mark = shelf.vectors.load_vectors(shelf.tenant().key, shelf.model, 0, 100)
        shelf.put(keys[:1], table[:1])
        new, _, after = shelf.vectors.load_vectors(shelf.tenant().key, shelf.model, mark, 100)
        assert new.tolist() == keys[:1]
        assert len(shelf.vectors.load_vectors(shelf.tenant().key, shelf.model, after, 100)[0]) == 0

    def test_many_vectors_are_put_and_given_at_once(self, shelf: Shelf) -> None:
        keys, table = shelf.fill(1200), some_vectors(1200)
        shelf.put(keys, table)
        expected = by_key(keys, table)
        assert shelf.loaded(500) == shelf.given(keys) == expected
        assert len(shelf.vectors.get_texts(shelf.tenant(), keys)) == 1200

    def test_a_vector_that_is_put_again_replaces_the_one_before(self, shelf: Shelf) -> None:
        keys = shelf.fill(3)
        shelf.put(keys, some_vectors(3))
        shelf.put(keys[:2], some_vectors(2, seed=2))
        expected = [*some_vectors(2, seed=2).tolist(), some_vectors(3)[2].tolist()]
        assert shelf.loaded() == shelf.given(keys) == dict(zip(keys, expected, strict=True))

    def test_many_who_put_the_same_vectors_at_once_keep_one_of_each(self, shelf: Shelf) -> None:
        keys, table, start = shelf.fill(20), some_vectors(20), threading.Barrier(THREADS, timeout=60)

        def put() -> None:
            start.wait()
            shelf.put(keys, table)

        run_in_threads(THREADS, put)
        assert shelf.loaded() == by_key(keys, table)

    def test_what_was_found_of_a_model_is_told_to_others_until_something_is_erased(
        self, shelf: Shelf
    ) -> None:
        shelf.fill(1)
        tenant, found = shelf.tenant(), (TrustSampleRecord(9, 8, 7, 6), Trust(0.25, 1 / 3))
        assert shelf.vectors.get_trust(tenant, shelf.model) is None
        shelf.vectors.update_trust(tenant, shelf.model, *found)
        assert shelf.vectors.get_trust(tenant, shelf.model) == found
        assert (
            shelf.vectors.get_trust(replace(tenant, erasure_epoch=tenant.erasure_epoch + 1), shelf.model)
            is None
        )
        assert shelf.vectors.get_trust(replace(tenant, key=tenant.key + 1), shelf.model) is None
        assert shelf.vectors.get_trust(tenant, shelf.other_model(SIZE).model) is None

    def test_what_was_found_last_takes_the_place_of_what_was_before(self, shelf: Shelf) -> None:
        shelf.fill(1)
        tenant, last = shelf.tenant(), (TrustSampleRecord(2, 2, 2, 2), Trust(0.2))
        shelf.vectors.update_trust(tenant, shelf.model, TrustSampleRecord(1, 1, 1, 1), Trust(0.1))
        shelf.vectors.update_trust(tenant, shelf.model, *last)
        assert shelf.vectors.get_trust(tenant, shelf.model) == last

    def test_nothing_is_kept_of_a_namespace_that_is_gone_or_of_which_something_was_erased(
        self, shelf: Shelf
    ) -> None:
        shelf.fill(1)
        tenant, tried = shelf.tenant(), TrustSampleRecord(1, 1, 1, 1)
        for other in (replace(tenant, key=2**40), replace(tenant, erasure_epoch=tenant.erasure_epoch + 1)):
            shelf.vectors.update_trust(other, shelf.model, tried, Trust(0.1))
            assert shelf.vectors.get_trust(other, shelf.model) is None

    def test_vectors_of_two_models_and_of_two_namespaces_never_mix(self, shelf: Shelf) -> None:
        elsewhere, other = shelf.beside("session", "other"), shelf.other_model(SIZE - 1)
        ours, theirs = shelf.fill(2), elsewhere.fill(2)
        shelf.put(ours, some_vectors(2))
        elsewhere.put(theirs, some_vectors(2, seed=2))
        other.put(ours[:1], some_vectors(1, seed=3)[:, 1:])
        assert shelf.loaded() == by_key(ours, some_vectors(2))
        assert elsewhere.loaded() == by_key(theirs, some_vectors(2, seed=2))
        expected = {ours[0]: some_vectors(1, seed=3)[0, 1:].tolist()}
        assert other.loaded() == other.given(ours) == expected

    def test_vectors_of_messages_that_are_gone_are_left_out(self, shelf: Shelf) -> None:
        gone = shelf.beside("gone")
        keys = [*shelf.fill(1), *gone.fill(2)]
        gone.erase()
        shelf.put([2**40, *keys], some_vectors(4))
        assert shelf.loaded() == {keys[0]: some_vectors(4)[1].tolist()}

    def test_vectors_of_messages_of_another_namespace_are_left_out(self, shelf: Shelf) -> None:
        elsewhere = shelf.beside("session", "other")
        theirs, ours = elsewhere.fill(2), shelf.fill(1)
        shelf.put([*theirs, *ours], some_vectors(3))
        assert shelf.loaded() == shelf.given([*theirs, *ours]) == {ours[0]: some_vectors(3)[2].tolist()}
        elsewhere.put(theirs, some_vectors(2, seed=2))
        shelf.put(theirs, some_vectors(2))
        assert elsewhere.loaded() == by_key(theirs, some_vectors(2, seed=2))

    def test_after_something_was_erased_nothing_is_put(self, shelf: Shelf) -> None:
        gone, elsewhere = shelf.beside("gone"), shelf.beside("session", "other")
        keys, before = shelf.fill(2), shelf.tenant()
        elsewhere.erase()
        assert shelf.vectors.insert_vectors(before, shelf.model, keys[:1], some_vectors(1))
        gone.erase()
        assert not shelf.vectors.insert_vectors(before, shelf.model, keys, some_vectors(2, seed=2))
        assert shelf.loaded() == by_key(keys[:1], some_vectors(1))
        shelf.erase("namespace")
        assert not shelf.vectors.insert_vectors(before, shelf.model, keys, some_vectors(2))

    @pytest.mark.parametrize("what", ["session", "namespace"])
    @pytest.mark.parametrize("labels", [(), ("elsewhere",)])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_the_vector_of_a_message_that_is_gone_is_not_given_to_a_later_one(
        self, shelf: Shelf, what: str, labels: tuple[str, ...], when: str
    ) -> None:
        keys, before = shelf.fill(2), shelf.tenant()
        if when == "before":
            shelf.put(keys, some_vectors(2))
        shelf.erase(what)
        later = shelf.beside("later", *labels)
        new = later.fill(3)
        assert not shelf.vectors.insert_vectors(before, shelf.model, keys, some_vectors(2))
        assert later.loaded() == shelf.given([*keys, *new]) == {}
        if labels:  # it holds as well for who knows that something was erased, but not that it was this
            shelf.beside("here").put(keys, some_vectors(2))
            assert later.loaded() == shelf.given([*keys, *new]) == {}

    def test_who_embeds_while_others_erase_gives_no_message_the_vector_of_another(self, shelf: Shelf) -> None:
        start, numbers = threading.Barrier(THREADS, timeout=60), count()

        def vectors_of(texts: Mapping[int, str]) -> NDArray[np.float32]:
            return np.array([[float(text)] * SIZE for text in texts.values()], np.float32)

        def embed() -> None:
            refresh = shelf.index.load_changes(shelf.namespace, 0)
            assert refresh.tenant is not None
            texts = shelf.vectors.get_texts(refresh.tenant, refresh.rows.keys.tolist())
            shelf.vectors.insert_vectors(refresh.tenant, shelf.model, list(texts), vectors_of(texts))

        def work() -> None:
            start.wait()
            for number in (next(numbers) for _ in range(10)):
                own = shelf.beside(f"session {number}")
                own.say(f"{number}")
                embed()
                if number % 3:
                    own.erase()

        run_in_threads(THREADS, work)
        texts, loaded = shelf.vectors.get_texts(shelf.tenant(), shelf.all_keys()), shelf.loaded()
        expected = by_key(list(texts), vectors_of(texts))
        assert loaded == {key: expected[key] for key in loaded}

    def test_a_deleted_session_takes_its_vectors(self, shelf: Shelf) -> None:
        gone = shelf.beside("gone")
        stays, goes = shelf.fill(2), gone.fill(2)
        shelf.put([*stays, *goes], some_vectors(4))
        gone.erase()
        assert set(shelf.loaded()) == set(shelf.given([*stays, *goes])) == set(stays)
        shelf.erase("namespace")
        assert shelf.given(stays) == {}

    def test_vectors_of_other_models_can_be_dropped_when_nobody_uses_them(self, shelf: Shelf) -> None:
        other, elsewhere = shelf.other_model(), shelf.beside("session", "other")
        keys, theirs = shelf.fill(3), elsewhere.fill(1)
        for model in (shelf.model, other.model):
            replace(shelf, model=model).put(keys, some_vectors(3))
            replace(elsewhere, model=model).put(theirs, some_vectors(1))
        place, later = (shelf.tenant().key, shelf.model), NOW + timedelta(days=2)
        assert shelf.vectors.delete_unused_vectors(*place, unused_since=NOW) == 0
        shelf.vectors.register_model(other.identity, SIZE, later)
        assert shelf.vectors.delete_unused_vectors(*place, unused_since=later) == 0
        assert shelf.vectors.delete_unused_vectors(*place, unused_since=later + HOUR) == 3
        assert shelf.vectors.delete_unused_vectors(*place, unused_since=later + HOUR) == 0
        assert (set(shelf.loaded()), set(other.loaded())) == (set(keys), set())
        assert set(replace(other, namespace=elsewhere.namespace).loaded()) == set(theirs)

    def test_texts_are_given_as_they_were_said(self, shelf: Shelf) -> None:
        texts = ("", "narwhal é 😀", "x" * 100_000)
        theirs = shelf.beside("session", "other").fill(1)
        *keys, last = shelf.say(*texts, ANY_TEXT)
        found = shelf.vectors.get_texts(shelf.tenant(), [*keys, last, *theirs, 2**40])
        assert [found[key] for key in keys] == list(texts)
        assert "שלום" in found[last]  # what no database holds may be replaced: models take it no better
        assert (set(found), dict(shelf.vectors.get_texts(shelf.tenant(), []))) == ({*keys, last}, {})

    def test_the_nearest_come_in_order_with_their_cosines(self, shelf: Shelf) -> None:
        keys, table, query = shelf.fill(300), some_vectors(300), some_vectors(1, seed=2)[0]
        elsewhere = shelf.beside("session", "other")
        elsewhere.put(elsewhere.fill(5), np.array([query] * 5))
        shelf.put(keys, table)
        shelf.other_model().put(keys[:1], query[None, :])
        found = shelf.vectors.find_nearest(
            shelf.tenant().key, shelf.model, query, 20, VectorSearchFilter(300)
        )
        if found is None:  # left to the reader, who needs the vectors for it
            assert shelf.vectors.load_vectors(shelf.tenant().key, shelf.model, 0, 1)[1] is not None
            return
        cosines = cosines_of(table, query)
        best = np.argsort(-cosines)[:20]
        assert found[0].tolist() == [keys[row] for row in best]
        assert found[1] == pytest.approx(cosines[best], abs=1e-3)
        some, values = shelf.vectors.compute_cosines(shelf.model, query, np.array([*keys, 2**40], np.int64))
        order = np.argsort(some)
        assert some[order].tolist() == keys
        assert values[order] == pytest.approx(cosines, abs=1e-3)

    def test_a_vector_without_direction_is_neither_near_nor_far(self, shelf: Shelf) -> None:
        keys, table = shelf.fill(3), some_vectors(3)
        table[1] = 0
        shelf.put(keys, table)
        found = shelf.vectors.find_nearest(
            shelf.tenant().key, shelf.model, table[0], 3, VectorSearchFilter(3)
        )
        if found is None:  # left to the reader, who needs the vectors for it
            assert shelf.vectors.load_vectors(shelf.tenant().key, shelf.model, 0, 1)[1] is not None
            return
        _, cosines = shelf.vectors.compute_cosines(shelf.model, table[0], np.array(keys[1:2], np.int64))
        assert found[0][0] == keys[0]
        assert np.isfinite(found[1]).all()
        assert cosines.tolist() in ([], [0.0])

    def test_vectors_of_texts_are_remembered_until_they_expire(self, shelf: Shelf) -> None:
        one, two, other = b"1" * 16, b"\0" * 16, shelf.other_model()
        shelf.vectors.insert_cached_vectors(
            shelf.model, {one: b"\0a", two: b"b"}, NOW, until=NOW + HOUR, keep=9
        )
        shelf.vectors.insert_cached_vectors(shelf.model, {one: b"new"}, NOW, until=NOW + 2 * HOUR, keep=9)
        shelf.vectors.insert_cached_vectors(shelf.model, {}, NOW, until=NOW + HOUR, keep=9)
        asked = [one, two, b"3" * 16]
        almost = NOW + HOUR - timedelta(microseconds=1)
        assert shelf.vectors.get_cached_vectors(shelf.model, asked, almost) == {one: b"new", two: b"b"}
        assert shelf.vectors.get_cached_vectors(shelf.model, asked, NOW + HOUR) == {one: b"new"}
        assert shelf.vectors.get_cached_vectors(shelf.model, asked, NOW + 2 * HOUR) == {}
        assert (
            shelf.vectors.get_cached_vectors(other.model, asked, NOW)
            == shelf.vectors.get_cached_vectors(shelf.model, [], NOW)
            == {}
        )

    def test_the_newest_vectors_of_texts_are_kept(self, shelf: Shelf) -> None:
        other, hashes = shelf.other_model(), [bytes([n] * 16) for n in range(6)]
        shelf.vectors.insert_cached_vectors(
            other.model, dict.fromkeys(hashes, b"v"), NOW, until=NOW + HOUR, keep=9
        )
        for number, each in enumerate(hashes):
            until = NOW + HOUR + timedelta(seconds=number)
            shelf.vectors.insert_cached_vectors(shelf.model, {each: b"v"}, NOW, until=until, keep=3)
        assert set(shelf.vectors.get_cached_vectors(shelf.model, hashes, NOW)) == set(hashes[3:])
        assert set(shelf.vectors.get_cached_vectors(other.model, hashes, NOW)) == set(hashes)
        many = {number.to_bytes(16, "big"): b"v" for number in range(1200)}
        shelf.vectors.insert_cached_vectors(shelf.model, many, NOW, until=NOW + 2 * HOUR, keep=1200)
        assert shelf.vectors.get_cached_vectors(shelf.model, [*hashes, *many], NOW) == many

    def test_many_who_remember_the_same_text_at_once_keep_it(self, shelf: Shelf) -> None:
        texts, start = {bytes([n] * 16): b"v" for n in range(9)}, threading.Barrier(THREADS, timeout=60)

        def remember() -> None:
            start.wait()
            shelf.vectors.insert_cached_vectors(shelf.model, texts, NOW, until=NOW + HOUR, keep=99)

        run_in_threads(THREADS, remember)
        assert shelf.vectors.get_cached_vectors(shelf.model, list(texts), NOW) == texts
