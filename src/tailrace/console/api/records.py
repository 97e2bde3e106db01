"""Records over HTTP: appends of JSON, NDJSON or Arrow, and reads by offset, time or cursor as a page or a stream."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from starlette.responses import Response

from tailrace.adaptors.file.source.arrow_stream import arrow_batches
from tailrace.adaptors.file.source.bounded import written_out
from tailrace.console.api.topics import check_limit
from tailrace.console.cursor import by_partition, is_cursor, start_at
from tailrace.console.data import Data, bytes_of, value_of
from tailrace.console.limits import check_count, check_wait, while_connected
from tailrace.console.operation import ARROW, EVENTS, JSON, NDJSON, Call, Operations
from tailrace.console.problems import LostOffsets
from tailrace.console.reading import (
    STREAM_BYTES,
    STREAM_RECORDS,
    Page,
    ReadRecord,
    RecordHeader,
    follow,
    items_of,
    read_page,
    wait_for_page,
)
from tailrace.console.streaming import BEAT_SECONDS, Batch, in_pieces, streamed
from tailrace.errors import BadInput, BadRecord, Broken, Closed, OutcomeUnknown, TooLarge, UnknownTopic
from tailrace.log.read.reader import Reader
from tailrace.log.record import milliseconds
from tailrace.log.topic import Topic
from tailrace.log.write.acknowledgement import OffsetSpan
from tailrace.log.write.named_producer import last_batch

operations = Operations()
PAGE_RECORDS, PAGE_BYTES = 1000, 8 * 1024 * 1024
"""The most records and bytes of a page, unless the client asks for others."""
LARGEST_NUMBER = 2**53
"""The largest whole number that every JSON decoder holds exactly."""
DECODED = 4
"""The decoded records of an Arrow body may take this many times the bytes that a body may have: a body may be
compressed."""
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


class NewRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A record to append.  Its value is text or base64 in `value`, or any JSON in `json`, which the server stores as it
    is written.  `timestamp` is in milliseconds since 1970; default: the server's time.  Headers are an object, or a
    list of names and values if a name occurs twice."""

    value: Data = None
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    key: Data = None
    timestamp: int | None = None
    headers: dict[str, Data] | list[RecordHeader] = {}


class NewRecords(msgspec.Struct, forbid_unknown_fields=True):
    """Records to append, all or none.  `expected` has the next offset of some partitions, as in "0": 17; if another
    append has moved one of them, the answer is a conflict."""

    records: list[NewRecord]
    expected: dict[str, int] = {}


class AppendQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The partition to append to; and, for a named producer, the batch's number.  The server stores the batch of a
    number once, however often the client sends it.  A producer numbers its batches 1, 2, 3."""

    partition: int | None = None
    producer: str | None = None
    batch: int | None = None


class AppendedSpan(msgspec.Struct):
    """Appended records with consecutive offsets of a partition."""

    partition: int
    offset: int
    records: int


class Appended(msgspec.Struct):
    """The offsets of the appended records, which are durable.  `spans` is null for a batch that was stored before, if
    the producer has stored other batches since."""

    records: int
    spans: list[AppendedSpan] | None


class ReadQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """Where to start (`from`: earliest, latest, an offset, a time, how long ago such as 2h, a cursor), and how much to
    read.  `wait` is how many seconds the server waits for a record if there is none yet.  With `follow` an NDJSON
    answer continues with new records; server-sent events always do."""

    partition: int | None = None
    start: str = "earliest"
    limit: int | None = None
    max_bytes: int = PAGE_BYTES
    wait: float = 0.0
    follow: bool = False


class RecordPage(msgspec.Struct):
    """A page of records; `next` is the cursor of the next page.  `lost` has the damaged offsets that the page leaves
    out; if there are any, the status is 206."""

    records: list[ReadRecord]
    next: str
    lost: list[LostOffsets] = []


class ProducerState(msgspec.Struct):
    """The number of the last batch that is stored under a producer's name; 0 before the first."""

    producer: str
    last: int


# --- appending --------------------------------------------------------------------------------------------------------
@operations.post(
    "/topics/{topic}/records", answer=Appended, body=NewRecords, query=AppendQuery, takes=(NDJSON, ARROW), status=201
)
async def append_records(call: Call, query: AppendQuery, body: NewRecords | None) -> Appended:
    """Append records, all or none.  They are durable when the server answers."""
    await call.served.actions.refuse_own(call, call.path["topic"])
    expected = by_partition("expected", body.expected) if body is not None else {}
    limits = call.served.limits
    table = await call.served.run(_arrow, call.raw, DECODED * limits.body_bytes) if call.media == ARROW else None
    records = body.records if body is not None else _lines(call.raw) if call.media == NDJSON else []
    if not records and (table is None or not table.num_rows):
        raise BadInput("there is no record to append")
    for attempt in (1, 2):
        topic = await call.served.topic(call.path["topic"])
        try:
            with call.served.commit_times.timed("records"):
                return await _append(call, topic, query, table, records, expected)
        except UnknownTopic:  # the topic was deleted, and another one may have its name by now
            call.served.forget(topic.name)
            if attempt == 2:
                raise
    raise AssertionError("the second attempt returns or raises")


