"""Scores match BM25 for messages, neighbors and sessions."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.recall.bm25 import (
    K1,
    MIN_IDF_SHARE,
    B,
    WordScores,
    find_term_matches,
    score_own_words,
    score_words,
)
from langmem_tiers.storage.search.postings import Postings
from tests.recall.test_positions import KERNELS, build_positions, index_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from langmem_tiers.recall.positions import Kernel, MessagePositions

Corpus = list[tuple[int, str]]
"""Messages as their session and their terms."""
TINY: Corpus = [
    (1, "narwhal swims"),
    (1, "whale swims swims far"),
    (1, "boat"),
    (2, "narwhal narwhal tusk swims deep"),
    (2, "far away boat boat boat"),
    (3, "tea"),
]


def places_of(corpus: Corpus, kernels: tuple[Kernel, ...] = KERNELS) -> MessagePositions:
    sessions = [session for session, _ in corpus]
    return build_positions(index_rows(sessions, lengths=[len(text.split()) for _, text in corpus]), kernels)


def postings_of(corpus: Corpus, terms: Sequence[str]) -> Postings:
    """What a store would give: only terms that are somewhere, keys ascending."""
    counts = [Counter(text.split()) for _, text in corpus]
    there = [term for term in terms if any(term in each for each in counts)]
    found = [
        (number, key, each[term])
        for number, term in enumerate(there)
        for key, each in enumerate(counts, 1)
        if term in each
    ]
    of, keys, many = zip(*found, strict=True) if found else ((), (), ())
    return Postings(there, np.array(of, np.int64), np.array(keys, np.int64), np.array(many, np.float32))


def scores_of(corpus: Corpus, query: str) -> WordScores:
    places = places_of(corpus)
    return score_words(places, find_term_matches(places, postings_of(corpus, query.split())))


def idf_of(count: int, holding: int) -> float:
    """How rare a word is; one that is everywhere still counts a little."""
    rarest = math.log(1 + (count + 0.5) / 0.5)
    return max(MIN_IDF_SHARE * rarest, math.log(1 + (count - holding + 0.5) / (holding + 0.5)))


def compute_bm25(texts: Sequence[str], query: str, total: float | None = None) -> list[float]:
    """BM25 as it is written in books, as a share of what all words are worth."""
    counts = [Counter(text.split()) for text in texts]
    average = sum(len(text.split()) for text in texts) / len(texts)
    holding = {term: sum(term in each for each in counts) for term in query.split()}
    idf = {t: idf_of(len(texts), n) for t, n in holding.items() if n}
    total = sum(idf.values()) if total is None else total
    scores = []
    for text, each in zip(texts, counts, strict=True):
        norm = K1 * (1 - B + B * len(text.split()) / average)
        gained = (idf[t] * each[t] * (K1 + 1) / (each[t] + norm) for t in idf)
        scores.append(sum(gained) / total)
    return scores


def worth(texts: Sequence[str], query: str) -> float:
    """What all words of a query are worth among messages."""
    holding = [sum(term in text.split() for text in texts) for term in query.split()]
    return sum(idf_of(len(texts), n) for n in holding if n)


QUERIES = ("narwhal", "swims", "narwhal swims", "far boat tea", "narwhal unicorn", "tea deep away whale")


@pytest.mark.parametrize("query", QUERIES)
def test_scores_match_the_bm25_formula(query: str) -> None:
    assert scores_of(TINY, query).own == pytest.approx(
        compute_bm25([text for _, text in TINY], query), rel=1e-5
    )


@pytest.mark.parametrize("query", QUERIES)
def test_sessions_score_as_texts_of_all_their_messages(query: str) -> None:
    texts = [" ".join(text for of, text in TINY if of == session) for session in (1, 2, 3)]
    expected = compute_bm25(texts, query, worth([text for _, text in TINY], query))
    places = places_of(TINY)
    numbers = [places.get_session_number(session) or 0 for session in (1, 2, 3)]
    assert scores_of(TINY, query).sessions[numbers] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("kernel", range(len(KERNELS)))
def test_neighbor_scores_use_the_weighted_counts_of_neighbors(query: str, kernel: int) -> None:
    places, terms = places_of(TINY), [t for t in query.split() if any(t in text.split() for _, text in TINY)]
    lengths = places.lengths_with_neighbors(kernel).astype(np.float64)
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    expected = np.zeros(len(TINY))
    for term in terms:
        counts = np.array([text.split().count(term) for _, text in TINY], np.float64)
        borrowed = _with_lent(places, kernel, counts)
        expected += worth([text for _, text in TINY], term) * borrowed * (K1 + 1) / (borrowed + norms)
    expected /= worth([text for _, text in TINY], query)
    assert scores_of(TINY, query).with_neighbors[kernel] == pytest.approx(expected, rel=1e-4)


def _with_lent(places: MessagePositions, kernel: int, held: NDArray[np.float64]) -> NDArray[np.float64]:
    borrowed = held.copy()
    for row, near in enumerate(places["neighbors"]):
        for slot, other in enumerate(near):
            if other >= 0:
                borrowed[other] += places.outgoing_weights(kernel)[row, slot] * held[row]
    return borrowed


def test_a_rare_word_outweighs_a_common_one() -> None:
    corpus: Corpus = [(n, "common") for n in range(9)] + [(10, "rare")]
    own = scores_of(corpus, "common rare").own
    assert own[9] > 2 * own[0] > 0


def test_a_word_in_all_messages_still_scores_above_0() -> None:
    assert scores_of([(1, "same"), (2, "same")], "same").own[0] > 0


def test_repetitions_of_a_word_add_diminishing_scores() -> None:
    texts = ["w a a a", "w w a a", "w w w a"]
    one, two, three = scores_of(list(enumerate(texts)), "w").own
    assert one < two < three
    assert three - two < two - one


def test_a_word_scores_higher_in_the_shorter_of_two_texts() -> None:
    short, long = scores_of([(1, "w a"), (2, "w a b c d e f g")], "w").own
    assert short > long


@pytest.mark.parametrize("kernel", range(len(KERNELS)))
def test_words_of_a_neighbor_score_less_than_own_words(kernel: int) -> None:
    corpus: Corpus = [(1, "a b c"), (1, "narwhal b c"), (1, "a b c"), (1, "a b c"), (2, "a b c")]
    before, own, after, later, elsewhere = scores_of(corpus, "narwhal").with_neighbors[kernel]
    assert own > after > later > elsewhere == 0
    assert after > before > 0  # what was said explains what follows


def test_messages_of_another_session_are_not_neighbors() -> None:
    corpus: Corpus = [(1, "narwhal"), (2, "tea"), (1, "tusk"), (2, "milk")]
    for scores in scores_of(corpus, "narwhal").with_neighbors:
        assert (scores > 0).tolist() == [True, False, True, False]


@st.composite
def corpora(draw: st.DrawFn) -> tuple[Corpus, str]:
    """A small corpus and a query, some of whose words are nowhere."""
    text = st.lists(st.sampled_from("a b c d e f".split()), min_size=1, max_size=9).map(" ".join)
    corpus = draw(st.lists(st.tuples(st.integers(1, 3), text), min_size=1, max_size=25))
    query = draw(st.lists(st.sampled_from("a b c d e f g h".split()), unique=True, max_size=8))
    return corpus, " ".join(query)


@given(corpora())
def test_a_query_scores_as_the_weighted_sum_of_its_words(given: tuple[Corpus, str]) -> None:
    corpus, query = given
    texts = [text for _, text in corpus]
    together, expected = scores_of(corpus, query), np.zeros((len(KERNELS) + 1, len(corpus)))
    for word in query.split():
        alone = scores_of(corpus, word)
        expected += worth(texts, word) * np.array([alone.own, *alone.with_neighbors])
    expected /= worth(texts, query) or 1
    assert np.array([together.own, *together.with_neighbors]) == pytest.approx(expected, rel=1e-9)


@given(corpora())
def test_scores_are_bounded_and_only_matching_messages_score(given: tuple[Corpus, str]) -> None:
    corpus, query = given
    scores, wanted = scores_of(corpus, query), set(query.split())
    for part in (scores.own, *scores.with_neighbors):
        assert len(part) == len(corpus)
        assert ((part >= 0) & (part <= K1 + 1)).all()
    assert (scores.own > 0).tolist() == [bool(wanted & set(text.split())) for _, text in corpus]


@given(corpora())
def test_own_scores_computed_alone_are_equal(given: tuple[Corpus, str]) -> None:
    corpus, query = given
    places = places_of(corpus)
    words = find_term_matches(places, postings_of(corpus, query.split()))
    assert (score_own_words(places, words) == score_words(places, words).own).all()


@pytest.mark.parametrize("postings", [None, postings_of(TINY, ["unicorn"])], ids=["none", "nowhere"])
def test_no_message_scores_without_words(postings: Postings | None) -> None:
    places = places_of(TINY)
    words = find_term_matches(places, postings)
    scores = score_words(places, words)
    assert words.total_weight == 1.0
    assert not scores.own.any()
    assert not scores.sessions.any()
    assert not any(part.any() for part in scores.with_neighbors)


def test_messages_newer_than_the_positions_are_ignored() -> None:
    places, late = places_of(TINY[:3]), postings_of(TINY, ["narwhal", "tusk"])
    words = find_term_matches(places, late)
    assert words.rows.tolist() == [0]
    assert words.idf[1] == 0
    known = find_term_matches(places, postings_of(TINY[:3], ["narwhal"]))
    assert score_own_words(places, words) == pytest.approx(score_own_words(places, known))


def test_scores_are_updated_when_messages_are_added() -> None:
    places = places_of(TINY[:4])
    score_words(places, find_term_matches(places, postings_of(TINY[:4], ["narwhal"])))
    lengths = [len(text.split()) for _, text in TINY[4:]]
    places.extend(index_rows([session for session, _ in TINY[4:]], lengths=lengths, first_key=5))
    scores = score_words(places, find_term_matches(places, postings_of(TINY, ["narwhal"])))
    assert scores.own == pytest.approx(scores_of(TINY, "narwhal").own)
    assert scores.sessions == pytest.approx(scores_of(TINY, "narwhal").sessions)


def test_a_word_of_two_characters_counts_about_as_much_as_a_word_of_letters() -> None:
    said = [(1, "google"), (1, "上 上海 海"), (2, "other"), (2, "words")]
    own = scores_of(said, "google 上 上海 海").own
    assert own[1] == pytest.approx(own[0], rel=0.3)
    assert own[2] == own[3] == 0


def test_unknown_words_lower_scores_to_half_at_most() -> None:
    places = places_of(TINY)

    def best(asked: list[str]) -> float:
        return float(
            score_own_words(places, find_term_matches(places, postings_of(TINY, asked), asked)).max()
        )

    found, half, worse = best(["narwhal"]), best(["narwhal", "zebra"]), best(["narwhal", *"vwxyz"])
    assert found > half == pytest.approx(worse)
    assert half == pytest.approx(found / 2, rel=0.35)


def test_the_asking_message_does_not_match_its_own_words() -> None:
    places = places_of(TINY)
    asking = next(row for row, (_, text) in enumerate(TINY) if "narwhal" in text.split())
    postings = postings_of(TINY, ["narwhal"])
    with_it, without = find_term_matches(places, postings), find_term_matches(places, postings, (), asking)
    assert asking in with_it.rows
    assert asking not in without.rows
    assert without.idf[0] > with_it.idf[0]
