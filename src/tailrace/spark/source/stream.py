"""Streaming source: `spark.readStream.format("tailrace")`.

The reader lives on the driver as long as its query; tasks use only `read`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.errors import OutOfRange, UnknownTopic
from tailrace.log.read.gaps import skim
from tailrace.spark.options import ReadOptions, seconds
from tailrace.spark.runtime.homes import home_at
from tailrace.spark.short_errors import short_errors
from tailrace.spark.source import topics
from tailrace.spark.source.batch import TopicBatchReader
from tailrace.spark.source.lag import LagReporter
from tailrace.spark.source.offsets import Json, Spans, numbers, shared, to_json
from tailrace.spark.source.ranges import OffsetRange, TaskSlice, slices
from tailrace.spark.source.topics import TopicExtent


@short_errors
class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics, including topics and partitions that appear later."""

    def __init__(self, url: str, reading: ReadOptions, schema: StructType) -> None:
        self.url, self.reading = url, reading
        self.batch = TopicBatchReader(url, reading, schema)
        self.delay = seconds(reading.max_trigger_delay)
        self.target: dict[str, TopicExtent] | None = None
        self.waiting_since = time.monotonic()
        self.distance = LagReporter(url)
        self.chosen: tuple[dict[str, TopicExtent], Json] | None = None

    # -- where it is
    def initialOffset(self) -> Json:
        """Where a new query of topics begins."""
        home, next = home_at(self.url), {}
        known = topics.extents(home, self.reading)
        for extent in known.values():
            start = topics.starts(home, extent, self.reading, "latest")
            for q, at in topics.kept(extent, start, self.reading.fail_on_data_loss).items():
                next[extent.name, q] = at
        return to_json(_ids(known), next)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The first limit that the options name; `latestOffset` obeys the others as well."""
        reading = self.reading
        if reading.max_offsets_per_trigger:
            return ReadMaxRows(reading.max_offsets_per_trigger)
        if reading.max_bytes_per_trigger:
            return ReadMaxBytes(reading.max_bytes_per_trigger)
        if reading.min_offsets_per_trigger:
            return ReadMinRows(reading.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Where the next micro-batch of the topics ends."""
        known = self._known()
        end = self._end(start, limit, known)
        self.chosen = known, end
        return end

    def _end(self, start: Json, limit: ReadLimit, known: dict[str, TopicExtent]) -> Json:
        spans = self._spans(start, known)
        waiting = sum(end - at for at, end in spans.values())
        if not waiting or (self._may_wait(limit) and waiting < (self.reading.min_offsets_per_trigger or 0)):
            return start
        self.waiting_since = time.monotonic()
        if not isinstance(limit, ReadAllAvailable):
            spans = self._limited(spans, known)
        return to_json(_ids(known), {key: end for key, (at, end) in spans.items() if end > at or key[0] in start})

    def _known(self) -> dict[str, TopicExtent]:
        """The topics as they are now; for a query that ends when all is read, as they were when it began."""
        if self.target is not None:
            return self.target
        try:
            return topics.extents(home_at(self.url), self.reading)
        except UnknownTopic:
            if self.reading.fail_on_data_loss:
                raise
            return topics.extents(home_at(self.url), self.reading, missing_ok=True)

    def _may_wait(self, limit: ReadLimit) -> bool:
        if isinstance(limit, ReadAllAvailable) or self.target is not None:
            return False
        return time.monotonic() - self.waiting_since < self.delay

    def _spans(self, start: Json, known: dict[str, TopicExtent]) -> Spans:
        """The ranges to read. A new partition is read from its beginning."""
        spans: Spans = {}
        if self.reading.fail_on_data_loss and (gone := sorted(set(start) - set(known))):
            raise UnknownTopic(
                f"topic {gone[0]!r}, which this query has been reading, was deleted; start a new query, or say "
                "option('failOnDataLoss', 'false') to go on without it"
            )
        for extent in known.values():
            before = extent.floor | self._before(start, extent)
            for q, end in extent.until(before).items():
                spans[extent.name, q] = (before[q], max(before[q], end))
        return spans

    def _before(self, start: Json, extent: TopicExtent) -> dict[int, int]:
        """How far the query has read a topic, if it still is the same topic."""
        offsets = start.get(extent.name, {})
        if offsets.get("id", extent.id) == extent.id:
            return numbers(offsets)
        if self.reading.fail_on_data_loss:
            raise OutOfRange(
                f"topic {extent.name!r} was deleted and made again since this query has read it; start a new query, or "
                "say option('failOnDataLoss', 'false') to read the new one from its beginning"
            )
        return {}

    def _limited(self, spans: Spans, known: dict[str, TopicExtent]) -> Spans:
        most = self.reading.max_offsets_per_trigger
        if most:
            ends = shared(spans, most)
            spans = {key: (at, ends[key]) for key, (at, _) in spans.items()}
        if self.reading.max_bytes_per_trigger:
            spans = self._light(spans, known, self.reading.max_bytes_per_trigger)
        return spans

    def _light(self, spans: Spans, known: dict[str, TopicExtent], max_bytes: int) -> Spans:
        """As many records as fit into `max_bytes` of stored bytes; each topic has its share."""
        home, out = home_at(self.url), dict(spans)
        total = sum(end - at for at, end in spans.values())
        for extent in known.values():
            mine = {q: span for (topic, q), span in spans.items() if topic == extent.name and span[0] < span[1]}
            if mine:
                share = max_bytes * sum(end - at for at, end in mine.values()) // total
                start, until = ({q: span[n] for q, span in mine.items()} for n in (0, 1))
                log = topics.log_of(home, extent.name, extent.id)
                ends = home.store.run(skim(log, start, until, share))
                out |= {(extent.name, q): (at, ends[q]) for q, (at, _) in mine.items()}
        return out

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the records that exist now."""
        self.target = self._known()

    def reportLatestOffset(self) -> Json | None:
        """The end of the topics, and how far the query is from there; for its progress."""
        if self.chosen is None:
            return None
        known, end = self.chosen
        return self.distance.report(known.values(), end, time.time())

    # -- reading
    def partitions(self, start: Json, end: Json) -> list[TaskSlice]:
        """The tasks of one micro-batch of records."""
        reading = self.reading
        return slices(self._ranges(start, end), reading.min_partitions, reading.max_records_per_partition)

    def _ranges(self, start: Json, end: Json) -> Iterator[OffsetRange]:
        known = topics.extents(home_at(self.url), self.reading, missing_ok=not self.reading.fail_on_data_loss)
        for name, offsets in end.items():
            extent = known.get(name)
            if extent is None or offsets["id"] != extent.id:
                if self.reading.fail_on_data_loss:
                    raise UnknownTopic(f"topic {name!r} was deleted before this batch of it could be read")
                continue
            before = self._before(start, extent)
            begin = {q: before.get(q, extent.floor[q]) for q in numbers(offsets)}
            begin = topics.kept(extent, begin, self.reading.fail_on_data_loss)
            for q, to in numbers(offsets).items():
                yield OffsetRange(name, extent.id, q, begin[q], to)

    def read(self, partition: TaskSlice) -> Iterator[pa.RecordBatch]:
        """The records of one task of a micro-batch."""
        return self.batch.read(partition)


def _ids(known: dict[str, TopicExtent]) -> dict[str, str]:
    return {extent.name: extent.id for extent in known.values()}
