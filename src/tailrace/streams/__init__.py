"""Change streams: models, the tables of their instances, and every change of such a table, in order and resumable.

Outside this package import from here: `model`, `hash_key`, `range_key`, `store_as`; `Engine`, which `home.engine()`
returns; `Stream`, `Record` and `StreamGroup`, which the engine returns; the conditions and changes that saves and
updates take.

`model` makes items of a dataclass (`values` has its types), and `engine` stores them, with `table_homes` and `writing`.
`stream` makes one sequence out of many shards (`active_shards`, `shard`, `merge`, `lineage`), and `token` is where a
reader goes on.  `sharing` and `group` say how the processes of a group share the shards.

Used from outside: engine, writing, table_homes, stream, record, following, token, description, document, patience.
Read in this order: engine, model, values, writing, table_homes, stream, record, following, active_shards, merge,
lineage, shard, token, start, bounded, arrow, sharing, group, description, document, patience.
"""

from tailrace.storage.tables import (
    Absent,
    Add,
    Append,
    AtMost,
    Equals,
    Exists,
    Include,
    Less,
    NotIn,
    Regardless,
    Remove,
    Set,
)
from tailrace.streams.engine import Engine
from tailrace.streams.group import StreamGroup
from tailrace.streams.model import hash_key, model, range_key
from tailrace.streams.record import EventInfo, Meta, Record
from tailrace.streams.stream import Stream
from tailrace.streams.values import store_as

__all__ = [
    "Absent",
    "Add",
    "Append",
    "AtMost",
    "Engine",
    "Equals",
    "EventInfo",
    "Exists",
    "Include",
    "Less",
    "Meta",
    "NotIn",
    "Record",
    "Regardless",
    "Remove",
    "Set",
    "Stream",
    "StreamGroup",
    "hash_key",
    "model",
    "range_key",
    "store_as",
]
