"""Mutation testing: make small changes to the source and check that a test fails for each of them.

Run it with ``python -m tests.tools.mutants``. The mutations are chosen at random with a seed. Each is applied to a
private copy of the tree below ``.mutants``. Only tests that execute the changed line run, the most specific first.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import hashlib
import importlib
import json
import os
import random
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from coverage.numbits import num_in_numbits

from tests.tools.contexts import short_id
from tests.tools.mutations import Mutation, choose, folder_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

FAST = "smoke or not (fault or soak or backend or browser)"
NOT_MUTATED = re.compile(r"langmem_tiers/testing/conformance/|integrations/\w+/testing/")  # they are tests
FIRST_SECONDS = 6.0  # of tests in the first of two runs
FILE_SECONDS = 0.2  # to collect one more file of tests
GRACE_SECONDS = 3.0  # before the next signal
PR_SET_CHILD_SUBREAPER = 36  # of prctl(2)
COVERAGE_CONFIG = """\
[run]
source_pkgs = {packages}
data_file = {folder}/coverage.db
parallel = true
core = ctrace
patch = subprocess, _exit
disable_warnings = module-not-imported, no-data-collected
"""


@dataclass(frozen=True)
class Project:
    """The working tree. The packages to mutate are those of the wheel."""

    root: Path
    packages: tuple[str, ...]

    @classmethod
    def at(cls, root: Path) -> Project:
        settings = tomllib.loads((root / "pyproject.toml").read_text())
        return cls(root, tuple(settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]))

    @property
    def work(self) -> Path:
        return self.root / ".mutants"

    def search_path(self, tree: Path) -> list[str]:
        return list(dict.fromkeys([str(tree), *(str((tree / package).parent) for package in self.packages)]))

    def files(self) -> list[str]:
        """List the files of the working tree that git does not ignore."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout
        return sorted(name for name in set(listed.split("\0")) if name and (self.root / name).is_file())

    def sources(self) -> dict[str, bytes]:
        """Read the modules that may be mutated."""
        folders = tuple(f"{package}/" for package in self.packages)
        names = (name for name in self.files() if name.startswith(folders) and name.endswith(".py"))
        return {name: (self.root / name).read_bytes() for name in names if not NOT_MUTATED.match(name)}

    def copy(self, tree: Path) -> None:
        """Bring a copy up to date. Compiled modules of unchanged files stay."""
        names = self.files()
        for path in [item for item in tree.rglob("*") if item.is_file() and item.suffix != ".pyc"]:
            if str(path.relative_to(tree)) not in names:
                path.unlink()
        for name in names:
            here, there = self.root / name, tree / name
            if not there.exists() or there.read_bytes() != here.read_bytes():
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(here, there)


