"""Does a queue slow down when ten million messages wait in it, and does a consumer need more memory?"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target
from benchmarks.memory import field
from benchmarks.queue_rates import MANY, messages, push_batches
from benchmarks.queues import OURS
from benchmarks.queues.consumers import connected
from benchmarks.queues.contract import SIZE
from benchmarks.queues.ours import Tailrace

PUSH, TAKE = Figure(f"push_many({MANY})/s"), Figure(f"take + ack {MANY}/s")
MEMORY = Figure("consumer's peak MB", 1, more=False)
FILL = 2_000
"""Messages of one push while the backlog is made."""


def question(quick: bool) -> Question:
    """The same work on a short and on a long queue."""
    short, long = (2_000, 100_000) if quick else (10_000, 10_000_000)
    count = 5_000 if quick else 50_000
    names = {size: f"{size:,} waiting" for size in (short, long)}

    def ratio(figure: Figure, results: Results) -> float:
        return results.of(names[long], figure.name) / results.of(names[short], figure.name)

    return Question(
        name="queue_backlog",
        title="pushing and taking while many messages wait",
        note=f"Messages of {SIZE:,} bytes. A round pushes {count:,} in batches of {MANY}, and one consumer, a process "
        "of its own, takes and acknowledges as many from the other end; its memory is all that is resident.",
        sides=[Side(names[size], "tailrace", partial(filled, size, count)) for size in (short, long)],
        figures=[PUSH, TAKE, MEMORY],
        base=names[short],
        targets=[
            Target("push: ≥ 0.9 times that of the short queue", partial(ratio, PUSH), 0.9),
            Target("take + ack: ≥ 0.9 times that of the short queue", partial(ratio, TAKE), 0.9),
            Target("memory: ≤ 1.1 times that of the short queue", partial(ratio, MEMORY), 1.1, at_most=True),
        ],
        rounds=2 if quick else 5,
    )


@contextlib.contextmanager
def filled(size: int, count: int, folder: Path) -> Iterator[Run]:
    """A queue with so many messages."""
    with OURS.open(folder) as (place, queue):
        batch = messages(FILL)
        for _ in range(size // FILL):
            queue.push_many(batch)

        def run() -> Figures:
            pushed, _ = push_batches(queue, count)
            with connected(OURS, place.address, some, [count]) as (process,):
                rate, peak = process.hear()
            return {PUSH.name: pushed, TAKE.name: rate, MEMORY.name: peak}

        yield run


def some(queue: Any, count: int, pipe: Connection) -> tuple[float, float]:
    """Take some messages; gives the rate of all but the first tenth, when the worker was only joining, and the peak."""
    assert isinstance(queue, Tailrace)
    seen, first, over = 0, [0.0, 0], threading.Event()

    def handle(envelopes: Any) -> None:
        nonlocal seen
        seen += len(envelopes)
        if seen >= count // 10 and not first[1]:
            first[:] = [time.monotonic(), seen]
        if seen >= count:
            over.set()

    with queue.queue.tail(handle, batch=True, batch_size=MANY, threads=1):
        over.wait()
        rate = (seen - first[1]) / (time.monotonic() - first[0])
    return rate, field("self", "VmHWM")
