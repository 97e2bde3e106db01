"""Consumers in processes of their own: they connect, wait for the word, take, and tell how it went."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.harness import Wrong
from benchmarks.queues.contract import Contestant, Queue

SPAWN = multiprocessing.get_context("spawn")
FIRST_SECONDS = 30.0
"""Seconds in addition that the first message may take to come; a side that is slower has failed."""
Work = Callable[[Queue, Any, Connection], Any]
"""What such a process does, with what it was given and the pipe to its parent; gives what it has to tell."""


class Process:
    """A process that is connected to a queue."""

    def __init__(self, contestant: Contestant, address: str, work: Work, given: Any) -> None:
        self.pipe, there = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_run, args=(contestant, address, work, given, there), daemon=True)
        self.process.start()
        there.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid or 0

    def hear(self, timeout: float = 600) -> Any:
        """What it has to say next."""
        if not self.pipe.poll(timeout):
            raise Wrong(f"a consumer was silent for {timeout:g} s")
        failure, told = self.pipe.recv()
        if failure:
            raise Wrong(failure)
        return told

    def say(self, word: Any) -> None:
        """Tell it to go on."""
        self.pipe.send(word)

    def end(self) -> None:
        """Wait a little for its end, or make one: it has told all, and some clients hang at their end."""
        self.process.join(3)
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def connected(contestant: Contestant, address: str, work: Work, each: Sequence[Any]) -> Iterator[list[Process]]:
    """A process for each of what they are given, all connected."""
    processes = [Process(contestant, address, work, given) for given in each]
    try:
        for process in processes:
            process.hear()
        yield processes
    finally:
        for process in processes:
            process.end()


def _run(contestant: Contestant, address: str, work: Work, given: Any, pipe: Connection) -> None:
    try:
        with contestant.connect(address) as queue:
            pipe.send(("", None))
            pipe.send(("", work(queue, given, pipe)))
    except Exception as error:
        pipe.send((f"{type(error).__name__}: {error}", None))


# --- draining ---------------------------------------------------------------------------------------------------------
def taken_per_second(
    contestant: Contestant, address: str, count: int, batch: int, consumers: int, seconds: float
) -> float:
    """The rate at which so many consumers, at once, take and acknowledge `count` messages, or as many as they can in
    some seconds."""
    taken = SPAWN.Value("q", 0)
    with connected(contestant, address, drain, [(taken, count, batch, seconds)] * consumers) as processes:
        for process in processes:
            process.say("go")
        told = [process.hear() for process in processes]
    if not taken.value:
        raise Wrong(f"no message was taken in {seconds:g} s")
    return float(taken.value) / (max(end for _, end in told) - min(begin for begin, _ in told))


def drain(queue: Queue, given: tuple[Any, int, int, float], pipe: Connection) -> tuple[float, float]:
    """Take until all have taken all, or the time is over; gives when that began and ended, by the machine's clock."""
    taken, count, batch, seconds = given

    def got(messages: Sequence[bytes]) -> bool:
        with taken.get_lock():
            taken.value += len(messages)
            most = seconds if taken.value else seconds + FIRST_SECONDS
            return bool(taken.value >= count) or time.monotonic() - begin >= most

    pipe.recv()
    begin = time.monotonic()
    queue.take(batch, got)
    return begin, time.monotonic()