class LineMap:
    """Which tests execute which lines, and how long each test takes."""

    def __init__(self, project: Project, tests: list[str], jobs: int) -> None:
        self.project = project
        digest = hashlib.sha256(json.dumps([FAST, tests, sys.version]).encode())
        for name in project.files():
            if name.endswith((".py", ".toml")):
                digest.update(name.encode() + (project.root / name).read_bytes())
        self.folder = project.work / f"map-{digest.hexdigest()[:16]}"
        if not (self.folder / "coverage.db").exists():
            self._measure(tests, jobs)
        self.seconds: dict[str, float] = {}
        self.libraries: dict[str, None] = {}
        for report in map(json.loads, (path.read_text() for path in self.folder.glob("tests-*.json"))):
            self.seconds |= report["seconds"]
            self.libraries |= dict.fromkeys(report["libraries"])
        self._files: defaultdict[str, set[str]] = defaultdict(set)  # the tests of a file
        for test in self.seconds:
            self._files[test.partition("::")[0]].add(test)
        self._sizes: Counter[str] = Counter()  # lines that a test executes
        for _, test, numbits in self._rows():
            self._sizes[test] += int.from_bytes(numbits, "little").bit_count()

    def _measure(self, tests: list[str], jobs: int) -> None:
        """Run the fast tests once, in a copy of the tree."""
        for old in self.project.work.glob("map-*"):
            shutil.rmtree(old)
        self.folder.mkdir(parents=True)
        tree = self.project.work / "job-0"
        self.project.copy(tree)
        config = self.folder / "coveragerc"
        names = ", ".join(Path(package).name for package in self.project.packages)
        config.write_text(COVERAGE_CONFIG.format(packages=names, folder=self.folder))
        path = [*self.project.search_path(tree), str(Path(__file__).parents[2])]
        environment = clean_environment(path) | {"MUTANTS_MAP": str(self.folder)}
        coverage = [sys.executable, "-m", "coverage"]
        options = "-q --tb=line --dist=loadgroup -pno:cacheprovider -ptests.tools.contexts".split()
        options.append(f"-n{jobs if jobs > 1 else 0}")
        run = [*coverage, "run", f"--rcfile={config}", "-m", "pytest", *options, "-m", FAST, *tests]
        code = subprocess.run(run, cwd=tree, env=environment, check=False).returncode
        if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            sys.exit("mutants: the tests cannot run without a mutation, see above")
        combine = [
            *coverage,
            "combine",
            "--quiet",
            f"--rcfile={config}",
        ]  # warns of files of killed processes
        subprocess.run(combine, cwd=tree, env=environment, check=False, stderr=subprocess.DEVNULL)

    def _rows(self, path: str = "%") -> Iterator[tuple[str, str, bytes]]:
        query = (
            "SELECT file.path, context.context, numbits FROM file JOIN line_bits ON file.id = file_id "
            "JOIN context ON context.id = context_id WHERE file.path LIKE ?"
        )
        with contextlib.closing(sqlite3.connect(self.folder / "coverage.db")) as data:
            for name, context, numbits in data.execute(query, [f"%/job-0/{path}"]):
                if context in self.seconds or context in self._files or not context:
                    yield name, context, numbits

    def covering(self, path: str, lines: Collection[int]) -> set[str]:
        """Return the tests that execute one of the lines.

        A file stands for the lines that its collection executes, an empty name for other imports.
        """
        return {
            test for _, test, numbits in self._rows(path) if any(num_in_numbits(n, numbits) for n in lines)
        }

    def _users(self, mutation: Mutation, sources: dict[str, bytes]) -> set[str]:
        """Return the tests that execute a use of a module constant, or whose file names it."""
        word = re.compile(rf"\b{re.escape(mutation.function)}\b".encode())
        found: set[str] = set()
        for path in [mutation.path] if mutation.function.startswith("_") else sources:
            lines = [n for n, line in enumerate(sources[path].splitlines(), 1) if word.search(line)]
            found |= self.covering(path, lines) if lines else set()
        for file, tests in self._files.items():
            found |= tests if word.search((self.project.root / file).read_bytes()) else set()
        return found

    def _importers(self, path: str, sources: dict[str, bytes]) -> set[str]:
        """Return the tests that execute anything in a module, or else in a module that imports it."""
        found = {test for _, test, _ in self._rows(path)} & self.seconds.keys()
        imports = re.compile(rf"^\s*(from|import) .*\b{Path(path).stem}\b".encode(), re.MULTILINE)
        for other in [] if found else [other for other in sources if imports.search(sources[other])]:
            found |= {test for _, test, _ in self._rows(other)}
        return found

    def plan(self, mutation: Mutation, sources: dict[str, bytes]) -> list[str]:
        """Order the tests for a mutation: one case of each test function first, the most specific first."""
        first, last = mutation.statement
        tests = self.covering(mutation.path, [mutation.line])
        tests = tests or self.covering(mutation.path, range(first, last + 1))
        if mutation.is_constant:
            tests |= self._users(mutation, sources)
        if tests and not tests & self.seconds.keys():  # executed only by an import
            tests |= self._importers(mutation.path, sources)
        if not mutation.is_constant:
            tests = tests.union(*(self._files[file] for file in tests & self._files.keys()))
        cases: Counter[str] = Counter()
        ranked: list[tuple[int, int, float, str]] = []
        for size, spent, test in sorted(
            (self._sizes[test], self.seconds[test], test) for test in tests & self.seconds.keys()
        ):
            cases[function_of(test)] += 1
            ranked.append((cases[function_of(test)], size, spent, test))
        return [test for *_, test in sorted(ranked)]


