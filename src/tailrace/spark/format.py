"""Format: the data source "tailrace", from which Spark makes readers and writers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tailrace.errors import BadSetting
from tailrace.log.catalog import check_name
from tailrace.spark.columns import check_schema, schema_of
from tailrace.spark.options import BATCH_ONLY, STREAM_ONLY, ReadOptions, WriteOptions, parse
from tailrace.spark.runtime.homes import check_reach, home_at, settled
from tailrace.spark.short_errors import short_errors
from tailrace.spark.sink.rows import check_columns
from tailrace.spark.sink.sink import BatchSink, StreamSink
from tailrace.spark.source import change_stream, feed, topics
from tailrace.spark.source.batch import FilteredReader, TopicBatchReader
from tailrace.spark.source.stream import TopicStreamReader


@short_errors
class Tailrace(DataSource):
    """Topics as a source and a sink.  A session sets `default_home` and `one_host` when it registers the format."""

    default_home: str | None = None
    one_host = True

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Resolved here, since the processes that use it later may have another working folder and other variables.
        self.home = settled(options.get("home") or self.default_home)

    @classmethod
    def name(cls) -> str:
        """The name that `.format(…)` takes."""
        return "tailrace"

    # -- reading
    def schema(self) -> StructType:
        """The columns of a read, if the job gives no schema."""
        if (other := self._other()) is not None:
            return other[0]
        reading = self._reading((), "")
        return schema_of(reading.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of `spark.read`, by the job's options."""
        if (other := self._other()) is not None:
            return other[1](self.home, other[3])
        reading = self._reading(STREAM_ONLY, "is for spark.readStream")
        kind = FilteredReader if reading.push_filters else TopicBatchReader
        return kind(self.home, reading, check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of `spark.readStream`, by the job's options."""
        if (other := self._other()) is not None:
            return other[2](self.home, other[3])
        reading = self._reading(BATCH_ONLY, "is for spark.read")
        return TopicStreamReader(self.home, reading, check_schema(schema))

    def _other(self) -> tuple[StructType, Any, Any, Any] | None:
        """The readers of a table's changes or of the feed, if the options name one of them: schema, batch reader and
        streaming reader."""
        given = {name.lower() for name in self.options}
        kinds: tuple[StructType, Any, Any, Any]
        if "feed" in given:
            kinds = feed.SCHEMA, feed.FeedReader, feed.FeedStreamReader, feed.FeedReading
        elif "stream" in given:
            kinds = (
                change_stream.SCHEMA,
                change_stream.StreamReader,
                change_stream.StreamStreamReader,
                change_stream.StreamReading,
            )
        else:
            return None
        schema, batch, stream, options = kinds
        reading: Any = parse(self.options, options)
        check_reach(self.home, self.one_host or reading.shared_home)
        return schema, batch, stream, reading

    def _reading(self, refused: tuple[str, ...], why: str) -> ReadOptions:
        reading = parse(self.options, ReadOptions, refused=refused, why=why)
        check_reach(self.home, self.one_host or reading.shared_home)
        topics.check_subscription(reading)
        topics.check_settings(reading, topics.extents(home_at(self.home), reading))
        return reading

    # -- writing
    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """The sink of `df.write`."""
        writing = parse(self.options, WriteOptions)
        if writing.write_id is not None:
            check_name("writeId", writing.write_id)
        self._check_writing(writing, schema, overwrite)
        return BatchSink(self.home, writing)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """The sink of `df.writeStream`."""
        why = "is for df.write; a streaming query has an id and numbers of its own"
        writing = parse(self.options, WriteOptions, refused=("writeId",), why=why)
        self._check_writing(writing, schema, overwrite)
        return StreamSink(self.home, writing)

    def _check_writing(self, writing: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise BadSetting("a topic is only ever appended to; say mode('append'), or outputMode('append')")
        check_reach(self.home, self.one_host or writing.shared_home)
        check_columns(schema, writing.topic)
        if writing.topic is not None:
            home_at(self.home).topic(writing.topic)
