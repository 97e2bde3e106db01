"""Feed source: `spark.read.format("tailrace").option("feed", "events")`, and `spark.readStream`.

The offsets of a streaming query are the checkpoints of the index's partitions.  A task reads an epoch, or the present
part of the last one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from tailrace.errors import BadSetting
from tailrace.feed.checkpoint import after_epoch, place
from tailrace.feed.feed import Feed, FeedEvent, wanted
from tailrace.feed.reading import IndexReader
from tailrace.feed.store import FedEvents
from tailrace.spark.runtime.homes import check_reach, home_at
from tailrace.spark.short_errors import short_errors

ROWS_PER_BATCH = 10_000
"""About how many rows one Arrow batch has."""
SCHEMA = (
    StructType()
    .add("partition", IntegerType())
    .add("checkpoint", LongType())
    .add("stream", StringType())
    .add("index", LongType())
    .add("type", StringType())
    .add("time", TimestampType())
    .add("id", StringType())
    .add("data", BinaryType())
    .add("meta", BinaryType())
)
_TYPES = [
    pa.int32(), pa.int64(), pa.string(), pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.string(), pa.binary(),
    pa.binary(),
]  # fmt: skip


class FeedReading(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How to read the feed."""

    home: str | None = None
    shared_home: bool = False
    feed: str = ""
    starting_checkpoint: str | None = None
    category: str | None = None
    streams: str | None = None
    types: str | None = None
    bodies: bool = True


@dataclass
class FeedTask(InputPartition):
    """What one task reads: a stretch of one partition of the index, within one epoch."""

    partition: int
    start: int
    end: int


def parts(partition: int, start: int, end: int) -> list[FeedTask]:
    """The stretch of the feed between two checkpoints, epoch by epoch."""
    found = []
    while start < end:
        stop = min(after_epoch(place(start).epoch), end)
        found.append(FeedTask(partition, start, stop))
        start = stop
    return found


@short_errors
class FeedReader(DataSourceReader):
    """Reads the present events of the feed."""

    def __init__(self, url: str, reading: FeedReading) -> None:
        self.url, self.reading, self.driver = url, reading, socket.gethostname()
        if reading.feed != "events":
            raise BadSetting(f"the feed of a home is 'events', not {reading.feed!r}; say option('feed', 'events')")
        self.first = _checkpoint(reading.starting_checkpoint)

    def partitions(self) -> list[FeedTask]:
        """The tasks of a read of the feed."""
        self.events.catch_up()
        start = dict.fromkeys(self.tails(), self.first)
        return [part for q, end in self.ends(start).items() for part in parts(q, self.first, end)]

    @property
    def events(self) -> FedEvents:
        """The event store; on the driver it also indexes what is appended."""
        return home_at(self.url).events()

    def tails(self) -> dict[int, int]:
        """The checkpoint at the tail of each partition of the feed."""
        return {one.partition: one.checkpoint for one in self.events.index_status().partitions}

    def ends(self, start: dict[int, int]) -> dict[int, int]:
        """The present end of each partition; `OutOfRange` if the feed does not reach the start, because its home was
        restored from a backup, for example."""
        found = {}
        for q, tail in self.tails().items():
            if start.get(q, 0) > tail:
                self.events.store.run(IndexReader(q, start[q]).check_start())
            found[q] = max(start.get(q, 0), tail)
        return found

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The events of one task as rows."""
        if not isinstance(partition, FeedTask):  # Spark's own partition, when there is nothing to read
            return
        check_reach(self.url, self.reading.shared_home, self.driver)
        reading = self.reading
        chosen = wanted(*map(_names, (reading.category, reading.streams, reading.types)))
        rows: list[FeedEvent] = []
        with Feed(
            self.events, partition.start, partition=partition.partition, bodies=reading.bodies, wanted=chosen
        ) as feed:
            for batch in feed.batches(until=partition.end):
                rows += batch
                if len(rows) >= ROWS_PER_BATCH:
                    yield _rows(partition.partition, rows)
                    rows = []
        if rows:
            yield _rows(partition.partition, rows)


@short_errors
class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the feed."""

    def __init__(self, url: str, reading: FeedReading) -> None:
        self.batch = FeedReader(url, reading)
        self.target: dict[str, int] | None = None
        self.ends = False

    def initialOffset(self) -> dict[str, int]:
        """Where a new query of the feed begins: the first event, unless an option says otherwise."""
        return {str(q): self.batch.first for q in self.batch.tails()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit: a micro-batch takes all events that the feed has."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next micro-batch of the feed ends."""
        if self.target is not None:
            return self.target
        self.batch.events._start_indexing()
        ends = self.batch.ends({int(q): checkpoint for q, checkpoint in start.items()})
        found = {str(q): end for q, end in ends.items()}
        if self.ends:
            self.target = found
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the events that exist now."""
        self.batch.events.catch_up()
        self.ends = True

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FeedTask]:
        """The tasks of one micro-batch of the feed."""
        return [part for q, stop in end.items() for part in parts(int(q), start.get(q, 0), stop)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The events of one task as rows."""
        return self.batch.read(partition)


def _rows(partition: int, events: list[FeedEvent]) -> pa.RecordBatch:
    bodies = [event.event for event in events]
    values: list[list[Any]] = [
        [partition] * len(events),
        [event.checkpoint for event in events],
        [event.stream for event in events],
        [event.index for event in events],
        [event.type for event in events],
        [None if body is None else datetime.fromisoformat(body.time) for body in bodies],
        [None if body is None else body.id for body in bodies],
        [None if body is None else body.data for body in bodies],
        [None if body is None else body.meta for body in bodies],
    ]
    arrays = [pa.array(column, type) for column, type in zip(values, _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _checkpoint(text: str | None) -> int:
    if text is None:
        return 0
    if not text.strip().isdecimal():
        raise BadSetting(f"startingCheckpoint is a whole number from 0 on, not {text!r}")
    place(int(text))
    return int(text)
