"""Ranges: a Spark stream that says when the commit log has grown, and by how much.

A writer's stream carries no rows.  Each of its batches is a range of the log; the tasks that handle it read the rows
from the log themselves, as Arrow, so that none passes through the JVM or the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tailrace.pipeline.places import open_topic

FORMAT = "tailrace_ranges"


class Ranges(DataSource):
    """`spark.readStream.format("tailrace_ranges")` with the options home, topic and start (JSON)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """A column that is never filled."""
        return "partition INT"

    def streamReader(self, schema: StructType) -> RangeReader:
        """The stream."""
        return RangeReader(self.options)


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers what has been appended since."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._home, self._topic = options["home"], options["topic"]
        self._start = {str(q): int(at) for q, at in json.loads(options["start"]).items()}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        """Where the writer left off."""
        return self._start

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """As far as the log reaches now."""
        return self._target or self._ends()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all."""
        self._target = self._ends()

    def _ends(self) -> dict[str, int]:
        return {str(q): end for q, (_, end) in open_topic(self._home, self._topic).ends().items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One, which nobody reads."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Nothing: whoever handles a batch reads the log."""
        return iter(())
