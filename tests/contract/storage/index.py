"""Contract of ``RecallIndexRepository``."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.common.entries import EntryOverride, Tier
from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageToolCall, Role
from langmem_tiers.errors import LangmemTiersError
from langmem_tiers.testing.threads import run_in_threads
from langmem_tiers.text.tokenize import count_words, extract_terms
from tests.contract.storage.base import (
    ANY_TEXT,
    HOSTILE_NAMES,
    NOW,
    StoreConformance,
    Stores,
    message,
)
from tests.contract.storage.indexed import LARGE_TEXTS, MOMENTS, OPERATORS, THREADS, Talk

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.override_repository import OverrideRepository


class RecallIndexRepositoryConformance(StoreConformance):
    """What ``RecallIndexRepository`` must do."""

    @pytest.fixture
    def talk(self, stores: Stores, namespace: NamespacePath, key: int) -> Talk:
        """A session with nothing in it."""
        assert stores.index is not None, "hand in Stores(index=...) to run this suite"
        return Talk(stores, stores.index, namespace, key)

    def test_an_empty_or_unknown_namespace_has_no_rows(self, talk: Talk) -> None:
        refresh = talk.index.load_changes((*talk.namespace, "nowhere"), 0)
        assert refresh.tenant is None
        assert (len(refresh.rows.keys), len(refresh.rows.speakers)) == (0, 0)
        assert (talk.all_keys(), talk.places("narwhal")) == ([], {})

    def test_a_namespace_index_has_all_its_messages_and_no_others(self, talk: Talk) -> None:
        tenants = [talk.beside("a", name) for name in HOSTILE_NAMES]
        for number, tenant in enumerate(tenants):
            tenant.say(*["narwhal"] * number)
            tenant.beside("b").say("narwhal")
        keys = [tenant.all_keys() for tenant in tenants]
        assert [len(own) for own in keys] == [number + 1 for number in range(len(tenants))]
        assert len({key for own in keys for key in own}) == sum(map(len, keys))
        for tenant, own in zip(tenants, keys, strict=True):
            assert tenant.places("narwhal") == {"narwhal": dict.fromkeys(own, 1)}
        assert talk.places("narwhal") == {}

    def test_all_new_messages_are_loaded_after_a_watermark(self, talk: Talk) -> None:
        other, mark, seen = talk.beside("session", "other"), 0, set[int]()
        for number in range(5):
            talk.say(*[f"message {number}"] * number)
            other.say("not ours")
            refresh = talk.index.load_changes(talk.namespace, mark)
            new, mark = set(refresh.rows.keys.tolist()), refresh.watermark
            assert len(new - seen) == number
            seen |= new
        assert sorted(seen) == talk.all_keys()

    def test_a_reader_with_a_watermark_misses_nothing_of_concurrent_writers(self, talk: Talk) -> None:
        start, numbers, seen = threading.Barrier(THREADS, timeout=60), count(), list[set[int]]()

        def write_and_read() -> None:
            own, mark, met = talk.beside(f"session {next(numbers)}"), 0, set[int]()
            start.wait()
            for _ in range(10):
                own.say("narwhal")
                refresh = talk.index.load_changes(talk.namespace, mark)
                mark = refresh.watermark
                met |= set(refresh.rows.keys.tolist())
            start.wait()
            seen.append(met | set(talk.index.load_changes(talk.namespace, mark).rows.keys.tolist()))

        run_in_threads(THREADS, write_and_read)
        assert len(talk.all_keys()) == 10 * THREADS
        assert seen == [set(talk.all_keys())] * THREADS

    def test_erasing_increases_the_erasure_epoch(self, talk: Talk) -> None:
        before = talk.tenant()
        talk.say("narwhal")
        talk.beside("other").say("tusk")
        talk.beside("session", "elsewhere").erase()
        assert talk.tenant() == before
        talk.erase()
        between = talk.tenant()
        assert between.key == before.key
        talk.erase("namespace")
        assert talk.index.load_changes(talk.namespace, 0).tenant is None
        talk.beside("session").say("anew")
        assert len({before, between, talk.tenant()}) == 3

    def test_erased_messages_are_not_found(self, talk: Talk) -> None:
        gone, stays = talk.beside("gone"), talk.beside("stays")
        gone.say("narwhal tusk", "narwhal")
        stays.say("narwhal")
        keys = talk.all_keys()
        gone.erase()
        assert talk.places("narwhal tusk") == {"narwhal": {keys[2]: 1}}
        found = talk.index.get_messages(before := talk.tenant(), keys)
        assert set(talk.index.get_terms(keys)) == set(found) == {keys[2]}
        talk.erase("namespace")
        assert talk.index.get_messages(before, keys) == {}
        talk.beside("anew")
        assert talk.places("narwhal tusk") == {}

    def test_summaries_are_not_indexed(self, talk: Talk) -> None:
        talk.stores.messages.append(talk.key, [message("tusk", id=f"{n}") for n in range(4)], NOW)
        summary = message(f"{SUMMARY_PREFIX}\nnarwhal tusk", id="s", role=Role.SYSTEM)
        assert talk.stores.messages.compress(talk.key, summary, before="3", hidden=3, was_hidden=0)
        talk.say("tusk")
        assert len(talk.all_keys()) == 5
        assert talk.places("narwhal tusk") == {"tusk": dict.fromkeys(talk.all_keys(), 1)}

    def test_rows_contain_session_position_speaker_and_form_of_a_message(self, talk: Talk) -> None:
        batch = [
            replace(message("Narwhals swim with narwhals", role=Role.ASSISTANT), name="Ann Lee"),
            replace(message("Where do they swim? "), name="Tomás"),
            message("東京?", role=Role.SYSTEM),
            message("", role=Role.TOOL),
        ]
        talk.stores.messages.append(talk.key, batch, NOW)
        other = talk.beside("other")
        other.say("the and of")
        rows, roles = talk.index.load_changes(talk.namespace, 0).rows, list(Role)
        assert rows.sessions.tolist() == [talk.key] * 4 + [other.key]
        assert rows.positions[:4].tolist() == sorted(set(rows.positions[:4].tolist()))
        assert [roles[role] for role in rows.roles] == [m.role for m in batch] + [Role.USER]
        assert rows.lengths.tolist() == [3, 1, 1, 0, 0]
        assert rows.is_question.tolist() == [False, True, True, False, False]
        assert list(rows.speakers) == ["ann lee", "toma", None, None, None]
        assert ((rows.importance >= 0) & (rows.importance <= 1)).all()

    @pytest.mark.parametrize("moment", MOMENTS, ids=str)
    def test_times_are_exact(self, talk: Talk, moment: datetime) -> None:
        try:
            talk.stores.messages.append(talk.key, [replace(message(), created_at=moment)], NOW)
        except LangmemTiersError:
            pytest.skip("the store takes no such time")
        assert talk.index.load_changes(talk.namespace, 0).rows.times.tolist() == [to_microseconds(moment)]

    def test_terms_are_counted_in_each_message(self, talk: Talk) -> None:
        talk.say("Paint the boats, paint the boat", "She painted", "A boat", "Nothing of it")
        first, second, third, _ = talk.all_keys()
        expected = {"boat": {first: 2, third: 1}, "paint": {first: 2, second: 1}}
        assert talk.places("boats painting unicorn") == expected
        assert talk.places("unicorn") == talk.places("") == {}

    def test_the_terms_of_messages_are_returned(self, talk: Talk) -> None:
        texts = ("Paint the boats, paint", "the and of", "", "café 東京")
        talk.say(*texts)
        given = talk.index.get_terms([*talk.all_keys(), 2**40])
        assert [sorted(given[key]) for key in talk.all_keys()] == [
            sorted(extract_terms(text)) for text in texts
        ]
        assert set(given) == set(talk.all_keys())

    def test_a_repeated_term_is_found_and_counted(self, talk: Talk) -> None:
        talk.say("tusk", "narwhal " * 300)
        assert talk.index.load_changes(talk.namespace, 0).rows.lengths.tolist() == [1, 300]
        ((_, times),) = talk.places("narwhal")["narwhal"].items()
        assert 255 <= times <= 300  # a store may stop counting at 255

    @pytest.mark.parametrize("text", LARGE_TEXTS.values(), ids=LARGE_TEXTS)
    def test_a_large_message_is_found_by_its_beginning(self, talk: Talk, text: str) -> None:
        talk.say(text)
        (key,), terms = talk.all_keys(), extract_terms(text)
        assert talk.index.load_changes(talk.namespace, 0).rows.lengths.tolist() == [count_words(terms)]
        assert talk.places("narwhal") == {"narwhal": {key: 1}}
        given = set(talk.index.get_terms([key])[key])
        assert given == set(list(dict.fromkeys(terms))[: max(len(given), 1000)])

    def test_operators_and_quotes_are_text_like_any_other(self, talk: Talk) -> None:
        talk.say(*(f"{mark}narwhal{mark}tusk{mark} {mark}" for mark in OPERATORS), ANY_TEXT)
        for mark, key in zip(OPERATORS, talk.all_keys(), strict=False):
            assert len(talk.index.find_postings(talk.tenant().key, [mark]).keys) == 0
            found = talk.places(f"{mark}narwhal{mark}tusk{mark}")
            assert [key in where for where in found.values()] == [True] * max(1, len(found))
        assert list(talk.index.find_postings(talk.tenant().key, [*OPERATORS, "narwhal"]).terms) == ["narwhal"]
        assert set(talk.places(ANY_TEXT)) == set(extract_terms(ANY_TEXT))

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("我们去东京塔", "东京"), ("東京タワーへ行く", "タワー"), ("한국어를 배워요", "한국어"),
            ("ฉันรักเมืองไทย", "เมือง"), ("Un café à Orléans", "CAFE orleans"), ("Straße", "STRASSE"),
            ("मैं हिन्दी सीखता हूँ", "हिन्दी"), ("Поехали в Москву", "ПОЕХАЛИ"), ("שלום לכולם", "שלום"),
        ],
    )  # fmt: skip
    def test_words_of_every_script_are_found(self, talk: Talk, text: str, query: str) -> None:
        talk.say("tusk", text)
        _, key = talk.all_keys()
        assert talk.places(query) == {
            term: {key: extract_terms(text).count(term)} for term in extract_terms(query)
        }

    def test_messages_are_found_with_override_and_session(
        self, talk: Talk, entries: OverrideRepository
    ) -> None:
        call = MessageToolCall("c", "search", ANY_TEXT)
        for number, name in enumerate(HOSTILE_NAMES):
            said = replace(message(ANY_TEXT, id=f"{number}"), name=ANY_TEXT, tool_calls=(call,))
            talk.stores.messages.append(talk.beside(name).key, [said], NOW)
        mark = EntryOverride(tier=Tier.LONG_TERM, relevance=1.0, reason="manually", changed_at=NOW)
        assert entries.apply(talk.beside("a%").key, {talk.all_keys()[0]: mark}, roll_up=None, was_hidden=0)
        found = talk.index.get_messages(talk.tenant(), [*talk.all_keys(), 2**40])
        assert [found[key].session for key in talk.all_keys()] == list(HOSTILE_NAMES)
        for number, indexed in enumerate(found[key] for key in talk.all_keys()):
            assert indexed.view_item == entries.get(talk.beside(indexed.session).key, f"{number}")
        assert (set(found), dict(talk.index.get_messages(talk.tenant(), []))) == (set(talk.all_keys()), {})

    def test_many_messages_are_read_in_one_call(self, talk: Talk) -> None:
        texts = [f"narwhal {n}" for n in range(1200)]
        talk.say(*texts)
        keys = talk.all_keys()
        found, terms = talk.index.get_messages(talk.tenant(), keys), talk.index.get_terms(keys)
        assert [found[key].view_item.message.content for key in keys] == texts
        assert [sorted(terms[key]) for key in keys] == [sorted(extract_terms(text)) for text in texts]

    def test_messages_are_found_by_tier(self, talk: Talk, entries: OverrideRepository) -> None:
        talk.say("one", "two", "three")
        keys, other = talk.all_keys(), talk.beside("session", "other")
        mark = EntryOverride(tier=Tier.LONG_TERM, changed_at=NOW)
        assert entries.apply(talk.key, dict.fromkeys(keys[:2], mark), roll_up=None, was_hidden=0)
        assert sorted(talk.index.list_keys_in_tier(talk.tenant().key, Tier.LONG_TERM).tolist()) == keys[:2]
        assert talk.index.list_keys_in_tier(other.tenant().key, Tier.LONG_TERM).tolist() == []
        assert entries.apply(talk.key, {keys[0]: None}, roll_up=None, was_hidden=0)
        assert talk.index.list_keys_in_tier(talk.tenant().key, Tier.LONG_TERM).tolist() == [keys[1]]

    def test_accesses_add_up_and_those_of_erased_messages_are_ignored(self, talk: Talk) -> None:
        gone, later = talk.beside("gone"), NOW + timedelta(microseconds=1)
        gone.say("narwhal")
        talk.say("one", "two")
        lost, one, two = talk.all_keys()
        gone.erase()
        tenant = talk.tenant()
        talk.index.add_accesses(tenant, {one: 1, lost: 5, 2**40: 1}, NOW)
        talk.index.add_accesses(tenant, {two: 2, one: 3}, later)
        talk.index.add_accesses(tenant, {}, later)
        assert talk.accesses() == [4, 2]

    def test_messages_of_other_namespaces_are_neither_found_nor_counted(self, talk: Talk) -> None:
        other = talk.beside("session", "other")
        ours, theirs = talk.say("narwhal", "tusk"), other.say("narwhal")
        assert set(talk.index.get_messages(talk.tenant(), [*theirs, *ours])) == set(ours)
        assert set(other.index.get_messages(other.tenant(), [*theirs, *ours])) == set(theirs)
        talk.index.add_accesses(talk.tenant(), dict.fromkeys([*ours, *theirs], 1), NOW)
        assert (talk.accesses(), other.accesses()) == ([1, 1], [0])

    @pytest.mark.parametrize("what", ["session", "namespace"])
    @pytest.mark.parametrize("labels", [(), ("elsewhere",)])
    def test_a_later_message_with_a_reused_key_is_not_mistaken_for_the_erased_one(
        self, talk: Talk, what: str, labels: tuple[str, ...]
    ) -> None:
        stays, gone = talk.beside("stays"), talk.beside("gone")
        keys, before = [*stays.say("narwhal"), *gone.say("tusk")], talk.tenant()
        assert set(talk.index.get_messages(before, keys)) == set(keys)
        gone.erase(what)
        later = talk.beside("later", *labels)
        later.say("one", "two")
        talk.index.add_accesses(before, dict.fromkeys(keys, 1), NOW)
        assert talk.index.get_messages(before, keys) == {}
        assert not any(talk.beside("later").accesses() + later.accesses())
        assert set(talk.index.get_messages(talk.tenant(), keys)) <= set(talk.all_keys())

    def test_a_search_during_concurrent_erasure_finds_no_foreign_message(self, talk: Talk) -> None:
        start, numbers, names = threading.Barrier(THREADS, timeout=60), count(), dict[int, str]()

        def come_and_go(number: int) -> None:
            own = talk.beside(name := f"session {number}")
            names[own.key] = name
            own.say("narwhal")
            own.erase()

        def look() -> None:
            refresh = talk.index.load_changes(talk.namespace, 0)
            assert refresh.tenant is not None
            sessions = dict(zip(refresh.rows.keys.tolist(), refresh.rows.sessions.tolist(), strict=True))
            talk.index.add_accesses(refresh.tenant, dict.fromkeys(sessions, 1), NOW)
            for key, indexed in talk.index.get_messages(refresh.tenant, list(sessions)).items():
                assert indexed.session == names[sessions[key]]

        def work() -> None:
            start.wait()
            for number in (next(numbers) for _ in range(10)):
                come_and_go(number)
                look()

        run_in_threads(THREADS, work)
        assert talk.all_keys() == []
