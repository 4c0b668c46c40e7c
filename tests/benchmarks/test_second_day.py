from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import locomo, second_day
from benchmarks.haystacks import PACE, Turn, UnusableError, load
from benchmarks.second_day_adapters import ADAPTERS, _split_exchanges
from benchmarks.second_day_scoring import Judge, Question, Result, Tally, Texts, has_phrase, normalize
from langmem_tiers import MemoryEngine
from langmem_tiers.testing import FrozenClock
from tests.retrieval_files import locomo_sample

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2025, 3, 1, 9, tzinfo=UTC)
DAY = timedelta(days=1)
NOTHING = Texts([])


def scenario_sample() -> dict[str, Any]:
    """A scenario of two sessions and four questions."""

    def said(*texts: str) -> list[dict[str, str]]:
        return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]

    def question(number: int, opening: str, kind: str, *expected: list[str], **more: Any) -> dict[str, Any]:
        date = (START + (20 + number) * DAY).isoformat()
        return {
            "id": f"q{number}",
            "opening": opening,
            "kind": kind,
            "date": date,
            "expect_all": list(expected),
            **more,
        }

    first = said(
        "I am learning the oboe with Mr. Lindqvist, and the concert is on 4 May.",
        "Good luck with the concert!",
    )
    second = said("The concert of the oboe class was moved to 18 June.", "Noted: the concert is on 18 June.")
    return {
        "id": "oboe",
        "sessions": [
            {"id": "s1", "date": START.isoformat(), "messages": first},
            {"id": "s2", "date": (START + 7 * DAY).isoformat(), "messages": second},
        ],
        "questions": [
            question(1, "When is the oboe concert?", "update", ["18 June"], must_not_alone=[["4 May"]]),
            question(2, "Who teaches me the oboe?", "entity", ["Lindqvist"]),
            question(3, "Ok, next?", "resume", ["June"]),
            question(4, "Convert 5 miles to km.", "unrelated"),
        ],
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "scenarios.json"
    path.write_text(json.dumps([scenario_sample()]))
    return path


@pytest.fixture
def background(tmp_path: Path) -> Path:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([locomo_sample()]))
    return path


def make_session(name: str, start: datetime, *texts: str) -> tuple[Turn, ...]:
    return tuple(
        Turn(id=f"{name}:{n}", session=name, role="user", text=text, said_at=start + n * PACE)
        for n, text in enumerate(texts)
    )


def judge(shown: str, *expected: str, outdated: str | None = None, own: str = "", other: str = "") -> Result:
    question = Question("?", "update", (expected,), ((outdated,),) if outdated else ())
    return Judge(Texts([own]), Texts([other]) if other else NOTHING).judge(question, shown)


@pytest.mark.parametrize(
    ("text", "phrase", "is_shown"),
    [
        ("The barley is dry.", "Barley", True),
        ("a glass of wine", "rye", False),
        ("The fryer is on.", "rye", False),  # short: only at the start of a word
        ("Rye bread", "rye", True),
        ("in 2145", "145", False),
        ("in 1450", "145", True),
        ("no oven,two hobs", "two\nhobs", True),
        ("unbelievably", "believ", True),  # six letters: anywhere
        ("我不吃花生。", "花生", True),
        ("(über", "über", True),
        ("£70 a week", "£70", True),
    ],
)
def test_phrases_are_found_regardless_of_case_and_short_ones_at_the_start_of_a_word(
    text: str, phrase: str, *, is_shown: bool
) -> None:
    assert has_phrase(normalize(text), phrase) is is_shown


def test_every_group_of_phrases_needs_one_alternative() -> None:
    question = Question("?", "profile", (("oboe", "woodwind"), ("Lindqvist",)))
    judge = Judge(Texts(["any"]), NOTHING)
    assert judge.judge(question, "Lindqvist teaches woodwind").hit
    assert not judge.judge(question, "oboe, woodwind").hit
    assert judge.judge(question, "x" * 400).tokens == 100


def test_a_question_that_expects_nothing_has_no_hit() -> None:
    result = Judge(NOTHING, NOTHING).judge(Question("?", "unrelated", ()), "much text")
    assert (result.hit, result.outdated) == (None, None)


def test_an_outdated_phrase_is_a_failure_only_without_the_current_one() -> None:
    assert judge("on 4 May", "18 June", outdated="4 May").outdated is True
    assert judge("on 4 May, now 18 June", "18 June", outdated="4 May").outdated is False
    assert judge("nothing", "18 June", outdated="4 May").outdated is False
    assert judge("on 4 May", "18 June").outdated is None


OWN, OTHER = "We cook with barley on Fridays.", "My brother sells barley at the market."


