"""The reader: copies indexes once, shard by shard.  OpenSearch has no log of changes that could be followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Namespace, Piece, Reader
from tailrace.adaptors.opensearch.cluster import Cluster
from tailrace.adaptors.opensearch.settings import SearchSource
from tailrace.adaptors.opensearch.source.shard_copy import Hit, ShardCopy
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import make_rows, rows_of
from tailrace.errors import BadInput, NotThere
from tailrace.log.record import Mode, Op

ID, DOCUMENT = "_id", "document"
_DOCUMENTS = pa.schema([
    pa.field(ID, pa.string()),
    pa.field(DOCUMENT, pa.json_(), metadata={b"opensearch": b"document"}),
])  # fmt: skip


class SearchReader(Reader):
    """Reads the indexes of one cluster."""

    def __init__(self, settings: SearchSource) -> None:
        self._settings = settings

    def __repr__(self) -> str:
        return f"SearchReader({self._settings!r})"

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._settings)

    def check(self) -> None:
        """Connect, and check the version."""
        self._cluster.check_version()

    def namespaces(self) -> list[Namespace]:
        """The open indexes with the prefix that are neither hidden nor the cluster's own, without the prefix."""
        prefix = self._settings.prefix
        found = self._cluster.cat(f"{prefix}*")
        return [
            Namespace(one["index"].removeprefix(prefix), int(one.get("docs.count") or 0))
            for one in found
            if not one["index"].startswith(".") and one["index"] != prefix
        ]

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Raise `NotThere` if one of these is not exactly one index."""
        for name in namespaces:
            self._shards(name)

    def _shards(self, namespace: str) -> int:
        found = self._cluster.indexes(name := self._settings.prefix + namespace)
        if len(found) != 1:
            raise NotThere(f"there is no index {name} at {self._cluster.where} (any more)")
        return int(found[0].settings["index.number_of_shards"])

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """One piece for each shard."""
        return [Piece(namespace, shard) for shard in range(self._shards(namespace))]

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The documents of a shard; a batch without rows if it has none."""
        shard = ShardCopy(self._cluster, self._settings, self._settings.prefix + piece.namespace, int(piece.bounds))
        make = _documents if self._settings.shape == "document" else _columns
        empty = True
        for hits in shard.pages():
            for batch in make(piece.namespace, hits):
                empty = False
                yield batch
        if empty:
            yield from _documents(piece.namespace, [])

    def close(self) -> None:
        """Close the connections."""
        if "_cluster" in self.__dict__:
            self._cluster.close()


def _documents(namespace: str, hits: Sequence[Hit]) -> list[pa.RecordBatch]:
    """Rows with two columns: the id, and the whole document as JSON."""
    ids = pa.array([hit.id for hit in hits], pa.string())
    texts = pa.array([bytes(hit.source).decode() for hit in hits], pa.json_())
    columns = pa.RecordBatch.from_arrays([ids, texts], schema=_DOCUMENTS)
    return [make_rows(namespace, columns, [ID], op=Op.INSERT, mode=Mode.COPY)]


def _columns(namespace: str, hits: Sequence[Hit]) -> list[pa.RecordBatch]:
    """Rows with a column for each field of the first level, typed as its values are."""
    messages = []
    for hit in hits:
        document: dict[str, Any] = msgspec.json.decode(hit.source)
        if ID in document:
            raise BadInput(f"{namespace}: a document has a field _id beside its id; shape = 'document' copies it")
        messages.append(Message(Op.INSERT, namespace, hit.id, {ID: hit.id, **document}, 0, Mode.COPY, (ID,)))
    return rows_of(messages, open=True)
