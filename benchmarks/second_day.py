"""Benchmark of everyday memory: what a returning user's agent is shown with default settings.

A scenario has some conversations of a user, and questions. Each question is the first message of a new conversation on
a later day, in a memory that contains only the conversations. The benchmark searches everything that the model
receives, except the question, for the expected phrases. Beside it, on the same messages in the same run: the newest
messages that fit 1,500 tokens, and the ten messages nearest to the question by vector. Tokens are a quarter of the
characters.

    python -m benchmarks.second_day --data FILE                      a table
    python -m benchmarks.second_day --data FILE --json               one JSON object
    python -m benchmarks.second_day --data FILE --via llamaindex     langchain (default), llamaindex, engine or mcp
    python -m benchmarks.second_day --data FILE --background FILE    with about 600 other messages of the same user

Kinds of questions: resume ("Where were we?"), profile, implicit, paraphrase, entity, update, negative_preference (a
standing instruction) and unrelated. ``expect_all`` lists groups of phrases; each group needs one of its phrases.
``must_not_alone`` lists outdated phrases. Phrases match regardless of case; those of up to five Latin letters or digits
match at the start of a word only.

The file of the background is in the format of LoCoMo. Half of its sessions come before the scenario, the others between
the scenario and the questions; for the kind "resume", all of them come before. Text of the background does not count as
shown. "all" covers the questions that expect something, "outdated" is the share of those with an outdated phrase that
are shown this phrase without the current one.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sqlite3
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import baselines, locomo, reporting
from benchmarks.haystacks import PACE, Turn, UnusableError, load
from benchmarks.second_day_adapters import ADAPTERS, USER, set_clock
from benchmarks.second_day_scoring import Judge, Question, Tally, Texts
from langmem_tiers import MemoryEngine, OfflineEmbedder
from langmem_tiers.testing import FrozenClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from langmem_tiers import Embedder

RESUME = "resume"
"""Kind of the questions that refer to the newest conversation."""
BACKGROUND_MESSAGES = 600
NEWEST_TOKENS, NEAREST = 1_500, 10
"""Sizes of the baselines."""
BASELINES = ("newest", "vector")
EXPECTED = (
    "a JSON list of scenarios with id, sessions (id, date, messages: role, content) and questions (id, opening, kind, "
    "date, expect_all, must_not_alone); dates in ISO 8601 with an offset"
)
_DAY = timedelta(days=1)

Session = tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class DatedQuestion(Question):
    """A question and the time at which it is asked."""

    asked_at: datetime = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Conversations of a user, oldest first, and the questions of a later day."""

    sessions: tuple[Session, ...]
    questions: tuple[DatedQuestion, ...]


def parse(raw: list[dict[str, Any]]) -> list[Scenario]:
    """Read the scenarios of a file.

    Raises:
        ValueError: A scenario is not as expected. Other errors of a wrong format are those of its access.
    """
    if not isinstance(raw, list):
        raise TypeError(f"a {type(raw).__name__} at the top")
    if not any(scenario["questions"] for scenario in raw):
        raise ValueError("no question")
    return [_parse_scenario(scenario) for scenario in raw]


def _parse_scenario(scenario: Mapping[str, Any]) -> Scenario:
    name = scenario["id"]
    sessions = sorted((_parse_session(name, raw) for raw in scenario["sessions"]), key=_get_start)
    if not sessions or len({session[0].session for session in sessions}) < len(sessions):
        raise ValueError(f"scenario {name!r} must have sessions, each with an id of its own")
    newest = sessions[-1][-1].said_at
    questions = tuple(_parse_question(name, raw) for raw in scenario["questions"])
    if any(question.asked_at <= newest for question in questions):
        raise ValueError(f"scenario {name!r} has a question that is not later than its sessions")
    return Scenario(tuple(sessions), questions)


def _parse_session(scenario: str, raw: Mapping[str, Any]) -> Session:
    name, started_at = str(raw["id"]), _parse_date(raw["date"])
    turns = tuple(
        Turn(
            id=f"{name}:{n}",
            session=name,
            role=message["role"],
            text=_require_text(message["content"]),
            said_at=started_at + n * PACE,
        )
        for n, message in enumerate(raw["messages"])
    )
    roles = {turn.role for turn in turns}
    if "user" not in roles or not roles <= {"user", "assistant"}:
        raise ValueError(
            f"session {name!r} of scenario {scenario!r} must have messages of the roles user and assistant, got "
            f"{', '.join(sorted(roles)) or 'none'}"
        )
    return turns