def test_text_of_the_background_does_not_count() -> None:
    assert judge(f"Ann: {OTHER}", "barley", own=OWN, other=OTHER).hit is False
    assert judge("brother sells barley at", "barley", own=OWN, other=OTHER).hit is False
    assert judge(f"Ann: {OTHER}\nuser: {OWN}", "barley", own=OWN, other=OTHER).hit is True
    assert judge("4 May", "18 June", outdated="4 May", own="18 June", other="4 May").outdated is False


def test_a_short_message_of_the_background_does_not_count() -> None:
    assert judge("Ann: Barley soup!", "barley", own=OWN, other="Barley soup!").hit is False
    assert judge("- barley", "barley", own=OWN, other="Barley soup!").hit is True


def test_a_phrase_that_only_the_background_contains_does_not_count() -> None:
    assert judge("sells: market", "market", own=OWN, other=OTHER).hit is False
    assert judge("sells: market", "market", own=OWN).hit is True


def test_text_that_both_contain_counts() -> None:
    text = "Thank you so very much."
    assert judge(text, "so very", own=text, other=text).hit is True


def test_figures_are_means_by_kind_and_of_all_that_is_expected() -> None:
    tally = Tally(
        [
            Result("update", 100, hit=True, outdated=False),
            Result("update", 200, hit=False, outdated=True),
            Result("entity", 600, hit=True, outdated=None),
            Result("unrelated", 10, hit=None, outdated=None),
        ]
    )
    assert tally.figures() == {
        "entity": {"n": 1, "hit": 1.0, "tokens": 600},
        "unrelated": {"n": 1, "hit": None, "tokens": 10},
        "update": {"n": 2, "hit": 0.5, "tokens": 150},
        "all": {"n": 3, "hit": 0.6667, "tokens": 300},
        "outdated": 0.5,
    }


def test_the_background_is_before_and_after_the_sessions_in_turn() -> None:
    sessions = [make_session("s1", START, "a"), make_session("s2", START + 10 * DAY, "b", "c")]
    other = [make_session(f"o{n}", START + n * 100 * DAY, "x", "y") for n in range(5)]
    until = START + 13 * DAY
    arranged = second_day.arrange(sessions, other, until)
    assert [session[0].session for session in arranged] == ["o0", "o2", "o4", "s1", "s2", "o1", "o3"]
    times = [turn.said_at for session in arranged for turn in session]
    assert times == sorted(times)
    assert times[-1] < until
    assert arranged[1][0].said_at - arranged[0][0].said_at == 200 * DAY
    assert arranged[2][-1].said_at == START - DAY


def test_the_background_of_a_question_that_resumes_is_completely_before() -> None:
    sessions = [make_session("s1", START, "a")]
    other = [make_session(f"o{n}", START + n * DAY, "x") for n in range(3)]
    arranged = second_day.arrange(sessions, other, None)
    assert [session[0].session for session in arranged] == ["o0", "o1", "o2", "s1"]
    assert arranged[-1] == sessions[0]


def test_the_conversation_nearest_to_600_messages_is_the_background() -> None:
    small, large = ([make_session("session_1", START, *["x"] * size)] for size in (10, 590))
    conversations = [locomo.Conversation("c", tuple(*turns), ()) for turns in (small, large)]
    (session,) = second_day.pick_background(conversations)
    assert len(session) == 590
    assert {turn.session for turn in session} == {"other_session_1"}


def test_exchanges_keep_every_message() -> None:
    roles = "assistant user user assistant assistant user".split()
    turns = [
        Turn(id=str(n), session="s", role=role, text=str(n), said_at=START) for n, role in enumerate(roles)
    ]
    exchanges = [([turn.text for turn in one.messages], one.reply) for one in _split_exchanges(turns)]
    assert exchanges == [(["0", "1", "2"], "3\n\n4"), (["5"], "OK.")]


def test_only_the_question_is_removed_from_what_the_model_received() -> None:
    assert (
        second_day.remove_opening("Hi there\nmemory\nHi there\nrule", "Hi there") == "Hi there\nmemory\nrule"
    )
    assert second_day.remove_opening("Hi there", "Hi there") == ""
    assert second_day.remove_opening("memory", "Hi there") == "memory"


@pytest.mark.parametrize("via", ADAPTERS)
def test_each_entry_point_is_measured_by_what_its_model_receives(via: str, data: Path) -> None:
    figures = second_day.measure(data, None, via)
    assert figures["entity"] == {"n": 1, "hit": 1.0, "tokens": figures["entity"]["tokens"]}
    assert figures["update"]["hit"] == 1.0
    assert figures["entity"]["tokens"] > 10
    assert figures["all"]["n"] == 3
    assert figures["unrelated"]["hit"] is None
    assert figures["outdated"] == 0.0
    assert set(figures) == {"entity", "resume", "unrelated", "update", "all", "outdated", "baselines"}
    for name in ("newest", "vector"):
        assert figures["baselines"][name]["all"]["hit"] == 1.0  # four messages
        assert set(figures["baselines"][name]) == set(figures) - {"baselines"}


