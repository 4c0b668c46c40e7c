"""A pytest plugin that records which test executes which lines, and how long each test takes.

It is loaded with ``-p tests.tools.contexts`` while ``coverage run`` measures. It writes one JSON file per process
into the folder named by the environment variable ``MUTANTS_MAP``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

NODE_ID = pytest.StashKey[str]()
LONGEST = 400  # characters of an id: a few parameters are megabytes of text, too long for the environment


def short_id(nodeid: str) -> str:
    """Return the id of a test, with a digest in place of the end if it is long."""
    if len(nodeid) <= LONGEST:
        return nodeid
    return nodeid[: LONGEST - 20] + hashlib.sha256(nodeid.encode(errors="replace")).hexdigest()[:20]


class Contexts:
    """Name the coverage context after the running test, here and in its child processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.caches: list[functools._lru_cache_wrapper[object]] = []
        self.known_modules = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember the plain ids: pytest-xdist adds the name of the group."""
        for item in items:
            item.stash[NODE_ID] = short_id(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Name the context after a test file while it is collected: the parameters of its tests are computed then."""
        measured, file = coverage.Coverage.current(), collector.nodeid.partition("::")[0]
        if measured and file.endswith(".py"):
            measured.switch_context(file)
        report = yield
        if measured:
            measured.switch_context("")
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Switch the context for one test."""
        name = item.stash[NODE_ID]
        if measured := coverage.Coverage.current():
            self._clear_caches(measured.config.source_pkgs)
            measured.switch_context(name)
            measured.config.context = name
            os.environ["COVERAGE_PROCESS_CONFIG"] = measured.config.serialize()
        start = time.monotonic()
        result = yield
        self.seconds[name] = time.monotonic() - start
        return result

    def _clear_caches(self, packages: list[str]) -> None:
        """Empty the caches of functions: otherwise only the first caller would execute their lines."""
        if self.known_modules != (count := len(sys.modules)):
            names = [name for name in sys.modules if name.partition(".")[0] in packages]
            values = [value for name in names for value in vars(sys.modules[name]).values()]
            self.known_modules = count
            self.caches = [value for value in values if isinstance(value, functools._lru_cache_wrapper)]
        for cache in self.caches:
            cache.cache_clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note tests that do not pass: they cannot catch anything."""
        report = yield
        if not report.passed:
            self.failed.add(item.stash[NODE_ID])
        return report

    def pytest_sessionfinish(self) -> None:
        """Write the durations, and the third-party modules to import before forking."""
        libraries = [
            name
            for name, module in list(sys.modules.items())
            if "site-packages" in (getattr(module, "__file__", None) or "") and "__main__" not in name
        ]
        passed = {name: spent for name, spent in self.seconds.items() if name not in self.failed}
        if passed:
            report = {"seconds": passed, "failed": sorted(self.failed), "libraries": libraries}
            (self.folder / f"tests-{os.getpid()}.json").write_text(json.dumps(report))


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    if folder := os.environ.get("MUTANTS_MAP"):
        config.pluginmanager.register(Contexts(Path(folder)))
