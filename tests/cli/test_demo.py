from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from langmem_tiers import (
    EngineConfig,
    MemoryContext,
    MemoryEngine,
    MessageDraft,
    Role,
    TokenBudget,
    __version__,
)
from langmem_tiers.cli.app import app
from langmem_tiers.cli.demo import command
from langmem_tiers.cli.demo.command import (
    DemoAnswers,
    DemoScore,
    build_answer_table,
    build_score_text,
    build_session_table,
    build_tier_table,
)
from langmem_tiers.cli.demo.conversation import load_chapters, load_questions
from langmem_tiers.integration_kit import Assistants, Reply

if TYPE_CHECKING:
    from rich.console import RenderableType

README = Path(__file__).parent.parent.parent / "README.md"
pytestmark = pytest.mark.xdist_group("demo")  # it is played once for all of them


@dataclass(frozen=True)
class Played:
    output: str
    database: Path


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo as it is printed into a pipe, at 80 columns."""
    path = tmp_path_factory.mktemp("demo") / "kept.db"
    result = CliRunner().invoke(app, ["demo", "--database", str(path)], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return Played(result.output, path)


@pytest.mark.soak
def test_the_demo_plays_everything_and_keeps_its_database_on_request(demo_run: Played) -> None:
    total = sum(len(chapter.messages) for chapter in load_chapters())
    assert f"{total}/{total}" in demo_run.output
    for word in ("working", "long_term", "07-opening", "The memory is in"):
        assert word in demo_run.output
    config = EngineConfig(budget=TokenBudget.of(2000))
    with MemoryEngine(f"sqlite:///{demo_run.database}", config=config) as engine:
        for chapter in load_chapters():
            session = engine.session(("tidepool", "mara"), chapter.session)
            record = [message for message in session.messages() if not message.is_summary]
            assert [message.content for message in record] == [draft.content for draft in chapter.messages]
            assert session.build_context().token_count <= 2000 < session.info().token_count


def cells(output: str, title: str) -> list[list[str]]:
    """The rows of a table, each cell in one piece again."""
    rows: list[list[str]] = []
    is_new = True
    for line in output.partition(title)[2].splitlines():
        if line.startswith("└"):
            break
        if line.startswith(("├", "┡")):
            is_new = True
        elif line.startswith("│"):
            parts = [part.strip() for part in line.strip("│").split("│")]
            rows = [*rows, parts] if is_new else [*rows[:-1], join(rows[-1], parts)]
            is_new = False
    return rows


def join(above: list[str], below: list[str]) -> list[str]:
    return [f"{upper} {lower}".strip() for upper, lower in zip(above, below, strict=True)]


@pytest.mark.soak
def test_the_demo_table_has_facts_only_with_memory(demo_run: Played) -> None:
    rows = cells(demo_run.output, "each question in a new thread")
    assert len(rows) == 9
    facts = {question.text: question.fact for question in load_questions()}
    for asked, without, with_memory, tokens in rows:
        assert without == "I don't know."
        fact = facts.get(asked, "I don't know.")  # one was never spoken of
        assert fact.replace(" ", "") in with_memory.replace(" ", "")  # long words are folded
        less, more = (int(number.replace(",", "")) for number in tokens.split(" / "))
        assert less < 30 < more <= 3000


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of LlamaIndex's agents
def test_an_agent_of_llamaindex_gives_the_same_answers(demo_run: Played) -> None:
    result = CliRunner().invoke(app, ["demo", "--framework", "llama-index"], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    title = "each question in a new thread"
    ours, theirs = (cells(output, title) for output in (result.output, demo_run.output))
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    assert "demo --framework llama-index --database" in " ".join(result.output.split())


@pytest.mark.soak
def test_the_demo_shows_a_prompt_with_a_reason_for_each_memory(demo_run: Played) -> None:
    shown = demo_run.output.partition("why each memory is in it")[2].partition("└")[0]
    lines = [line.strip("│").split("│") for line in shown.splitlines() if line.startswith("│")]
    speakers = ("user:", "assistant:", "run_shell:", "write_file:", "search_docs:", "sql:", "- ")
    memories = [(why.strip(), said.strip()) for why, said, *_ in lines if said.strip().startswith(speakers)]
    assert len(memories) >= 5
    assert [said for why, said in memories if not why] == []
    for part in ("<memory>", "</memory>", "0.95 % + 1.00 SEK"):
        assert part in shown


@pytest.mark.soak
def test_the_readme_shows_the_output_of_the_demo(demo_run: Played) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    printed = {line.rstrip() for line in demo_run.output.splitlines()}
    assert [line for line in shown.splitlines() if line not in printed] == []
    assert shown.count("I don't know.") >= 5


@pytest.mark.soak
def test_the_demo_fits_80_columns_and_has_no_colors_in_a_pipe(demo_run: Played) -> None:
    assert "\x1b" not in demo_run.output
    lines = [line for line in demo_run.output.splitlines() if str(demo_run.database) not in line]
    assert max(map(len, lines)) <= 80


def printed(*shown: RenderableType, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    for part in shown:
        console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def build_answers(question: str, answer: str, tokens: tuple[int, int]) -> DemoAnswers:
    without, with_memory = tokens
    return DemoAnswers(
        question, Reply("I don't know.", question, without), Reply(answer, question, with_memory)
    )


def test_the_readme_shows_the_answers_and_the_score_as_they_are_printed() -> None:
    dashboards = "Dashboards at https://grafana.tidepool.example/d/tp-main"
    cards = "Next big thing is gift cards, the board wants them by Thursday 15 May, for Mother's Day (25 May here)."
    rows = [
        build_answers("Where are the dashboards?", dashboards, (14, 273)),
        build_answers("By when does the board want gift cards?", cards, (17, 1169)),
        build_answers("What is Jonas' favourite colour?", "I don't know.", (15, 829)),
    ]
    others = DemoScore(questions=15, in_prompt=13, in_answer=1, in_prompt_without=0)
    told = printed(
        build_answer_table(rows),
        build_score_text(
            [build_answers("", "", (1, 1004)), build_answers("", "", (1, 1006))], others, 28_706
        ),
    )
    readme = README.read_text(encoding="utf-8").splitlines()
    assert [line for line in told.splitlines() if line.rstrip() not in readme] == []
    assert told.count("I don't know.") == 4


class Scripted:
    """An agent that answers from the facts it knows, and quotes them in its prompt."""

    def __init__(self, facts: dict[str, str]) -> None:
        self.facts = facts
        self.threads: list[str] = []

    def ask(self, question: str, thread: str) -> Reply:
        self.threads.append(thread)
        fact = self.facts.get(question)
        prompt = question if fact is None else f"- domain | known\nuser: {fact}\n{question}"
        return Reply(fact or "I don't know.", prompt, 1200 if fact else 12)


def test_the_demo_prints_the_answers_the_score_an_old_thread_and_a_prompt() -> None:
    story, rate = load_questions(), "Our payment provider takes an online rate of 0.95 % per transaction."
    known = {question.text: question.fact for question in story[1:]} | {command._LAST_QUESTION: rate}
    both = Assistants(without_memory=Scripted({}), with_memory=Scripted(known))
    console = Console(file=StringIO(), width=80)
    with MemoryEngine(embedder=None) as engine:
        session = engine.session(("tidepool", "mara"), load_chapters()[0].session)
        session.add_many([MessageDraft("user", "Hello."), MessageDraft("user", rate)])
        whole = sum(message.token_count for message in session.messages())
        session.compress(session.latest(1)[0].id, "They said hello.")
        command._ask_questions(console, engine, both)
    assert isinstance(console.file, StringIO)
    output = console.file.getvalue()
    told = " ".join(output.split())
    rows = cells(output, "each question in a new thread")
    assert len(rows) == 9
    for question, without, with_memory, tokens in rows:
        fact = known.get(question)
        assert without == "I don't know."
        assert with_memory.replace(" ", "") == (fact or without).replace(" ", "")
        assert tokens == ("12 / 1,200" if fact else "12 / 12")
    assert rows[-1][0] == "What is Jonas' favourite colour?"
    assert f"took 1,200 tokens on average; the full history would take {whole}." in told
    others = len(story) - 8
    assert (
        f"Of the {others} other questions about the project, the answer was in {others - 1} prompts" in told
    )
    assert f"in 0 without, and this model quoted the right sentence for {others - 1}." in told
    thread = load_chapters()[0].session
    assert f"In {thread}, which contains the fact: {rows[0][0]} I don't know. (12 prompt" in told
    shown = output.partition("One prompt of 1,200 tokens")[2]
    assert re.search(r"│ known +│ - domain \| known", shown)
    assert re.search(r"│ \d\.\d\d \w+ +│ user: Our payment provider", shown)
    assert re.search(r"│ +│ Which online rate", shown)
    assert re.search(r"│ the answer +│ Our payment provider", shown)
    assert "Outdated, but kept in the history: Stripe\n" in re.sub(" +\n", "\n", shown)
    for agent in (both.without_memory, both.with_memory):
        assert isinstance(agent, Scripted)
        assert len(set(agent.threads)) == len(agent.threads)  # a new thread for each question


def test_the_tables_of_stored_records_have_one_line_per_session() -> None:
    with MemoryEngine(embedder=None) as engine:
        tenant, contexts = engine.namespace("tidepool"), dict[str, MemoryContext]()
        for name, said in (("01-first", ["It costs 49 SEK."]), ("02-second", ["Hello.", "We met at 9:40."])):
            session = tenant.session(name)
            session.add_many([MessageDraft("user", text) for text in said])
            contexts[name] = session.build_context()
            session.compress(session.latest(1)[0].id, "They said hello.")
        tenant.knowledge.store("domain", "price", "49 SEK")
        tokens = {
            name: sum(
                message.token_count for message in tenant.session(name).messages() if not message.is_summary
            )
            for name in contexts
        }
        stored = sum(info.token_count for info in tenant.sessions().sessions)
        wide, narrow = (printed(build_session_table(tenant, contexts), width=width) for width in (80, 50))
        held = printed(build_tier_table(tenant, contexts, 0.25), width=200)
    assert "context ┃ unchanged ┃ facts kept" in wide
    first, second = contexts.values()
    table = [line.strip("│").split("│") for line in wide.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in table] == [
        ["01-first", "1", f"{tokens['01-first']}", f"{first.token_count}", "1", "100%"],
        ["02-second", "2", f"{tokens['02-second']}", f"{second.token_count}", "2", "100%"],
    ]
    assert [line[0] for line in narrow.splitlines() if line[0] in "┃│"] == ["┃", "│", "│"]
    rows = dict(re.findall(r"│ (\w+) +│ (.*?) +│", held))
    assert rows["working"].startswith("the last session as a prompt: 2 messages")
    assert "2 sessions" in rows["short_term"]
    assert "0.2 ms per message" in rows["short_term"]
    assert rows["long_term"].startswith("0 entries")
    assert rows["knowledge"].startswith("1 fact known")
    assert rows["episodic"].startswith("0 episodes")
    assert re.findall(r" (\d+) │$", held, re.MULTILINE) == [f"{second.token_count}", f"{stored}", "0"]


def test_the_demo_does_not_change_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    path.write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--database", str(path)])
    assert result.exit_code == 1
    assert "already exists" in " ".join(result.output.split())  # lines are wrapped
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        ("/lib/langmem_tiers/__main__.py", "python -m langmem_tiers"),
        (".venv/bin/langmem-tiers", ".venv/bin/langmem-tiers"),
    ],
)
def test_the_demo_names_itself_as_the_user_started_it(
    started: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [started, "demo"])
    assert command._get_program_name() == shown


@pytest.mark.soak
@pytest.mark.parametrize(
    ("framework", "missing"),
    [
        ("langchain", "langchain"),
        ("langchain", "langgraph"),
        ("langchain", "langmem_tiers_langchain"),
        ("llama-index", "llama_index"),
        ("llama-index", "langmem_tiers_llamaindex"),
    ],
)
def test_without_the_framework_the_demo_names_the_package_to_install(
    framework: str, missing: str, tmp_path: Path
) -> None:
    begin = f"import sys; sys.modules[{missing!r}] = None; from langmem_tiers.cli import main; main()"
    path = tmp_path / "kept.db"
    child = subprocess.run(
        [sys.executable, "-c", begin, "demo", "--framework", framework, "--database", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 1
    assert f"pip install 'langmem-tiers[{framework}]'" in " ".join(child.stderr.split())
    assert not path.exists()


@pytest.mark.soak
def test_the_command_runs_as_a_module_too() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "langmem_tiers", "--version"], capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == f"langmem-tiers {__version__}"


def test_the_demo_story_is_complete() -> None:
    told = [message for chapter in load_chapters() for message in chapter.messages]
    assert len(told) >= 300
    assert len(load_chapters()) == 7
    times = [message.created_at for message in told if message.created_at]
    assert times == sorted(times)
    assert len(times) == len(told)
    calls = [call.id for message in told for call in message.tool_calls]
    answers = [message.tool_call_id for message in told if message.role is Role.TOOL]
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(answer for answer in answers if answer)


def test_each_question_has_a_fact_that_only_its_evidence_contains() -> None:
    said = {message.id: message.content for chapter in load_chapters() for message in chapter.messages}
    for question in load_questions():
        assert question.fact not in question.text
        assert any(question.fact in said[message_id] for message_id in question.evidence), question.text


@pytest.mark.sample(4)
@pytest.mark.parametrize("question", load_questions(), ids=lambda question: question.search)
def test_each_question_has_its_evidence_within_reach_of_its_key_words(question: object) -> None:
    with MemoryEngine() as engine:
        tenant = engine.namespace("tidepool")
        for chapter in load_chapters():
            tenant.session(chapter.session).add_many(chapter.messages)
        found = {hit.entry.id for hit in tenant.search(question.search, limit=5)}  # type: ignore[attr-defined] # a Question
        assert found & set(question.evidence)  # type: ignore[attr-defined] # a Question
