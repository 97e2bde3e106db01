"""A process made by fork: what its parent had open is refused there, with what to do, and nothing hangs or is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import asyncio, os, signal, sys
import tailrace
from tailrace.coordination.lease import Lease
from tailrace.errors import HomeError, TailraceError

home = tailrace.open(sys.argv[1])
topic = home.topic("t", 1)

def refused(call):
    try:
        call()
    except HomeError as error:
        assert "spawn" in str(error), error
    else:
        raise AssertionError("not refused")

def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # whoever hangs is killed
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {status}"

def values():
    return [record.value for record in topic.records()]
"""

PRODUCER = """
out = topic.producer()
out.send(None, b"before").result()
pending = out.send(None, b"pending")
out._work.acquire()  # as if another thread were in the middle of something

def child():
    refused(lambda: out.send(None, b"of the child"))
    refused(lambda: out.send_batch([(None, b"of the child")]))
    if not pending.done():
        refused(pending.result)

try:
    in_child(child)
finally:
    out._work.release()
out.send(None, b"after").result()
out.close()
assert values() == [b"before", b"pending", b"after"], values()
"""

UNSETTLED = """
out = topic.producer(linger=60)
acks = [out.send(None, b"%d" % n) for n in range(3)]

def said():
    for ack in acks:
        refused(ack.result)
    out.close()  # each acknowledgement has raised

in_child(lambda: refused(out.flush))
in_child(lambda: refused(out.close))
in_child(said)
out.close()
assert values() == [b"0", b"1", b"2"], values()
"""

MULTIPROCESSING = """
import multiprocessing
out = topic.producer()

def work(n):
    signal.alarm(30)
    out.send(None, b"%d" % n)
    out.close()

fork = multiprocessing.get_context("fork")
children = [fork.Process(target=work, args=(n,)) for n in range(3)]
for child in children:
    child.start()
for child in children:
    child.join()
assert [child.exitcode for child in children] == [1, 1, 1], "each says that its record is not stored"
out.close()
assert values() == []
"""

CONSUMER = """
topic.append([(None, b"%d" % n) for n in range(10)])
consumer = topic.consumer("g", ttl=2.0)
records = iter(consumer)
assert next(records).value == b"0"

def child():
    refused(lambda: next(records))
    refused(lambda: next(iter(consumer)))
    refused(consumer.commit)
    refused(consumer.lag)
    refused(lambda: consumer.partitions)
    refused(lambda: consumer.run(print))
    consumer.close()  # leaves the parent its partitions
    refused(lambda: topic.consumer("other"))

consumer._inbox._lock.acquire()
try:
    in_child(child)
finally:
    consumer._inbox._lock.release()
assert [next(records).value for _ in range(9)] == [b"%d" % n for n in range(1, 10)]
consumer.commit()
assert consumer.partitions == [0]
records.close()
"""

LEASE = """
lease = Lease(home.store, "one", ttl=5.0)
assert lease.acquire()

def child():
    assert not lease.held
    refused(lambda: lease.epoch)
    refused(lease.check)
    refused(lease.acquire)
    lease.release()  # leaves it to the parent
    refused(lambda: Lease(home.store, "two").acquire())

in_child(child)
assert lease.held
assert not Lease(home.store, "one").acquire()
lease.release()
assert Lease(home.store, "one").acquire()
"""

HOME = """
topic.append([(None, b"0")])
upkeep = home.start_upkeep()

def child():
    refused(home.topics)
    refused(lambda: home.topic("new", 1))
    refused(values)
    refused(lambda: topic.append([(None, b"of the child")]))
    refused(lambda: topic.named_producer("named"))
    refused(home.upkeep)
    if not sys.argv[1].startswith("memory://"):
        refused(lambda: tailrace.open(sys.argv[1]))
    with tailrace.open("memory://") as another:
        another.topic("t", 1).append([(None, b"x")])
    home.close()

in_child(child)
topic.append([(None, b"1")])
assert values() == [b"0", b"1"]
upkeep.stop()
"""

ASYNC = """
async def parent():
    async with topic.aio.producer() as out:
        await out.send(None, b"0")
        await out.flush()
        async with topic.aio.consumer("g", ttl=2.0) as consumer:
            given = aiter(consumer)
            assert (await anext(given)).value == b"0"
            ack = await out.send(None, b"1")
            in_child(lambda: child(out, consumer, ack))
            assert (await anext(given)).value == b"1"
            await consumer.commit()

def child(out, consumer, ack):
    asyncio._set_running_loop(None)

    async def tried():
        for call in (lambda: out.send(None, b"of the child"), out.flush, consumer.commit, consumer.lag):
            try:
                await call()
            except HomeError as error:
                assert "spawn" in str(error)
            else:
                raise AssertionError("not refused")
        await consumer.close()

    asyncio.new_event_loop().run_until_complete(tried())

asyncio.run(parent())
assert values() == [b"0", b"1"], values()
"""

SCENARIOS = {
    "producer": PRODUCER,
    "unsettled": UNSETTLED,
    "multiprocessing": MULTIPROCESSING,
    "consumer": CONSUMER,
    "lease": LEASE,
    "home": HOME,
    "async": ASYNC,
}


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("what", SCENARIOS)
def test_what_was_open_before_a_fork_is_refused_in_the_child(what: str, kind: str, tmp_path: Path) -> None:
    url = str(tmp_path / "home") if kind == "file" else "memory://forked"
    script = CHILD + SCENARIOS[what] + "\nhome.close()\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, url], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


BUCKETS = """
import os, signal
from tailrace.errors import HomeError
from tailrace.storage.aws.buckets import open_bucket

bucket = open_bucket("memory://")
bucket.put("a", [b"x"])
child = os.fork()
if child == 0:
    signal.alarm(30)
    try:
        open_bucket("memory://").put("b", [b"x"])
    except HomeError:
        os._exit(0)
    os._exit(3)
status = os.waitpid(child, 0)[1]
assert status == 0, f"the child ended with {status}"
"""


def test_a_child_opens_no_bucket_where_its_parent_had_one_open() -> None:
    """The library's threads are not there, and its calls would wait for them for ever."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", BUCKETS], check=True, timeout=120)
