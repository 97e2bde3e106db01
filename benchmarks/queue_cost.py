"""What does a queue cost on S3 and DynamoDB, by the meter?"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Figures, Question, Run, Side, expect
from benchmarks.queues.contract import SIZE
from tailrace.admin.cost import Cost, prices
from tailrace.admin.meter import Bill, MeteredObjects, MeteredTable
from tailrace.home import Home
from tailrace.storage.calls import Store
from tailrace.testing import SimulatedObjects, SimulatedTable

DAY, MILLION = 86_400, 1_000_000
TABLE_SECONDS, OBJECTS_SECONDS = 0.005, 0.03
"""What a request takes in the cloud, about: it decides how many messages share one."""
REQUESTS, DOLLARS = Figure("requests a message", 3, more=False), Figure("dollars a million", 2, more=False)
RATE = Figure("messages/s reached", 1, ratio=False)
A_DAY = Figure("dollars a day", 3, more=False, ratio=False)


@dataclass(frozen=True)
class Traffic:
    """So many pushes a second, by one thread or as many as it takes, each of so many messages."""

    name: str
    pushes: float
    messages: int = 1


TRAFFIC = [
    Traffic("idle", 0),
    Traffic("1 a second", 1),
    Traffic("100 a second, one by one", 100),
    Traffic("100 a second, push_many(100)", 1, 100),
    Traffic("1,000 a second, one by one", 1_000),
    Traffic("1,000 a second, push_many(100)", 10, 100),
]
THREADS = 64


def question(quick: bool) -> Question:
    """A queue with one consumer at several rates."""
    seconds = 3.0 if quick else 30.0
    return Question(
        name="queue_cost",
        title="requests and dollars of a queue on S3 and DynamoDB, pushed and handled",
        note=f"Messages of {SIZE:,} bytes, evenly spread, one consumer. Every request of {seconds:g} s is metered as "
        f"the cloud would, in memory; one of the table takes {TABLE_SECONDS * 1000:g} ms, one of the objects "
        f"{OBJECTS_SECONDS * 1000:g} ms. Prices: us-east-1; storage and traffic are not in it.",
        sides=[Side(one.name, _mode(one), partial(metered, one, seconds)) for one in TRAFFIC],
        figures=[RATE, REQUESTS, DOLLARS, A_DAY],
        base=TRAFFIC[1].name,
        rounds=1,
    )


def _mode(one: Traffic) -> str:
    return (
        f"{one.pushes:g} pushes/s of {one.messages}" if one.pushes else "a consumer waits; all per message are of none"
    )


class DistantTable(MeteredTable):
    """A metered table that answers as late as DynamoDB."""

    def get(self, *given: Any, **named: Any) -> Any:
        """Later."""
        time.sleep(TABLE_SECONDS)
        return super().get(*given, **named)

    def query(self, *given: Any, **named: Any) -> Any:
        """Later."""
        time.sleep(TABLE_SECONDS)
        return super().query(*given, **named)

    def write(self, *given: Any) -> Any:
        """Later."""
        time.sleep(TABLE_SECONDS)
        return super().write(*given)


class DistantObjects(MeteredObjects):
    """Metered objects that are as far away as S3."""

    def put(self, name: str, parts: Sequence[Any]) -> None:
        """Later."""
        time.sleep(OBJECTS_SECONDS)
        super().put(name, parts)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Later."""
        time.sleep(OBJECTS_SECONDS)
        return super().get_ranges(name, ranges)


@contextlib.contextmanager
def metered(traffic: Traffic, seconds: float, folder: Path) -> Iterator[Run]:
    """A queue in memory that counts what the cloud would be asked for."""
    bill, asked = Bill(), prices()
    table = SimulatedTable(inline_bytes=MeteredTable.inline_bytes, joins_inline=False, answers=False)
    home = Home("memory://metered", Store(DistantTable(table, bill), DistantObjects(SimulatedObjects(), bill)))
    queue, handled = home.queue("bench"), threading.Semaphore(0)
    queue.push(bytes(SIZE))

    def run() -> Figures:
        bill.clear()
        began = time.monotonic()
        count = _push(queue, traffic, seconds)
        for _ in range(count):
            expect("a message came within 60 s", handled.acquire(timeout=60), True)
        spent = time.monotonic() - began
        cost = Cost.of(bill, asked)
        each = 1 / count if count else 0.0
        per_day = DAY / spent
        return {
            RATE.name: count / spent,
            REQUESTS.name: cost.total * each,
            DOLLARS.name: cost.dollars * each * MILLION,
            A_DAY.name: cost.dollars * per_day,
        }

    with queue.tail(lambda envelope: handled.release(), threads=8):
        handled.acquire()
        yield run


def _push(queue: Any, traffic: Traffic, seconds: float) -> int:
    """Push evenly; gives how many messages.  A push that is late is made at once."""
    if not traffic.pushes:
        time.sleep(seconds)
        return 0
    batch = [os.urandom(SIZE) for _ in range(traffic.messages)]
    total, began = max(1, int(traffic.pushes * seconds)), time.monotonic()
    threads = min(THREADS, total)

    def pushing(first: int) -> None:
        for number in range(first, total, threads):
            time.sleep(max(0.0, began + number / traffic.pushes - time.monotonic()))
            queue.push_many(batch)

    pushers = [threading.Thread(target=pushing, args=(first,)) for first in range(threads)]
    for pusher in pushers:
        pusher.start()
    for pusher in pushers:
        pusher.join()
    return total * traffic.messages
