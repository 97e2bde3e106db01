"""How soon does another consumer go on with the shards of one that was killed?"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Figures, Question, Run, Side, Target, Wrong
from benchmarks.queues import OURS
from benchmarks.queues.consumers import Process, connected
from benchmarks.queues.contract import SIZE
from benchmarks.queues.ours import Tailrace

TTL = 5.0
"""Seconds without a heartbeat after which a consumer counts as gone: what a worker has by default."""
FIRST, ALL = Figure("first shard, s", 2, more=False), Figure("all its shards, s", 2, more=False)


def question(quick: bool) -> Question:
    """kill -9 of one of two consumers."""
    return Question(
        name="queue_takeover",
        title="seconds from kill -9 of a consumer until another handles the messages of its shards",
        note=f"Two consumers in processes of their own, with the default heartbeat timeout of {TTL:g} s; a message for "
        "each shard is pushed at once after the kill.",
        sides=[Side(OURS.name, "kill -9 of one of two", killing)],
        figures=[FIRST, ALL],
        base=OURS.name,
        targets=[Target(f"≤ {TTL + 1:g} s, all", lambda results: results.of(OURS.name, ALL.name), TTL + 1, True)],
        rounds=1 if quick else 5,
    )


@contextlib.contextmanager
def killing(folder: Path) -> Iterator[Run]:
    """A queue whose consumers are killed."""
    with OURS.open(folder) as (place, queue):
        assert isinstance(queue, Tailrace)

        def run() -> Figures:
            with connected(OURS, place.address, consume, [None, None]) as processes:
                lost = _settled(processes, queue.queue.shards)
                return _kill(queue, *processes, lost)

        yield run


def consume(queue: Any, _: None, pipe: Connection) -> None:
    """Tell of each message its shard and when it came; asked for "shards", tell which there are."""
    assert isinstance(queue, Tailrace)
    lock = threading.Lock()

    def handle(envelope: Any) -> None:
        with lock:
            pipe.send(("", (envelope.shard, time.monotonic())))

    with queue.queue.tail(handle, threads=1, ttl=TTL) as worker:
        while pipe.recv() == "shards":
            with lock:
                pipe.send(("", worker.shards))


def _settled(processes: list[Process], shards: int) -> set[int]:
    """The shards of the first consumer, once the two have shared all evenly."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        each = []
        for process in processes:
            process.say("shards")
            each.append(set(process.hear()))
        if all(len(one) == shards // 2 for one in each) and not each[0] & each[1]:
            return each[0]
        time.sleep(0.05)
    raise Wrong("two consumers did not share the shards within 60 s")


def _kill(queue: Tailrace, victim: Process, other: Process, lost: set[int]) -> Figures:
    victim.process.kill()
    killed = time.monotonic()
    queue.push_many([bytes(SIZE)] * queue.queue.shards)  # messages without keys go round the shards
    came: dict[int, float] = {}
    while lost - came.keys():
        shard, when = other.hear(60)
        came.setdefault(shard, when)
    other.say("end")
    taken_over = [came[shard] - killed for shard in lost]
    return {FIRST.name: min(taken_over), ALL.name: max(taken_over)}
