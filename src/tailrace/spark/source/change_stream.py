"""Change stream source: `spark.read.format("tailrace").option("stream", TABLE)`, and `spark.readStream`.

The offsets of a streaming query are tokens.  The driver goes over the changes to find where a batch ends; one task
reads them again, in order, and makes rows of them.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructType, TimestampType

from tailrace.errors import BadSetting
from tailrace.spark.options import Positive
from tailrace.spark.runtime.homes import check_reach, home_at
from tailrace.spark.short_errors import short_errors
from tailrace.streams.stream import Start, Stream
from tailrace.streams.token import JSON

MAX_CHANGES_PER_BATCH = 100_000
"""A batch of a streaming query ends after this many changes, unless an option says otherwise."""
NO_LIMIT = 2**62
"""More changes than a stream can have."""
TOKEN_SECONDS = 3600
"""While nothing changes, the query's offset is renewed this often: tokens are valid for 24 hours."""
SCHEMA = (
    StructType()
    .add("table", StringType())
    .add("type", StringType())
    .add("created_at", TimestampType())
    .add("sequence_number", StringType())
    .add("id", StringType())
    .add("key", StringType())
    .add("new", StringType())
    .add("old", StringType())
)


class StreamReading(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How to read a table's changes."""

    home: str | None = None
    shared_home: bool = False
    stream: str = ""
    starting_position: str | None = None
    max_records_per_trigger: Positive = MAX_CHANGES_PER_BATCH


def position(text: str) -> Start:
    """The position in the change stream to begin at: trim_horizon, latest, a time with its zone, or a token."""
    if text in ("trim_horizon", "latest"):
        return text
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else datetime.fromisoformat(text)
    except ValueError:
        raise BadSetting(
            "startingPosition is trim_horizon, latest, a time as in '2026-05-01T12:00:00+00:00', or a token, not "
            f"{text!r:.60}"
        ) from None
    return found


@dataclass
class ChangesTask(InputPartition):
    """What the only task reads: from a place to a token, or to the end."""

    start: Any
    end: JSON | None = None


@short_errors
class StreamReader(DataSourceReader):
    """The present changes of a table; one task reads them, so that they stay in order."""

    def __init__(self, url: str, reading: StreamReading) -> None:
        self.url, self.reading, self.driver = url, reading, socket.gethostname()
        self.start = position(reading.starting_position or "trim_horizon")
        _opened(url, reading.stream, self.start).close()

    def partitions(self) -> list[ChangesTask]:
        """The one task of a read of a change stream."""
        return [ChangesTask(self.start)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The changes as rows."""
        check_reach(self.url, self.reading.shared_home, self.driver)
        table = self.reading.stream
        if partition.end is not None:
            batches = home_at(self.url).engine().between(table, partition.start, partition.end)
            return (_with_table(batch, table) for batch in batches)
        stream = _opened(self.url, table, partition.start)
        return (_with_table(batch, table) for batch in stream.batches())


@short_errors
class StreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table's changes."""

    def __init__(self, url: str, reading: StreamReading) -> None:
        self.batch = StreamReader(url, reading)
        self.left: int | None = None
        self.ends = False

    def initialOffset(self) -> JSON:
        """Where a new query of a change stream begins."""
        reading = self.batch.reading
        with _opened(self.batch.url, reading.stream, position(reading.starting_position or "latest")) as stream:
            return stream.token

    def getDefaultReadLimit(self) -> ReadLimit:
        """All of it: `latestOffset` knows the limit itself."""
        return ReadAllAvailable()

    def latestOffset(self, start: JSON, limit: ReadLimit) -> JSON:
        """Where the next micro-batch of the change stream ends."""
        most = self.batch.reading.max_records_per_trigger
        if self.ends:
            self.left = self._count(start) if self.left is None else self.left
            most = min(most, self.left)
        with _opened(self.batch.url, self.batch.reading.stream, start) as stream:
            found = stream.skip(most) if most else 0
            token = stream.token
        if self.left is not None:
            self.left -= found
        old = token["at"] - start["at"] > TOKEN_SECONDS and not self.ends
        return token if found or old else start

    def _count(self, start: JSON) -> int:
        with _opened(self.batch.url, self.batch.reading.stream, start) as stream:
            return sum(iter(lambda: stream.skip(NO_LIMIT), 0))

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the changes that exist now."""
        self.ends = True

    def partitions(self, start: JSON, end: JSON) -> list[ChangesTask]:
        """The task of one micro-batch of changes."""
        return [ChangesTask(start, end)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The changes of one micro-batch as rows."""
        return self.batch.read(partition)


def _opened(url: str, table: str, start: Any) -> Stream[Any]:
    return home_at(url).engine().stream(table, start)


def _with_table(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    names = pa.array([table] * batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([names, *batch.columns], names=["table", *batch.schema.names])
