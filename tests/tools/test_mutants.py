"""The mutation tool: operators, selection, and an end-to-end run on a small project."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.tools.contexts import short_id
from tests.tools.mutants import Project, import_path, read_equivalent, split
from tests.tools.mutations import Mutation, Mutator, choose, folder_of, keyword_defaults

ROOT = Path(__file__).parents[2]


def mutations_of(text: str) -> list[Mutation]:
    source = dedent(text).encode()
    tree = ast.parse(source)
    found = Mutator("p/m.py", source, keyword_defaults([tree])).run(tree)
    return [item for item in found if item.is_valid(source)]


def mutated(body: str) -> set[tuple[str, str]]:
    """Return operator and new line of each mutation of a function with this body."""
    text = "def f(a, b, c=0, *, d=1):\n" + indent(dedent(body), "    ")
    return {(item.operator, item.new) for item in mutations_of(text)}


@pytest.mark.parametrize(
    ("body", "operator", "new"),
    [
        ("x = a < b", "comparison", "x = a <= b"),
        ("x = a >= b", "comparison", "x = a > b"),
        ("x = a == b", "comparison", "x = a != b"),
        ("x = a in b", "comparison", "x = a not in b"),
        ("x = a not in b", "comparison", "x = a in b"),
        ("x = a is b", "comparison", "x = a is not b"),
        ("x = a is not b", "comparison", "x = a is b"),
        ("x = (a) < (b)", "comparison", "x = (a) <= (b)"),
        ("x = a < b < c", "comparison", "x = a < b <= c"),
        ("x = 'ä' + a, a < b", "comparison", "x = 'ä' + a, a <= b"),
        ("x = a and b", "and/or", "x = a or b"),
        ("x = a or b or c", "and/or", "x = a or b and c"),
        ("x = not a", "not", "x = a"),
        ("x = not(a)", "not", "x = (a)"),
        ("x = a + b", "arithmetic", "x = a - b"),
        ("x = a * b", "arithmetic", "x = a / b"),
        ("x = a // b", "arithmetic", "x = a % b"),
        ("x = a / b", "arithmetic", "x = a * b"),
        ("a += b", "arithmetic", "a -= b"),
        ("x = 41", "integer", "x = 42"),
        ("x = a[2:]", "integer", "x = a[3:]"),
        ("x = True", "bool", "x = False"),
        ("return a", "return", "return None"),
        ("if a:\n    return b", "condition", "if True:"),
        ("if a:\n    return b", "condition", "if False:"),
        ("while a:\n    b()", "condition", "while False:"),
        ("x = [y for y in a if y]", "condition", "x = [y for y in a if True]"),
        ("a(b)", "delete call", "pass"),
        ("for x in a:\n    break", "break/continue", "continue"),
        ("for x in a:\n    continue", "break/continue", "break"),
        ("x = f(a, b, d=a)", "keyword", "x = f(a, b, **{})"),
        ("x = sorted(a, key=b)", "keyword", "x = sorted(a, **{})"),
        ("x = min(a, b)", "min/max", "x = max(a, b)"),
    ],
)
def test_an_operator_makes_its_change(body: str, operator: str, new: str) -> None:
    assert (operator, new) in mutated(body)


@pytest.mark.parametrize(
    "body",
    [
        '"""A text with 1 < 2 and True."""',
        "x: Literal[1] = a",
        "raise ValueError(f'{a} < 3', 4)",
        "raise ValueError('a' if a < 3 else 'b')",
        "log.warning('%d left', 3)",
        "warnings.warn('old', stacklevel=2)",
        "x = 'a' + a",
        "x = f'{a + 1}'",
        "x = a[0], a[-1], a[1:]",
        "x = cast(Literal[2], a)",
        "if TYPE_CHECKING:\n    x = 1",
        "if a < 3:  # pragma: no cover\n    x = 1",
        "return None",
        "import a",
    ],
)
def test_messages_types_and_plain_indexes_are_not_mutated(body: str) -> None:
    assert mutated(body) == set()


def test_only_function_bodies_and_constants_of_a_module_are_mutated() -> None:
    found = mutations_of(
        """
        from typing import Literal

        MOST = 10
        LEAST: Literal[1] = 1
        names = [1, 2]
        if MOST > 5:
            OTHER = 3

        @decorated(4)
        class Thing:
            size: int = 5

            def __repr__(self) -> str:
                return "x" * 6

            def grow(self, by: Literal[7] = 7) -> Literal[8]:
                return self.size + by
        """
    )
    assert {(item.function, item.new) for item in found} == {
        ("MOST", "MOST = 11"),
        ("LEAST", "LEAST: Literal[1] = 2"),
        ("Thing.grow", "return None"),
        ("Thing.grow", "return self.size - by"),
    }
    assert {item.function for item in found if item.is_constant} == {"MOST", "LEAST"}


def test_an_edit_keeps_the_number_of_lines() -> None:
    text = """
    def f(a, b):
        if a(
            1,
            b,
        ):
            a(
                b
            )
        return (
            a
            or b
        )
    """
    source = dedent(text).encode()
    found = mutations_of(text)
    assert {item.operator for item in found} == {"condition", "integer", "delete call", "return", "and/or"}
    assert {item.apply(source).count(b"\n") for item in found} == {source.count(b"\n")}


FILES = {
    f"p/{folder}/m{n}.py": b"def f(a, b):\n" + b"    x = a < b\n    y = a + b\n" * size
    for folder, size in {"large": 40, "small": 1}.items()
    for n in range(3)
}


def test_the_same_seed_chooses_the_same_mutations_and_another_seed_others() -> None:
    first, again, other = (choose(FILES, ["p"], 20, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.soak
def test_each_folder_has_its_share_and_at_least_three_mutations() -> None:
    chosen = choose(FILES, ["p"], 50, random.Random(1))
    folders = [folder_of(item.path, ["p"]) for item in chosen]
    assert (folders.count("p/large"), folders.count("p/small")) == (48, 3)
    assert len({(item.path, item.line) for item in chosen}) == len(chosen)


def test_mutations_can_be_limited_to_a_folder() -> None:
    assert {item.path.split("/")[1] for item in choose(FILES, ["p"], 9, random.Random(1), ["p/small"])} == {
        "small"
    }


def test_tests_that_do_not_fit_into_the_limit_are_left_out() -> None:
    durations = dict.fromkeys(["t.py::a", "t.py::b", "t.py::c"], 5.0)
    assert split([*durations], durations, 11) == (["t.py::a"], ["t.py::b"], False)
    assert split([*durations], durations, 60) == (["t.py::a"], ["t.py::b", "t.py::c"], True)


def test_the_key_of_a_mutation_tells_apart_what_was_removed() -> None:
    keys = {
        item.key
        for item in mutations_of("def f(a, b=0):\n    f(\n        1,\n        b=2,\n    )\n    a(b)\n")
    }
    assert {("delete call", "a(b)"), ("keyword", "b=2,")} <= {key[2:] for key in keys}


def test_a_copy_replaces_the_working_tree_on_the_import_path_and_libraries_below_it_stay() -> None:
    library = "/project/.venv/lib/python3/site-packages"
    project = Project(Path("/project"), ("demo", "more/extra"))
    entries = ["", "/project", "/usr/lib/python3", library, "/project/more"]
    assert import_path(entries, project, Path("/copy")) == [
        "/copy",
        "/copy/more",
        "/usr/lib/python3",
        library,
    ]


def test_a_long_id_becomes_short_and_stays_distinct() -> None:
    ids = [short_id(f"t.py::f[{'x' * 10**6}{end}]") for end in "ab"]
    assert ids[0] != ids[1]
    assert {len(item) for item in ids} == {400}
    assert short_id("t.py::f[x]") == "t.py::f[x]"


DEMO = """
import functools
import itertools

