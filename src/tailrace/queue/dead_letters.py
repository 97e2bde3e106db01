"""Dead letters: messages that a queue gave up, kept whole in a topic of their own, with the reason.

The topic of the queue `emails` is `emails-dead`; it has one partition.  A letter's headers are queue, shard, offset,
attempts, pushed, reason, consumer.  The consumer that gives a message up stores its letter and acknowledges it in one
transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.errors import AlreadyThere, BadName, Conflict, UnknownQueue
from tailrace.log import catalog
from tailrace.log.catalog import Described
from tailrace.log.read.reader import Reader
from tailrace.log.record import Record
from tailrace.log.topic import as_records
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.attempt import FinalRefusal
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.placement import Placed, place
from tailrace.queue.envelope import CODED
from tailrace.queue.lanes import Entry
from tailrace.queue.settings import queue_key
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Absent, Action, Check, Item, Key, Put, Set, Update

MOST_REASON = 2000
"""The characters of a reason that a dead letter keeps."""


class DeadLetter(NamedTuple):
    """A message that a queue gave up."""

    number: int
    """Its offset in the topic of dead letters; `requeue` takes it."""
    message: bytes
    shard_key: bytes | None
    reason: str
    shard: int
    offset: int
    attempts: int
    pushed: int
    coded: bool
    """Whether the message went through the queue's codec."""
    requeued: bool = False
    died: int = 0
    """When it was given up, in ms since 1970."""
    consumer: str = ""
    """The consumer that gave it up; empty in letters that older versions wrote."""


class DeadNumbers(NamedTuple):
    """The numbers of a queue's dead letters: from `first` to before `end`, of which `left` were not put back."""

    first: int
    end: int
    left: int


MOST_NAME, ENDING = 195, "-dead"


def topic_name(queue: str) -> str:
    """The name of the topic of a queue's dead letters."""
    return f"{queue[:MOST_NAME]}{ENDING}"


def check_free(queue: str) -> Steps[None]:
    """Refuse a new queue if the topic that its dead letters would go to holds other records."""
    name = topic_name(queue)
    if (yield from catalog.find(name)) is not None and (yield from own_topic(queue)) is None:
        raise BadName(
            f"a queue cannot be called {queue!r} here: the topic {name!r} exists, holds other things, and would get "
            "the queue's dead letters; choose another name"
        )


def check_queue_name(name: str) -> None:
    """Refuse a new queue whose messages, or dead letters, would be mixed with the dead letters of another."""
    if name.endswith(ENDING):
        raise BadName(f"a queue cannot be called {name!r}: topics that end in {ENDING!r} hold dead letters of queues")
    if len(name) > MOST_NAME:
        raise BadName(f"a queue's name has at most {MOST_NAME} characters, not {len(name)}: {name[:40]!r}…")


def log_of(store: Store, queue: str, topic_id: str) -> TopicLog:
    """Return the log of a queue's dead letters; creates it if it is missing, and raises `UnknownQueue` if the queue
    is."""
    name = topic_name(queue)
    found = store.run(catalog.find(name))
    if found is None:
        try:
            made = catalog.create(name, 1, {}, int(time.time() * 1000), [Check(queue_key(topic_id))])
            found = store.run(made)
        except AlreadyThere:
            found = store.run(catalog.describe(name))
        except Conflict:
            raise UnknownQueue(f"queue {queue!r} was deleted") from None
    log = TopicLog(name, found.id, store.table.inline_bytes, store.table.joins_inline)
    log.partitions, log.partitioner = found.partitions, found.settings.partitioner
    return log


def bury(log: TopicLog, queue: str, dead: Sequence[tuple[Entry, str, int]], now: int, by: str) -> Steps[Placed]:
    """Store the bytes of some dead letters, each given as (message, reason, attempts); the returned chunk counts only
    once the caller commits it."""
    buffer = Buffer(log.partitions or 1, 1 << 30, partitioner=log.partitioner)
    for entry, reason, attempts in dead:
        headers = {
            "queue": queue,
            "shard": entry.partition,
            "offset": entry.offset,
            "attempts": attempts,
            "pushed": entry.inserted,
            "reason": reason[:MOST_REASON],
            "consumer": by,
        }
        pairs = tuple((name, str(value).encode("utf-8", "replace")) for name, value in headers.items())
        buffer.add(entry.key, entry.value, now, pairs, entry.attributes, 0)
    return (yield from place(log, buffer.encode("none")))


