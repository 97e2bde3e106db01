"""Fixtures for the real servers: one of each for a test run, and a loud word about those that could not be had."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.servers.dynoxide import dynoxide as start_dynoxide
from tests.servers.moto import moto as start_moto
from tests.servers.prepare import SHORT_LIVED, java_options
from tests.servers.process import Missing, Server
from tests.servers.rclone import rclone as start_rclone
from tests.servers.seaweedfs import seaweedfs as start_seaweedfs

NONE = "no server to be had:"
os.environ.setdefault("TAILRACE_SPARK_ARCHIVE", "off")  # runs of tests leave nothing behind in this user's cache
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)

hypothesis.settings.register_profile("tailrace", deadline=None)  # a busy machine makes an example late, not wrong
hypothesis.settings.load_profile("tailrace")

PROCESSES = (
    "tests/faults/test_kill.py", "tests/faults/test_stopped.py", "tests/faults/test_upkeep_killed.py",
    "tests/log/groups/test_consumer_processes.py", "tests/cli/test_terminal.py", "tests/cli/pipeline/test_run.py",
    "tests/pipeline/test_faults.py", "tests/pipeline/runtime/test_daemon.py", "tests/pipeline/test_demo.py",
    "tests/queue/test_bank.py", "tests/queue/test_trouble.py", "tests/adaptors/mysql/test_killed_runs.py",
    "tests/adaptors/mongodb/test_killed_runs.py", "tests/adaptors/dynamodb/test_killed_runs.py",
    "tests/adaptors/delta/test_pipeline.py", "tests/adaptors/delta/test_crashes.py",
    "tests/adaptors/http/test_pipelines.py", "tests/adaptors/opensearch/test_pipelines.py",
    "tests/queue/test_edges.py", "tests/spark/test_cluster.py", "tests/torture/",
    "tests/spark/source/test_change_stream.py", "tests/spark/source/test_feed.py", "tests/spark/test_growing.py",
    "tests/spark/test_local.py", "tests/spark/source/test_batch.py", "tests/console/test_kill.py",
    "tests/console/test_serve.py", "tests/console/web/test_browser.py",
)  # fmt: skip
"""Tests of real processes, which are killed, stopped, or wait for each other: a busy machine can make them late.

A streaming query is among them: Spark gives the Python of its source ten seconds to start, which cannot be changed."""

LONGEST = (
    "tests/spark/", "tests/cli/test_spark.py", "tests/pipeline/test_faults.py", "tests/cli/pipeline/test_run.py",
    "tests/torture/", "tests/pipeline/test_demo.py", "tests/deploy/", "tests/pipeline/test_interrupted_runs.py",
    "tests/pipeline/deliver/test_outlet.py", "tests/pipeline/test_again.py", "tests/docs/test_examples.py",
    "tests/log/test_schedules.py", "tests/console/web/", "tests/adaptors/mysql/", "tests/adaptors/mongodb/",
    "tests/adaptors/kafka/", "tests/adaptors/rabbitmq/", "tests/adaptors/dynamodb/",
)  # fmt: skip
"""Files that take longest, in the order in which they begin.  Those of Spark are first also because their session, in
which a task may fail, has to be there before the one of the pipelines' tests, which then is the same."""

SECONDS_OF_TEARDOWN = 60
"""How long the end of a fixture may take after its test has failed."""
_failed: dict[str, bool] = {}
"""Each test that failed here, and whether it is one of real processes."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, a shell has Ctrl-C ignored, also by all programs that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def started(name: str, start: Callable[[], contextlib.AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server for the length of a block; its tests are skipped where it cannot be had."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(start())
        except Missing as missing:
            pytest.skip(f"{NONE} {name}: {missing}")
        yield server


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[Server]:
    """DynamoDB by dynoxide."""
    with started("dynoxide", start_dynoxide) as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[Server]:
    """DynamoDB and S3 by moto."""
    with started("moto", start_moto) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Server]:
    """S3 by SeaweedFS."""
    with started("seaweedfs", start_seaweedfs) as server:
        yield server


@pytest.fixture(scope="session")
def rclone() -> Iterator[Server]:
    """S3 by rclone, which ignores conditions."""
    with started("rclone", start_rclone) as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which servers were missing, and so what was not tested."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    missing = {reason.partition(NONE)[2].strip() for reason in reasons if NONE in reason}
    if missing:
        terminalreporter.section("SERVERS THAT WERE MISSING: their tests did not run", sep="!", red=True, bold=True)
        for server in sorted(missing):
            terminalreporter.write_line(server, red=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that of two processes none is left alone with it at the end."""
    for item in items:
        if item.nodeid.startswith(PROCESSES):
            item.add_marker("processes")
    items.sort(key=lambda item: next((n for n, name in enumerate(LONGEST) if item.nodeid.startswith(name)), 99))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Limit the teardown of a test that has failed: pytest-timeout takes its limit back at a failure."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        return (yield)
    before = signal.signal(signal.SIGALRM, _end_teardown)
    signal.alarm(SECONDS_OF_TEARDOWN)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _end_teardown(*_: object) -> None:
    signal.alarm(SECONDS_OF_TEARDOWN)  # for the next of the test's fixtures
    pytest.fail(f"a fixture's end took more than {SECONDS_OF_TEARDOWN} s")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what failed, for tools/run_tests.py."""
    if report.failed:
        _failed[report.nodeid] = "processes" in report.keywords


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell tools/run_tests.py what failed; its own processes do, not those that pytest-xdist starts."""
    if (told := os.environ.get("TAILRACE_FAILED_TESTS")) and not hasattr(session.config, "workerinput"):
        Path(told).write_text(json.dumps(_failed))
