"""Readers and sinks called as Spark calls them, without Spark: pickled on the way, as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, Filter
from pyspark.sql.types import StructType, _parse_datatype_string  # noqa: F401

from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.spark.format import Tailrace


def travelled(thing: Any) -> Any:
    """What arrives in another process."""
    return cloudpickle.loads(cloudpickle.dumps(thing))


def source(home: Home, **options: Any) -> Tailrace:
    given = {name: str(value) for name, value in {"home": home.url, **options}.items()}
    return travelled(Tailrace(CaseInsensitiveDict(given)))


def batch(home: Home, *filters: Filter, **options: Any) -> list[dict[str, Any]]:
    """The rows of a batch read."""
    return [row for part in parts(home, *filters, **options) for row in part]


def parts(home: Home, *filters: Filter, **options: Any) -> list[list[dict[str, Any]]]:
    """The rows of a batch read, task by task."""
    found = source(home, **options, **({"pushFilters": "true"} if filters else {}))
    reader = found.reader(found.schema())
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    tasks = travelled(reader).partitions()
    return [[row for b in travelled(reader).read(travelled(p)) for row in b.to_pylist()] for p in tasks]


def write(home: Home, batches: Iterable[Iterable[pa.RecordBatch]], schema: StructType, **options: Any) -> None:
    """A batch write: one task for each of the batches."""
    sink = travelled(source(home, **options).writer(schema, False))
    sink.commit([travelled(travelled(sink).write(iter(task))) for task in batches])


def values(topic: Topic) -> dict[int, list[bytes | None]]:
    """The values of a topic by partition, in order."""
    out: dict[int, list[bytes | None]] = {q: [] for q in range(topic.partitions)}
    for record in topic.records():
        out[record.partition].append(record.value)
    return out


def fill(topic: Topic, counts: Mapping[int, int], start: int = 0) -> None:
    """Records "q.n" in partitions q, one append each for all."""
    for q, count in counts.items():
        with topic.transaction() as out:
            for n in range(start, start + count):
                out.send(None, b"%d.%d" % (q, n), partition=q)