def _parse_question(scenario: str, raw: Mapping[str, Any]) -> DatedQuestion:
    expected, outdated = (
        _parse_phrases(raw.get(name, []), f"{name} of question {raw['id']!r} of scenario {scenario!r}")
        for name in ("expect_all", "must_not_alone")
    )
    return DatedQuestion(
        _require_text(raw["opening"]),
        str(raw["kind"]),
        expected,
        outdated,
        asked_at=_parse_date(raw["date"]),
    )


def _parse_phrases(groups: list[Any], where: str) -> tuple[tuple[str, ...], ...]:
    if not all(isinstance(group, list) and group for group in groups):
        raise ValueError(f"{where} must be a list of lists of phrases")
    return tuple(tuple(map(_require_text, group)) for group in groups)


def _require_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value


def _parse_date(text: str) -> datetime:
    date = datetime.fromisoformat(text)
    if date.tzinfo is None:
        raise ValueError(f"the date {text!r} has no offset")
    return date


def _get_start(session: Session) -> datetime:
    return session[0].said_at


def pick_background(conversations: Iterable[locomo.Conversation]) -> tuple[Session, ...]:
    """Return the sessions of the conversation whose size is nearest to that of a background."""
    chosen = min(conversations, key=lambda one: abs(len(one.turns) - BACKGROUND_MESSAGES))
    # The speakers are unknown to a chat, and the sessions must not share a name with those of a scenario.
    turns = (replace(turn, name=None, session=f"other_{turn.session}") for turn in chosen.turns)
    return tuple(tuple(some) for _, some in itertools.groupby(turns, key=lambda turn: turn.session))


def arrange(
    sessions: Sequence[Session], background: Sequence[Session], until: datetime | None
) -> list[Session]:
    """Return all sessions in chronological order, those of the background with other dates.

    Args:
        sessions: Sessions of the scenario, oldest first.
        background: Sessions of the background, oldest first. They keep their distances before the scenario and are
            spread evenly after it.
        until: End of the background, or None for a background that is completely before the scenario.
    """
    first, newest = sessions[0][0].said_at, sessions[-1][-1].said_at
    before, after = (background, ()) if until is None else (background[::2], background[1::2])
    shift = first - _DAY - before[-1][-1].said_at if before else timedelta()
    step = timedelta() if until is None else (until - newest) / (len(after) + 1)
    return [
        *(_move(session, _get_start(session) + shift) for session in before),
        *sessions,
        *(_move(session, newest + n * step) for n, session in enumerate(after, 1)),
    ]


def _move(session: Session, start: datetime) -> Session:
    return tuple(replace(turn, said_at=start + n * PACE) for n, turn in enumerate(session))


def finish_background_work(engine: MemoryEngine) -> None:
    """Wait for everything that the engine does in the background. Change this if there is a single call for it."""
    settle = getattr(engine, "settle", None)
    if settle is not None:
        settle()
        return
    engine.flush()
    engine.namespace(USER).embed()


def open_engine(path: Path, clock: FrozenClock) -> MemoryEngine:
    """Open an engine with default settings. An option that switches a default off belongs here."""
    return MemoryEngine(path, clock=clock)


