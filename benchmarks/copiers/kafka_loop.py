"""A plain loop over confluent-kafka: `python -m benchmarks.copiers.kafka_loop file|topic BROKERS SOURCE INTO FOLDER`.

file     appends keys and values to a file; syncs it, and writes and syncs the offsets, every so many records
topic    produces the records into another topic; a transaction has so many records, and commits the offsets
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.logs.kafka import BULK, QUIET, READ

BATCH = 10_000


def main() -> None:
    """Copy what the topic has now."""
    kind, brokers, source, into, folder = sys.argv[1:]
    batches = read(brokers, source)
    if kind == "file":
        keep(batches, Path(folder))
    else:
        produce(batches, brokers, source, into)


def ends(brokers: str, topic: str) -> dict[int, int]:
    """The next offset of each partition."""
    consumer = Consumer({"bootstrap.servers": brokers, **QUIET, **READ})
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        return {q: consumer.get_watermark_offsets(TopicPartition(topic, q), 10)[1] for q in partitions}
    finally:
        consumer.close()


def read(brokers: str, topic: str) -> Iterator[list[Message]]:
    """The records of a topic, up to where it ends now."""
    wanted = ends(brokers, topic)
    left = sum(wanted.values())
    consumer = Consumer({"bootstrap.servers": brokers, **QUIET, **READ})
    consumer.assign([TopicPartition(topic, q, 0) for q in wanted])
    batch: list[Message] = []
    while left:
        some = consumer.consume(1000, 10.0)
        if not some:
            raise RuntimeError(f"Kafka delivers nothing for 10 s, {left} records before the end")
        left -= len(some)
        batch += some
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
    consumer.close()


def keep(batches: Iterator[list[Message]], folder: Path) -> None:
    """Into a file."""
    at: dict[str, int] = {}
    with (folder / "records").open("wb") as file:
        for batch in batches:
            for one in batch:
                file.write(b"%d %d " % (len(one.key()), len(one.value())) + one.key() + one.value())
                at[str(one.partition())] = one.offset() + 1
            file.flush()
            os.fdatasync(file.fileno())
            with (folder / "offsets").open("w") as offsets:
                json.dump(at, offsets)
                offsets.flush()
                os.fdatasync(offsets.fileno())


def produce(batches: Iterator[list[Message]], brokers: str, source: str, into: str) -> None:
    """Into another topic, by transactions that have the offsets in them."""
    more = {"transactional.id": "loop", "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": brokers, **QUIET, **BULK, **more})
    group = Consumer({"bootstrap.servers": brokers, **QUIET, **READ})
    producer.init_transactions(30)
    for batch in batches:
        producer.begin_transaction()
        at: dict[int, int] = {}
        for one in batch:
            while True:
                try:
                    producer.produce(into, one.value(), one.key(), timestamp=one.timestamp()[1])
                    break
                except BufferError:
                    producer.poll(0.01)
            at[one.partition()] = one.offset() + 1
        offsets = [TopicPartition(source, q, offset) for q, offset in at.items()]
        producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
    group.close()


if __name__ == "__main__":
    main()
