"""Sinks: `df.write.format("tailrace")` and `df.writeStream.format("tailrace")`.

Tasks put chunks, and the driver appends all of them by one guarded write.  Nothing refers to the chunks of a failed or
duplicate task, and cleaning removes them. `abort` removes nothing: a commit that seems to have failed may have
happened.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tailrace.errors import BadInput
from tailrace.spark.options import WriteOptions
from tailrace.spark.runtime.homes import check_reach, home_at
from tailrace.spark.short_errors import short_errors
from tailrace.spark.sink.commit import settle
from tailrace.spark.sink.task import TaskOutput, write

QUERY_ID = "sql.streaming.queryId"


@short_errors
class SparkSink:
    """The common part of both sinks: their target, and the work of a task."""

    def __init__(self, url: str, writing: WriteOptions) -> None:
        self.url, self.writing, self.driver = url, writing, socket.gethostname()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of one task as chunks."""
        check_reach(self.url, self.writing.shared_home, self.driver)
        task = TaskContext.get()
        query = task.getLocalProperty(QUERY_ID) if task is not None else None
        return write(home_at(self.url), iterator, self.writing.topic, query)


@short_errors
class BatchSink(SparkSink, DataSourceArrowWriter):
    """A batch write: once under its `writeId`, else once per run of the job."""

    def commit(self, messages: Sequence[TaskOutput | None]) -> None:
        """Append the chunks that the tasks of the job have stored."""
        name = None if self.writing.write_id is None else f"write.{self.writing.write_id}"
        settle(home_at(self.url), messages, name, 1)


@short_errors
class StreamSink(SparkSink, DataSourceStreamArrowWriter):
    """A streaming write: each batch once, under the query's id and the batch's number."""

    def commit(self, messages: Sequence[TaskOutput | None], batchId: int) -> None:
        """Append the chunks that the tasks have stored, unless this micro-batch is in the log already."""
        wrote = [m for m in messages if m is not None and m.parts]
        if not wrote:
            return
        if wrote[0].query is None:
            raise BadInput(f"Spark does not say which query batch {batchId} is of, so it could not be written once")
        settle(home_at(self.url), wrote, f"query.{wrote[0].query}", batchId + 1)
