"""Descriptions of tables: the key, what changes carry, the shards of the change stream."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.storage.changes import Shard, View
from tailrace.storage.keys import KeySchema

KINDS = {"S": "text", "N": "number", "B": "bytes"}
CARRIES: dict[View, tuple[str, ...]] = {"keys": ("keys",), "new": ("new",), "old": ("old",), "both": ("new", "old")}


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table and its change stream; without a stream `stream_id` is None."""

    name: str
    hash_key: tuple[str, str]
    """The attribute's name, and "text", "number" or "bytes"."""
    range_key: tuple[str, str] | None
    stream: tuple[str, ...]
    """What a change carries: "keys", "new", "old"; empty if the table has no change stream."""
    stream_id: str | None = None
    shards: tuple[Shard, ...] = ()


def describe(name: str, schema: KeySchema, view: View | None) -> TableDescription:
    """Describe a table, without the id and the shards of its stream."""
    range_key = None if schema.range is None else (schema.range, KINDS[schema.range_kind])
    return TableDescription(
        name, (schema.hash, KINDS[schema.hash_kind]), range_key, () if view is None else CARRIES[view]
    )
