"""SIGSTOP of a producer between the put of a chunk and its commit, for longer than whole upkeeps, then SIGCONT."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.coordination.rules import without
from tailrace.log import head as heads
from tailrace.log.topic import Topic
from tests.servers.aws import new_bucket, new_table

WORKER = """
import os, signal, sys
import tailrace
from tailrace.coordination.rules import without

home = tailrace.open(sys.argv[1])
topic = home.topic("t")
topic.append([(b"first", b"a" * 100)])
put = home.store.objects.put

def put_and_stop(name, parts):
    put(name, parts)
    home.store.objects.put = put
    print(name, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

home.store.objects.put = put_and_stop
with without(*sys.argv[2:]):
    try:
        (span,) = topic.append([(b"stalled", b"x" * 200_000)])
        print("at", span.partition, span.offset, flush=True)
    except tailrace.errors.TailraceError as error:
        print("error", type(error).__name__, flush=True)
"""


@pytest.fixture(params=["disk", pytest.param("cloud", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a home can be: a folder, or S3 and DynamoDB as servers have them."""
    if request.param == "disk":
        return str(tmp_path)
    s3, dynamodb = request.getfixturevalue("seaweedfs"), request.getfixturevalue("dynoxide")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    query = f"table={new_table(dynamodb)}&region=us-east-1&endpoint={s3.url}&table_endpoint={dynamodb.url}"
    return f"s3://{new_bucket(s3)}/home?{query}"


def stalled(url: str, *mutants: str) -> tuple[subprocess.Popen[str], str]:
    """A producer that has put its chunk and stands still; and the chunk's name."""
    command = [sys.executable, "-c", WORKER, url, *mutants]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process, name


def finished(process: subprocess.Popen[str]) -> str:
    """What it says once it goes on."""
    os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.strip()


def others(topic: Topic, count: int) -> None:
    for n in range(count):
        topic.append([(b"%d" % n, b"v" * 500)])


def is_there(home: tailrace.Home, name: str) -> bool:
    """Whether an object has not been cleaned."""
    return name in {found.name for found in home.store.objects.list("topics/")}


def honest(home: tailrace.Home, said: str) -> None:
    """It has committed records that can be read, or was given an error."""
    found = [(r.partition, r.offset) for r in home.topic("t").records() if r.key == b"stalled"]
    if said.startswith("at "):
        _, partition, offset = said.split()
        assert found == [(int(partition), int(offset))]
        (record,) = [r for r in home.topic("t").records() if r.key == b"stalled"]
        assert record.value == b"x" * 200_000
    else:
        assert said.startswith("error ")
        assert found == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("upkeeps", [1, 2, 3])
def test_a_producer_stopped_for_longer_than_a_whole_upkeep(
    url: str, monkeypatch: pytest.MonkeyPatch, upkeeps: int
) -> None:
    monkeypatch.setattr(heads, "FULL", 300)
    with tailrace.open(url) as home:
        topic = home.topic("t", partitions=3, compact=True, retention_bytes=10_000)
        process, name = stalled(url)
        for _ in range(upkeeps):
            others(topic, 40)
            home.upkeep()
        assert is_there(home, name) == (upkeeps == 1), "the fence lets one cleaning pass"
        honest(home, finished(process))
        assert not home.scrub().damages


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_without_the_fence_it_would_be_given_an_offset_that_cannot_be_read(url: str) -> None:
    with tailrace.open(url) as home:
        home.topic("t", partitions=3)
        process, name = stalled(url, "append.gc")
        assert is_there(home, name)
        for _ in range(2):
            home.upkeep()
        assert finished(process).startswith("at ")
        with pytest.raises(tailrace.errors.Damaged):
            list(home.topic("t").records())
        with without("append.gc"):
            assert home.scrub().damages
