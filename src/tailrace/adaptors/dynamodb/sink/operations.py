"""Operations: converts rows into operations on items, in DynamoDB's own form.

    {"k": key, "d": item}                  put this whole item, in place of the one with this key
    {"k": key}                             delete the item
    {"k": key, "s": values, "u": paths}    if the item exists, set these attributes and remove those at the paths

A whole item or a delete replaces all earlier operations on the same key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from tailrace.adaptors.dynamodb.sink.values import DOCUMENT, kind_of, mark_of, values_of
from tailrace.adaptors.rows.record_key import id_of as key_id
from tailrace.adaptors.rows.removal import names_of, removed_of, take_away
from tailrace.adaptors.rows.rows import columns_of, keys_of, namespace_of, ops_of
from tailrace.adaptors.rows.unset import is_unset, unset_of, whole_of
from tailrace.errors import BadInput, NotReady, Rejected
from tailrace.log.record import Op
from tailrace.storage.aws.wire import to_wire
from tailrace.storage.keys import KeyKind, KeySchema
from tailrace.storage.limits import MAX_ITEM_BYTES, check_names, check_values, item_size

Operation: TypeAlias = dict[str, Any]
MAX_KEYS = 2
_NO_ITEM = (BadInput, ValueError, OverflowError, RecursionError)
"""The exceptions for values that no item can hold."""


class Operations:
    """The operations on the items of one namespace, which keep their order for each item."""

    def __init__(self, namespace: str, batch: pa.RecordBatch) -> None:
        self.namespace = namespace
        self.schema = schema_of(batch)
        self._last: dict[bytes, list[Operation]] = {}
        """For each key: its last whole item or delete, if there was one, and the partial changes after that."""
        self.size = self.puts = self.deletes = 0

    def take(self) -> list[Operation]:
        """Return all operations."""
        return [one for some in self._last.values() for one in some]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the operations of a batch of rows; raise `Rejected` for a row that DynamoDB cannot hold."""
        columns, ids = columns_of(batch), batch.column("key").to_pylist()
        ops, unset, whole = ops_of(batch).to_pylist(), unset_of(batch).to_pylist(), whole_of(batch).to_pylist()
        removed, fields = removed_of(batch), list(columns.schema)
        values = [self._values(ids, field, columns.column(n)) for n, field in enumerate(fields)]
        document = next((n for n, field in enumerate(fields) if mark_of(field) == DOCUMENT), None)
        for at, op in enumerate(ops):
            if op > Op.DELETE:
                continue
            row = {f.name: values[n][at] for n, f in enumerate(fields) if not is_unset(unset[at], n) and n != document}
            if document is not None and isinstance(item := values[document][at], dict):
                row = {**item, **row}
            is_whole = whole[at] or (document is not None and values[document][at] is not None)
            self._add(ids[at], Op(op), row, removed[at], whole=is_whole)

    def _add(self, id: bytes, op: Op, row: dict[str, Any], removed: Sequence[str], *, whole: bool) -> None:
        try:
            made, size = self._operation(op, row, removed, whole=whole)
        except _NO_ITEM as error:
            raise self._rejected(id, error) from None
        before = self._last.pop(id, [])
        self._last[id] = [*before, made] if "s" in made else [made]
        self.size += size
        self.puts += "d" in made
        self.deletes += len(made) == 1

    def _operation(self, op: Op, row: dict[str, Any], removed: Sequence[str], *, whole: bool) -> tuple[Operation, int]:
        schema = self.schema
        key = schema.key_of(row)
        schema.check(key)
        wired = {"k": _wired(schema.attributes(key))}
        if op == Op.DELETE:
            return wired, 100
        check_names(row)
        check_values(row, 0)
        if not whole:
            rest = {name: value for name, value in row.items() if not schema.is_key(name)}
            return {**wired, "s": _wired(rest), "u": [names_of(one) for one in removed]}, MAX_ITEM_BYTES
        take_away(row, removed)
        if (size := item_size(row)) > MAX_ITEM_BYTES:
            raise ValueError(f"it has {size:,} bytes, and an item has {MAX_ITEM_BYTES:,} at most")
        return {**wired, "d": _wired(row)}, size

    def _values(self, ids: Sequence[bytes], field: pa.Field[Any], column: pa.Array[Any]) -> list[Any]:
        try:
            return values_of(field, column)
        except _NO_ITEM as error:
            for at, id in enumerate(ids):
                try:
                    values_of(field, column.slice(at, 1))
                except _NO_ITEM as one:
                    why = "it is nested too deep" if isinstance(one, RecursionError) else one
                    raise self._rejected(id, f"{field.name}: {why}") from None
            raise self._rejected(ids[0], error) from None

    def _rejected(self, key: bytes, why: object) -> Rejected:
        id = key_id(key, self.namespace).decode(errors="replace")
        return Rejected(f"{self.namespace}: DynamoDB cannot hold {id!r}: {why}", namespace=self.namespace, id=id)


def _wired(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: to_wire(value) for name, value in values.items()}


def schema_of(batch: pa.RecordBatch) -> KeySchema:
    """Return the key schema of the DynamoDB table that the operations of these rows need; raise `NotReady` unless their
    key has one or two fields."""
    namespace, keys = namespace_of(batch), keys_of(batch)
    if not 1 <= len(keys) <= MAX_KEYS:
        raise NotReady(
            f"{namespace} has a key of {len(keys)} fields, and a table of DynamoDB one of one or two; give its rows "
            "such a key at the source, or by a function"
        )
    kinds: dict[str, KeyKind] = {field.name: kind_of(field) for field in columns_of(batch).schema}
    if len(keys) == 1:
        return KeySchema(keys[0], kinds[keys[0]], None)
    return KeySchema(keys[0], kinds[keys[0]], keys[1], kinds[keys[1]])


def batches(rows: Iterator[pa.RecordBatch], size: int) -> Iterator[Operations]:
    """Convert rows, in the order of the commit log, into the operations of each namespace, of about `size` bytes.

    For a batch without rows the operations are empty, but tell of its namespace."""
    held: dict[str, Operations] = {}
    for batch in rows:
        name = namespace_of(batch)
        one = held.get(name)
        if one is None or one.schema != schema_of(batch):
            if one is not None:
                yield one
            one = held[name] = Operations(name, batch)
        one.add(batch)
        if one.size >= size:
            yield held.pop(name)
    yield from held.values()
