"""Interchange: a topic as a folder of segments, one sub-folder per partition, named by its number; and back.

The rows of a pipeline, which a topic keeps as typed columns, leave it as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import BadInput, Expected, NotThere
from tailrace.log.format.chunk import OFFSETS, SCHEMAS
from tailrace.log.interchange.entry import ENTRIES
from tailrace.log.interchange.segment import (
    SEGMENT_BYTES,
    Exported,
    SegmentWriter,
    explained,
    read_segments,
    segment_name,
)
from tailrace.log.read.fetched import Fetched
from tailrace.log.topic import Topic, as_arrow
from tailrace.log.upkeep.repack import RunWriter, chunk_of, with_offsets
from tailrace.log.upkeep.retention import raise_floor
from tailrace.log.write.append import commit
from tailrace.log.write.input import rows
from tailrace.log.write.placement import place

COLUMNS = ["timestamp", "attributes", "key", "value"]

Told = Callable[[int], None]
"""Called with the number of records done since the last call, for a progress bar."""


def export_topic(
    topic: Topic,
    folder: str | os.PathLike[str],
    *,
    partition: int | None = None,
    drop_headers: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
    told: Told = lambda _: None,
) -> list[Exported]:
    """Write a topic's current records, all partitions as of one moment, or one partition.

    Entries cannot hold headers: records with headers are an error unless the caller allows dropping them."""
    ends = topic.ends()
    if partition is not None:
        topic.offset_at(partition, "earliest")
        ends = {partition: ends[partition]}
    writers = {q: SegmentWriter(Path(folder) / str(q), q, floor, segment_bytes) for q, (floor, _) in ends.items()}
    with ExitStack() as stack:
        for writer in writers.values():
            stack.enter_context(writer)
        for fetched in topic.fetch(partition, "earliest"):
            batch = as_arrow(plain(fetched.between(0, ends[fetched.partition][1])))
            if not drop_headers:
                _check_headers(topic, batch)
            if batch.num_rows:
                writers[fetched.partition].add(batch)
                told(batch.num_rows)
            if all(writers[q].done.next >= end for q, (_, end) in ends.items()):
                break
        for writer in writers.values():
            writer.close()
    return [writer.done for writer in writers.values()]


def plain(fetched: Fetched) -> Fetched:
    """Records whose value is bytes, as segments hold them: the columns of a pipeline's rows become JSON."""
    data = fetched.data
    if "data" not in data.schema.names:
        return fetched
    encode = msgspec.json.encode
    values = pa.array([None if row is None else encode(row) for row in data.column("data").to_pylist()], pa.binary())
    kept = [name for name in COLUMNS if name in data.schema.names]
    schema = pa.schema([SCHEMAS[0].field(name) for name in (*kept, "value")])
    return replace(fetched, data=pa.record_batch([*(data.column(name) for name in kept), values], schema=schema))


def _check_headers(topic: Topic, batch: pa.RecordBatch) -> None:
    if "headers" in batch.schema.names and batch.column("headers").null_count < batch.num_rows:
        raise BadInput(
            f"records of {topic.name!r} have headers, which entries cannot hold; leave them out (--drop-headers), or "
            f"write Parquet, which can: `tailrace topic read {topic.name} --format parquet`"
        )


@dataclass(slots=True)
class Imported:
    """What was imported into one partition; `present` records were there already, `torn` says where a torn end was cut
    off."""

    partition: int
    records: int = 0
    present: int = 0
    segments: int = 0
    torn: list[str] = field(default_factory=list)
    gaps: int = 0
    """Offsets between the imported records that the export does not have: compaction removed them before the export, or
    a segment is missing."""


def import_topic(
    topic: Topic,
    folder: str | os.PathLike[str],
    *,
    partition: int | None = None,
    renumber: bool = False,
    told: Told = lambda _: None,
) -> list[Imported]:
    """Append an export's records to a topic, each to the partition it came from and under its own offset.

    Records that compaction removed before the export are missing from the topic, too.  An empty partition begins, like
    the exported one, with the first offset that retention had left.

    Records that are there already are compared and skipped, so an import that was cut off can be repeated and stores
    each record once.  `renumber` gives the records the next offsets instead, and appends all of them each time."""
    found = _segments(Path(folder), partition)
    for q in found:
        topic.offset_at(q, "latest")  # refuses a partition that the topic does not have, before anything is written
    return [_import(topic, q, paths, renumber, told) for q, paths in found.items()]