def letters(queue: str, records: Iterator[Record], requeued: frozenset[int]) -> Iterator[DeadLetter]:
    """Decode a queue's dead letters; skips records that are not dead letters of this queue."""
    for record in records:
        said = {name: value.decode("utf-8", "replace") for name, value in record.headers}
        if said.get("queue") != queue:
            continue
        yield DeadLetter(
            record.offset,
            record.value or b"",
            record.key,
            said.get("reason", ""),
            _number(said, "shard", -1),
            _number(said, "offset", -1),
            _number(said, "attempts", 0),
            _number(said, "pushed", record.timestamp),
            record.attributes == CODED,
            record.offset in requeued,
            record.timestamp,
            said.get("consumer", ""),
        )


def _number(said: dict[str, str], name: str, default: int) -> int:
    """A number of a dead letter's headers; the default if a producer has written something else there."""
    text = said.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 20 else default


# --- requeued ones ----------------------------------------------------------------------------------------------------
MARKS = 4096
"""Dead letters whose marks share one item: some 40 KB."""


def requeued_key(topic_id: str, number: int = 0) -> Key:
    """The key of the item with the marks of dead letters around this number."""
    return Key(f"$Requeued-{topic_id}", number // MARKS)


def requeued(topic_id: str) -> Steps[frozenset[int]]:
    """Return the numbers of the dead letters that were put back."""
    items = yield from guard.read_all(requeued_key(topic_id).p)
    return frozenset(int(n) for item in items for n in item["numbers"])


class Requeue:
    """Marks dead letters as put back, in the transaction that pushes them."""

    def __init__(self, topic_id: str, numbers: Sequence[int]) -> None:
        self._marks: dict[Key, list[str]] = {}
        for n in numbers:
            self._marks.setdefault(requeued_key(topic_id, n), []).append(str(n))
        self._there: set[Key] = set()

    def prepare(self) -> Steps[None]:
        """Find out which items with marks of requeued letters exist."""
        for key in self._marks:
            if (yield from guard.read(key)) is not None:
                self._there.add(key)

    def actions(self, page: int) -> Sequence[Action]:
        """Mark the number of each letter as requeued, under the condition that it is not marked."""
        return [self._marking(key, numbers) for key, numbers in self._marks.items()]

    def _marking(self, key: Key, numbers: Sequence[str]) -> Action:
        if key not in self._there:
            return Put(key, {"numbers": dict.fromkeys(numbers, True)}, (Absent(),))
        marks = tuple(Set(("numbers", n), True) for n in numbers)
        return Update(key, marks, tuple(Absent(("numbers", n)) for n in numbers))

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Raise `FinalRefusal` if another process has put one of the letters back.  If it has only created the item of
        marks, plan to update that item."""
        yield from ()
        key, numbers = list(self._marks.items())[index]
        if item is None or set(numbers) & set(item["numbers"]):
            why = "one of these dead letters was put back by another process just now; list them again"
            raise FinalRefusal(AlreadyThere(why))
        self._there.add(key)


# --- looking ----------------------------------------------------------------------------------------------------------
def own_topic(queue: str) -> Steps[Described | None]:
    """Return the topic of a queue's dead letters; None if there is none, or if it has any other record.  Reads the
    whole topic."""
    described = yield from catalog.find(topic_name(queue))
    if described is None or described.partitions != 1:
        return None
    reader = Reader(TopicLog(described.name, described.id), {0: 0}, from_floor=True)
    while fetched := (yield from reader.poll()):
        for one in fetched:
            if any(dict(record.headers).get("queue") != queue.encode() for record in as_records(queue, one)):
                return None
    return described


def find(queue: str, shard: int, offset: int) -> Steps[DeadLetter | None]:
    """Return the dead letter of a message; None if there is none.  Reads the dead letters from the first on."""
    described = yield from catalog.find(topic_name(queue))
    if described is None:
        return None
    reader = Reader(TopicLog(described.name, described.id), {0: 0}, from_floor=True)
    while fetched := (yield from reader.poll()):
        records = (record for one in fetched for record in as_records(queue, one))
        for letter in letters(queue, records, frozenset()):
            if (letter.shard, letter.offset) == (shard, offset):
                return letter
    return None
