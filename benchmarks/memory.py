"""How much memory do a producer and a consumer take?"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.contract import Contestant, Log, Place
from benchmarks.harness import Figure, Figures, Question, Run, Side, Wrong, expect
from benchmarks.load import VALUE, Load
from benchmarks.logs import ARROW, KAFKA, NATS, RECORDS, REDIS

PRODUCER = Figure("producer MB", 1, more=False)
CONSUMER = Figure("consumer MB", 1, more=False)
HEAP = Figure("consumer without mapped files MB", 1, more=False, ratio=False)
SERVER = Figure("server MB", 1, more=False, ratio=False)


def question(quick: bool) -> Question:
    """The peak of a process that appends, of one that reads, and of the server beside them."""
    load = Load(50_000 if quick else 500_000)
    contestants = [ARROW, RECORDS, KAFKA, REDIS, NATS]
    return Question(
        name="memory",
        title="memory of a producer and of a consumer",
        note="Peak resident memory over that of the same process, connected, before it appends (or reads) "
        f"{load.count:,} records of 216 bytes, with the settings of `append` and `read`; each in a process of its own. "
        "The server's is its whole peak.",
        sides=[Side(one.name, f"{one.bulk}; {one.reader}", partial(weighed, one, load)) for one in contestants],
        figures=[PRODUCER, CONSUMER, HEAP, SERVER],
        base=ARROW.name,
        rounds=1 if quick else 3,
    )


@contextlib.contextmanager
def weighed(contestant: Contestant, load: Load, folder: Path) -> Iterator[Run]:
    """A server (or folder) that the measured processes connect to."""
    with contestant.serve(folder) as place:
        yield lambda: weigh(contestant, load, place)


def weigh(contestant: Contestant, load: Load, place: Place) -> Figures:
    """One round: a process that appends, then one that reads."""
    appended, _ = peak(contestant, place, produce, load)
    read, heap = peak(contestant, place, consume, load)
    server = field(place.pid, "VmHWM") if place.pid else 0.0
    return {PRODUCER.name: appended, CONSUMER.name: read, HEAP.name: heap, SERVER.name: server}


def peak(contestant: Contestant, place: Place, work: Callable[[Log, Load], None], load: Load) -> tuple[float, float]:
    """How far a process went over its beginning: resident, and the part of it that is not mapped files."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    child = spawn.Process(target=measured, args=(contestant, place.address, load, work, there), daemon=True)
    child.start()
    there.close()
    try:
        return watch(child.pid or 0, here)
    finally:
        here.close()
        child.join()


def watch(pid: int, pipe: Connection) -> tuple[float, float]:
    """Sample the process from the outside while it works."""
    hear(pipe)
    before = field(pid, "VmRSS"), field(pid, "RssAnon")
    most = before
    pipe.send("go")
    while not pipe.poll(0.002):
        most = max(most[0], field(pid, "VmRSS")), max(most[1], field(pid, "RssAnon"))
    hear(pipe)
    return most[0] - before[0], most[1] - before[1]


def hear(pipe: Connection) -> None:
    """Wait for the process's next step, or for why there will be none."""
    failure = pipe.recv()
    if failure:
        raise Wrong(failure)


def field(pid: int | str, name: str) -> float:
    """A line of the process's status, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(f"process {pid} is gone")


def measured(
    contestant: Contestant, address: str, load: Load, work: Callable[[Log, Load], None], pipe: Connection
) -> None:
    """The process that is watched."""
    try:
        if work is produce:
            load.built()
        with contestant.connect(address) as log:
            log.count()
            gc.collect()
            pipe.send("")
            pipe.recv()
            work(log, load)
            pipe.send("")
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def produce(log: Log, load: Load) -> None:
    """What a producer does."""
    expect("acknowledged", log.append(load), load.count)


def consume(log: Log, load: Load) -> None:
    """What a consumer does."""
    records, size = log.read()
    expect("bytes read", size, records * VALUE)
    expect("as many records as one process appended, or more", records >= load.count, True)
