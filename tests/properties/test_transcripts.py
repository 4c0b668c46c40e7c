"""A list behaves like a plain list for any operations, and the record only grows."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.sessions.models import IN_LIST, Listing
from tests.backends import ALL_BACKENDS, open_backend_engine
from tests.hypothesis_settings import examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langmem_tiers import Message, Session

ACTIVE, ARCHIVED, REPLACED, REMOVED = Listing
MOST = 500


@dataclass
class Model:
    """What a session holds, as plain lists: each text that was ever said, and how it stands."""

    texts: list[str] = field(default_factory=list)
    stands: list[Listing] = field(default_factory=list)
    first_shown: int = 0
    """Everything before it stands behind a summary."""

    def places(self, *listings: Listing) -> list[int]:
        return [place for place, listing in enumerate(self.stands) if listing in listings]

    def add(self, texts: Sequence[str], listing: Listing) -> None:
        self.texts += texts
        self.stands += [listing] * len(texts)

    def put(self, places: Sequence[int], listing: Listing) -> None:
        for place in places:
            self.stands[place] = listing


@dataclass(frozen=True)
class Add:
    texts: list[str]
    listing: Listing

    def run(self, session: Session, model: Model) -> None:
        report = session.transcript.add([MessageDraft("user", text) for text in self.texts], self.listing)
        assert len(report.stored) == len(self.texts)
        model.add(self.texts, self.listing)


@dataclass(frozen=True)
class Replace:
    """Another list: some of the one that is there, in its order, and more behind it."""

    keep: list[int]
    texts: list[str]
    listing: Listing
    former: Listing
    behind_summaries: bool

    def run(self, session: Session, model: Model) -> None:
        there = model.places(*IN_LIST)
        picked = sorted({there[number % len(there)] for number in self.keep}) if there else []
        new = [*(model.texts[place] for place in picked), *self.texts]
        kept: list[int] = []
        for text in new:
            behind = [
                place for place in there if place > max(kept, default=-1) and model.texts[place] == text
            ]
            if not behind:
                break
            kept.append(behind[0])
        out = [place for place in there if place not in kept]
        report = session.transcript.replace(
            [MessageDraft("user", text) for text in new],
            self.listing,
            former=self.former,
            behind_summaries=self.behind_summaries,
        )
        if not self.behind_summaries and any(place < model.first_shown for place in out):
            assert report is None
            return
        assert report is not None
        assert (report.kept, report.replaced) == (len(kept), len(out))
        assert [message.content for message in report.added] == new[len(kept) :]
        model.put(out, self.former)
        model.put(kept, self.listing)
        model.add(new[len(kept) :], self.listing)


@dataclass(frozen=True)
class MoveOldest:
    count: int
    listing: Listing

    def run(self, session: Session, model: Model) -> None:
        oldest = model.places(ACTIVE)[: self.count]
        moved = session.transcript.move_oldest(self.count, self.listing)
        assert [message.content for message in moved] == [model.texts[place] for place in oldest]
        model.put(oldest, self.listing)


@dataclass(frozen=True)
class Move:
    """Messages of the record, wherever they stand."""

    numbers: list[int]
    listing: Listing

    def run(self, session: Session, model: Model) -> None:
        places = [number % len(model.texts) for number in self.numbers] if model.texts else []
        said = list_messages(session)
        session.transcript.move([said[place].id for place in places], self.listing)
        model.put(places, self.listing)


@dataclass(frozen=True)
class Compress:
    """A summary in the place of what is shown before one of the messages in view."""

    number: int

    def run(self, session: Session, model: Model) -> None:
        shown = [place for place in model.places(*IN_LIST) if place >= model.first_shown]
        if not shown:
            return
        place = shown[self.number % len(shown)]
        report = session.compress(list_messages(session)[place].id, "what was said so far")
        if report.compressed:
            model.first_shown = place


Step: TypeAlias = Add | Replace | MoveOldest | Move | Compress

texts = st.lists(st.sampled_from(["an otter", "a walrus", "a heron"]), max_size=4)
numbers = st.lists(st.integers(0, 30), max_size=5)
listings, in_list = st.sampled_from(Listing), st.sampled_from(IN_LIST)
steps = st.lists(
    st.builds(Add, texts, listings)
    | st.builds(Replace, numbers, texts, in_list, st.sampled_from([REPLACED, REMOVED]), st.booleans())
    | st.builds(MoveOldest, st.integers(0, 4), listings)
    | st.builds(Move, numbers, listings)
    | st.builds(Compress, st.integers(0, 30)),
    max_size=12,
)


@pytest.fixture(scope="module", params=ALL_BACKENDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryEngine]:
    """One engine for all examples; each works in namespaces of its own."""
    with open_backend_engine(
        request.param, tmp_path_factory.mktemp("transcripts"), request, embedder=None
    ) as engine:
        yield engine


def list_messages(session: Session) -> list[Message]:
    """The record without summaries."""
    return [message for message in session.messages() if not message.is_summary]


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages if not message.is_summary]


def check(session: Session, model: Model, before: Sequence[Message]) -> None:
    """That the session is what the model is, and holds all that it held before."""
    said = list_messages(session)
    assert [message.content for message in said] == model.texts
    assert ids(said)[: len(before)] == ids(before)
    for listing in Listing:
        expected = [said[place] for place in model.places(listing)]
        assert list(session.transcript.messages([listing])) == expected
    wanted = model.places(*IN_LIST)
    assert list(session.transcript.messages()) == [said[place] for place in wanted]
    assert session.transcript.count() == len(wanted)
    shown = [said[place].id for place in wanted if place >= model.first_shown]
    assert ids(session.view()) == shown
    assert ids(session.build_context(recall=False).messages) == shown


@examples(60)
@given(steps)
@example(
    [
        Add(["an otter", "a walrus", "an otter"], ACTIVE),
        Compress(2),
        Replace([0, 2], ["a heron"], ACTIVE, REMOVED, behind_summaries=False),
        Replace([0, 2], ["a heron"], ARCHIVED, REMOVED, behind_summaries=True),
        Move([1], ACTIVE),
    ]
)
def test_a_message_list_behaves_like_a_plain_list(shared: MemoryEngine, steps: list[Step]) -> None:
    tenant, model = uuid.uuid4().hex, Model()
    session = shared.session(tenant, "s")
    for step in steps:
        before = list_messages(session)
        step.run(session, model)
        check(session, model, before)
        hits = shared.namespace(tenant).search("otter walrus heron", limit=MOST)
        left = [list_messages(session)[place].id for place in model.places(*IN_LIST, REPLACED)]
        assert sorted(hit.entry.id for hit in hits) == sorted(left)
