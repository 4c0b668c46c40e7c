"""Benchmark of recall on conversations in the format of LoCoMo.

Each conversation goes into a namespace of its own, a session for each of its sessions. Each question
is asked a day after the last message. The measure is the share of its evidence turns that are
recalled. Baselines on the same turns in the same run: BM25, the embedder alone, the newest turns.

    python -m benchmarks.locomo --data FILE                     tables
    python -m benchmarks.locomo --data FILE --json              one JSON object
    python -m benchmarks.locomo --data FILE --embedder none     by words alone
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from benchmarks import baselines, reporting
from benchmarks.haystacks import PACE, Turn, UnusableError, load
from benchmarks.retrieval import Rankings, latency, share_found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console

    from benchmarks.haystacks import Haystack, Memory

DEPTHS = (5, 10, 20)
CONTEXTS = (500, 1000, 2000, 4000)
EXPECTED = (
    "LoCoMo's JSON: a list of objects with sample_id, conversation (session_N: turns with speaker, dia_id, "
    "text; session_N_date_time) and qa (question, evidence, category)"
)
PARTS = {"recall": "recall@{}", "recall_any": "any@{}", "recall_all": "all@{}", "context": "in {} tokens"}
_DIALOG_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_YEAR_FIRST = re.compile(
    r"(?P<year>\d{4})\s*[-/.年년]\s*(?P<month>\d{1,2})\s*[-/.月월]\s*(?P<day>\d{1,2})"
    r"(?:\D*?(?P<hour>\d{1,2})\s*[:\N{FULLWIDTH COLON}点點時时시](?:\s*(?P<minute>\d{1,2}))?)?"
)
_AFTERNOON = re.compile(r"下午|晚上|傍晚|午後|오후|pm\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns that answer it."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of a conversation with the questions about it."""

    id: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]

    @property
    def asked_at(self) -> datetime:
        """A day after the last message."""
        return max(turn.said_at for turn in self.turns) + timedelta(days=1)


def parse(raw: list[dict[str, Any]]) -> list[Conversation]:
    """The conversations of a file that have questions with evidence."""
    if not isinstance(raw, list):
        raise TypeError(f"a {type(raw).__name__} at the top")
    return [conversation for sample in raw if (conversation := _conversation(sample)).questions]


def parse_locomo_time(text: str) -> datetime:
    """The time of ``1:56 pm on 8 May, 2023`` or ``2023年5月8日 下午1:56``, taken as UTC."""
    if numbers := _YEAR_FIRST.search(text):
        hour, minute = int(numbers["hour"] or 0), int(numbers["minute"] or 0)
        late = _AFTERNOON.search(text) is not None and hour < 12
        year, month, day = (int(numbers[part]) for part in ("year", "month", "day"))
        return datetime(year, month, day, hour + 12 * late, minute, tzinfo=UTC)
    return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def find_evidence(named: Iterable[str], known: Iterable[str]) -> frozenset[str]:
    """The dialog ids in the strings, of those that exist."""
    return frozenset(_DIALOG_ID.findall(" ".join(named))).intersection(known)


def _conversation(sample: Mapping[str, Any]) -> Conversation:
    transcript = sample["conversation"]
    numbers = sorted(int(match[1]) for key in transcript if (match := _SESSION.fullmatch(key)))
    speakers = [turn["speaker"] for number in numbers for turn in transcript[f"session_{number}"]]
    turns = tuple(
        _turn(
            turn,
            f"session_{number}",
            speakers[0],
            parse_locomo_time(transcript[f"session_{number}_date_time"]) + n * PACE,
        )
        for number in numbers
        for n, turn in enumerate(transcript[f"session_{number}"])
    )
    known = {turn.id for turn in turns}
    questions = (
        Question(qa["question"], str(qa["category"]), find_evidence(qa["evidence"], known))
        for qa in sample["qa"]
    )
    return Conversation(
        str(sample["sample_id"]), turns, tuple(question for question in questions if question.evidence)
    )


def _turn(turn: Mapping[str, Any], session: str, first: str, said_at: datetime) -> Turn:
    caption = turn.get("blip_caption")
    return Turn(
        id=turn["dia_id"],
        session=session,
        role="user" if turn["speaker"] == first else "assistant",
        text=f"{turn['text']} [shares {caption}]" if caption else turn["text"],
        said_at=said_at,
        name=turn["speaker"],
    )


