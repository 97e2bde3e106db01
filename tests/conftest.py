"""Fixtures for the real servers: one of each for a test run, and a loud word about those that could not be had."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.servers.dynoxide import dynoxide as start_dynoxide
from tests.servers.moto import moto as start_moto
from tests.servers.process import Missing, Server
from tests.servers.rclone import rclone as start_rclone
from tests.servers.seaweedfs import seaweedfs as start_seaweedfs

NONE = "no server to be had:"
os.environ.setdefault("TAILRACE_SPARK_ARCHIVE", "off")  # runs of tests leave nothing behind in this user's cache

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
    items.sort(key=lambda item: "tests/spark/" not in item.nodeid)
