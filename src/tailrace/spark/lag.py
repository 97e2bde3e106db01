"""Lag: what a streaming query has read in its last batch, and how far behind the topics it is, by partition."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from tailrace.home import Home
from tailrace.log.reader import Reader
from tailrace.spark.homes import home_at, settled
from tailrace.spark.offsets import numbers
from tailrace.spark.topics import log_of


class Lag(NamedTuple):
    """One partition: the rows of the last batch, the next offset to be read, and how many records and seconds behind
    the end that is.  Seconds are those since the oldest record that is not read was written; 0 when all is read."""

    topic: str
    partition: int
    rows: int
    offset: int
    records: int
    seconds: float


def lag(query: StreamingQuery, *, home: str | os.PathLike[str] | None = None) -> list[Lag]:
    """How a query is doing, as of its last progress and the topics' ends now; an empty list before the first batch.

    `home` is the one that the query reads from."""
    progress = query.lastProgress
    here = home_at(settled(None if home is None else os.fspath(home)))
    return [one for source in progress.sources for one in _of_source(here, source)] if progress else []


def _of_source(home: Home, source: Any) -> Iterator[Lag]:
    """The partitions of one source, if it is one of ours."""
    start, end = (_offsets(text) for text in (source.startOffset, source.endOffset))
    for topic, offsets in end.items():
        log = log_of(home, topic, offsets["id"])
        ends = home.store.run(log.head()).next
        before = numbers(start.get(topic, {}))
        for q, at in numbers(offsets).items():
            records = max(0, ends.get(q, at) - at)
            seconds = _age(home, Reader(log, {q: at}, from_floor=True), q) if records else 0.0
            yield Lag(topic, q, at - before.get(q, 0), at, records, seconds)


def _offsets(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    known = isinstance(found, dict) and all(isinstance(v, dict) and "id" in v for v in found.values())
    return found if known else {}


def _age(home: Home, reader: Reader, q: int) -> float:
    """The seconds since the record that the reader comes to next was written."""
    for fetched in home.store.run(reader.poll(1, 1)):
        if fetched.partition == q:
            written: int = fetched.data.column("timestamp")[0].value
            return max(0.0, time.time() - written / 1000)
    return 0.0
