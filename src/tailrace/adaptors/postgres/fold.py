"""Folding: many changes of the same documents into one for each, so that a sink need not apply them one by one.

With an id, the last state counts; fields that a change left unset are those of the changes before it.  Without one, it
counts how many equal rows came more than went, or fewer.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows import columns_of, keys_of, namespace_of, ops_of
from tailrace.errors import BadInput
from tailrace.log.record import Op


def fold(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of one namespace → the document's fields, and in front of them `op` and `unset`; one row for each id.

    `op` is DELETE or INSERT; a row whose `unset` is not null changes a document that is there, or nothing."""
    rows = _data(rows)
    flat = _flat(rows)
    groups = rows.column("key").dictionary_encode().indices
    if not keys_of(rows):
        return _netted(flat, groups)
    if pc.count_distinct(groups).as_py() == len(groups):
        return flat
    return _folded(flat, groups) if flat.column("unset").null_count < len(flat) else flat.take(_last(groups))


def _data(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without rows that change nothing."""
    ops = ops_of(rows)
    if pc.any(pc.equal(ops, int(Op.COMMAND))).as_py():
        raise BadInput(f"{namespace_of(rows)}: a command is not a row; it goes to `command`, alone")
    kept = pc.less(ops, int(Op.COMMAND))
    return rows if pc.all(kept).as_py() else rows.filter(kept)


def _flat(rows: pa.RecordBatch) -> pa.RecordBatch:
    ops = pc.if_else(pc.equal(ops_of(rows), int(Op.DELETE)), int(Op.DELETE), int(Op.INSERT)).cast(pa.uint8())
    none = pa.nulls(rows.num_rows, pa.binary())
    unset = rows.column("unset") if "unset" in rows.schema.names else none
    # Of a deleted document nothing but its id counts.
    unset = pc.if_else(pc.equal(ops, int(Op.DELETE)), none, unset)
    columns = columns_of(rows)
    fields = [pa.field("op", pa.uint8()), pa.field("unset", pa.binary()), *columns.schema]
    return pa.RecordBatch.from_arrays([ops, unset, *columns.columns], schema=pa.schema(fields))


def _greatest(groups: pa.Array[Any], at: pa.Array[Any]) -> pa.Array[Any]:
    """For each group, in order of their numbers, the greatest of its values in `at`; null if it has none."""
    table = pa.table({"group": groups, "at": at}).group_by("group", use_threads=False).aggregate([("at", "max")])
    return table.take(pc.sort_indices(table.column("group"))).column("at_max").combine_chunks()


def _last(groups: pa.Array[Any]) -> pa.Array[Any]:
    """The place of each group's last row, in order of the places."""
    return _greatest(groups, pa.arange(0, len(groups))).sort()


def _folded(flat: pa.RecordBatch, groups: pa.Array[Any]) -> pa.RecordBatch:
    """The last state of each id, of changes some of which left fields unset."""
    places = pa.arange(0, len(flat))
    nothing = pa.scalar(None, pa.int64())
    whole = pc.is_null(flat.column("unset"))
    since = _greatest(groups, pc.if_else(whole, places, nothing))
    counts = pc.greater_equal(places, pc.fill_null(since.take(groups), -1))
    last = _greatest(groups, places)
    # After a delete, changes of single fields have nothing to change: it stays one.
    ops = flat.column("op").take(pc.coalesce(since, last))
    sources = [
        _greatest(groups, pc.if_else(pc.and_(counts, _is_set(flat, n)), places, nothing))
        if _ever_unset(flat, n)
        else last
        for n in range(flat.num_columns - 2)
    ]
    unset = pc.if_else(pc.equal(ops, int(Op.DELETE)), pa.scalar(None, pa.binary()), _bitmaps(sources, since))
    taken = [flat.column(n + 2).take(source) for n, source in enumerate(sources)]
    return pa.RecordBatch.from_arrays([ops, unset, *taken], schema=flat.schema)


def _ever_unset(flat: pa.RecordBatch, n: int) -> bool:
    return not pc.all(_is_set(flat, n)).as_py()


def _is_set(flat: pa.RecordBatch, n: int) -> pa.Array[Any]:
    """Which rows have field n."""
    encoded = flat.column("unset").dictionary_encode()
    known = pa.array([not bits[n // 8] >> n % 8 & 1 for bits in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(known.take(encoded.indices), True)


def _bitmaps(sources: list[pa.Array[Any]], since: pa.Array[Any]) -> pa.Array[Any]:
    """Which fields no row of a group has set; null only where `since` says that one of its rows was whole."""
    rows = len(sources[0])
    bits = [0] * rows
    for n, source in enumerate(sources):
        if source.null_count:
            for row, missing in enumerate(source.is_null().to_pylist()):
                bits[row] |= missing << n
    size = (len(sources) + 7) // 8
    whole = since.is_valid().to_pylist()
    filled = [None if done and not one else one.to_bytes(size, "little") for one, done in zip(bits, whole, strict=True)]
    return pa.array(filled, pa.binary())


def _netted(flat: pa.RecordBatch, groups: pa.Array[Any]) -> pa.RecordBatch:
    """Of rows without an id: as many inserts or deletes of each as make the difference."""
    signs = pc.if_else(pc.equal(flat.column("op"), int(Op.DELETE)), -1, 1)
    table = pa.table({"group": groups, "sign": signs, "at": pa.arange(0, len(flat))})
    sums = table.group_by("group", use_threads=False).aggregate([("sign", "sum"), ("at", "max")])
    nets, places = sums.column("sign_sum").to_pylist(), sums.column("at_max").to_pylist()
    repeated = pa.array([at for net, at in zip(nets, places, strict=True) for _ in range(abs(net))], pa.int64())
    ops = [Op.DELETE if net < 0 else Op.INSERT for net in nets for _ in range(abs(net))]
    taken = flat.take(repeated)
    return taken.set_column(0, flat.schema.field(0), pa.array(ops, pa.uint8()))