@dataclass
class Result:
    """The fate of one mutation."""

    mutation: Mutation
    status: str = "survived"  # or: caught, caught by time-out, limit, not covered, not run, error
    caught_by: str = ""
    tests_run: int = 0
    tests_covering: int = 0
    seconds: float = 0.0
    equivalent: str = ""  # the reason

    @property
    def is_caught(self) -> bool:
        return self.status.startswith("caught")


@dataclass
class Outcome:
    """The end of one run of pytest."""

    kind: str  # passed, failed, hung, limit, broken
    test: str = ""
    tests_run: int = 0


class Selected:
    """A pytest plugin: keep the chosen tests, in their order, and report to the parent."""

    def __init__(self, tests: list[str], pipe: int) -> None:
        self.order = {test: number for number, test in enumerate(tests)}
        self.pipe = pipe

    def tell(self, word: str, number: int) -> None:
        os.write(self.pipe, f"{word} {number}\n".encode())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # A mutation may change the parameters of a test and so its id: all cases of that function stand for it.
        missing = self.order.keys() - {short_id(item.nodeid) for item in items}
        functions = {function_of(test): self.order[test] for test in missing}
        for name in (short_id(item.nodeid) for item in items):
            if name not in self.order and function_of(name) in functions:
                self.order[name] = functions[function_of(name)]
        chosen = (item for item in items if short_id(item.nodeid) in self.order)
        items[:] = sorted(chosen, key=lambda item: self.order[short_id(item.nodeid)])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tell("start", self.order[short_id(nodeid)])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tell("failed", self.order[short_id(report.nodeid)])


