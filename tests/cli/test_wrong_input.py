"""Invalid input and failing environments: one line of output, and no partial results."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.cli import main
from langmem_tiers.cli.output import to_json_line
from tests.cli.command_runner import run

SECRETS = (
    "postgresql:///db?host=/nowhere&password=s3cret",
    "postgresql://u:s3cret@/db?host=/nowhere",
    "mysql://u:s3cret@h/db",
    "postgres:/u:s3cret@h/db",
    "postgresql//u:s3cret@h/db",
    "postgresql://u:s3cret@@h/db",
)


def line(number: int, **more: Any) -> str:
    fields = {"namespace": ["n"], "session": "s", "id": f"m{number}", "role": "user", "content": f"{number}"}
    return json.dumps(fields | more) + "\n"


def contents(path: Path) -> list[str]:
    with MemoryEngine(path, embedder=None) as engine:
        return [message.content for message in engine.session("n", "s").messages()]


@pytest.mark.parametrize("before", [1, 499, 500, 501])
def test_messages_before_an_invalid_line_are_stored(tmp_path: Path, before: int) -> None:
    path = tmp_path / "new.db"
    good = "".join(map(line, range(before)))
    done = run("import", "-d", path, "-", input=f"{good}no message\n{line(before)}")
    assert done.code == 1
    assert f"line {before + 1} is not an exported message" in done.err
    assert f"the {before} messages before it are stored" in done.err
    assert len(contents(path)) == before
    again = run("import", "-d", path, "-", "--json", input=good + line(before))
    assert again.parsed == {"stored": 1, "known": before, "left_out": 0}


def test_a_message_refused_by_a_session_is_named_and_earlier_ones_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    other = line(3, content="other words under a known id")
    done = run("import", "-d", path, "-", input="".join(map(line, range(7))) + other + line(8))
    assert (done.code, "line 8 was not stored" in done.err) == (1, True)
    assert "the 7 messages before it are stored" in done.err
    assert contents(path) == [f"{number}" for number in range(7)]


@pytest.mark.parametrize("session", [None, 5, ["s"], ""])
def test_an_invalid_session_name_is_refused_with_its_line(tmp_path: Path, session: object) -> None:
    done = run("import", "-d", tmp_path / "new.db", "-", input=line(0, session=session))
    assert (done.code, "line 1 is not an exported message" in done.err) == (1, True)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"{}"), "{}".encode("utf-16"), b"[" * 100_000 + b"\n"],
    ids=["packed", "UTF-16", "nested"],  # what is packed bears the time
)
def test_a_file_not_written_by_export_is_refused_without_creating_a_database(
    tmp_path: Path, content: bytes
) -> None:
    file, target = tmp_path / "file", tmp_path / "new.db"
    file.write_bytes(content)
    done = run("import", "-d", target, file)
    assert (done.code, "line 1 is no" in done.err, target.exists()) == (1, True, False)


def test_importing_a_backup_suggests_restore(database: Path, tmp_path: Path) -> None:
    run("backup", "-d", database, tmp_path / "all.gz")
    assert "restore" in run("import", "-d", tmp_path / "new.db", tmp_path / "all.gz").err


@pytest.mark.parametrize("command", ["import", "restore"])
@pytest.mark.parametrize("kind", ["missing", "folder", "text"])
def test_an_unreadable_file_creates_no_database(tmp_path: Path, command: str, kind: str) -> None:
    file, target = tmp_path / kind, tmp_path / "new.db"
    if kind == "folder":
        file.mkdir()
    elif kind == "text":
        file.write_text("my notes\n")
    done = run(command, "-d", target, file)
    assert (done.code, target.exists()) == (1, False)
    assert any(
        text in done.err for text in ("check", "not an exported message", "not a langmem-tiers backup")
    )


@pytest.mark.parametrize(
    "words",
    [
        ["move", "{database}", "{target}", "-n", "nobody"],
        ["move", "{database}", "{target}", "--into", "carol"],
        ["move", "{database}", "{target}", "-n", "bob", "--into", "a//b"],
        ["move", "{database}", "{target}", "--below"],
        ["restore", "-d", "{target}", "{file}", "--into", "carol"],
        ["restore", "-d", "{target}", "{file}", "--into", "a//b"],
    ],
)
def test_an_invalid_target_creates_no_database(database: Path, tmp_path: Path, words: list[str]) -> None:
    file, target = tmp_path / "all.gz", tmp_path / "new.db"
    run("backup", "-d", database, file)
    done = run(*(word.format(database=database, target=target, file=file) for word in words))
    assert (done.code, target.exists()) == (1, False)


def test_a_backup_of_a_newer_release_creates_no_database(database: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "all.gz", tmp_path / "new.db"
    run("backup", "-d", database, file)
    head, _, rest = gzip.decompress(file.read_bytes()).partition(b"\n")
    file.write_bytes(gzip.compress(json.dumps(json.loads(head) | {"version": 2}).encode() + b"\n" + rest))
    done = run("restore", "-d", target, file)
    assert (done.code, "pip install -U" in done.err, target.exists()) == (1, True, False)


@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_a_backup_damaged_after_its_header_creates_no_database(
    database: Path, tmp_path: Path, damage: str
) -> None:
    file, target = tmp_path / "all.gz", tmp_path / "new.db"
    run("backup", "-d", database, file)
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    whole = lines[:-1] if damage == "cut" else [*lines[:-2], lines[-2].replace(b":", b": ", 1), lines[-1]]
    file.write_bytes(gzip.compress(b"".join(whole)))
    done = run("restore", "-d", target, file)
    assert (done.code, "nothing was restored" in done.err, target.exists()) == (1, True, False)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "-d", "{database}", "{url}"],
        ["search", "-d", "{database}", "{url}", "train"],
        ["forget", "-d", "{database}", "{url}"],
        ["forget", "-d", "{database}", "--user", "{url}"],
        ["restore", "-d", "{database}", "{url}"],
        ["status", "-d", "user:s3cret@host/name"],
    ],
)
def test_a_url_in_the_wrong_place_shows_no_password(database: Path, words: list[str]) -> None:
    for password in ("s3cret", "m0re:s3cret", "s3cret@m0re", "s3cret/m0re@"):
        url = f"postgresql://user:{password}@host/name"
        for more in ([], ["--json"]):
            done = run(*(word.format(database=database, url=url) for word in words), *more)
            assert "s3cret" not in done.out + done.err
            assert "m0re" not in done.out + done.err
            assert done.code in (1, 3)


@pytest.mark.soak
@pytest.mark.parametrize(
    "closed",
    ["<&- >&- 2>&-", *(pytest.param(stream, marks=pytest.mark.soak) for stream in ("<&-", ">&-", "2>&-"))],
)
def test_a_stream_that_is_closed_stops_no_command(database: Path, closed: str) -> None:
    command = f"{sys.executable} -c 'from langmem_tiers.cli import main; main()' status --json -d {database} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)  # noqa: S607 - our own
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_a_command_replaces_closed_streams_with_empty_ones(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(sys, "argv", ["langmem-tiers", "status", "-d", str(database)])
    with pytest.raises(SystemExit) as ended:
        main()
    with sys.stdin, sys.stdout, sys.stderr:
        assert (ended.value.code, sys.stdin.read()) == (0, "")
        assert (sys.stdout.writable(), sys.stderr.writable()) == (True, True)


class Interrupting:
    """Ctrl-C while the commands are loaded."""

    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> None:  # noqa: ARG004 - as it is called
        if name == "langmem_tiers.cli.app":
            raise KeyboardInterrupt


def test_an_interrupt_while_the_commands_load_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "langmem_tiers.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupting, *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130  # 128 and the number of SIGINT, as shells report it


def test_a_label_with_an_unescaped_slash_gets_a_suggestion(database: Path) -> None:
    with MemoryEngine(f"sqlite:///{database}") as engine:
        engine.session("x/y", "s").add("user", "The train leaves at nine.")
    assert "did you mean 'x\\/y'?" in run("search", "-d", database, "x/y", "train").err.replace("\n", " ")
    assert run("search", "-d", database, "x\\/y", "train").code == 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("url", SECRETS)
def test_a_password_is_never_printed(database: Path, tmp_path: Path, url: str) -> None:
    file = tmp_path / "all.gz"
    run("backup", "-d", database, file)
    for words in (
        ["status", "-d", url],
        ["restore", "-d", url, file, "--replace"],
        ["restore", "-d", url, file, "--replace", "--json"],
        ["restore", "-d", url, file],
        ["import", "-d", url, file],
        ["forget", "-d", url, "alice", "--yes"],
        ["move", url, url],
        ["move", database, url],
        ["move", url, tmp_path / "new.db"],
    ):
        done = run(*words)
        assert done.code in (1, 3)
        assert "s3cret" not in done.out + done.err


def test_a_move_names_its_target_without_the_password(database: Path, new_postgres_url: str) -> None:
    done = run("move", database, f"{new_postgres_url}&password=s3cret")
    assert done.code == 0
    assert "records to postgresql://" in " ".join(done.out.split())
    assert "s3cret" not in done.out


def test_an_export_is_private_and_renamed_when_complete(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "said.jsonl"
    file.parent.mkdir()
    assert run("export", "-d", database, "-o", file, "-s", "never").code == 1
    assert list(file.parent.iterdir()) == []
    assert run("export", "-d", database, "-o", file).code == 0
    assert [path.name for path in file.parent.iterdir()] == ["said.jsonl"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_session_of_any_namespace_is_exported_without_naming_it(database: Path) -> None:
    done = run("export", "-d", database, "-s", "tuesday")
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert run("inspect", "-d", database, "-s", "tuesday").code == 1


def test_json_escapes_only_characters_that_the_output_cannot_encode() -> None:
    assert to_json_line("Malmö 東京", "latin-1") == r'"Malm\u00f6 \u6771\u4eac"'
    assert to_json_line("Malmö", "latin-1") == '"Malmö"'
    assert to_json_line("Malmö 東京", "utf-8") == '"Malmö 東京"'


@pytest.mark.parametrize("command", ["optimize", "status"])
def test_an_invalid_url_of_redis_is_refused(database: Path, command: str) -> None:
    done = run(command, "-d", database, "--redis", "http://cache", "--json")
    assert (done.code, done.parsed["error"]) == (1, "InvalidConfigError")


@pytest.mark.soak
def test_lone_surrogates_are_exported_without_loss(tmp_path: Path) -> None:
    one, other, file = tmp_path / "one.db", tmp_path / "other.db", tmp_path / "said.jsonl"
    said = ["half \ud83d of it", "Malmö 東京"]
    with MemoryEngine(one, embedder=None) as engine:
        engine.session("n", "s").add_many([MessageDraft("user", text) for text in said])
    assert run("export", "-d", one, "-o", file).code == 0
    assert "東京" in file.read_text(encoding="utf-8")
    words = [sys.executable, "-m", "langmem_tiers", "export", "-d", str(one)]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    piped = subprocess.run(words, capture_output=True, check=True, env=latin)
    assert [json.loads(row)["content"] for row in piped.stdout.decode("latin-1").splitlines()] == said
    assert run("import", "-d", other, file).code == 0
    assert contents(other) == said


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "nobody"],
        ["search", "nobody", "tea"],
        ["export", "nobody"],
        ["backup", "{}/b.gz", "nobody"],
        ["backup", "{}/b.gz", "acm", "--below"],
        ["optimize", "nobody"],
        ["reembed", "acme"],
    ],
)
def test_an_empty_namespace_is_an_error(database: Path, tmp_path: Path, words: list[str]) -> None:
    done = run(words[0], "-d", database, *(word.format(tmp_path) for word in words[1:]))
    assert (done.code, "NotFoundError" in done.err) == (1, True)
    assert not (tmp_path / "b.gz").exists()


def test_a_namespace_with_only_items_and_a_parent_namespace_are_backed_up(
    database: Path, tmp_path: Path
) -> None:
    with MemoryEngine(database, embedder=None) as engine:
        engine.items.put(("acme",), "key", {"a": 1})
    assert run("backup", "-d", database, tmp_path / "a.gz", "acme", "--json").parsed["counts"]["items"] == 1
    below = run("backup", "-d", database, tmp_path / "b.gz", "acme", "--below", "--json").parsed
    assert below["counts"]["messages"] == 3


def test_a_path_that_is_not_a_memory_is_named_and_unchanged(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.db", tmp_path / "notes.txt"
    empty.touch()
    text.write_text("my notes")
    for path, said in ((tmp_path, "is a folder"), (empty, "no memory"), (text, "not a database")):
        done = run("status", "-d", path)
        assert (done.code, said in done.err) == (1, True)
    assert run("status", "-d", f"sqlite:///file:{tmp_path}/none.db").code == 1
    assert [empty.read_bytes(), text.read_text()] == [b"", "my notes"]
    assert not (tmp_path / "none.db").exists()


def test_errors_name_command_line_options_instead_of_python_arguments(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.gz"
    run("backup", "-d", database, file)
    assert "remove it first" in run("backup", "-d", database, file).err
    assert "--replace --yes" in run("restore", "-d", database, file).err
    moved = run("move", database, f"sqlite:///{tmp_path}/./memory.db").err
    assert ("pass another target" in moved, "--replace" in moved) == (True, False)
    assert "--below requires a namespace" in run("backup", "-d", database, tmp_path / "b.gz", "--below").err
    assert "--user" in run("forget", "-d", database, "--yes").err
    assert "pass --session" in run("forget", "-d", database, "bob", "--message", "m", "--yes").err
    assert "file that backup wrote" in run("restore", "-d", database, database).err


def test_the_help_of_forget_has_no_default_of_all_namespaces() -> None:
    assert "Default: all namespaces." in " ".join(run("export", "--help").out.replace("│", " ").split())
    assert "all namespaces" not in " ".join(run("forget", "--help").out.replace("│", " ").split())


@pytest.mark.soak
def test_a_closed_output_pipe_prints_no_error(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    run("import", "-d", path, "-", input="".join(line(n, content="long " * 500) for n in range(500)))
    words = [sys.executable, "-m", "langmem_tiers", "export", "-d", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith(b"{")
        child.stdout.close()
        assert child.stderr.read() == b""


@pytest.mark.soak
@pytest.mark.parametrize("command", [["export", "-o"], pytest.param(["backup"], marks=pytest.mark.soak)])
def test_a_full_disk_prints_one_line_and_leaves_no_file(tmp_path: Path, command: list[str]) -> None:
    path, out = tmp_path / "new.db", tmp_path / "out"
    out.mkdir()
    numbers = "".join(line(n, content=" ".join(str(n * k * 7919) for k in range(99))) for n in range(900))
    run("import", "-d", path, "-", input=numbers)
    words = [sys.executable, "-m", "langmem_tiers", command[0], "-d", str(path), *command[1:], str(out / "f")]
    env = os.environ | {"COVERAGE_PROCESS_CONFIG": ""}  # the data of coverage would not fit
    done = subprocess.run(
        words, capture_output=True, check=False, text=True, preexec_fn=_little_room, env=env
    )
    assert (done.returncode, done.stdout, list(out.iterdir())) == (1, "", [])
    assert done.stderr.startswith("BackupFileError: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        (["export"], ""),
        *(
            pytest.param(words, unbuffered, marks=pytest.mark.soak)
            for words in (["export"], ["status"], ["status", "--json"], ["inspect", "--json"])
            for unbuffered in ("", "1")
        ),
    ],
)
def test_an_output_that_does_not_fit_is_one_line(database: Path, words: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        called = [sys.executable, "-m", "langmem_tiers", *words, "-d", str(database)]
        fields = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(called, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=fields)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left" in done.stderr


def _little_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
