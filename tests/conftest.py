"""One thread, and properties whose examples are the same in every run unless exploration is asked for."""

from __future__ import annotations

import gc
import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from tests.forks import Fork
from tests.needs import absent, expected

gc.set_threshold(50_000, 20, 50)  # as in a command: a search through all that torch and MLflow import takes a second

SAMPLED = 7  # no multiple of the lengths of usual parameters: the cases differ in all of them
"""One in SAMPLED cases of a test that is `sampled` is quick; the first always is."""

collect_ignore = ["users_script.py"]  # a script for the type checkers, without a test

# What the shell sets for `streamgp`, MLflow and the terminal must not reach the tests.
TERMINAL = {"COLUMNS", "LINES", "FORCE_COLOR", "PY_COLORS", "NO_COLOR"}
KEPT = {"STREAMGP_TEST_DATA", "MLFLOW_DISABLE_TELEMETRY"}
for name in set(os.environ) - KEPT:
    if name.startswith(("STREAMGP_", "MLFLOW_")) or name in TERMINAL:
        del os.environ[name]

# One thread in the pools of polars and of deltalake too: the rows are few, and to wake another thread for them takes
# longer than the work. Before either is imported. When exploring, they are as many as users have.
if os.environ.get("HYPOTHESIS_PROFILE") != "explore":
    for pool in ("POLARS_MAX_THREADS", "TOKIO_WORKER_THREADS"):
        os.environ.setdefault(pool, "1")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a background job, whose children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `fixed`: the examples follow from the test's source alone, so a run passes or fails for everybody alike.
# `explore`: new examples in every run; HYPOTHESIS_PROFILE=explore chooses it.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", derandomize=False, database=None, deadline=None, print_blob=True, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def _exploring(config: pytest.Config) -> bool:
    return not settings.get_profile(
        config.getoption("--hypothesis-profile") or settings.get_current_profile_name()
    ).derandomize


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed, or take HYPOTHESIS_SEED, before the workers start: they are given the options, and share it."""
    if _exploring(config) and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = os.environ.get("HYPOTHESIS_SEED") or str(secrets.randbelow(2**32))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests in the files that have one: in all it takes a second."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule) or b">>> " in file_path.read_bytes()]


@pytest.hookimpl(tryfirst=True)  # before -m is asked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need what is not here; leave most cases of those that are sampled to the slow tests."""
    cases = Counter[str]()
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            name = item.nodeid.partition("[")[0]
            if cases[name] % SAMPLED:
                item.add_marker("slow")
            cases[name] += 1
        for name in (name for mark in item.iter_markers("needs") for name in mark.args):
            if reason := absent(name):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without a search for garbage: what is imported and collected stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and tests stay until the end: nothing of them is garbage."""
    gc.freeze()


def _repeat(config: pytest.Config) -> str:
    seed = config.getoption("--hypothesis-seed")
    return f"random properties: repeat with HYPOTHESIS_PROFILE=explore and --hypothesis-seed={seed}"


def pytest_report_header(config: pytest.Config) -> str | None:
    return _repeat(config) if _exploring(config) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _exploring(config):
        terminalreporter.write_line(_repeat(config))  # again, for `-q` prints no header
    for reason, count in sorted(Counter(reason for _, reason in _skipped(terminalreporter)).items()):
        terminalreporter.write_line(f"{count} skipped: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a test that is skipped fails the run: what it needs is to be there (but see `expected`)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None:
        unexpected = sorted(f"{place}: {reason}" for place, reason in _skipped(reporter) if not expected(reason))
        if unexpected:
            reporter.write_line("\n".join(["", "skipped in CI, where nothing may be missing:", *unexpected]), red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _skipped(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    """(test, reason) of each test that was skipped."""
    found = [(report.nodeid, report.longrepr) for report in reporter.stats.get("skipped", [])]
    return [(test, longrepr[2].removeprefix("Skipped: ")) for test, longrepr in found if isinstance(longrepr, tuple)]


DISK = {"data", "faults"}
"""Folders of tests that look at what is on the disk."""


@pytest.fixture(autouse=True)
def no_waiting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Not for the disk: a process that dies loses nothing that it has written; only a machine would, and none dies."""
    whole = os.fsync
    if request.path.relative_to(Path(__file__).parent).parts[0] not in DISK:
        os.fsync = lambda _: None
    yield
    os.fsync = whole


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what files hold: recordings are read in a fork, workbooks in this process, not in a new one."""
    from streamgp_data.reading.workbook import sheets_of

    monkeypatch.setattr("streamgp_data.recordings.apart.started", Fork)
    monkeypatch.setattr("streamgp_data.sources.excel.read_sheets", sheets_of)


@pytest.fixture(autouse=True)
def same_everywhere() -> Iterator[None]:
    """One thread, for the matrices are small; and the global generators as fresh, whatever ran before."""
    import numpy as np  # not above: the process that hands tests to the workers runs none
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed looks for every kind of device, which takes long
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
