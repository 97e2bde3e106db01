"""A process that calls a topic at random and notes each call, for the check of linearizability.

    python -m tests.faults.historian HOME|SERVER SEED CALLS NOTES [BUG]

HOME is a folder, SERVER the JSON of a DynamoDB server and a table.  It begins when a line comes in.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import tailrace
from tailrace.errors import Expected, OutcomeUnknown
from tailrace.home import Home
from tailrace.log import transaction
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head
from tailrace.log.topic import Topic
from tailrace.log.topic_log import TopicLog
from tailrace.log.write import append
from tailrace.log.write.append import Appended
from tailrace.log.write.placement import Placed
from tailrace.storage.calls import Steps, Store
from tailrace.testing import SimulatedObjects
from tests.servers.aws import table
from tests.servers.process import Server


@contextmanager
def home_of(where: str) -> Iterator[Home]:
    """A folder's home; or one on a server, whose chunks are small enough to be items."""
    if not where.startswith("{"):
        with tailrace.open(where) as home:
            yield home
        return
    given = json.loads(where)
    with table(Server(**given["server"]), given["table"]) as on_server:
        yield Home("s3://simulated", Store(on_server, SimulatedObjects()))


def one_call(topic: Topic, rng: random.Random, value: str) -> tuple[str, tuple[Any, ...], Any]:
    """A call, what it was given, and what it answered."""
    op = rng.choice(("append", "append", "append", "tail", "read"))
    if op == "tail":
        return op, (), topic.ends()[0][1]
    if op == "read":
        return op, (), [record.value.decode() for record in topic.records(0) if record.value is not None]
    expected = None if rng.random() < 0.2 else topic.log.newest.next[0] + rng.choice((0, 0, 0, 1))
    given = (expected, value)
    try:
        (span,) = topic.append([(None, value.encode())], expected=None if expected is None else {0: expected})
    except Expected as error:
        return op, given, ["refused", (error.actual or {})[0]]
    except OutcomeUnknown:
        return op, given, None
    return op, given, ["at", span.offset]


# -- bugs
@contextmanager
def unconditional() -> Iterator[None]:
    """A conditional append forgets its condition."""
    right = heads.append
    with patch.object(heads, "append", lambda id, page, entries, expected=None: right(id, page, entries)):
        yield


@contextmanager
def early() -> Iterator[None]:
    """An append is acknowledged before it is committed."""
    right = append.commit

    def commit(placed: Sequence[Placed]) -> Steps[list[Appended]]:
        head = yield from placed[0].log.head()
        if placed[0].expected and placed[0].expected[0] != head.next[0]:
            raise Expected("not so", actual={0: head.next[0]})
        threading.Thread(target=later, args=(right(placed),)).start()
        return [Appended(dict(head.next), placed[0].counts, placed[0].partitions)]

    def later(steps: Steps[list[Appended]]) -> None:
        time.sleep(0.01)
        STORES[0].run(steps)

    with patch.object(transaction, "commit", commit):
        yield


@contextmanager
def stale() -> Iterator[None]:
    """A reader believes the head that it has seen some time ago."""
    right = TopicLog.head

    def head(self: TopicLog) -> Steps[Head]:
        if self.seen is not None and random.random() < 0.7:
            return self.seen
        return (yield from right(self))

    with patch.object(TopicLog, "head", head):
        yield


BUGS = {"unconditional": unconditional, "early": early, "stale": stale}
STORES: list[Store] = []


def main(where: str, seed: str, calls: str, notes: str, *bug: str) -> None:
    rng = random.Random(int(seed))
    with home_of(where) as home, open(notes, "w") as out:
        topic = home.topic("calls")
        topic.ends()
        STORES.append(home.store)
        print("ready", flush=True)
        sys.stdin.readline()
        with BUGS[bug[0]]() if bug else patch.object(sys, "argv", sys.argv):
            for n in range(int(calls)):
                start = time.monotonic_ns()
                op, given, answer = one_call(topic, rng, f"{seed}.{n}")
                end = time.monotonic_ns()
                out.write(json.dumps([start, end, op, given, answer]) + "\n")
                time.sleep(rng.choice((0, 0, 0.001, 0.003)))


if __name__ == "__main__":
    main(*sys.argv[1:])
