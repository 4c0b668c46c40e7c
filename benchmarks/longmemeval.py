"""Benchmark of recall on long chat histories in the format of LongMemEval.

By the rules of its own scorer: the user's turns are the corpus; questions to abstain from and those
without a marked user turn are left out; ``all@k`` asks for all evidence among the first k, ``any@k``
for some of it. Each question has a haystack, so a namespace, of its own, and is asked at its own date.
Sessions rank in the order in which recalled messages name them; BM25 ranks whole sessions.

    python -m benchmarks.longmemeval --data FILE            tables
    python -m benchmarks.longmemeval --data FILE --json     one JSON object
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchmarks import baselines, reporting
from benchmarks.haystacks import PACE, Turn, UnusableError, load
from benchmarks.retrieval import Rankings, latency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rich.console import Console

    from benchmarks.haystacks import Memory

DEPTHS = (5, 10)
TURNS = 50  # messages recalled to rank turns
MESSAGES_FOR_SESSIONS = 100  # messages recalled to reach ten sessions
EXPECTED = (
    "LongMemEval's JSON, plain or gzipped: a list of objects with question_id, question_type, question, "
    "question_date, haystack_session_ids, haystack_dates, haystack_sessions (turns with role, content)"
)
PARTS = {"session": "session {}", "turn": "turn {}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, its haystack and the position of the evidence in it."""

    id: str
    kind: str
    text: str
    asked_at: datetime
    turns: tuple[Turn, ...]
    evidence_turns: frozenset[str]
    evidence_sessions: frozenset[str]
    same_as: Mapping[str, str]
    """For a session listed again, and for its turns: the id of the first."""

    @property
    def is_scored(self) -> bool:
        """True if the official rules count the question."""
        return not self.id.endswith("_abs") and bool(self.evidence_turns)

    def to_official_ids(self, ids: Iterable[str]) -> list[str]:
        """The ids as the evidence names them."""
        return [self.same_as.get(message_id, message_id) for message_id in ids]


def parse(raw: list[dict[str, Any]]) -> list[Question]:
    """The questions of a file that are scored."""
    if not isinstance(raw, list):
        raise TypeError(f"a {type(raw).__name__} at the top")
    return [question for item in raw if (question := _question(item)).is_scored]