@dataclass(slots=True)
class Bench:
    """Results of the entry point and of the baselines."""

    via: str
    background: Sequence[Session] = ()
    ours: Tally = field(default_factory=Tally)
    others: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in BASELINES})
    _embedder: Embedder = field(default_factory=OfflineEmbedder)
    _background_texts: Texts = field(init=False)

    def __post_init__(self) -> None:
        self._background_texts = Texts(_list_texts(self.background))

    def play(self, scenario: Scenario) -> None:
        """Ask all questions of a scenario."""
        judge = Judge(Texts(_list_texts(scenario.sessions)), self._background_texts)
        for questions, sessions in self._group_questions(scenario):
            with tempfile.TemporaryDirectory(prefix="langmem-tiers-bench-") as folder:
                stored = Path(folder) / "stored.db"
                self._store(stored, sessions)
                for number, question in enumerate(questions):
                    shown = self._ask(stored, Path(folder) / f"{number}.db", question)
                    self.ours.results.append(judge.judge(question, shown))
            self._judge_baselines(judge, questions, [turn for session in sessions for turn in session])

    def figures(self) -> dict[str, Any]:
        """Return everything that was measured."""
        return {
            **self.ours.figures(),
            "baselines": {name: tally.figures() for name, tally in self.others.items()},
        }

    def _group_questions(
        self, scenario: Scenario
    ) -> Iterator[tuple[Sequence[DatedQuestion], Sequence[Session]]]:
        """Group the questions that have the same messages before them, with these messages."""
        if not self.background:
            yield scenario.questions, scenario.sessions
            return
        groups: defaultdict[bool, list[DatedQuestion]] = defaultdict(list)
        for question in scenario.questions:
            groups[question.kind == RESUME].append(question)
        for is_resume, questions in groups.items():
            # The background ends before the first of the questions, so it is stored once for all of them.
            until = None if is_resume else min(question.asked_at for question in questions)
            yield questions, arrange(scenario.sessions, self.background, until)

    def _store(self, path: Path, sessions: Sequence[Session]) -> None:
        names = {session[0].session for session in self.background}
        clock = FrozenClock(_get_start(sessions[0]))
        with open_engine(path, clock) as engine:
            adapter = ADAPTERS[self.via](engine, clock)
            for session in sessions:
                if (name := session[0].session) not in names:
                    adapter.store(session)
                    continue
                set_clock(clock, session[-1])
                # The ids of messages are unique within a session only, which is enough here.
                engine.session(USER, name).add_many([turn.draft() for turn in session])
            finish_background_work(engine)

    def _ask(self, stored: Path, path: Path, question: DatedQuestion) -> str:
        """Return the text that memory adds to the prompt of a question, in a copy of the stored memory."""
        with closing(sqlite3.connect(stored)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)
        clock = FrozenClock(question.asked_at)
        with open_engine(path, clock) as engine:
            received = ADAPTERS[self.via](engine, clock).ask(question.opening)
        return remove_opening("\n".join(received), question.opening)

    def _judge_baselines(
        self, judge: Judge, questions: Sequence[DatedQuestion], turns: Sequence[Turn]
    ) -> None:
        texts = {turn.id: turn.text for turn in turns}
        tokens = {name: math.ceil((len(text) + 1) / 4) for name, text in texts.items()}  # with a line break
        newest = baselines.take_until_full(baselines.newest_first(turns), tokens, NEWEST_TOKENS)
        nearest = baselines.Dense(texts, self._embedder)
        for question in questions:
            shown = {"newest": newest, "vector": nearest.rank(question.opening)[:NEAREST]}
            for name, ids in shown.items():
                text = "\n".join(texts[turn_id] for turn_id in ids)
                self.others[name].results.append(judge.judge(question, text))


def remove_opening(received: str, opening: str) -> str:
    """Remove the newest message from the text that a model received."""
    before, found, after = received.rpartition(opening)
    return f"{before.rstrip()}\n{after.lstrip()}".strip() if found else received


def _list_texts(sessions: Iterable[Session]) -> list[str]:
    return [turn.text for session in sessions for turn in session]


def measure(data: Path, background: Path | None, via: str) -> dict[str, Any]:
    """Return all figures."""
    scenarios = load(data, EXPECTED, parse)
    conversations = [] if background is None else load(background, locomo.EXPECTED, locomo.parse)
    if background is not None and not conversations:
        raise UnusableError(f"{str(background)!r} contains no conversation: expected {locomo.EXPECTED}")
    bench = Bench(via, pick_background(conversations) if conversations else ())
    for scenario in scenarios:
        bench.play(scenario)
    return bench.figures()


def show(figures: Mapping[str, Any], title: str, console: Console) -> None:
    """Print a table."""
    methods = {"ours": figures, **figures["baselines"]}
    table = reporting.empty_table(title, ("kind", "hits", *methods))
    table.caption = "share of hits, and tokens"
    kinds = [key for key in figures if key not in ("all", "outdated", "baselines")]
    for kind in (*kinds, "all"):
        if kind == "all":
            table.add_section()
        n, share = figures[kind]["n"], figures[kind]["hit"]
        hits = str(n) if share is None else f"{round(share * n)} of {n}"
        table.add_row(kind, hits, *(_format_cell(method[kind]) for method in methods.values()))
    table.add_row(
        "outdated", "", *(f"{_format_share(method['outdated'])}       " for method in methods.values())
    )
    console.print(table)


def _format_cell(figures: Mapping[str, Any]) -> str:
    return f"{_format_share(figures['hit'])} {figures['tokens'] or 0:6,.0f}"


def _format_share(share: float | None) -> str:
    return "" if share is None else f"{share:.2f}"


def main() -> None:
    """Read the command line, measure and print; exit code 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="scenarios with questions")
    parser.add_argument("--background", type=Path, metavar="FILE", help="a file in the format of LoCoMo")
    parser.add_argument(
        "--via", choices=ADAPTERS, default="langchain", help="entry point; default: langchain"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    title = f"Second day, via {options.via}, {'with' if options.background else 'without'} background"
    reporting.report(
        parser.prog,
        lambda: measure(options.data, options.background, options.via),
        lambda figures, console: show(figures, title, console),
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
