"""The commands as users and scripts call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers import MemoryEngine, MessageDraft, MessageToolCall
from langmem_tiers.common.namespaces import format_namespace, parse_namespace
from langmem_tiers.errors import InvalidNameError
from tests.cli.command_runner import run

if TYPE_CHECKING:
    from pathlib import Path


labels = st.lists(
    st.text(min_size=1, max_size=8).filter(lambda text: text.strip() != ""), min_size=1, max_size=4
)


@given(labels)
def test_a_displayed_namespace_is_parsed_back(path: list[str]) -> None:
    try:
        read = parse_namespace(format_namespace(path))
    except InvalidNameError:  # a name that no namespace may have
        return
    assert list(read) == path


@pytest.mark.parametrize("wrong", ["", "a//b", "/a", "a/"])
def test_an_invalid_namespace_is_refused_with_a_hint(database: Path, wrong: str) -> None:
    done = run("search", "-d", database, wrong, "train")
    assert (done.code, "acme/alice" in done.err) == (1, True)


def test_namespaces_sessions_and_messages_are_shown(database: Path) -> None:
    assert "acme/a\\/b" in run("inspect", "-d", database).out
    output = run("inspect", "-d", database, "--json").parsed
    assert output == {"namespaces": [["acme", "a/b"], ["bob"]], "is_whole": True}
    sessions = run("inspect", "-d", database, "acme/a\\/b", "--json").parsed
    assert [(info["name"], info["message_count"]) for info in sessions["sessions"]] == [("monday", 3)]
    whole = run("inspect", "-d", database, "acme/a\\/b", "-s", "monday")
    assert "platform 3" in whole.out
    assert "short_term" in whole.out
    output = run("inspect", "-d", database, "acme/a\\/b", "-s", "monday", "--json").parsed
    assert [entry["role"] for entry in output["entries"]] == ["user", "assistant", "tool"]


def test_omitted_rows_are_mentioned(database: Path) -> None:
    with MemoryEngine(f"sqlite:///{database}") as engine:
        engine.session("bob", "another").add("user", "And one more.")
        call = MessageToolCall("c", "look_up", '{"what": "ferries"}')
        engine.session("bob", "tools").add(MessageDraft("assistant", "", tool_calls=(call,)))
    for words in ([], ["bob"], ["acme/a\\/b", "-s", "monday"]):
        assert "Use a higher --limit" in run("inspect", "-d", database, *words, "--limit", "1").out
        assert "Use a higher --limit" not in run("inspect", "-d", database, *words).out
        few = run("inspect", "-d", database, *words, "--limit", "1", "--json").parsed
        assert few.get("is_whole", few.get("next_after") is None) is False
    for words in (["inspect", "bob", "-s", "tools"], ["search", "bob", "ferries"]):
        out = run(*words, "-d", database).out
        assert "look_up" in out
        assert "ferries" in out


def test_markup_in_messages_is_printed_literally(database: Path) -> None:
    assert "[bold]tea[/bold]" in run("inspect", "-d", database, "bob", "-s", "tuesday").out


@pytest.mark.parametrize("words", [[], ["--words"]])
def test_a_search_prints_scores_and_reasons(database: Path, words: list[str]) -> None:
    done = run("search", "-d", database, "acme/a\\/b", "When does the train leave?", *words, "--json")
    best = done.parsed["hits"][0]
    assert "9:40" in best["entry"]["content"]
    assert best["score"] > 0
    assert best["signals"]
    assert "9:40" in run("search", "-d", database, "acme/a\\/b", "train", *words).out
    of_bob = run("search", "-d", database, "bob", "train", "--json", *words).parsed["hits"]
    assert [hit["entry"]["namespace"] for hit in of_bob] == [["bob"]]  # a tenant finds its own alone
    unmatched = run("search", "-d", database, "bob", "zzz", "--words").out
    assert [cell.strip() for cell in unmatched.splitlines()[-2].split("│")][2] == "-"


def test_exported_messages_are_imported_equal(database: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "out.jsonl", tmp_path / "other.db"
    assert run("export", "-d", database, "-o", file, "--json").parsed["messages"] == 4
    assert run("import", "-d", other, file, "--json").parsed == {"stored": 4, "known": 0, "left_out": 0}
    assert run("import", "-d", other, file, "--json").parsed == {"stored": 0, "known": 4, "left_out": 0}
    assert run("export", "-d", other).out == file.read_text(encoding="utf-8")
    again = run(
        "import", "-d", other, "-", "--into", "all/of it", "--json", input=file.read_text(encoding="utf-8")
    )
    assert again.parsed == {"stored": 4, "known": 0, "left_out": 0}
    with MemoryEngine(other, embedder=None) as engine:
        _, message, _ = engine.session(("all", "of it"), "monday").messages()
        (call,) = message.tool_calls
        assert call == MessageToolCall("c1", "look", '{"at": 1}')


def test_one_session_is_exported_and_no_file_is_overwritten(database: Path, tmp_path: Path) -> None:
    assert len(run("export", "-d", database, "bob", "-s", "tuesday").out.splitlines()) == 1
    file = tmp_path / "there"
    file.write_text("mine")
    done = run("export", "-d", database, "-o", file)
    assert (done.code, file.read_text()) == (1, "mine")


@pytest.mark.parametrize("line", ["no json", "{}", '{"role": "user", "content": "x"}', "[1]", "null"])
def test_an_invalid_line_is_named_and_earlier_lines_are_kept(database: Path, line: str) -> None:
    good = run("export", "-d", database, "bob").out
    done = run("import", "-d", database, "-", "--into", "carol", input=f"{good}{line}\n")
    assert (done.code, "line 2" in done.err) == (1, True)


def test_optimize_and_reembed_cover_all_namespaces(database: Path) -> None:
    output = run("optimize", "-d", database, "--json").parsed
    assert set(output) == {"acme/a\\/b", "bob"}
    assert run("optimize", "-d", database, "bob", "-s", "tuesday").code == 0
    assert run("optimize", "-d", database, "-s", "tuesday").code == 1
    assert run("reembed", "-d", database, "--json").parsed["total"] == 4
    assert run("reembed", "-d", database, "--json").parsed["total"] == 0


@pytest.mark.parametrize(
    "command", [["inspect"], ["search", "a", "b"], ["export"], ["optimize"], ["reembed"]]
)
def test_a_missing_database_is_an_error_and_not_created(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "none.db"
    done = run(command[0], "-d", path, *command[1:], "--json")
    assert done.code == 1
    assert done.parsed["error"] == "StorageUnavailableError"
    assert str(path) in done.err
    assert not path.exists()


def test_the_database_is_read_from_the_environment(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_TIERS_DATABASE", str(database))
    assert "bob" in run("inspect").out


def test_a_wrong_command_line_is_exit_code_2(database: Path) -> None:
    assert run("search", "-d", database).code == 2
    assert run("search", "-d", database, "bob", "tea", "--limit", "0").code == 2


def test_a_backup_is_restored_elsewhere_and_moved_again(database: Path, tmp_path: Path) -> None:
    file, second, third = tmp_path / "all.gz", tmp_path / "second.db", tmp_path / "third.db"
    report = run("backup", "-d", database, file, "--json").parsed
    assert report["counts"]["messages"] == 4
    assert run("restore", "-d", second, file).code == 0
    assert run("export", "-d", second).out == run("export", "-d", database).out
    assert "Copied " in run("move", second, third).out
    assert run("export", "-d", third).out == run("export", "-d", database).out


def test_one_namespace_is_restored_into_another(database: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "bob.gz", tmp_path / "other.db"
    assert run("backup", "-d", database, file, "bob").code == 0
    assert run("restore", "-d", other, file, "--into", "acme/bob").code == 0
    assert run("move", database, other, "-n", "acme/a\\/b", "--into", "moved").code == 0
    assert run("inspect", "-d", other, "--json").parsed["namespaces"] == [["acme", "bob"], ["moved"]]


def test_replacing_a_namespace_requires_yes(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "bob.gz"
    run("backup", "-d", database, file, "bob")
    before = run("export", "-d", database).out
    taken = run("restore", "-d", database, file)
    assert (taken.code, "RestoreConflictError" in taken.err) == (1, True)
    asked = run("restore", "-d", database, file, "--replace")
    assert (asked.code, "--yes" in asked.err) == (3, True)
    assert run("export", "-d", database).out == before
    assert run("restore", "-d", database, file, "--replace", "--yes").code == 0
    assert run("export", "-d", database).out == before


def test_a_memory_is_not_moved_onto_itself(database: Path) -> None:
    assert run("move", database, f"sqlite:///{database}").code == 1


def test_a_database_file_is_named_as_the_user_wrote_it(database: Path) -> None:
    assert f"source and target are both {str(database)!r}:" in run("move", database, database).err


@pytest.mark.parametrize("content", [b"", b"no backup", b"\x1f\x8b garbage"])
def test_a_file_that_is_not_a_backup_is_refused(tmp_path: Path, content: bytes) -> None:
    file, target = tmp_path / "x.gz", tmp_path / "target.db"
    file.write_bytes(content)
    done = run("restore", "-d", target, file, "--json")
    assert (done.code, done.parsed["error"]) == (1, "NotABackupError")


def test_the_status_counts_the_stored_records(database: Path) -> None:
    output = run("status", "-d", database, "--json").parsed
    assert (output["namespaces"], output["sessions"], output["messages"]) == (2, 2, 4)
    shown = run("status", "-d", database).out
    assert ("2 namespaces" in shown, "Estimated" in shown) == (True, False)
    assert output["estimated"] == ["bytes of tables"]


def test_forget_erases_only_with_yes(database: Path) -> None:
    asked = run("forget", "-d", database, "bob")
    assert (asked.code, "--yes" in asked.err) == (3, True)
    assert "tea" in run("export", "-d", database).out
    output = run("forget", "-d", database, "bob", "--yes", "--json").parsed
    assert output["counts"]["messages"] == 1
    assert output["is_complete"]
    assert "tea" not in run("export", "-d", database).out
    assert b"[bold]tea" not in database.read_bytes()
    done = run("forget", "-d", database, "acme/a\\/b", "-s", "monday", "--yes")
    assert (done.code, "erased 1 session, 3 messages" in done.out) == (0, True)
    assert run("forget", "-d", database, "--yes").code == 1  # nothing is named


def test_maintenance_runs_only_with_yes(database: Path) -> None:
    assert run("maintain", "-d", database).code == 3
    output = run("maintain", "-d", database, "--yes", "--json").parsed
    assert output["is_complete"]
    assert output["erased"]["messages"] == 0
