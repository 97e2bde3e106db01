"""Processes that are killed: python -m tests.faults.workers KIND HOME NAME NOTES

Each writes a line to its notes after what the line says is certain: a record acknowledged, a record read.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import tailrace
from tailrace.coordination import guard
from tailrace.log.format import head as heads
from tailrace.log.format.head import Page
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge
from tailrace.log.write.attempt import roll
from tailrace.storage.tables import LAST

PARTITIONS = 3
Note = Callable[[object, object, object], None]


def topic_of(home: tailrace.Home) -> Topic:
    return home.topic("t", PARTITIONS)


def many(home: tailrace.Home, name: str, note: Note, size: int, ahead: int) -> None:
    """One producer, many records on the way."""
    waiting: deque[tuple[str, object]] = deque()
    with topic_of(home).producer() as out:
        for n in itertools.count():
            value = f"{name}.{n}."
            waiting.append((value, out.send(b"%d" % n, value.encode() + b"x" * size)))
            while len(waiting) > ahead:
                value, ack = waiting.popleft()
                offset = ack.result(60)  # type: ignore[attr-defined]
                note(ack.partition, offset, value)  # type: ignore[attr-defined]


def small(home: tailrace.Home, name: str, note: Note) -> None:
    """Records that are kept in the table."""
    many(home, name, note, 10, 200)


def large(home: tailrace.Home, name: str, note: Note) -> None:
    """Records that are objects."""
    many(home, name, note, 70_000, 5)


def numbered(home: tailrace.Home, name: str, note: Note) -> None:
    """A named producer, whose every life sends the last batch again."""
    out = topic_of(home).named_producer("numbered")
    for n in itertools.count(max(1, out.last)):
        spans = out.send_batch([(b"k", b"numbered.%d." % n)], number=n, partition=n % PARTITIONS)
        note(n % PARTITIONS, spans[0].offset if spans else -1, f"numbered.{n}.")


def transacting(home: tailrace.Home, name: str, note: Note) -> None:
    """Transactions over two topics, with a record in each partition."""
    topic, other = topic_of(home), home.topic("other", 1)
    for n in itertools.count():
        value = b"%s.%d." % (name.encode(), n)
        with home.transaction(topic, other) as t:
            acks = [t.send(None, value, topic="t", partition=q) for q in range(PARTITIONS)]
            t.send(None, value, topic="other")
        for q, ack in enumerate(acks):
            note(q, ack.result(), value.decode())


def reading(home: tailrace.Home, name: str, note: Note) -> None:
    """Reads on from where its notes end."""
    topic = topic_of(home)
    seen = read_notes(Path(sys.argv[4]))
    ends = {q: max((offset + 1 for p, offset, _ in seen if p == q), default=0) for q in range(PARTITIONS)}
    while True:
        for q in range(PARTITIONS):
            for record in topic.records(q, ends[q]):
                value = (record.value or b"").rpartition(b".")[0] + b"."
                note(q, record.offset, value.decode())
                ends[q] = record.offset + 1
        time.sleep(0.01)


def consuming(home: tailrace.Home, name: str, note: Note) -> None:
    """A member of a group, whose positions are committed behind what it has noted."""
    with topic_of(home).consumer("g", ttl=1.0, commit_interval=0.05) as consumer:
        for record in consumer:
            note(record.partition, record.offset, ((record.value or b"").rpartition(b".")[0] + b".").decode())


def tidying(home: tailrace.Home, name: str, note: Note) -> None:
    """Merges and cleans all the time."""
    topic, run = topic_of(home), home.store.run
    while True:
        run(roll(topic.log, run(topic.log.head())))
        found = run(guard.read_all(heads.head_key(topic.log.id).p, 0, LAST - 1))
        if len(found) > 2:
            run(merge(topic.log, [Page.of(item) for item in found[-3:-1]]))
        run(clean(topic.log))
        time.sleep(0.02)


WORKERS: dict[str, Callable[[tailrace.Home, str, Note], None]] = {
    "small": small,
    "large": large,
    "numbered": numbered,
    "transacting": transacting,
    "consuming": consuming,
    "reading": reading,
    "tidying": tidying,
}


def read_notes(path: Path) -> list[tuple[int, int, str]]:
    """What a process has noted; a line it was killed in does not count."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(int(q), int(offset), value) for q, offset, value in (line.split(" ") for line in lines)]


def main() -> None:
    kind, url, name, notes = sys.argv[1:]
    with suppress(OSError, AttributeError):  # Linux: whoever started this may be killed too
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    out = os.open(notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(partition: object, offset: object, value: object) -> None:
        os.write(out, f"{partition} {offset} {value}\n".encode())

    with tailrace.open(url) as home:
        WORKERS[kind](home, name, note)


if __name__ == "__main__":
    main()