@dataclass
class Job:
    """A private copy of the tree, and the runs in it."""

    project: Project
    durations: dict[str, float]
    tree: Path
    scratch: Path
    limit: float
    patience: float
    reliable: set[str] = field(default_factory=set)
    unreliable: set[str] = field(default_factory=set)

    def examine(self, mutation: Mutation, tests: list[str], stop: float) -> Result:
        """Run tests until one fails, the list ends, or the time is over."""
        start = time.monotonic()
        result = Result(mutation, tests_covering=len(tests))
        if not tests or start > stop:
            result.status = "not run" if tests else "not covered"
        else:
            self._judge(result, tests, start + self.limit)
        result.seconds = round(time.monotonic() - start, 2)
        return result

    def _judge(self, result: Result, tests: list[str], end: float) -> None:
        path = self.tree / result.mutation.path
        *batches, is_complete = split(tests, self.durations, self.limit)
        while batches:
            batch = [test for test in batches.pop(0) if test not in self.unreliable]
            if not batch:
                continue
            with edited(path, result.mutation.apply(path.read_bytes())):
                outcome = self.run(batch, end - time.monotonic())
            result.tests_run += outcome.tests_run
            if outcome.kind == "passed":
                continue
            if outcome.kind == "limit" or self._is_real(outcome, batch):
                statuses = {"limit": "limit", "hung": "caught by time-out"}
                result.status, result.caught_by = statuses.get(outcome.kind, "caught"), outcome.test
                return
            if not outcome.test:  # the tests cannot even be collected without the mutation
                result.status = "error"
                return
            batches.insert(0, batch[batch.index(outcome.test) + 1 :])
        result.status = "survived" if is_complete else "limit"

    def _is_real(self, outcome: Outcome, batch: list[str]) -> bool:
        """Check that the tests pass, or can be collected, without the mutation."""
        if not outcome.test:
            return self.run(batch, self.limit, "--collect-only").kind == "passed"
        if outcome.test not in self.reliable | self.unreliable:
            passes = self.run([outcome.test], self.limit).kind == "passed"
            (self.reliable if passes else self.unreliable).add(outcome.test)
        return outcome.test in self.reliable

    def run(self, tests: list[str], limit: float, *options: str) -> Outcome:
        """Run tests in a forked child, which is a process group of its own."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            self._work(tests, writing, options)
        os.close(writing)
        outcome = Outcome("broken")
        try:
            outcome = self._watch(reading, tests, limit)
        finally:
            os.close(reading)
            stop(child, is_over=outcome.kind in {"passed", "failed"})
        return outcome

    def _watch(self, reading: int, tests: list[str], limit: float) -> Outcome:
        """Read the reports of a child. The limit ends a run between tests, a test may run until it counts as hung."""
        end = deadline = time.monotonic() + limit
        outcome, buffer = Outcome("hung"), b""
        while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            received = os.read(reading, 65536)
            *lines, buffer = (buffer + received).split(b"\n")
            for word, number in (line.decode().split() for line in lines):
                if word == "end":
                    is_good = int(number) in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
                    return Outcome("passed" if is_good else "broken", "", outcome.tests_run)
                outcome.test = tests[int(number)]
                if word == "failed" or time.monotonic() > end:
                    outcome.kind = "failed" if word == "failed" else "limit"
                    return outcome
                outcome.tests_run += 1
                deadline = time.monotonic() + 10 * self.durations[outcome.test] + self.patience
            if not received:
                outcome.kind = "broken"  # the process died
                return outcome
        return outcome

    def _work(self, tests: list[str], pipe: int, options: Iterable[str]) -> NoReturn:
        """Be the child: forget the modules of the working tree, then run pytest."""
        code = int(pytest.ExitCode.INTERNAL_ERROR)
        try:
            os.setsid()
            os.chdir(self.tree)
            log = os.open(self.tree.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            root, path = str(self.project.root), self.project.search_path(self.tree)
            for name in [name for name, module in sys.modules.items() if is_below(root, module)]:
                del sys.modules[name]
            sys.path[:] = import_path(sys.path, self.project, self.tree)
            environment = clean_environment(path)
            os.environ.clear()
            os.environ.update(environment, PYTEST_DEBUG_TEMPROOT=str(self.scratch.parent))
            importlib.invalidate_caches()
            plugin = Selected(tests, pipe)
            arguments = [f"--basetemp={self.scratch}", "-xq", "-pno:cacheprovider", *options]
            arguments += ["-Wignore:Module already imported:pytest.PytestAssertRewriteWarning"]
            code = int(pytest.main([*arguments, *dict.fromkeys(map(function_of, tests))], plugins=[plugin]))
            plugin.tell("end", code)
        finally:
            os._exit(code)


def is_below(root: str, module: object) -> bool:
    """Tell whether a module is of the working tree, but not a library in a virtual environment there."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")
    is_main = getattr(module, "__name__", "") == "__main__"
    return file.startswith(f"{root}/") and "site-packages" not in file and not is_main


def import_path(entries: list[str], project: Project, tree: Path) -> list[str]:
    """Replace the folders of the working tree by those of a copy. A virtual environment in the tree stays."""
    replaced = {"", *project.search_path(project.root)}
    return [*project.search_path(tree), *(entry for entry in entries if entry not in replaced)]


def function_of(test: str) -> str:
    return test.partition("[")[0]


