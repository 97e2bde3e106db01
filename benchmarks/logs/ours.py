"""Tailrace itself, on a folder of the disk, a topic of 8 partitions."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow.compute as pc

import tailrace
from benchmarks.contract import Pair, timed_each
from benchmarks.load import PARTITIONS, Load

TOPIC = "bench"
PAGE = 16 << 20


class Tailrace:
    """A producer and a reader of one topic; records come and go one by one."""

    def __init__(self, home: Any) -> None:
        self.topic = home.topic(TOPIC, partitions=PARTITIONS)
        self.producer = self.topic.producer()

    def append(self, load: Load) -> int:
        """send() for each record, one flush() at the end."""
        send = self.producer.send
        for key, value in load.pairs():
            send(key, value)
        self.producer.flush()
        return load.count

    def append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        """send() and result() for each record, all threads through one producer."""
        return timed_each(lambda key, value: self.producer.send(key, value).result(), pairs, at_once)

    def read(self) -> tuple[int, int]:
        """The records of each partition, one by one."""
        records = size = 0
        for record in self.topic.records():
            records += 1
            size += len(record.value)
        return records, size

    def pairs(self) -> Iterable[Pair]:
        """The key and value of every record."""
        return ((record.key, record.value) for record in self.topic.records())

    def count(self) -> int:
        """By the partitions' next offsets."""
        return sum(end for _, end in self.topic.ends().values())


class TailraceGroup(Tailrace):
    """The same topic by a consumer group: leases, prefetching and commits included."""

    def read(self) -> tuple[int, int]:
        """A new group, from the beginning, in a loop over its consumer; its positions are committed at the end."""
        records, size, end = 0, 0, self.count()
        with self.topic.consumer(uuid.uuid4().hex) as consumer:
            for record in consumer:
                records += 1
                size += len(record.value)
                if records == end:
                    break
            consumer.commit()
        return records, size


class TailraceArrow(Tailrace):
    """The same topic by whole Arrow batches."""

    def append(self, load: Load) -> int:
        """send_batch() of Arrow batches of 4 MiB, one flush() at the end."""
        for batch in load.batches:
            self.producer.send_batch(batch)
        self.producer.flush()
        return load.count

    def read(self) -> tuple[int, int]:
        """Arrow batches of each partition."""
        records = size = 0
        for partition in range(PARTITIONS):
            for batch in self.topic.read(partition):
                records += batch.num_rows
                size += pc.sum(pc.binary_length(batch["value"])).as_py()
        return records, size


class TailracePlaced(TailraceArrow):
    """The same, with the partition of each batch given, so that no key is hashed."""

    def append(self, load: Load) -> int:
        """send_batch() of Arrow batches of 4 MiB, to one partition after the other."""
        for number, batch in enumerate(load.batches):
            self.producer.send_batch(batch, partition=number % PARTITIONS)
        self.producer.flush()
        return load.count


@contextlib.contextmanager
def connect(address: str, kind: type[Tailrace] = Tailrace) -> Iterator[Tailrace]:
    """The home in that folder."""
    with tailrace.open(address) as home:
        log = kind(home)
        with log.producer:
            yield log