def _segments(folder: Path, partition: int | None) -> dict[int, list[Path]]:
    """The segments in an export, by partition and in order."""
    with explained(f"cannot import {folder}"):
        subs = {int(sub.name): sorted(sub.glob("*.log")) for sub in folder.iterdir() if sub.name.isdecimal()}
    found = {q: subs[q] for q in sorted(subs) if partition in (None, q)}
    if not found:
        which = "partitions" if partition is None else f"partition {partition}"
        raise NotThere(f"{folder} has no {which}; an export is a folder like {folder}/0/{segment_name(0)}")
    for path in (path for paths in found.values() for path in paths):
        if not path.stem.isdecimal() or path.name != segment_name(int(path.stem)):
            raise BadInput(f"{path} is not named like a segment, by its first offset: {segment_name(0)}")
    return found


def _import(topic: Topic, partition: int, paths: list[Path], renumber: bool, told: Told) -> Imported:
    done = Imported(partition, segments=len(paths))
    floor, at = topic.ends()[partition]
    for batch in read_segments(paths, done.torn, topic.settings.max_record_bytes):
        fresh = batch
        if not renumber:
            known = _known(topic, partition, batch, floor, at)
            fresh = batch.slice(known)
            done.present += known
        if fresh.num_rows:
            end = at + fresh.num_rows if renumber else fresh.column("offset")[-1].as_py() + 1
            if end - at == fresh.num_rows:
                _append(topic, partition, fresh, None if renumber else {partition: at})
            else:
                _append_with_gaps(topic, partition, fresh, at, end)
                first = fresh.column("offset")[0].as_py() if at == 0 else at
                if first > at:
                    topic.store.run(raise_floor(topic.log, {partition: first}))
                done.gaps += end - first - fresh.num_rows
            at = end
            done.records += fresh.num_rows
        told(batch.num_rows)
    return done


def _known(topic: Topic, partition: int, batch: pa.RecordBatch, floor: int, end: int) -> int:
    """How many records of a batch the topic has already; `BadInput` if it has other records at these offsets."""
    offsets = batch.column("offset").to_pylist()
    known: int = sum(offset < end for offset in offsets)
    gone: int = sum(offset < floor for offset in offsets)
    if known > gone:
        low, high = offsets[gone], offsets[known - 1] + 1
        mine = pa.Table.from_batches([batch.slice(gone, known - gone).select(["offset", *COLUMNS])])
        stored = _stored(topic, partition, low, high)
        # the topic's own compaction has removed the records that it no longer has
        if not stored.equals(mine.filter(pc.is_in(mine.column("offset"), stored.column("offset")))):
            raise BadInput(
                f"partition {partition} of {topic.name!r} has other records at offsets {low} to {high - 1}; "
                "import into a new topic, or append these under new offsets (--renumber)"
            )
    return known


def _stored(topic: Topic, partition: int, low: int, high: int) -> pa.Table:
    batches = []
    for fetched in topic.fetch(partition, low):
        some = plain(fetched.between(low, high))
        columns = [some.offsets, *(some.data.column(name) for name in COLUMNS)]
        batches.append(pa.record_batch(columns, schema=ENTRIES))
        if fetched.end >= high:
            break
    return pa.Table.from_batches(batches, schema=ENTRIES)


def _append_with_gaps(topic: Topic, partition: int, batch: pa.RecordBatch, at: int, end: int) -> None:
    """Append records under their own offsets, which are not consecutive.  They go into a chunk like those that
    compaction makes, which stands for all offsets from the partition's next one on."""
    given = rows(batch.select(COLUMNS), 0, topic.settings.max_record_bytes)
    run = RunWriter(OFFSETS, topic.settings.compression)
    run.add(with_offsets(given, batch.column("offset")), 0)
    run.count = end - at
    with _alone(topic, partition):
        placed = topic.store.run(place(topic.log, chunk_of(OFFSETS, {partition: run}), {partition: at}))
        topic.store.run(commit([placed]))


def _append(topic: Topic, partition: int, batch: pa.RecordBatch, expected: dict[int, int] | None) -> None:
    with _alone(topic, partition), topic.transaction(expected=expected) as transaction:
        transaction.send_batch(batch.select(COLUMNS), partition=partition)


@contextmanager
def _alone(topic: Topic, partition: int) -> Iterator[None]:
    """Run an append; if another producer interferes, the error names the remedy."""
    try:
        yield
    except Expected as error:
        raise BadInput(
            f"another producer appends to partition {partition} of {topic.name!r}: {error}; stop it and import again, "
            "or append under new offsets (--renumber)"
        ) from error