def clean_environment(path: list[str]) -> dict[str, str]:
    """Return the environment without settings of an outer pytest or coverage, with an import path."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))
    }
    return kept | {"PYTHONPATH": os.pathsep.join(path)}


def split(tests: list[str], durations: dict[str, float], limit: float) -> tuple[list[str], list[str], bool]:
    """Divide tests into a short first run and a second one within the limit, and tell whether all fit."""
    first: list[str] = []
    rest: list[str] = []
    spent, files = 0.0, set[str]()
    for test in tests:
        file = test.partition("::")[0]
        spent += durations[test] + FILE_SECONDS * (file not in files)
        files.add(file)
        if spent > limit and first:
            return first, rest, False
        (first if spent <= FIRST_SECONDS or not first else rest).append(test)
    return first, rest, True


@contextlib.contextmanager
def edited(path: Path, source: bytes) -> Iterator[None]:
    """Replace a file for a while, with a time that no compiled module has noted."""
    before, times = path.read_bytes(), path.stat()
    path.write_bytes(source)
    stamp = random.randrange(1, 2**31)
    os.utime(path, (stamp, stamp))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def stop(child: int, *, is_over: bool) -> None:
    """Let a child clean up, then kill what is left of its process group, and stop the servers it has left."""
    for number in (0, signal.SIGINT) if is_over else (signal.SIGINT,):
        os.kill(child, number)
        end = time.monotonic() + GRACE_SECONDS
        while (
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            and time.monotonic() < end
        ):
            time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for number in (signal.SIGINT, signal.SIGKILL):  # PostgreSQL and Redis end at SIGINT
        end = time.monotonic() + GRACE_SECONDS
        for orphan in child_processes():
            os.kill(orphan, number)
        while child_processes() and time.monotonic() < end:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.01)


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends, such as servers that detach from a test (Linux only)."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def child_processes() -> list[int]:
    """List the child processes of this process."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return [process for process, parent in parents.items() if parent == os.getpid()]


def preload(libraries: Iterable[str]) -> None:
    """Import third-party modules once: the children that run the tests are forked from this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in libraries:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


_job: Job


def start_job(
    project: Project, durations: dict[str, float], scratch: Path, options: argparse.Namespace
) -> None:
    """Prepare a worker process: take the next free copy of the tree."""
    global _job  # noqa: PLW0603 - the state of a worker process
    for number in range(options.jobs):
        with contextlib.suppress(FileExistsError):
            (scratch / f"job-{number}").mkdir()
            break
    adopt_orphans()
    tree = project.work / f"job-{number}"
    project.copy(tree)
    _job = Job(project, durations, tree, scratch / f"job-{number}" / "t", options.limit, options.patience)


def examine(mutation: Mutation, tests: list[str], stop: float) -> Result:
    return _job.examine(mutation, tests, stop)


def examine_all(
    project: Project, known: LineMap, mutations: list[Mutation], options: argparse.Namespace
) -> Iterator[Result]:
    """Examine the mutations in parallel."""
    sources = project.sources()
    plans = [known.plan(mutation, sources) for mutation in mutations]
    preload(known.libraries)
    end = time.monotonic() + options.minutes * 60
    memory = Path("/dev/shm")  # noqa: S108 - Linux's
    with tempfile.TemporaryDirectory(
        prefix="mutants-", dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
    ) as scratch:
        settings = (project, known.seconds, Path(scratch), options)
        with ProcessPoolExecutor(options.jobs, get_context("fork"), start_job, settings) as pool:
            pairs = zip(mutations, plans, strict=True)
            for done in as_completed([pool.submit(examine, mutation, plan, end) for mutation, plan in pairs]):
                yield done.result()


def read_equivalent(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Read lines of the form ``path :: function :: operator :: line :: reason``."""
    found: dict[tuple[str, str, str, str], str] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            file, function, operator, rest = line.split(" :: ", 3)
            new, _, reason = rest.rpartition(" :: ")
            found[file, function, operator, new] = reason
    return found


