"""Fit the weights of recall, and measure weights on questions that they were not fitted on.

The signals of every message come from the library, for each question of LoCoMo and of LongMemEval. A
listwise fit makes the evidence likely among all messages. It is done once for each conversation of
LoCoMo, without it and without a part of the LongMemEval questions; those are then ranked with it. Beside
it: weights fitted on everything, and those in the code, which were chosen with the same files in sight.

    python -m benchmarks.tuning --locomo FILE                         tables
    python -m benchmarks.tuning --locomo FILE --longmemeval FILE      both, each counts the same
    python -m benchmarks.tuning --locomo FILE --json                  one JSON object
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import locomo, longmemeval, reporting
from benchmarks.haystacks import EMBEDDERS, UnusableError, load
from benchmarks.listwise import RankingExample, fit, sort_best_first
from benchmarks.retrieval import Rankings
from langmem_tiers.recall.execution import QueryExecution
from langmem_tiers.recall.namespace_index import NamespaceIndex
from langmem_tiers.recall.ranking import Weights, _compute_form_features, _compute_match_features
from langmem_tiers.recall.retriever import build_recall_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from rich.console import Console

    from benchmarks.haystacks import Haystack, Memory, Turn
    from benchmarks.listwise import Floats

    Ranker = Callable[["AskedQuestion"], Sequence[int]]

LOCOMO, LONGMEMEVAL = "LoCoMo", "LongMemEval"
SHARE = 0.5
"""Weight of LoCoMo in the fit: the same as LongMemEval."""
L2 = 5e-4
"""Penalty on large weights."""
DEEPEST = longmemeval.MESSAGES_FOR_SESSIONS
TOLERANCE = 0.002
"""Scores that are equal but for rounding may change places."""
COLUMNS = {"left_out": "left out", "fitted": "fitted on all", "code": "in the code", "recall": "recall()"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings from the command line."""

    locomo: Path
    longmemeval: Path | None = None
    embedder: str = "offline"
    share: float = SHARE
    l2: float = L2
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceTarget:
    """Evidence that a question should find."""

    data: str
    part: int
    """It is left out together with the others of this number."""
    turns: frozenset[str]
    sessions: frozenset[str] = frozenset()
    same_as: Mapping[str, str] = field(default_factory=dict)

    def to_official_ids(self, ids: Iterable[str]) -> list[str]:
        """The ids as the evidence names them."""
        return [self.same_as.get(message_id, message_id) for message_id in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question on a haystack, with the signals of all its messages."""

    target: EvidenceTarget
    choice: RankingExample
    turns: tuple[Turn, ...]
    recalled: tuple[int, ...]
    """The rows that the library recalls, best first."""

    def ranked(self, weights: Floats) -> list[int]:
        """The rows, best first."""
        return [int(row) for row in sort_best_first(self.choice.signals @ weights)[:DEEPEST]]


class Signals:
    """Unweighted signals of each message of a haystack."""

    def __init__(self, haystack: Haystack) -> None:
        self._haystack = haystack
        self._retriever = haystack.namespace._services.retriever  # noqa: SLF001 - they lie below the front door
        self._index = NamespaceIndex(haystack.namespace.path)
        self._index.refresh(self._retriever.index)

    def compute(self, question: str, now: datetime) -> Floats:
        """A row for each message, a column for each weight."""
        places = self._index.positions
        request = build_recall_request(question, now=now, limit=DEEPEST)
        evidence = QueryExecution(
            self._retriever, self._index, request, self._retriever.get_query_vector(self._index, request)
        ).gather_evidence()
        rows = np.arange(places.count)
        columns = _compute_match_features(places, evidence, rows) | _compute_form_features(places, rows)
        return np.stack([np.asarray(columns[name], np.float64) for name in asdict(Weights())], axis=1)

    def build_question(self, question: str, now: datetime, target: EvidenceTarget) -> AskedQuestion:
        """The question with its signals, and with what the library recalls for it."""
        turns = self._haystack.turns
        rows = {turn.id: row for row, turn in enumerate(turns)}
        answers = [row for row, turn in enumerate(target.to_official_ids(rows)) if turn in target.turns]
        return AskedQuestion(
            target=target,
            choice=RankingExample(self.compute(question, now), np.array(answers, np.int64)),
            turns=turns,
            recalled=tuple(rows[turn] for turn in self._haystack.ask(question, DEEPEST, now).turns),
        )


def ask_conversation(memory: Memory, part: int, conversation: locomo.Conversation) -> list[AskedQuestion]:
    """All questions of a conversation."""
    source = Signals(memory.ingest(conversation.id, conversation.turns))
    return [
        source.build_question(
            question.text,
            conversation.asked_at,
            EvidenceTarget(data=LOCOMO, part=part, turns=question.evidence),
        )
        for question in conversation.questions
    ]


def ask_question(memory: Memory, part: int, question: longmemeval.Question) -> AskedQuestion:
    """A question on its own haystack."""
    target = EvidenceTarget(
        data=LONGMEMEVAL,
        part=part,
        turns=question.evidence_turns,
        sessions=question.evidence_sessions,
        same_as=question.same_as,
    )
    return Signals(memory.ingest(question.id, question.turns)).build_question(
        question.text, question.asked_at, target
    )


def weight_choices(asked_questions: Iterable[AskedQuestion], share: float) -> list[RankingExample]:
    """Weight the choices so that LoCoMo has its share, independent of the numbers of questions."""
    questions = list(asked_questions)
    shares = {LOCOMO: share, LONGMEMEVAL: 1 - share}
    counts = Counter(question.target.data for question in questions)
    return [
        replace(question.choice, weight=shares[question.target.data] / counts[question.target.data])
        for question in questions
    ]


def measure_ranker(asked_questions: Sequence[AskedQuestion], ranker: Ranker) -> dict[str, float]:
    """Return the quality of the results."""
    turns: dict[str, Rankings] = {LOCOMO: Rankings(), LONGMEMEVAL: Rankings()}
    sessions = Rankings()
    for question in asked_questions:
        found, target = [question.turns[row] for row in ranker(question)], question.target
        turns[target.data].add(target.turns, target.to_official_ids(turn.id for turn in found))
        if target.sessions:
            named = dict.fromkeys(turn.session for turn in found)
            sessions.add(target.sessions, target.to_official_ids(named))
    results = {f"{LOCOMO} recall@{k}": statistics.fmean(turns[LOCOMO].shares(k)) for k in locomo.DEPTHS}
    if len(sessions):
        results[f"{LONGMEMEVAL} turn all@10"] = statistics.fmean(turns[LONGMEMEVAL].all_found(10))
        results[f"{LONGMEMEVAL} session all@5"] = statistics.fmean(sessions.all_found(5))
    return results


def ask_all(settings: Settings) -> list[AskedQuestion]:
    """The signals for all questions of the files."""
    if not (0 < settings.share <= 1 and settings.l2 > 0):
        raise UnusableError(
            f"--share takes a number above 0 and up to 1, --l2 one above 0: got {settings.share} and {settings.l2}"
        )
    conversations = load(settings.locomo, locomo.EXPECTED, locomo.parse)
    if len(conversations) < 2:
        raise UnusableError(
            f"{str(settings.locomo)!r} holds {len(conversations)} conversation(s) with questions: "
            "to leave one out takes two or more"
        )
    histories: list[longmemeval.Question] = []
    if settings.longmemeval is not None:
        histories = load(settings.longmemeval, longmemeval.EXPECTED, longmemeval.parse)
    with reporting.Options(settings.locomo, settings.embedder).memory() as memory:
        asked_questions = [
            question
            for part, conversation in enumerate(conversations)
            for question in ask_conversation(memory, part, conversation)
        ]
        asked_questions += [
            ask_question(memory, n % len(conversations), other) for n, other in enumerate(histories)
        ]
    return asked_questions


def measure(settings: Settings) -> dict[str, Any]:
    """Run all measurements."""
    asked_questions = ask_all(settings)
    code = np.array(list(asdict(Weights()).values()))
    fitted = fit(weight_choices(asked_questions, settings.share), settings.l2)
    without = {
        part: fit(
            weight_choices(
                (question for question in asked_questions if question.target.part != part), settings.share
            ),
            settings.l2,
        )
        for part in sorted({question.target.part for question in asked_questions})
    }
    rankers: dict[str, Ranker] = {
        "left_out": lambda question: question.ranked(without[question.target.part]),
        "fitted": lambda question: question.ranked(fitted),
        "code": lambda question: question.ranked(code),
        "recall": lambda question: question.recalled,
    }
    results = {name: measure_ranker(asked_questions, ranker) for name, ranker in rankers.items()}
    _check_same(results["code"], results["recall"])
    return {
        "embedder": settings.embedder,
        "share": settings.share,
        "l2": settings.l2,
        "questions": dict(Counter(question.target.data for question in asked_questions)),
        "figures": results,
        "weights": {
            "code": _named(code),
            "fitted": _named(fitted),
            "left_out": [_named(weights) for weights in without.values()],
        },
    }


def _named(weights: Floats) -> dict[str, float]:
    return dict(zip(asdict(Weights()), weights.tolist(), strict=True))


def _check_same(code: Mapping[str, float], recall: Mapping[str, float]) -> None:
    for name, value in code.items():
        if abs(value - recall[name]) > TOLERANCE:
            raise AssertionError(
                f"{name} is {value:.4f} by the signals and {recall[name]:.4f} by recall(): "
                "the signals are not those that recall weighs"
            )


def show(results: dict[str, Any], console: Console) -> None:
    """Tables for people."""
    asked_questions = ", ".join(f"{count:,} of {data}" for data, count in results["questions"].items())
    title = f"Questions: {asked_questions}; embedder {results['embedder']}"
    found = reporting.empty_table(f"{title}: evidence found with weights", ("measure", *COLUMNS.values()))
    for name in results["figures"]["code"]:
        found.add_row(name, *(f"{results['figures'][column][name]:.3f}" for column in COLUMNS))
    console.print(found)
    weights = results["weights"]
    each = reporting.empty_table("Weights", ("signal", "in the code", "fitted on all", "with parts left out"))
    for name, value in weights["code"].items():
        folds = [fold[name] for fold in weights["left_out"]]
        spread = f"{min(folds):.2f} to {max(folds):.2f}"
        each.add_row(name, f"{value:.2f}", f"{weights['fitted'][name]:.2f}", spread)
    console.print(each)


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--locomo", type=Path, required=True, metavar="FILE", help="in the format of LoCoMo")
    parser.add_argument("--longmemeval", type=Path, metavar="FILE", help="in the format of LongMemEval")
    parser.add_argument("--embedder", choices=EMBEDDERS, default="offline", help="none: by words alone")
    parser.add_argument("--share", type=float, default=SHARE, help="what LoCoMo counts in the fit, up to 1")
    parser.add_argument("--l2", type=float, default=L2, help="what large weights cost")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    settings = Settings(**vars(parser.parse_args()))
    reporting.report(parser.prog, lambda: measure(settings), show, as_json=settings.json)


if __name__ == "__main__":
    main()
