"""Reads of a topic for an answer: single pages of records, and pages that follow the topic's end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tailrace.console.cursor import cursor_of
from tailrace.console.data import Data, data_of
from tailrace.console.problems import LostOffsets, lost_offsets
from tailrace.console.streaming import Batch, Item
from tailrace.errors import Damaged, Lost
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.log.record import Record
from tailrace.log.topic import Topic, as_arrow, as_records

if TYPE_CHECKING:
    from tailrace.console.open_home import OpenHome

STREAM_BYTES, STREAM_RECORDS = 1024 * 1024, 2**62
"""How much a stream fetches at a time: at least one chunk, and never a part of one, since its rest would be fetched
again."""
END_BYTES = 64
"""Bytes for the end mark of an Arrow stream, and for aligning its schema."""


class RecordHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A header of a record; a record may have several of one name."""

    name: str
    value: Data


class ReadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record; `timestamp` is in milliseconds since 1970, `attributes` holds a pipeline's mode and op."""

    partition: int
    offset: int
    timestamp: int
    key: Data = None
    value: Data = None
    headers: list[RecordHeader] = []
    attributes: int = 0


def shown(record: Record) -> ReadRecord:
    """Return a record as an answer has it."""
    headers = [RecordHeader(name, data_of(value)) for name, value in record.headers]
    return ReadRecord(
        record.partition, record.offset, record.timestamp, data_of(record.key), data_of(record.value), headers,
        record.attributes,
    )  # fmt: skip


@dataclass(slots=True)
class Page:
    """The records that were fetched for one answer."""

    fetched: list[Fetched] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    """Damaged offsets that the page leaves out, and the answer names."""
    next: dict[int, int] = field(default_factory=dict)
    batch: Batch | None = None
    """The page as the server sends it to every follower that has read up to its beginning."""
    passed: int = 0
    """How many offsets before the page a follower has skipped, since it wants the newest records only."""

    @property
    def rows(self) -> int:
        """The number of records on the page."""
        return sum(one.data.num_rows for one in self.fetched)

    @property
    def cursor(self) -> str:
        """The cursor of a topic at which the next page begins."""
        return cursor_of(self.next)

    @property
    def losses(self) -> list[LostOffsets]:
        """The lost offsets, as an answer has them."""
        return lost_offsets(self.lost)

    def records(self, topic: str) -> list[ReadRecord]:
        """Return the records, as JSON has them."""
        return [shown(record) for one in self.fetched for record in as_records(topic, one)]

    def arrow(self) -> memoryview:
        """Return the records as an Arrow stream; a page without records still has a schema."""
        batches = [as_arrow(one) for one in self.fetched] or [_none()]
        table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
        size = sum(pa.ipc.get_record_batch_size(batch) for batch in table.to_batches())
        room = pa.allocate_buffer(size + table.schema.serialize().size + END_BYTES)
        out = pa.FixedSizeBufferWriter(room)  # a buffer that grows is copied again and again
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
        return memoryview(room)[: out.tell()]


def _none() -> pa.RecordBatch:
    schema = pa.schema(
        [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("attributes", pa.uint8()),
            ("key", pa.binary()),
            ("value", pa.binary()),
        ]
    )
    return pa.RecordBatch.from_pylist([], schema=schema)


async def read_page(served: OpenHome, reader: Reader, limit: int, max_bytes: int) -> Page:
    """Read a page of up to `limit` records and about `max_bytes` bytes; it is smaller only at the end of the topic.

    Passes damaged offsets, and notes them in the page; raises `Damaged` if the error does not say which they are."""
    page, left = Page(), max_bytes
    while page.rows < limit and left > 0:
        try:
            fetched = await served.run(served.home.store.run, reader.poll(min(left, max_bytes), limit - page.rows))
        except Damaged as error:
            if not _pass(reader, error, page):
                raise
            continue
        if not fetched:
            break
        for one in fetched:
            room = limit - page.rows
            page.fetched.append(one if one.data.num_rows <= room else one.rows(0, room))
            left -= one.data.nbytes
        _step_back(reader, page, fetched)
    page.next = dict(reader.positions)
    page.lost += reader.skipped
    return page


