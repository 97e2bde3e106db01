"""Messages in the form in which they are posted: JSON objects, with a key by which a receiver recognizes a repeat.

    {"key": "public.orders/3-17", "op": "update", "namespace": "public.orders", "id": "7",
     "timestamp": 1700000000000, "mode": "sync", "data": {…}}

`key` is the message's namespace, and its partition and offset in the pipeline's commit log; a function may make several
messages of one, and those of one namespace after the first end in -1, -2 and so on.  A change that leaves fields as
they are has `"whole": false`, and in `removed` the fields that it removes, as JSON Pointers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa

from tailrace.adaptors.formats.place_ids import PlaceIds
from tailrace.adaptors.rows.json_text import json_objects, to_json
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import columns_of, messages_of
from tailrace.adaptors.rows.unset import unset_names, unset_of
from tailrace.log.record import Op

UNIT_BYTES = 4 * 1024 * 1024


class Post(NamedTuple):
    """A message that is ready to be posted."""

    lane: int
    """A hash of the document's id.  Messages with the same lane are posted one after the other."""
    key: str
    namespace: str
    id: str
    body: bytes


_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(list[Post]).decode


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages, packed for the way from a task to the driver."""

    data: bytes
    size: int

    def posts(self) -> list[Post]:
        """Unpack the messages, in order."""
        return _unpack(pa.decompress(self.data, self.size, "lz4", asbytes=True))


def units(rows: Iterable[pa.RecordBatch]) -> Iterator[Unit]:
    """Make units of rows, which come in the order of the log.  The messages keep that order."""
    held: list[Post] = []
    size, places = 0, PlaceIds()
    for batch in rows:
        for post in posts(batch, places):
            held.append(post)
            size += len(post.body)
            if size >= UNIT_BYTES:
                yield _unit(held)
                held, size = [], 0
    if held:
        yield _unit(held)


def _unit(held: list[Post]) -> Unit:
    data = _pack(held)
    return Unit(pa.compress(data, "lz4", asbytes=True), len(data))


def posts(batch: pa.RecordBatch, places: PlaceIds) -> Iterator[Post]:
    """The messages of a batch of rows.  `places` has counted the rows of the share that came before."""
    if not batch.num_rows:
        return
    lanes = [crc32(key) for key in batch.column("key").to_pylist()]
    for lane, data, message in zip(lanes, _data(batch), messages_of(batch), strict=True):
        if message.op <= Op.DELETE:
            id = message.id.encode(errors="surrogateescape").decode(errors="replace")
            place, namespace = message.place, message.namespace
            key = "" if place.offset is None else f"{namespace}/{places.of(namespace, place)}"
            yield Post(lane, key, namespace, id, _body(message, key, id, data))


def _data(batch: pa.RecordBatch) -> list[bytes]:
    columns = columns_of(batch)
    if columns.schema.names == [""]:  # columns_of gives this for rows without columns
        return [b"{}"] * batch.num_rows
    left = unset_names(unset_of(batch), columns.schema.names).to_pylist() if "unset" in batch.schema.names else None
    return json_objects(columns, left)


def _body(message: Message, key: str, id: str, data: bytes) -> bytes:
    made = {
        "key": key,
        "op": message.op.name.lower(),
        "namespace": message.namespace,
        "id": id,
        "timestamp": message.timestamp,
        "mode": message.mode.name.lower(),
        "data": msgspec.Raw(data),
    }
    if message.op == Op.UPDATE and not message.whole:
        made["whole"] = False
    if message.removed:
        made["removed"] = list(message.removed)
    return to_json(made)
