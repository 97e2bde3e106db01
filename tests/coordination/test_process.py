"""A process that is known to have ended need not be waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.coordination import process
from tailrace.coordination.lease import TTL_SECONDS, Lease, shown
from tailrace.errors import Lost
from tailrace.pipeline.operate import ledger

pytestmark = pytest.mark.skipif(not process.life(), reason="this system does not tell when a process began")
HOLDER = """
import sys, time, tailrace
from tailrace.coordination.lease import Lease
with tailrace.open(sys.argv[1]) as home:
    assert Lease(home.store, "it").acquire()
    print("held", flush=True)
    time.sleep(600)
"""


def test_what_a_process_shows_of_itself() -> None:
    mine = shown(time.time(), TTL_SECONDS)
    assert process.is_alive(mine)
    assert not process.has_ended(mine)
    elsewhere = {**mine, "life": f"another-{mine['life']}"}
    assert not process.is_alive(elsewhere), "of another machine or container nothing is known"
    assert not process.has_ended(elsewhere)
    before = {name: value for name, value in mine.items() if name != "life"}
    assert not process.is_alive(before), "nor of an older version"
    assert not process.has_ended(before)


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container that runs under any number."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert process.user() == f"uid-{os.getuid()}"
    with tailrace.open(tmp_path) as home:
        ledger.note(home, "shop", "mark", "known")
        assert ledger.notes(home, "shop")[0]["who"].startswith(f"uid-{os.getuid()}@")
        topic = home.topic("orders", partitions=1)
        topic.append([(b"k", b"v")])
        assert topic.quarantine([Lost(0, 0, 1)], "lost") >= 0


def test_a_pid_that_another_process_has_by_now() -> None:
    mine = shown(time.time(), TTL_SECONDS)
    earlier = {**mine, "life": mine["life"].rpartition("/")[0] + "/1"}
    assert process.has_ended(earlier)
    assert not process.is_alive(earlier)


def test_a_process_that_is_hidden_is_not_taken_for_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc mounted with hidepid hides those of other users."""
    mine = shown(time.time(), TTL_SECONDS)
    monkeypatch.setattr(process, "_started", lambda pid: None)
    assert not process.has_ended(mine)
    assert not process.is_alive(mine), "nothing is known"
    assert process.has_ended({**mine, "pid": 2**22 + 1})


def test_one_that_nobody_has_buried_yet_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    theirs = {"pid": child.pid, "life": process.life(child.pid)}
    assert process.is_alive(theirs)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.has_ended(theirs)
    child.wait()
    assert process.has_ended(theirs)


def test_a_lease_of_a_process_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    with tailrace.open(tmp_path) as home, Lease(home.store, "it", ttl=600) as lease:
        assert not lease.acquire()
        assert lease.holder()["pid"] == child.pid
        child.kill()
        child.wait()
        assert lease.acquire(), "without a wait"
    child.stdout.close()