async def _append(
    call: Call, topic: Topic, query: AppendQuery, table: Any, records: list[NewRecord], expected: dict[int, int]
) -> Appended:
    if query.partition is not None:
        topic._check_partition(query.partition)
    if (query.producer is None) != (query.batch is None):
        raise BadInput("a numbered batch has both: producer=NAME and batch=NUMBER")
    if query.producer is not None and query.batch is not None:
        if expected:
            raise BadInput("a numbered batch has no expected offsets: its number is its condition")
        spans = await call.served.producers.send_numbered(
            topic, query.producer, query.batch, table or _table(records), query.partition
        )
        return _appended(spans, table.num_rows if table is not None else len(records))
    if table is None and len(records) == 1 and not expected:
        return await _append_one(call, topic, records[0], query.partition)
    spans = await call.served.run(_transact, topic, table or _table(records), query.partition, expected)
    return _appended(spans)


async def _append_one(call: Call, topic: Topic, record: NewRecord, partition: int | None) -> Appended:
    """Append one record through the topic's shared producer, which commits it together with those of other requests."""
    value, headers = value_of(record.value, record.json), _headers(record)
    producer = await call.served.producers.of(topic)
    try:
        ack = await producer.send(
            bytes_of(record.key), value, timestamp=record.timestamp, headers=headers or None, partition=partition
        )
        offset = await ack
    except (OutcomeUnknown, Broken, Closed, UnknownTopic):
        call.served.producers.drop(topic)
        raise
    return Appended(1, [AppendedSpan(ack.partition, offset, 1)])


def _transact(topic: Topic, table: Any, partition: int | None, expected: dict[int, int]) -> list[OffsetSpan]:
    with topic.transaction(expected=expected or None) as transaction:
        transaction.send_batch(table, partition=partition)
    return transaction.spans


def _appended(spans: list[OffsetSpan] | None, records: int = 0) -> Appended:
    if spans is None:
        return Appended(records, None)
    return Appended(sum(one.records for one in spans), [AppendedSpan(*one) for one in spans])


def _headers(record: NewRecord) -> list[tuple[str, bytes]]:
    given = record.headers
    pairs = given.items() if isinstance(given, dict) else [(one.name, one.value) for one in given]
    return [(name, bytes_of(value) or b"") for name, value in pairs]


