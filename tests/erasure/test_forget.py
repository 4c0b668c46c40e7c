"""Data that forget() erases, rebuilds and keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import (
    InvalidInputError,
    InvalidNameError,
    MemoryEngine,
    MessageDraft,
    MessageNotFoundError,
    SessionNotFoundError,
    StorageUnavailableError,
)
from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.sql_store import SqlContextStore
from tests.erasure_helpers import (
    OTHER,
    SECRET,
    add_conversation,
    dump,
    fill,
    make_tool_call,
    open_test_engine,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langmem_tiers.erasure import ErasedIds


@pytest.fixture
def engine(url: str) -> Iterator[MemoryEngine]:
    with open_test_engine(url) as engine:
        yield engine


def everything(engine: MemoryEngine, tenant: str) -> str:
    """All that a tenant can be shown."""
    namespace = engine.namespace(tenant)
    told: list[object] = [*namespace.long_term, *namespace.facts, *namespace.episodes, *namespace.knowledge]
    for info in namespace.sessions().sessions:
        session = namespace.session(info.name)
        told += [*session.messages(), *session.view(), *session.chunks(), session.build_context().messages]
    told += [hit.entry for hit in namespace.recall(f"{SECRET} billing tea tiles Lisbon").hits]
    return str(told)


def test_forgetting_a_message_erases_everything_derived_from_it(engine: MemoryEngine, tenant: str) -> None:
    ids = fill(engine, tenant)
    session = engine.session(tenant, "monday")
    assert everything(engine, tenant).count(SECRET) > 9

    receipt = engine.forget(namespace=tenant, session="monday", message=ids[7], scrub=False)

    assert SECRET not in everything(engine, tenant)
    assert "Our goal is to open office 8" in everything(engine, tenant)
    with pytest.raises(MessageNotFoundError):
        session.get(ids[7])
    counts = receipt.counts
    assert (counts.messages, counts.summaries, counts.chunks, counts.episodes) == (1, 2, 1, 1)
    assert (counts.facts, counts.entries, counts.sessions) == (2, 1, 0)
    assert counts.vectors > 0
    assert (receipt.is_scrubbed, receipt.left) == (False, ())
    assert SECRET not in str(receipt.as_dict())


def test_a_summary_is_rebuilt_from_the_remaining_messages_and_hides_the_same_ones(
    engine: MemoryEngine, tenant: str
) -> None:
    ids = fill(engine, tenant)
    session = engine.session(tenant, "monday")
    seen = [message.id for message in session.view()[1:]]

    receipt = engine.forget(namespace=tenant, session="monday", message=ids[7], scrub=False)

    summary, *rest = session.view()
    assert summary.is_summary
    assert "part 6 of the kitchen" in summary.content
    assert [message.id for message in rest] == seen
    assert receipt.remade >= 2
    info, messages = session.info(), list(session.messages())
    assert info.message_count == len(messages) == 30  # 29 and the summary
    assert info.token_count == sum(message.token_count for message in messages)
    assert info.compressed_count == sum(message.is_compressed for message in messages) == 24


def test_later_compression_does_not_restore_a_forgotten_message(engine: MemoryEngine, tenant: str) -> None:
    ids = fill(engine, tenant)
    session = engine.session(tenant, "monday")
    engine.forget(namespace=tenant, session="monday", message=ids[7], scrub=False)
    session.tidy()
    session.learn(whole=True)
    session.compress(ids[28], "tiles")
    assert SECRET not in everything(engine, tenant)


def test_forgetting_a_visible_message_keeps_the_summary(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "monday")
    ids = add_conversation(session, secret_at=25)
    summary = session.compress(ids[20], "Tiles.").summary
    engine.forget(namespace=tenant, session="monday", message=ids[25], scrub=False)
    assert session.view()[0] == summary
    assert [m.id for m in session.view()[1:]] == [*ids[20:25], *ids[26:]]


def test_a_summary_without_remaining_messages_is_deleted(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "monday")
    first = session.add("user", SECRET).message
    second = session.add("user", "Hello.").message
    session.compress(second.id, f"They said {SECRET}.")
    engine.forget(namespace=tenant, session="monday", message=first.id, scrub=False)
    assert [message.id for message in session.view()] == [second.id] == [m.id for m in session.messages()]
    assert (session.info().message_count, session.info().compressed_count) == (1, 0)


def test_a_tool_call_is_forgotten_with_its_results_only(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "monday")
    session.add_many([*make_tool_call(1), *make_tool_call(2), MessageDraft("user", "Thanks.", id="end")])
    receipt = engine.forget(namespace=tenant, session="monday", message="result-1", scrub=False)
    assert [m.id for m in session.messages()] == ["call-2", "result-2", "end"]
    assert receipt.counts.messages == 2


def test_an_entry_confirmed_by_another_session_is_kept_in_its_wording(
    engine: MemoryEngine, tenant: str
) -> None:
    for name, said in (
        ("monday", "We decided to use PostgreSQL."),
        ("friday", "We decided to use PostgreSQL!"),
    ):
        session = engine.session(tenant, name)
        session.add("user", said)
        session.learn()
    (entry,) = engine.namespace(tenant).long_term.entries()
    assert entry.session == "monday"

    engine.forget(namespace=tenant, session="monday", scrub=False)

    (left,) = engine.namespace(tenant).long_term.entries()
    assert (left.id, left.session) == (entry.id, "friday")
    assert left.source is not None
    assert left.source.removeprefix("message ") == next(iter(engine.session(tenant, "friday").messages())).id
    engine.forget(namespace=tenant, session="friday", scrub=False)
    assert engine.namespace(tenant).long_term.entries() == ()


def test_an_entry_is_unchanged_if_only_a_session_that_confirmed_it_is_forgotten(
    engine: MemoryEngine, tenant: str
) -> None:
    for name, said in (
        ("monday", "We decided to use PostgreSQL."),
        ("friday", "We decided to use PostgreSQL!"),
    ):
        session = engine.session(tenant, name)
        session.add("user", said)
        session.learn()
    (entry,) = engine.namespace(tenant).long_term.entries()

    receipt = engine.forget(namespace=tenant, session="friday", scrub=False)

    assert engine.namespace(tenant).long_term.entries() == (entry,)
    assert (receipt.counts.facts, receipt.counts.entries, receipt.remade) == (1, 0, 0)


def test_a_manually_stored_entry_survives_a_forgotten_session(engine: MemoryEngine, tenant: str) -> None:
    long_term = engine.namespace(tenant).long_term
    long_term.store("We decided to use PostgreSQL.")
    session = engine.session(tenant, "monday")
    session.add("user", "We decided to use PostgreSQL.")
    session.learn()
    engine.forget(namespace=tenant, session="monday", scrub=False)
    (entry,) = long_term.entries()
    assert entry.source is None


def test_a_session_is_forgotten_with_its_memories_context_and_archived_parts(
    engine: MemoryEngine, tenant: str
) -> None:
    fill(engine, tenant)
    engine.session(tenant, "monday").set_aside()
    engine.session(tenant, "monday").add("user", f"Again {SECRET}.")
    engine.session(tenant, "mondays").add("user", "Another conversation.")
    fill(engine, tenant, "friday", OTHER)
    namespace = engine.namespace(tenant)
    namespace.knowledge.store("domain", "tea", SECRET, source="session monday")
    namespace.knowledge.store("domain", "tea", f"{SECRET} with milk", source="session monday")
    namespace.knowledge.store("domain", "coffee", "black")
    contexts = SqlContextStore(engine._database, (tenant,))
    contexts.save(ContextData(session_id="monday", facts=(SECRET,)), engine.services.now())

    receipt = engine.forget(namespace=tenant, session="monday", scrub=False)

    assert SECRET not in everything(engine, tenant)
    assert OTHER in everything(engine, tenant)
    assert {info.name for info in namespace.sessions().sessions} == {"friday", "mondays"}
    assert [item.key for item in namespace.knowledge] == ["coffee"]
    assert namespace.knowledge.history("domain", "tea") == ()
    assert contexts.load("monday") is None
    counts = receipt.counts
    assert (counts.sessions, counts.knowledge, counts.files) == (2, 1, 1)
    assert counts.versions == 2  # of knowledge and of the context


def test_forgetting_a_session_twice_erases_nothing_more(engine: MemoryEngine, tenant: str) -> None:
    fill(engine, tenant)
    first = engine.forget(namespace=tenant, session="monday", scrub=False)
    again = engine.forget(namespace=tenant, session="monday", scrub=False)
    assert first.counts.messages == 30
    assert again.counts.total == 0
    assert again.id != first.id


def test_an_entry_is_forgotten_with_its_history_and_facts(engine: MemoryEngine, tenant: str) -> None:
    namespace = engine.namespace(tenant)
    session = engine.session(tenant, "monday")
    session.add("user", f"I live in {SECRET}.")
    old = namespace.long_term.store(f"I live in {SECRET}.").entry
    new = namespace.long_term.store(f"I live in {OTHER}.").entry
    made = namespace.long_term.store("The office is near home.").entry
    assert old is not None
    assert new is not None
    assert made is not None
    namespace.long_term.relate(new.id, old.id, "supersedes")
    namespace.long_term.relate(made.id, new.id, "derived_from")

    receipt = engine.forget(namespace=tenant, entry=new.id, scrub=False)

    assert namespace.long_term.entries(valid_at=None) == ()
    assert (receipt.counts.entries, receipt.counts.versions) == (2, 1)
    assert len(list(session.messages())) == 1  # the message is not asked to go


def test_an_entry_derived_from_another_source_too_is_kept(engine: MemoryEngine, tenant: str) -> None:
    long_term = engine.namespace(tenant).long_term
    one, two, both = (
        long_term.store(said).entry for said in ("Tea is green.", "The sky was grey.", "It rains on the tea.")
    )
    assert one is not None
    assert two is not None
    assert both is not None
    long_term.relate(both.id, one.id, "derived_from")
    long_term.relate(both.id, two.id, "derived_from")
    engine.forget(namespace=tenant, entry=one.id, scrub=False)
    assert {entry.id for entry in long_term.entries()} == {two.id, both.id}
    assert {relation.target for relation in long_term.relations(both.id)} == {two.id}


def test_an_episode_is_unlinked_from_a_forgotten_entry(engine: MemoryEngine, tenant: str) -> None:
    fill(engine, tenant)
    namespace = engine.namespace(tenant)
    (episode,) = namespace.episodes
    (linked,) = episode.linked
    engine.forget(namespace=tenant, entry=linked, scrub=False)
    (left,) = namespace.episodes
    assert left.linked == ()
    assert engine.session(tenant, "monday").arc().key_moments == (left,)  # it still belongs to its session


def test_knowledge_is_forgotten_with_its_history(engine: MemoryEngine, tenant: str) -> None:
    knowledge = engine.namespace(tenant).knowledge
    knowledge.store("domain", "a/b%", SECRET)
    known = knowledge.store("domain", "a/b%", OTHER).knowledge
    receipt = engine.forget(namespace=tenant, entry=known.id, scrub=False)
    assert (receipt.counts.knowledge, receipt.counts.versions) == (1, 1)
    assert list(knowledge) == []
    assert knowledge.history("domain", "a/b%") == ()


def test_a_namespace_is_forgotten_without_its_children(engine: MemoryEngine, tenant: str) -> None:
    fill(engine, tenant)
    engine.session((tenant, "project"), "monday").add("user", "Kept.")
    engine.items.put(tenant, "note", {"text": SECRET})
    engine.items.put((tenant, "project"), "note", {"text": "Kept."})
    engine.optimizer.run(tenant)
    receipt = engine.forget(namespace=tenant, scrub=False)
    assert receipt.counts.namespaces == 1
    assert receipt.counts.items == 1
    assert receipt.counts.messages == 30
    assert engine.namespace(tenant).find_session("monday") is None
    assert engine.items.get(tenant, "note") is None
    assert engine.items.get((tenant, "project"), "note") is not None
    assert engine.session((tenant, "project"), "monday").count() == 1
    with pytest.raises(SessionNotFoundError):
        engine.namespace(tenant).sessions(after="monday")


def test_a_receipt_counts_the_vectors_of_erased_messages(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "monday")
    first, second, third, _ = add_conversation(session, 4)
    assert engine.namespace(tenant).embed() == 4
    counts = engine.forget(namespace=tenant, session="monday", message=first, scrub=False).counts
    assert (counts.messages, counts.vectors, counts.total) == (1, 1, 2)
    unseen = session.add("user", "Nobody has embedded this.").message.id
    counts = engine.forget(namespace=tenant, session="monday", message=unseen, scrub=False).counts
    assert (counts.messages, counts.vectors, counts.total) == (1, 0, 1)
    session.compress(third, "They counted tiles.")
    counts = engine.forget(namespace=tenant, session="monday", message=second, scrub=False).counts
    assert (counts.messages, counts.summaries, counts.vectors) == (1, 1, 1)
    counts = engine.forget(namespace=tenant, session="monday", scrub=False).counts
    assert (counts.messages, counts.vectors, counts.sessions) == (2, 2, 1)


@pytest.mark.parametrize("what", ["namespace", "session", "message", "entry"])
def test_forgetting_erases_the_vectors_of_all_queries(file_url: str, what: str) -> None:
    with open_test_engine(file_url) as engine:
        said = engine.session("acme", "monday").add("user", f"I drink {SECRET} tea.").message
        known = engine.namespace("acme").knowledge.store("domain", "tea", SECRET).knowledge
        engine.namespace("acme").recall(f"{SECRET} tea")
    assert len(dump(file_url)["lmt_embedding_cache"]) == 1
    gone: dict[str, Any] = {
        "namespace": {},
        "session": {"session": "monday"},
        "message": {"session": "monday", "message": said.id},
        "entry": {"entry": known.id},
    }
    with open_test_engine(file_url) as engine:
        engine.namespace("acme").recall(f"who drinks {SECRET}?")
        engine.forget(namespace="acme", scrub=False, **gone[what])
    assert dump(file_url)["lmt_embedding_cache"] == []


def test_a_user_is_forgotten_in_every_namespace_with_the_whole_label(
    engine: MemoryEngine, tenant: str
) -> None:
    user = f"{tenant}/al_ice%"
    erased_paths = [(user,), ("acme", user), (user, "notes"), ("acme", user, "notes")]
    kept = [
        (f"{user}2",),
        ("acme", f"x{user}"),
        (tenant, "al_ice%"),
        (user.upper(),),
        (user.replace("_", "x"),),
    ]
    for path in (*erased_paths, *kept):
        engine.session(path, "s").add("user", "Hello.")
        engine.items.put((*path, "items"), "k", {"a": 1})
    receipt = engine.forget(user=user, scrub=False)
    assert (receipt.counts.namespaces, receipt.counts.items) == (4, 4)
    assert all(engine.namespace(path).find_session("s") is None for path in erased_paths)
    assert all(engine.session(path, "s").count() == 1 for path in kept)
    assert all(engine.items.get((*path, "items"), "k") is not None for path in kept)


def test_erasers_of_external_copies_are_called_and_failures_are_in_the_receipt(
    engine: MemoryEngine, tenant: str
) -> None:
    told: list[ErasedIds] = []

    def copies(erased: ErasedIds) -> Mapping[str, int]:
        told.append(erased)
        return {"redis keys": 2}

    def broken(erased: ErasedIds) -> Mapping[str, int]:
        raise StorageUnavailableError("Redis cannot be reached")

    def mad(erased: ErasedIds) -> Mapping[str, int]:
        raise KeyError(SECRET)

    ids = fill(engine, tenant)
    engine.services.erasers.extend([broken, copies, mad])
    receipt = engine.forget(namespace=tenant, session="monday", message=ids[7], scrub=False)
    (erased,) = told
    assert erased.messages[(tenant,), "monday"][0] == ids[7]
    assert erased.entries[(tenant,)]
    assert receipt.elsewhere == {"redis keys": 2}
    assert len(receipt.left) == 2
    assert not receipt.is_complete
    assert SECRET not in repr(receipt)


def test_a_failed_scrub_is_reported_and_the_rows_are_erased(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageUnavailableError("the database is locked")

    with open_test_engine(file_url) as engine:
        ids = add_conversation(engine.session("acme", "monday"))
        with monkeypatch.context() as patch:
            patch.setattr(type(engine.services.maintenance_store), "scrub", fail)
            receipt = engine.forget(namespace="acme", session="monday", message=ids[7])
        assert not receipt.is_scrubbed
        (left,) = receipt.left
        assert "their bytes were not scrubbed (the database is locked): forget the same data again" in left
        assert SECRET not in everything(engine, "acme")
        again = engine.forget(namespace="acme", session="monday")
        assert (again.is_scrubbed, again.left) == (True, ())


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"session": "monday"},
        {"namespace": "a", "message": "1"},
        {"namespace": "a", "session": "b", "entry": "c"},
        {"namespace": "a", "user": "b"},
        {"namespace": ""},
        {"user": ""},
        {"namespace": "a", "session": ""},
    ],
)
def test_a_request_without_or_with_two_targets_is_refused(asked: dict[str, Any]) -> None:
    with open_test_engine("sqlite://") as engine, pytest.raises((InvalidInputError, InvalidNameError)):
        engine.forget(**asked)


def test_plans_and_writes_from_before_an_erasure_are_refused(engine: MemoryEngine, tenant: str) -> None:
    session = engine.session(tenant, "monday")
    ids = add_conversation(session)
    store = engine.services.long_term.store
    plan = session.analyze()
    before = store.get_cursor(session.key)
    engine.forget(namespace=tenant, session="monday", message=ids[7], scrub=False)
    assert store.get_cursor(session.key).erasure_count != before.erasure_count
    if any(item.message.id == ids[7] and item.key in plan.overrides for item in plan.view.items):
        with pytest.raises(Exception, match="analyze"):
            session.apply(plan)


def test_another_engine_sees_an_erasure_immediately(url: str, tenant: str) -> None:
    with open_test_engine(url) as one, open_test_engine(url) as other:
        ids = fill(one, tenant)
        assert SECRET in everything(other, tenant)
        one.forget(namespace=tenant, session="monday", message=ids[7], scrub=False)
        assert SECRET not in everything(other, tenant)
        one.forget(namespace=tenant, scrub=False)
        assert other.namespace(tenant).recall("tiles").hits == ()
