"""Operations on the documents of one namespace, which a task gathers and sends to `finish`.

    [id, routing, document]                  put this whole document in place of an existing one
    [id, routing, nil]                       delete the document
    [id, routing, [[fields, removed] …]]     set these fields of the document and remove those, if it exists

Several rows of one id give one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.formats.place_ids import PlaceIds
from tailrace.adaptors.opensearch.names import index_name
from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink import documents
from tailrace.adaptors.opensearch.sink.mapping import mapping_of
from tailrace.adaptors.rows.removal import removed_of
from tailrace.adaptors.rows.rows import keys_of, namespace_of, ops_of
from tailrace.adaptors.rows.unset import whole_of
from tailrace.errors import BadInput, NotReady
from tailrace.log.record import Op

UNIT_BYTES = 4 * 1024 * 1024
"""About the size of a unit, uncompressed."""
Change = tuple[dict[str, bytes], list[str]]
Document = bytes | list[Change] | None
_pack, _unpack = (
    msgspec.msgpack.Encoder().encode,
    msgspec.msgpack.Decoder(list[tuple[str, str | None, Document]]).decode,
)


@dataclass(frozen=True, slots=True)
class Unit:
    """Operations of one namespace, packed for the way from a task to the driver."""

    namespace: str
    index: str
    mapping: dict[str, Any]
    puts: int = 0
    deletes: int = 0
    changes: int = 0
    data: bytes = b""
    size: int = 0

    def operations(self) -> list[tuple[str, str | None, Document]]:
        """Unpack the operations: id, routing and document of each."""
        if not self.data:
            return []
        return _unpack(pa.decompress(self.data, self.size, "lz4", asbytes=True))


@dataclass(slots=True)
class _Gathered:
    """The operations of a namespace that are not yet in a unit."""

    namespace: str
    settings: SearchSink
    places: PlaceIds
    mapping: dict[str, Any] = field(default_factory=dict)
    last: dict[str, tuple[str | None, Document]] = field(default_factory=dict)
    size: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the operations of a batch; of an id the latest operation replaces, or merges with, the one before."""
        self.mapping |= mapping_of(list(batch.schema.field("data").type), keys_of(batch))
        if not batch.num_rows:
            return
        ids, sources, routes = documents.ids(batch, self.places), documents.sources(batch), self._routes(batch)
        ops, whole, removed = ops_of(batch).to_pylist(), whole_of(batch).to_pylist(), removed_of(batch)
        is_id = keys_of(batch) == ("_id",)
        for id, source, route, op, is_whole, taken in zip(ids, sources, routes, ops, whole, removed, strict=True):
            if op == Op.COMMAND:
                raise BadInput(f"{self.namespace}: a command is not a row; it goes to `command`, alone")
            if op > Op.DELETE:
                continue
            made: Document = None
            if op != Op.DELETE:
                taken = [*taken, "/_id"] if is_id else taken
                made = self._made(id, source, taken, is_whole=is_whole)
                self.size += len(source)
            self.last.pop(id, None)
            self.last[id] = route, made
            self.size += len(id) + 64

    def _made(self, id: str, source: bytes, removed: list[str], *, is_whole: bool) -> Document:
        """The operation for an id after this row: a change is merged into the operation before it."""
        if is_whole:
            return documents.without(source, removed) if removed else source
        fields = documents.fields_of(source)
        _, before = self.last.get(id, (None, []))
        if isinstance(before, list):
            return [*before, ({name: bytes(value) for name, value in fields.items()}, removed)]
        return None if before is None else documents.merged(before, fields, removed)

    def _routes(self, batch: pa.RecordBatch) -> list[str | None]:
        name = self.settings.routing
        if name is None:
            return [None] * batch.num_rows
        if name not in keys_of(batch):
            raise NotReady(
                f"{self.namespace}: routing = {name!r} is not a field of the key, so it may change, and a delete does "
                "not say which shard the document is in; name a field of the key, or leave routing out"
            )
        return [str(value) for value in batch.column("data").field(name).to_pylist()]

    def unit(self) -> Unit:
        """Pack the operations as a unit."""
        made = [(id, *rest) for id, rest in self.last.items()]
        kinds = [type(document) for _, _, document in made]
        data = _pack(made)
        return Unit(
            self.namespace,
            index_name(self.settings.index, self.namespace),
            self.mapping,
            kinds.count(bytes),
            kinds.count(type(None)),
            kinds.count(list),
            pa.compress(data, "lz4", asbytes=True) if made else b"",
            len(data),
        )


def units(rows: Iterable[pa.RecordBatch], settings: SearchSink) -> Iterator[Unit]:
    """Make units of rows, which come in the order of the log.  Units that name the same id must be carried out in the
    order given."""
    held: dict[str, _Gathered] = {}
    places = PlaceIds()
    for batch in rows:
        name = namespace_of(batch)
        one = held.setdefault(name, _Gathered(name, settings, places))
        one.add(batch)
        if one.size >= UNIT_BYTES:
            yield held.pop(name).unit()
    for one in held.values():
        yield one.unit()
