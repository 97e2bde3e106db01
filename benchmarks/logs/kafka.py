"""Kafka through confluent-kafka (librdkafka), a topic of 8 partitions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.servers.kafka import kafka

from benchmarks.contract import Pair, Place, timed_each
from benchmarks.load import BLOCK, PARTITIONS, Load

TOPIC = "bench"
QUIET = {"log_level": 2}
LARGEST = 2 * BLOCK
BULK = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": BLOCK,
    "batch.num.messages": 1_000_000,
    "message.max.bytes": LARGEST,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
    # A Python callback for each record would halve the rate; after flush() what is not an error was acknowledged.
    "delivery.report.only.error": True,
}
# With one request on its way, what other threads send meanwhile goes together in the next: twice the rate at 16.
SINGLE = {"acks": "all", "linger.ms": 0, "max.in.flight": 1, "socket.nagle.disable": True}
READ = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": LARGEST,
    "fetch.max.bytes": 64 << 20,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1 << 20,
}


class Kafka:
    """A producer of each kind and a consumer without a group's overhead."""

    def __init__(self, address: str) -> None:
        common = {"bootstrap.servers": address, **QUIET}
        self.bulk = Producer({**common, **BULK, "error_cb": self._failed, "on_delivery": self._failed})
        self.single = Producer({**common, **SINGLE})
        self.consumer = Consumer({**common, **READ})
        self.failures: list[object] = []

    def _failed(self, error: object, _message: object = None) -> None:
        self.failures.append(error)

    def append(self, load: Load) -> int:
        """produce() for each record, one flush() at the end."""
        produce = self.bulk.produce
        for key, value in load.pairs():
            try:
                produce(TOPIC, value, key)
            except BufferError:
                self.bulk.poll(0.01)
                produce(TOPIC, value, key)
        remaining = self.bulk.flush()
        return load.count - remaining - len(self.failures)

    def append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        """produce() without linger, then wait for that record's delivery report."""
        if at_once == 1:
            return timed_each(self._append_one, pairs, 1)
        with self._polling():
            return timed_each(self._append_waiting, pairs, at_once)

    def _append_one(self, key: bytes, value: bytes) -> None:
        reports: list[object] = []
        self.single.produce(TOPIC, value, key, on_delivery=lambda error, _: reports.append(error))
        while not reports:
            self.single.poll(1.0)
        _check(reports[0])

    def _append_waiting(self, key: bytes, value: bytes) -> None:
        reports: list[object] = []
        arrived = threading.Event()

        def report(error: object, _: object) -> None:
            reports.append(error)
            arrived.set()

        self.single.produce(TOPIC, value, key, on_delivery=report)
        arrived.wait()
        _check(reports[0])

    @contextlib.contextmanager
    def _polling(self) -> Iterator[None]:
        done = threading.Event()
        poller = threading.Thread(target=self._poll, args=(done,))
        poller.start()
        try:
            yield
        finally:
            done.set()
            poller.join()

    def _poll(self, done: threading.Event) -> None:
        while not done.is_set():
            self.single.poll(0.1)

    def read(self) -> tuple[int, int]:
        """consume() of up to 1,000 messages at a time, over all partitions."""
        records = size = 0
        for messages in self._messages():
            records += len(messages)
            size += sum([len(message.value()) for message in messages])
        return records, size

    def pairs(self) -> Iterable[Pair]:
        """The key and value of every message."""
        return ((message.key(), message.value()) for messages in self._messages() for message in messages)

    def _messages(self) -> Iterator[list[Message]]:
        left = self.count()
        self.consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while left:
            messages = self.consumer.consume(1000, 10.0)
            if not messages:
                raise RuntimeError(f"Kafka delivers nothing for 10 s, {left} records before the end")
            left -= len(messages)
            yield messages
        self.consumer.unassign()

    def count(self) -> int:
        """By the partitions' end offsets."""
        ends = [self.consumer.get_watermark_offsets(TopicPartition(TOPIC, place)) for place in range(PARTITIONS)]
        return sum(high - low for low, high in ends)


def _check(error: object) -> None:
    if error is not None:
        raise KafkaException(error)


@contextlib.contextmanager
def serve(folder: Path, flush: bool) -> Iterator[Place]:
    """A broker with the topic; `flush` makes it sync each batch before it answers."""
    with kafka(folder, settings={"message.max.bytes": LARGEST}) as server:
        settings = {"max.message.bytes": str(LARGEST), **({"flush.messages": "1"} if flush else {})}
        admin = AdminClient({"bootstrap.servers": server.url, **QUIET})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=settings)]).values():
            made.result()
        _wait_for_leaders(server.url)
        yield Place(server.url, server.pid)


def _wait_for_leaders(address: str, seconds: float = 30) -> None:
    """A topic that was created is not yet one that answers."""
    deadline = time.monotonic() + seconds
    with connect(address) as client:
        while True:
            try:
                client.count()
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def connect(address: str) -> Iterator[Kafka]:
    """A client of the broker there."""
    client = Kafka(address)
    try:
        yield client
    finally:
        client.consumer.close()
        client.bulk.flush(5)
