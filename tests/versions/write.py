"""Writes a small home that has something of everything, and packs it into a file."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path
from uuid import UUID

import pyarrow as pa

import tailrace
from tailrace.events import Event
from tailrace.home import Home
from tailrace.streams import hash_key, model

RECORDS = 300
LARGE = b"x" * 100_000
"""More than an item holds: the bytes of its chunk are an object."""


@model(stream={"new", "old"})
class User:
    """A model with a table and a change stream."""

    id: UUID = hash_key()
    email: str
    visits: int = 0


def write(home: Home) -> None:
    """Something of everything: topics of each kind, a group, a named producer, events, a table, the feed's index."""
    write_topics(home)
    write_events(home)
    engine = home.engine()
    engine.bind(User)
    for n in range(5):
        engine.save(User(id=UUID(int=n), email=f"user-{n}@example.com", visits=n))


def write_topics(home: Home) -> None:
    """Topics: small and large chunks, headers, compression, growth, retention, compaction, merged chunks."""
    orders = home.topic("orders", partitions=4)
    for n in range(RECORDS):
        orders.append([(b"order-%d" % (n % 7), b"%d" % n)])
    orders.append([(b"large", LARGE)])
    with orders.producer() as out:
        out.send(b"order-0", b"with headers", headers=[("who", b"ann")])
    with orders.consumer("billing", max_seconds=2) as consumer:
        for _ in zip(range(100), consumer, strict=False):
            pass
    orders.named_producer("loader").send_batch([(b"loaded", b"once")], number=1)
    packed = home.topic("packed", partitions=1, compression="zstd")
    packed.append(pa.table({"key": [str(n) for n in range(50)], "value": ["v" * 100] * 50}))
    state = home.topic("state", partitions=1, compact=True)
    for n in range(40):
        state.append([(b"k%d" % (n % 4), b"%d" % n)])
    grown = home.topic("grown", partitions=1)
    grown.append([(b"%d" % n, b"before") for n in range(20)])
    grown.grow(3)
    grown.append([(b"%d" % n, b"after") for n in range(20)])
    home.topic("kafka", partitions=5, partitioner="murmur2").append([(b"%d" % n, b"v") for n in range(20)])
    home.upkeep()


def write_events(home: Home) -> None:
    """Event streams: a long one with calves, one with an unfold; and the index of all."""
    events = home.events()
    long = events.stream("Cart-long")
    for n in range(60):
        long.append([Event("Added", b"%04d" % n + b"e" * 800)], expected=n)
    events.stream("Cart-1").append([Event("Added", b"{}"), Event("Paid")], unfolds=[Event("State", b'{"n": 2}')])
    events.catch_up()


def main(target: Path) -> None:
    """Write a home and pack it."""
    with tempfile.TemporaryDirectory() as folder:
        with tailrace.open(folder) as home:
            write(home)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
            for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                out.write(path, path.relative_to(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
