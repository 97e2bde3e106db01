"""The format "tailrace": what Spark is given to make readers and writers of."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tailrace.spark import topics
from tailrace.spark.columns import check_schema, schema_of
from tailrace.spark.homes import check_reach, home_at, settled
from tailrace.spark.options import STREAM_ONLY, Reading, parse
from tailrace.spark.source import TopicReader


class Tailrace(DataSource):
    """Topics as a source and a sink.  `default_home` and `one_host` are what a session knows when it registers it."""

    default_home: str | None = None
    one_host = True

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Here, since the processes that use it later may have another folder and other variables.
        self.home = settled(options.get("home") or self.default_home)

    @classmethod
    def name(cls) -> str:
        """What `.format(…)` is given."""
        return "tailrace"

    def schema(self) -> StructType:
        """The columns that a read gives."""
        reading = parse(self.options, Reading)
        self._check(reading)
        return schema_of(reading.columns)

    def reader(self, schema: StructType) -> TopicReader:
        """For `spark.read`."""
        reading = parse(self.options, Reading, refused=STREAM_ONLY, why="is for spark.readStream")
        self._check(reading)
        return TopicReader(self.home, reading, check_schema(schema))

    def _check(self, reading: Reading) -> None:
        check_reach(self.home, self.one_host or reading.shared_home)
        topics.check_subscription(reading)
        topics.check_settings(reading, topics.extents(home_at(self.home), reading))