def show(results: list[Result], packages: tuple[str, ...]) -> float:
    """Print the table and the survivors; return the percentage caught."""
    judged = [result for result in results if result.status != "not run" and not result.equivalent]
    rows: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for result in judged:
        rows[folder_of(result.mutation.path, packages)][result.is_caught] += 1
    caught = sum(result.is_caught for result in judged)
    rows["total"] = Counter({True: caught, False: len(judged) - caught})
    print(f"\n{'folder':<45}{'mutants':>9}{'caught':>9}{'survived':>9}{'percent':>9}")
    for name, row in sorted(rows.items(), key=lambda item: (item[0] == "total", item[0])):
        percent = 100 * row[True] / max(1, row.total())
        print(f"{name:<45}{row.total():>9}{row[True]:>9}{row[False]:>9}{percent:>9.1f}")
    survivors = [result for result in judged if not result.is_caught]
    equivalent = [result for result in results if result.equivalent]
    for title, chosen in {"Survivors": survivors, "Equivalent": equivalent}.items():
        print(f"\n{title}: {len(chosen)}")
        for result in chosen:
            print(describe(result.mutation))
            print(
                f"  {result.equivalent or result.status}; {result.tests_run} of {result.tests_covering} tests ran"
            )
    print(f"\nNot run within the time: {sum(result.status == 'not run' for result in results)}")
    return percent


def describe(item: Mutation) -> str:
    return f"{item.path}:{item.line} in {item.function}, {item.operator}\n  - {item.old}\n  + {item.new}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.mutants", description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=300, help="number of mutations")
    add("--seed", type=int, default=2026, help="seed of the choice")
    add("--minutes", type=float, default=60, help="start no mutation after this time")
    add(
        "--limit",
        type=float,
        default=180,
        help="seconds for the tests of one mutation, as measured for the map",
    )
    add(
        "--patience",
        type=float,
        default=20,
        help="a test hangs after this many seconds and 10 usual durations",
    )
    add("--jobs", type=int, default=2, help="number of parallel processes")
    add("--only", nargs="+", default=[], metavar="PATH", help="mutate these files or folders")
    add("--tests", nargs="+", default=[], metavar="PATH", help="use only these tests")
    add("--minimum", type=float, default=85, help="percentage that must be caught")
    add("--equivalent", type=Path, default=Path(__file__).with_name("equivalent_mutants.txt"), metavar="FILE")
    add("--json", type=Path, metavar="FILE", help="write the results to a file")
    add("--list", action="store_true", help="show the mutations and stop")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; return the exit code."""
    options = parse(arguments)
    start = time.monotonic()
    project = Project.at(Path.cwd())
    chance = random.Random(options.seed)
    mutations = choose(project.sources(), project.packages, options.count, chance, options.only)
    if options.list:
        print(*map(describe, mutations), sep="\n")
        return 0
    equivalent = read_equivalent(options.equivalent)
    known = LineMap(project, options.tests, options.jobs)
    print(
        f"{len(mutations)} mutations, {len(known.seconds)} tests, mapped in {time.monotonic() - start:.0f} s"
    )
    results: list[Result] = []
    for result in examine_all(project, known, mutations, options):
        if not result.is_caught:
            result.equivalent = equivalent.get(result.mutation.key, "")
        results.append(result)
        where = f"{result.mutation.path}:{result.mutation.line}"
        progress = f"[{len(results)}/{len(mutations)}] {result.status}, {result.seconds:.1f} s, {where}"
        print(progress, result.caught_by, flush=True)
    results.sort(key=lambda result: (result.mutation.path, result.mutation.line))
    percent = show(results, project.packages)
    print(f"{percent:.1f} percent caught in {time.monotonic() - start:.0f} s")
    if options.json:
        options.json.write_text(
            json.dumps({"percent": percent, "mutants": [*map(asdict, results)]}, indent=1)
        )
    return 0 if percent >= options.minimum else 1


if __name__ == "__main__":
    sys.exit(main())
