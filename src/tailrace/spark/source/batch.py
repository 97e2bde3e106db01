"""Batch source: `spark.read.format("tailrace")`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from tailrace.log.read.seek import offset_at
from tailrace.spark.columns import arrow_schema
from tailrace.spark.options import ReadOptions
from tailrace.spark.runtime.homes import check_reach, home_at
from tailrace.spark.short_errors import short_errors
from tailrace.spark.source import topics
from tailrace.spark.source.filters import PushedBounds, wanted
from tailrace.spark.source.ranges import OffsetRange, TaskSlice, slices
from tailrace.spark.source.task import read

MAX_RECORDS_PER_TASK = 2_000_000
"""The most records in a task of a batch read, unless an option says otherwise."""


@short_errors
class TopicBatchReader(DataSourceReader):
    """Plans on the driver which task reads which offsets; reads them in the tasks."""

    def __init__(self, url: str, reading: ReadOptions, schema: StructType) -> None:
        self.url, self.reading, self.schema = url, reading, arrow_schema(schema)
        self.wanted, self.driver = PushedBounds(), socket.gethostname()

    def partitions(self) -> list[TaskSlice]:
        """The tasks of a batch read of topics."""
        reading = self.reading
        most = reading.max_records_per_partition or MAX_RECORDS_PER_TASK
        return slices(self._ranges(), reading.min_partitions, most, self.wanted.times)

    def _ranges(self) -> Iterator[OffsetRange]:
        home, reading = home_at(self.url), self.reading
        for extent in topics.extents(home, reading).values():
            start = topics.kept(extent, topics.starts(home, extent, reading, "earliest"), reading.fail_on_data_loss)
            end = topics.ends(home, extent, reading)
            for q in start:
                found = self.wanted.of(OffsetRange(extent.name, extent.id, q, start[q], end[q]))
                if found is not None:
                    yield self._since(found)

    def _since(self, r: OffsetRange) -> OffsetRange:
        """The range without the records stored before the wanted times."""
        if self.wanted.times is None or self.wanted.times[0] == 0:
            return r
        home = home_at(self.url)
        first = home.store.run(offset_at(topics.log_of(home, r.topic, r.id), r.partition, self.wanted.times[0]))
        return OffsetRange(r.topic, r.id, r.partition, max(r.start, first), r.end)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The records of one task of a batch read."""
        if not isinstance(partition, TaskSlice):  # Spark's own partition, when there is nothing to read
            return iter(())
        check_reach(self.url, self.reading.shared_home, self.driver)
        return read(home_at(self.url), partition, self.schema, from_floor=not self.reading.fail_on_data_loss)


class FilteredReader(TopicBatchReader):
    """A reader that does not fetch what filters exclude.  Spark 4.3 keeps the plan of the last filters with the loaded
    DataFrame, and uses it for everything else that is derived from that DataFrame, with other filters or none.  So this
    reader is only for callers that ask for it."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Note the filters that Spark pushes down; Spark evaluates all of them again."""
        self.wanted = wanted(filters)
        return filters