@pytest.mark.parametrize("via", ADAPTERS)
def test_conversations_are_stored_with_their_times(via: str) -> None:
    (scenario,) = second_day.parse([scenario_sample()])
    clock = FrozenClock(START - DAY)
    with MemoryEngine(clock=clock, embedder=None) as engine:
        adapter = ADAPTERS[via](engine, clock)
        for session in scenario.sessions:
            adapter.store(session)
        for session in scenario.sessions:
            stored = engine.session("user", session[0].session).messages()
            assert [message.content for message in stored] == [turn.text for turn in session]
            assert all(
                abs(message.created_at - session[0].said_at) < timedelta(minutes=1) for message in stored
            )


def test_a_copy_of_the_stored_memory_shows_the_same_as_a_memory_for_one_question(tmp_path: Path) -> None:
    (scenario,) = second_day.parse([scenario_sample()])
    bench = second_day.Bench("langchain")
    bench._store(tmp_path / "shared.db", scenario.sessions)
    for number, question in enumerate(scenario.questions):
        bench._store(tmp_path / f"own{number}.db", scenario.sessions)
        copied = bench._ask(tmp_path / "shared.db", tmp_path / f"copy{number}.db", question)
        clock = FrozenClock(question.asked_at)
        with second_day.open_engine(tmp_path / f"own{number}.db", clock) as engine:
            received = ADAPTERS["langchain"](engine, clock).ask(question.opening)
        assert copied == second_day.remove_opening("\n".join(received), question.opening)


def test_with_a_background_only_the_scenario_counts(data: Path, background: Path) -> None:
    scenario = scenario_sample()
    scenario["questions"] = [
        {**scenario["questions"][1], "opening": "What tea does Ann drink?", "expect_all": [["jasmine tea"]]},
        scenario["questions"][1],
        scenario["questions"][2],
    ]
    data.write_text(json.dumps([scenario]))
    figures = second_day.measure(data, background, "engine")
    assert figures["entity"]["hit"] == 0.5
    assert figures["baselines"]["vector"]["entity"]["hit"] == 0.5
    assert figures["baselines"]["newest"]["resume"]["hit"] == 1.0


def test_background_work_is_finished_by_one_call_if_the_engine_has_it() -> None:
    class Engine:
        calls = 0

        def settle(self) -> None:
            self.calls += 1

    engine: Any = Engine()
    second_day.finish_background_work(engine)
    assert engine.calls == 1


def _change(path: str, value: object) -> list[Any]:
    """The sample with another value, or without one if it is None."""
    sample: Any = scenario_sample()
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
    target = sample
    for key in parents:
        target = target[key]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return [sample]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({}, "a dict at the top"),
        ([], "no question"),
        (_change("questions", []), "no question"),
        (_change("sessions", []), "must have sessions"),
        (_change("sessions.1.id", "s1"), "each with an id of its own"),
        (_change("sessions.0.date", None), "KeyError: 'date'"),
        (_change("sessions.0.date", "2025-03-01T09:00:00"), "has no offset"),
        (_change("sessions.0.messages.0.role", "tool"), "roles user and assistant"),
        (_change("sessions.0.messages", []), "got none"),
        (_change("sessions.0.messages.0.content", 5), "5 is not a text"),
        (_change("questions.0.opening", " "), "' ' is not a text"),
        (_change("questions.0.date", START.isoformat()), "not later than its sessions"),
        (_change("questions.0.expect_all", ["18 June"]), "expect_all of question 'q1' of scenario 'oboe'"),
        (_change("questions.0.must_not_alone", [[]]), "must_not_alone of question 'q1'"),
        (_change("questions.0.expect_all", [[""]]), "'' is not a text"),
    ],
)
def test_a_file_in_another_format_is_an_error_that_names_the_problem(
    tmp_path: Path, raw: object, problem: str
) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(UnusableError) as caught:
        load(path, second_day.EXPECTED, second_day.parse)
    assert problem in str(caught.value)
    assert "expected a JSON list of scenarios" in str(caught.value)


def test_a_background_without_a_conversation_is_an_error(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("[]")
    with pytest.raises(UnusableError, match="no conversation"):
        second_day.measure(data, path, "engine")


def test_the_command_prints_one_object_or_a_table(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["second_day", "--via", "engine", *map(str, arguments)])
        second_day.main()
        return capsys.readouterr().out

    assert json.loads(run("--data", data, "--json"))["all"]["n"] == 3
    assert "1 of 1" in run("--data", data)
    with pytest.raises(SystemExit) as stopped:
        run("--data", tmp_path / "missing.json")
    assert stopped.value.code == 2
    assert "is not there: expected a JSON list of scenarios" in capsys.readouterr().err