def _table(records: list[NewRecord]) -> Any:
    """Return records as an Arrow table, unchecked: the topic checks it when it is sent."""
    columns: dict[str, Any] = {
        "key": pa.array([bytes_of(one.key) for one in records], pa.binary()),
        "value": pa.array([value_of(one.value, one.json) for one in records], pa.binary()),
    }
    if any(one.timestamp is not None for one in records):
        now = milliseconds(datetime.now().astimezone())
        stamps = [now if one.timestamp is None else milliseconds(one.timestamp) for one in records]
        columns["timestamp"] = pa.array(stamps, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    if any(one.headers for one in records):
        rows = [[{"name": name, "value": value} for name, value in _headers(one)] for one in records]
        columns["headers"] = pa.array(rows, _HEADERS)
    return pa.table(columns)


def _lines(data: bytes) -> list[NewRecord]:
    """Return the records of NDJSON, one per line, without empty lines; raise `BadRecord` for a line that is none."""
    decoder, found = msgspec.json.Decoder(NewRecord), list[NewRecord]()
    for number, line in enumerate(io.BytesIO(data), 1):
        if line.strip():
            try:
                found.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise BadRecord(f"line {number} is no record: {error}; nothing was appended") from None
            check_count(len(found))
    return found


def _arrow(data: bytes, memory: int) -> Any:
    """Return the records of an Arrow stream as a table, or None if it has none; raise `TooLarge` if they take more than
    `memory` bytes once decoded."""
    size, rows, batches = 0, 0, list[pa.RecordBatch]()
    for batch in arrow_batches(io.BytesIO(data), "the body", memory):
        size, rows = size + sum(map(written_out, batch.columns)), rows + batch.num_rows
        check_count(rows)
        if size > memory:
            raise TooLarge(
                f"the body needs more than {memory:,} bytes once decoded; nothing was appended, send less at a time"
            )
        batches.append(batch)
    return pa.Table.from_batches(batches) if batches else None


@operations.get("/topics/{topic}/producers/{producer}", answer=ProducerState)
async def describe_producer(call: Call) -> ProducerState:
    """Describe a producer: the number of the last batch that is stored under its name.  A client that starts again
    continues with the next number."""
    topic = await call.served.topic(call.path["topic"])
    last = await call.served.run(topic.store.run, last_batch(topic.log, call.path["producer"]))
    return ProducerState(call.path["producer"], last)


# --- reading ----------------------------------------------------------------------------------------------------------
@operations.get(
    "/topics/{topic}/records", answer=RecordPage, query=ReadQuery, gives=(NDJSON, EVENTS, ARROW), statuses=(206,)
)
async def read_records(call: Call, query: ReadQuery) -> Response:
    """Read records from an offset, a time or a cursor on: a page as JSON or Arrow, or a stream as NDJSON or server-sent
    events."""
    media = call.chosen(JSON, NDJSON, EVENTS, ARROW)
    topic = await call.served.topic(call.path["topic"])
    start = query.start
    if media == EVENTS and (last := call.request.headers.get("last-event-id", "")):
        if not is_cursor(last):
            raise BadInput(f"{last[:60]!r} is no Last-Event-ID of this stream")
        start = last
    positions = await call.served.run(topic.store.run, start_at(topic, query.partition, start))
    if media in (NDJSON, EVENTS):
        if query.limit is not None:
            check_limit(query.limit, LARGEST_NUMBER)
        going_on = media == EVENTS or query.follow
        return streamed(call, _items(call, topic, positions, query, going_on), media)
    return await _page(call, topic, positions, query, media)


async def _page(call: Call, topic: Topic, positions: dict[int, int], asked: ReadQuery, media: str) -> Response:
    limits = call.served.limits
    most = limits.page_records if media == JSON else 100 * limits.page_records
    limit = check_limit(most if media == ARROW and asked.limit is None else asked.limit or PAGE_RECORDS, most)
    if asked.limit is not None:
        check_limit(asked.limit, most)
    if not 1 <= asked.max_bytes <= limits.page_bytes:
        raise BadInput(f"max_bytes is a number from 1 to {limits.page_bytes:,}, not {asked.max_bytes}")
    check_wait(asked.wait, limits)
    reader = Reader(topic.log, positions, from_floor=asked.start == "earliest")
    if asked.wait:
        with call.served.streams.one(call.client):
            waiting = wait_for_page(call.served, topic, reader, limit, asked.max_bytes, asked.wait)
            page = await while_connected(call.request, waiting)
    else:
        page = await read_page(call.served, reader, limit, asked.max_bytes)
    status = 206 if page.lost else 200
    if media == ARROW:
        headers = {"Tailrace-Next": page.cursor}
        if page.lost:
            headers["Tailrace-Lost"] = ",".join(f"{one.partition}:{one.first}-{one.end - 1}" for one in page.lost)
        return in_pieces(await call.served.run(page.arrow), status, headers, ARROW)
    body = await call.served.run(_encoded, page, topic.name)
    return Response(body, status, media_type=JSON)


def _encoded(page: Page, topic: str) -> bytes:
    return msgspec.json.encode(RecordPage(page.records(topic), page.cursor, page.losses))


async def _items(
    call: Call, topic: Topic, positions: dict[int, int], asked: ReadQuery, going_on: bool
) -> AsyncGenerator[Batch]:
    """Yields records to send, page by page, up to the limit.  Unless `going_on`, ends after the last record that the
    topic has now."""
    pages = follow if going_on else _present
    at, left = dict(positions), asked.limit
    async for page in pages(call.served, topic, positions, every=asked.partition is None, beat=BEAT_SECONDS):
        if page.batch is not None and left is None:
            at.update(page.next)
            yield page.batch
            continue
        items = await call.served.run(items_of, page, topic.name, at, left) if page.rows or page.lost else []
        yield Batch(items)
        if left is not None:
            left -= sum(item.event == "record" for item in items)
            if left <= 0:
                return


async def _present(
    served: Any, topic: Topic, positions: dict[int, int], *, every: bool, beat: float
) -> AsyncIterator[Page]:
    """Yields the records that the topic has now, page by page."""
    ends = await served.run(topic.ends)
    until = {q: end for q, (_, end) in ends.items()}
    reader = Reader(topic.log, positions, until=until)
    while True:
        page = await read_page(served, reader, STREAM_RECORDS, STREAM_BYTES)
        if not page.rows and not page.lost:
            return
        reader.skipped.clear()
        yield page
