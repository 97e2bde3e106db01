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
from tailrace.errors import Unavailable
from tailrace.log.format import head as heads
from tailrace.log.topic import Topic
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Key, Put
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


IN_COMMIT = """
import os, signal, sys
from pathlib import Path
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Key, Put
from tests.faults.vfs import WatchedVFS

def told(what, path, details):
    if what == "sync" and path.name.endswith("-wal") and stopping:
        stopping.clear()
        os.kill(os.getpid(), signal.SIGSTOP)

stopping = set()
vfs = WatchedVFS(told)
table = SqliteTable(SqliteDatabase(sys.argv[1], vfs=vfs.name))
stopping.add(True)
print("begins", flush=True)
table.write(Put(Key("stopped"), {"n": 1}, (Absent(),)))
table.close()
"""

AFTER_PUT = """
import os, signal, sys, time
import tailrace

home = tailrace.open(sys.argv[1])
committing = home.store.table.database._committer._transaction
put, left = home.store.objects.put, int(sys.argv[2])

def put_and_stop(name, parts):
    global left
    put(name, parts)
    left -= 1
    if not left:
        with committing:  # the chunk before is not being committed, nor will it be
            print("put", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)  # until all threads have stopped, this one may run on
            while not os.path.exists(sys.argv[3]):
                time.sleep(0.01)

home.store.objects.put = put_and_stop
with home.topic("t").producer() as out:
    for n in range(10):
        out.send(None, bytes(5_000_000))
"""


def stopped(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has stopped itself."""
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    until_stopped(process)
    return process


def until_stopped(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while any(
        (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
        for task in Path(f"/proc/{process.pid}/task").iterdir()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")
def test_a_process_stopped_inside_a_commit_is_named_to_those_who_wait(tmp_path: Path) -> None:
    """SQLite holds its lock from the beginning of a commit to the end of its fsync; nobody can take it away."""
    path = tmp_path / "tailrace.db"
    SqliteTable(SqliteDatabase(path)).close()
    process = stopped(IN_COMMIT, str(path))
    table = SqliteTable(SqliteDatabase(path, patience=0.2))
    says = (
        rf"locked for 0.2 s, by process {process.pid} .* stopped in the middle of a commit; `kill -CONT {process.pid}`"
    )
    with pytest.raises(Unavailable, match=says):
        table.write(Put(Key("other"), {"n": 1}, (Absent(),)))
    assert table.get(Key("stopped")) is None, "what is there can be read"
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    table.write(Put(Key("other"), {"n": 1}, (Absent(),)))
    assert table.get(Key("stopped")) is not None
    table.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("puts", [1, 2, 4])
def test_a_producer_stopped_outside_a_commit_keeps_nobody_from_writing(tmp_path: Path, puts: int) -> None:
    """While one chunk is put the one before is committed: only that commit holds the lock."""
    with tailrace.open(tmp_path) as home:
        home.topic("t", 2)
    go_on = tmp_path / "go on"
    process = stopped(AFTER_PUT, str(tmp_path), str(puts), str(go_on))
    table = SqliteTable(SqliteDatabase(tmp_path / "tailrace.db", patience=0.5))
    table.write(Put(Key("other"), {"n": 1}, (Absent(),)))
    table.close()
    go_on.touch()
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=120)
    with tailrace.open(tmp_path) as home:
        assert sum(batch.num_rows for batch in home.topic("t").read()) == 10


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
    until_stopped(process)
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
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 300)
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