def parse_longmemeval_time(text: str) -> datetime:
    """The time of ``2023/06/03 (Sat) 15:47``, taken as UTC."""
    return datetime.strptime(text.strip(), "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC)


def _question(item: Mapping[str, Any]) -> Question:
    turns: list[Turn] = []
    marked: set[tuple[str, str]] = set()
    same_as: dict[str, str] = {}
    seen: Counter[str] = Counter()
    whole = zip(item["haystack_session_ids"], item["haystack_dates"], item["haystack_sessions"], strict=True)
    for listed, date, raw_turns in whole:
        seen[listed] += 1
        name = listed if seen[listed] == 1 else f"{listed} ({seen[listed]})"
        some = _user_turns(name, parse_longmemeval_time(date), raw_turns)
        turns += some.values()
        if name != listed:
            same_as |= {name: listed, **{turn.id: f"{listed}_{n}" for n, turn in some.items()}}
        if "answer" in listed:
            marked |= {(listed, f"{listed}_{n}") for n in some if raw_turns[n - 1].get("has_answer")}
    return Question(
        id=item["question_id"],
        kind=item["question_type"],
        text=item["question"],
        asked_at=parse_longmemeval_time(item["question_date"]),
        turns=tuple(turns),
        evidence_turns=frozenset(turn for _, turn in marked),
        evidence_sessions=frozenset(session for session, _ in marked),
        same_as=same_as,
    )


def _user_turns(session: str, start: datetime, raw_turns: list[dict[str, Any]]) -> dict[int, Turn]:
    """The user's turns by their place in the session, from 1 on as the scorer counts."""
    return {
        n: Turn(
            id=f"{session}_{n}", session=session, role="user", text=turn["content"], said_at=start + n * PACE
        )
        for n, turn in enumerate(raw_turns, 1)
        if turn["role"] == "user"
    }


@dataclass(slots=True)
class Tally:
    """Results of one method at both levels."""

    session: Rankings = field(default_factory=Rankings)
    turn: Rankings = field(default_factory=Rankings)

    def add(self, question: Question, sessions: Iterable[str], turns: Iterable[str]) -> None:
        """One more question and what was found, best first."""
        self.session.add(question.evidence_sessions, question.to_official_ids(sessions))
        self.turn.add(question.evidence_turns, question.to_official_ids(turns))

    def summarize(self) -> dict[str, Any]:
        """The rates."""
        return {level: reporting.mean_by(_outcomes(getattr(self, level))) for level in PARTS}

    def intervals(self) -> dict[str, Any]:
        """95 % confidence intervals."""
        return {level: reporting.wilson_by(_outcomes(getattr(self, level))) for level in PARTS}


def _outcomes(rankings: Rankings) -> dict[str, list[bool]]:
    return {
        **{f"all@{k}": rankings.all_found(k) for k in DEPTHS},
        **{f"any@{k}": rankings.any_found(k) for k in DEPTHS},
    }


@dataclass(slots=True)
class Bench:
    """Runs the engine and the baselines."""

    memory: Memory
    ours: Tally = field(default_factory=Tally)
    baselines: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    kinds: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    milliseconds: list[float] = field(default_factory=list)

    def play(self, question: Question) -> None:
        """Ingest the question's haystack and ask it."""
        haystack = self.memory.ingest(question.id, question.turns)
        answer = haystack.ask(question.text, TURNS, question.asked_at)
        sessions = haystack.ask(question.text, MESSAGES_FOR_SESSIONS, question.asked_at).sessions
        self.milliseconds.append(answer.milliseconds)
        self.ours.add(question, sessions, answer.turns)
        self.kinds[question.kind].add(question, sessions, answer.turns)
        self._play_baselines(question)

    def _play_baselines(self, question: Question) -> None:
        home = {turn.id: turn.session for turn in question.turns}
        rankers = baselines.build_rankers(question.turns, self.memory.embedder)
        for name, rank in rankers.items():
            turns = rank(question.text)
            by_turns = list(dict.fromkeys(home[turn] for turn in turns))
            sessions = _whole_sessions(question)(question.text) if name == "bm25" else by_turns
            self.baselines[name].add(question, sessions, turns)

    def summarize(self) -> dict[str, Any]:
        """All that was measured."""
        return {
            "questions": len(self.ours.turn),
            **self.ours.summarize(),
            "interval": self.ours.intervals(),
            "by_type": {
                kind: {"questions": len(tally.turn), **tally.summarize()}
                for kind, tally in sorted(self.kinds.items())
            },
            "latency_ms": latency(self.milliseconds),
            **self.memory.summarize_ingest(),
            **reporting.build_baseline_results(
                {name: tally.summarize() for name, tally in self.baselines.items()}
            ),
        }


def _whole_sessions(question: Question) -> Callable[[str], list[str]]:
    texts: dict[str, str] = {}
    for turn in question.turns:
        texts[turn.session] = f"{texts.get(turn.session, '')} {turn.text}"
    return baselines.Bm25(texts).rank


def measure(options: reporting.Options) -> dict[str, Any]:
    """Run all measurements."""
    questions = load(options.data, EXPECTED, parse)
    if not questions:
        raise UnusableError(f"{str(options.data)!r} holds no question that is scored: expected {EXPECTED}")
    with options.memory() as memory:
        bench = Bench(memory)
        for question in questions:
            bench.play(question)
        return {"embedder": options.embedder, "backend": options.dialect, **bench.summarize()}


def show(results: dict[str, Any], console: Console) -> None:
    """Tables for people."""
    title = f"{reporting.heading('LongMemEval', results)}: questions whose evidence was found"
    console.print(reporting.build_comparison_table(title, results, PARTS))
    for level in PARTS:
        console.print(reporting.build_breakdown_table(f"By type, {level} level", results["by_type"], level))
    console.print(reporting.format_costs(results))


if __name__ == "__main__":
    reporting.run(__doc__, "a file in the format of LongMemEval, plain or gzipped", measure, show)
