"""How long does a message take to a consumer that has nothing to do, and what does that consumer cost meanwhile?"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.harness import Figure, Figures, Question, Run, Side, Target, expect
from benchmarks.queues import OURS, WAITING
from benchmarks.queues.consumers import Process, connected
from benchmarks.queues.contract import SIZE, Contestant, Queue

HALF, MOST = Figure("p50 ms", 2, more=False), Figure("p99 ms", 2, more=False)
IDLE = Figure("idle consumer, % of a core", 2, more=False, ratio=False)
END = b"end"


def question(quick: bool) -> Question:
    """Single messages from one process to another, with pauses."""
    count, seconds = (20, 1.0) if quick else (500, 10.0)
    return Question(
        name="queue_delay",
        title="milliseconds from a push to the handler, in another process that was idle",
        note=f"{count} messages of {SIZE:,} bytes, 20 to 60 ms apart, from before the push (which is synced) to the "
        f"handler's call. The idle consumer's share of a core is over {seconds:g} s without messages.",
        sides=[
            Side(one.name, f"{one.promise}; {one.how}", partial(delays, one, count, seconds), one.peer)
            for one in WAITING
        ],
        figures=[HALF, MOST, IDLE],
        base=OURS.name,
        targets=[Target("p50 ≤ 5 ms", lambda results: results.of(OURS.name, HALF.name), 5, at_most=True)],
        rounds=1 if quick else 3,
    )


@contextlib.contextmanager
def delays(contestant: Contestant, count: int, seconds: float, folder: Path) -> Iterator[Run]:
    """A consumer in another process, which has nothing to do at first."""
    with contestant.open(folder) as (place, queue):

        def run() -> Figures:
            with connected(contestant, place.address, clock, [None]) as (process,):
                queue.push(_message(time.monotonic()))  # it is awake, and has its shards, when this has come
                process.hear()
                time.sleep(0.5)
                spent = _idle(process, seconds)
                each = sorted(_delay(queue, process) for _ in range(count))
                queue.push(END)
                process.hear()
                expect("processes that ended well", process.hear(), None)
            return {HALF.name: each[count // 2], MOST.name: each[count * 99 // 100], IDLE.name: spent}

        yield run


def clock(queue: Queue, _: None, pipe: Connection) -> None:
    """Tell the age of each message as it comes."""

    def got(messages: Sequence[bytes]) -> bool:
        now = time.monotonic()
        for message in messages:
            pipe.send(("", None if message == END else now - float(message.rstrip())))
        return END in messages

    queue.take(1, got)


def _message(now: float) -> bytes:
    return repr(now).encode().ljust(SIZE)


def _delay(queue: Queue, process: Process) -> float:
    time.sleep(random.uniform(0.02, 0.06))
    queue.push(_message(time.monotonic()))
    return float(process.hear(30)) * 1000


def _idle(process: Process, seconds: float) -> float:
    """The share of a core that it takes while nothing happens, in percent."""
    before = _spent(process.pid)
    time.sleep(seconds)
    return (_spent(process.pid) - before) / seconds * 100


def _spent(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