@dataclass(slots=True)
class Tally:
    """Results of one method, question by question."""

    rankings: Rankings = field(default_factory=Rankings)
    contexts: dict[str, list[float]] = field(default_factory=lambda: {str(limit): [] for limit in CONTEXTS})

    def add(self, evidence: frozenset[str], ranked: list[str], contexts: Mapping[int, list[str]]) -> None:
        """Add a question with its ranked turns and the contents of the contexts, by size."""
        self.rankings.add(evidence, ranked)
        for limit, ids in contexts.items():
            self.contexts[str(limit)].append(share_found(evidence, ids))

    def shares(self) -> dict[str, list[float]]:
        """The part of the evidence at each depth."""
        return {str(k): self.rankings.shares(k) for k in DEPTHS}

    def summarize(self) -> dict[str, Any]:
        """The means."""
        return {
            "recall": reporting.mean_by(self.shares()),
            "recall_any": reporting.mean_by({str(k): self.rankings.any_found(k) for k in DEPTHS}),
            "recall_all": reporting.mean_by({str(k): self.rankings.all_found(k) for k in DEPTHS}),
            "context": reporting.mean_by(self.contexts),
        }

    def intervals(self) -> dict[str, Any]:
        """95 % confidence intervals."""
        return {
            "recall": reporting.bootstrap_by(self.shares()),
            "recall_any": reporting.wilson_by({str(k): self.rankings.any_found(k) for k in DEPTHS}),
            "recall_all": reporting.wilson_by({str(k): self.rankings.all_found(k) for k in DEPTHS}),
            "context": reporting.bootstrap_by(self.contexts),
        }


@dataclass(slots=True)
class Bench:
    """Runs the engine and the baselines."""

    memory: Memory
    ours: Tally = field(default_factory=Tally)
    baselines: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    categories: dict[str, Rankings] = field(default_factory=lambda: defaultdict(Rankings))
    milliseconds: list[float] = field(default_factory=list)

    def play(self, conversation: Conversation) -> None:
        """Ingest the conversation and ask its questions."""
        haystack = self.memory.ingest(conversation.id, conversation.turns)
        for question in conversation.questions:
            self._ask(haystack, question, conversation.asked_at)
        for name, rank in baselines.build_rankers(conversation.turns, self.memory.embedder).items():
            for question in conversation.questions:
                ranked = rank(question.text)
                contexts = {
                    limit: baselines.take_until_full(ranked, haystack.tokens, limit) for limit in CONTEXTS
                }
                self.baselines[name].add(question.evidence, ranked, contexts)

    def _ask(self, haystack: Haystack, question: Question, now: datetime) -> None:
        answer = haystack.ask(question.text, max(DEPTHS), now)
        contexts = {limit: haystack.context(question.text, limit, now) for limit in CONTEXTS}
        self.milliseconds.append(answer.milliseconds)
        self.ours.add(question.evidence, answer.turns, contexts)
        self.categories[question.category].add(question.evidence, answer.turns)

    def summarize(self) -> dict[str, Any]:
        """All that was measured."""
        return {
            "questions": len(self.ours.rankings),
            **self.ours.summarize(),
            "interval": self.ours.intervals(),
            "by_category": {
                category: {
                    "questions": len(rankings),
                    "recall": reporting.mean_by({str(k): rankings.shares(k) for k in DEPTHS}),
                }
                for category, rankings in sorted(self.categories.items())
            },
            "latency_ms": latency(self.milliseconds),
            **self.memory.summarize_ingest(),
            **reporting.build_baseline_results(
                {name: tally.summarize() for name, tally in self.baselines.items()}
            ),
        }


def measure(options: reporting.Options) -> dict[str, Any]:
    """Run all measurements."""
    conversations = load(options.data, EXPECTED, parse)
    if not conversations:
        raise UnusableError(f"{str(options.data)!r} holds no question with evidence: expected {EXPECTED}")
    with options.memory() as memory:
        bench = Bench(memory)
        for conversation in conversations:
            bench.play(conversation)
        return {"embedder": options.embedder, "backend": options.dialect, **bench.summarize()}


def show(results: dict[str, Any], console: Console) -> None:
    """Tables for people."""
    title = (
        f"LoCoMo, {results['questions']:,} questions, embedder {results['embedder']}, {results['backend']}"
    )
    console.print(reporting.build_comparison_table(f"{title}: evidence turns found", results, PARTS))
    console.print(reporting.build_breakdown_table("Recall by category", results["by_category"], "recall"))
    console.print(reporting.format_costs(results))


if __name__ == "__main__":
    reporting.run(__doc__, "a file in the format of LoCoMo", measure, show)