def _step_back(reader: Reader, page: Page, fetched: list[Fetched]) -> None:
    """Move the reader back to behind the last record that the page has room for."""
    kept = page.fetched[len(page.fetched) - len(fetched) :]
    for whole, part in zip(fetched, kept, strict=True):
        if part.data.num_rows < whole.data.num_rows:
            reader.positions[whole.partition] = min(reader.positions[whole.partition], part.end)
            if not part.data.num_rows:
                reader.positions[whole.partition] = min(reader.positions[whole.partition], whole.offset)


def _pass(reader: Reader, error: Damaged, page: Page) -> bool:
    """Move the reader behind damaged offsets, and note them in the page; return False if the error names none."""
    mine = [one for one in error.lost if reader.positions.get(one.partition, one.end) < one.end]
    for one in mine:
        page.lost.append(one)
        reader.positions[one.partition] = one.end
    return bool(mine)


async def follow(
    served: OpenHome, topic: Topic, positions: dict[int, int], *, every: bool, beat: float, newest: int | None = None
) -> AsyncIterator[Page]:
    """Yields pages of records as they come, without end; an empty page after each `beat` seconds without records.

    A follower of all partitions that has caught up gets the pages that the tail has fetched for all followers.  With
    `newest`, a follower that is more than `newest` offsets behind in a partition skips to the newest ones."""
    reader = Reader(topic.log, positions, every=every)
    async with served.tails.follow(topic.log) as tail:
        while True:
            if not await tail.more(reader.positions, beat, every=every):
                yield Page(next=dict(reader.positions))
                continue
            passed = 0 if newest is None else _skip(reader, tail.ends, newest)
            page = tail.page_at(reader.positions) if every else None
            if page is None:
                page = await read_page(served, reader, STREAM_RECORDS, STREAM_BYTES)
                reader.skipped.clear()
            else:
                reader.positions = dict(page.next)
            if page.rows or page.lost or passed:
                yield replace(page, passed=passed) if passed else page


def _skip(reader: Reader, ends: Mapping[int, int], newest: int) -> int:
    """Move the reader to the `newest` last offsets of each partition; return how many offsets that skips."""
    late = {q: ends[q] - newest for q, at in reader.positions.items() if ends.get(q, 0) - at > newest}
    passed = sum(at - reader.positions[q] for q, at in late.items())
    reader.positions.update(late)
    return passed


async def wait_for_page(
    served: OpenHome, topic: Topic, reader: Reader, limit: int, max_bytes: int, seconds: float
) -> Page:
    """Read a page; if it would be empty, wait for records for up to `seconds`."""
    page = await read_page(served, reader, limit, max_bytes)
    until = time.monotonic() + seconds
    async with served.tails.follow(topic.log) as tail:
        while not page.rows and not page.lost and (left := until - time.monotonic()) > 0:
            if await tail.more(reader.positions, left, every=False):
                page = await read_page(served, reader, limit, max_bytes)
    return page


def items_of(page: Page, topic: str, at: dict[int, int], left: int | None = None) -> list[Item]:
    """Return up to `left` of a page's records and, in their places, the ranges that are lost, each with the cursor from
    which a client continues after it.  Moves the positions in `at` past what it returns."""
    items: list[Item] = []
    losses = sorted(page.losses, key=lambda one: one.first)

    def pass_losses(partition: int | None, before: int) -> None:
        for one in [one for one in losses if partition in (None, one.partition) and one.first < before]:
            losses.remove(one)
            at[one.partition] = one.end
            items.append(Item("lost", one, cursor_of(at)))

    for fetched in page.fetched:
        for record in as_records(topic, fetched):
            if left is not None and left <= 0:
                return items
            if losses:
                pass_losses(record.partition, record.offset)
            at[record.partition] = record.offset + 1
            items.append(Item("record", shown(record), cursor_of(at)))
            left = None if left is None else left - 1
    pass_losses(None, 2**62)
    at.update(page.next)
    return items