MOST = 10


def is_large(number: int) -> bool:
    return number > MOST


def is_small(number: int) -> bool:
    result = number < MOST
    return result


def total(numbers: list[int]) -> int:
    result = sum(numbers) + len([])
    return result


def leave_loop() -> None:
    for _ in itertools.count():
        break


def unused() -> object:
    return object()


def table() -> list[str]:
    return ["a"]


TABLE = table()


@functools.cache
def cached() -> bool:
    return bool(TABLE)


def half(number: int) -> int:
    return number // 2
"""
CHECKS = """
import pytest

from demo.sums import cached, half, is_large, is_small, leave_loop, total


def test_sums() -> None:
    assert is_large(11)
    assert not is_large(10)
    assert is_small(5)
    assert total([1, 2]) == 3


def test_loop() -> None:
    leave_loop()
    cached()
    half(0)


@pytest.mark.parametrize("value", [half(10)])
def test_half(value: int) -> None:
    assert value == 5


def test_cached() -> None:
    assert cached()
"""
EQUIVALENT = "demo/sums.py :: total :: arithmetic :: result = sum(numbers) - len([]) :: zero has no sign\n"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A git repository with a package of one module, and tests for most of it."""
    for name, text in {
        "demo/__init__.py": "",
        "demo/sums.py": DEMO,
        "checks/test_sums.py": CHECKS,
        "equivalent.txt": EQUIVALENT,
        ".gitignore": ".mutants/\n__pycache__/\n",
        "pyproject.toml": '[tool.hatch.build.targets.wheel]\npackages = ["demo"]\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)  # noqa: S607
    return tmp_path


@pytest.mark.soak
def test_a_small_project_is_examined_from_end_to_end_and_its_map_is_cached(demo: Path) -> None:
    words = (
        "--count 50 --jobs 1 --tests checks --equivalent equivalent.txt --json out.json --patience 20".split()
    )

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.tools.mutants", *words, *more]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=demo, env=environment, capture_output=True, text=True, check=False)

    first = run()
    results = json.loads((demo / "out.json").read_text())
    status = {
        (row["mutation"]["function"], row["mutation"]["line"]): row["status"] for row in results["mutants"]
    }
    assert status == {
        ("MOST", 5): "caught",
        ("is_large", 9): "caught",
        ("is_small", 13): "survived",
        ("is_small", 14): "caught",
        ("total", 18): "survived",
        ("total", 19): "caught",
        ("leave_loop", 24): "caught by time-out",
        ("unused", 28): "not covered",
        ("table", 32): "caught",
        ("cached", 40): "caught",
        ("half", 44): "caught",
    }
    assert [row["mutation"]["line"] for row in results["mutants"] if row["equivalent"]] == [18]
    assert results["percent"] == pytest.approx(100 * 8 / 10)
    assert first.returncode == 1
    assert (demo / "demo" / "sums.py").read_text() == DEMO

    again = run("--minimum", "70", "--only", "demo/sums.py", "--minutes", "0")
    assert " passed" in first.stdout
    assert " passed" not in again.stdout
    assert "Not run within the time: 10" in again.stdout


def test_equivalent_mutations_are_read_with_their_reasons(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.txt"
    path.write_text("# comment\n\n" + EQUIVALENT + "a.py :: f :: integer :: x = a[1 :: 2] :: a reason\n")
    assert read_equivalent(path) == {
        ("demo/sums.py", "total", "arithmetic", "result = sum(numbers) - len([])"): "zero has no sign",
        ("a.py", "f", "integer", "x = a[1 :: 2]"): "a reason",
    }


LEAVES_A_SERVER = """
import os, subprocess
from tests.tools.mutants import adopt_orphans, child_processes, stop

adopt_orphans()
child = os.fork()
if child == 0:
    os.setsid()
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print(len(child_processes()))
stop(child, is_over=True)
print(len(child_processes()))
"""


def test_a_server_that_a_run_leaves_behind_is_stopped() -> None:
    command = [sys.executable, "-c", LEAVES_A_SERVER]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "0"]  # the child that has ended, and its server
