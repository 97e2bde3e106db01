"""Folding: turns many changes of the same documents into one row for each document, so that a sink need not apply the
changes one by one.

In a namespace with an id, the last state of each document is kept; a field that a change left as it was has the value
of the changes before it.  Without an id, folding counts for each distinct row how many more were inserted than deleted,
or fewer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.provenance import place_columns
from tailrace.adaptors.rows.removal import as_columns
from tailrace.adaptors.rows.rows import columns_of, keys_of, namespace_of, ops_of
from tailrace.adaptors.rows.unset import from_number, left_as_they_are, unset_at
from tailrace.errors import BadInput
from tailrace.log.record import Op


class Folded(NamedTuple):
    """Folded changes: one row for each document.  tailrace's own columns stand beside the document's columns and never
    among them, because a document may have a column of any name.

    Each op is DELETE or INSERT.  A row whose `unset` is not null changes a document that the sink has; if the sink does
    not have it, the row does nothing."""

    ops: pa.Array[Any]
    unset: pa.Array[Any]
    columns: pa.RecordBatch
    partition: pa.Array[Any]
    offset: pa.Array[Any]
    """The place in the commit log of each document's last change; null where it is not known."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.ops)

    def take(self, places: pa.Array[Any]) -> Folded:
        """Return the rows with these numbers."""
        return Folded(*(part.take(places) for part in self))


def fold(rows: pa.RecordBatch) -> Folded:
    """Fold the rows of one namespace into one row for each id.  Raises `BadInput` if a command is among them."""
    rows = _data(rows)
    flat = _flat(rows)
    groups = rows.column("key").dictionary_encode().indices
    if not keys_of(rows):
        return _netted(flat, groups)
    if pc.count_distinct(groups).as_py() == len(groups):
        return flat
    return _folded(flat, groups) if flat.unset.null_count < flat.rows else flat.take(_last(groups))


def _data(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out the rows that change nothing (noop); raise `BadInput` for a command."""
    ops = ops_of(rows)
    if pc.any(pc.equal(ops, int(Op.COMMAND))).as_py():
        raise BadInput(f"{namespace_of(rows)}: a command is not a row; it goes to `command`, alone")
    kept = pc.less(ops, int(Op.COMMAND))
    return rows if pc.all(kept).as_py() else rows.filter(kept)


def _flat(rows: pa.RecordBatch) -> Folded:
    ops = pc.if_else(pc.equal(ops_of(rows), int(Op.DELETE)), int(Op.DELETE), int(Op.INSERT)).cast(pa.uint8())
    none = pa.nulls(rows.num_rows, pa.binary())
    rows = as_columns(rows, namespace_of(rows))
    unset = left_as_they_are(rows)
    # Only the id of a deleted document counts.
    unset = pc.if_else(pc.equal(ops, int(Op.DELETE)), none, unset)
    where = place_columns(rows)
    return Folded(ops, unset, columns_of(rows), where["partition"], where["offset"])


def _greatest(groups: pa.Array[Any], at: pa.Array[Any]) -> pa.Array[Any]:
    """For each group, in the order of the groups' numbers: the greatest of its values in `at`, null if it has none."""
    table = pa.table({"group": groups, "at": at}).group_by("group", use_threads=False).aggregate([("at", "max")])
    return table.take(pc.sort_indices(table.column("group"))).column("at_max").combine_chunks()


def _last(groups: pa.Array[Any]) -> pa.Array[Any]:
    """The row number of each group's last row, ascending."""
    return _greatest(groups, pa.arange(0, len(groups))).sort()


def _folded(flat: Folded, groups: pa.Array[Any]) -> Folded:
    """The last state of each id, where some changes left fields unset."""
    places = pa.arange(0, flat.rows)
    nothing = pa.scalar(None, pa.int64())
    whole = pc.is_null(flat.unset)
    since = _greatest(groups, pc.if_else(whole, places, nothing))
    counts = pc.greater_equal(places, pc.fill_null(since.take(groups), -1))
    last = _greatest(groups, places)
    # After a delete, a change of single fields finds no document: the delete stays a delete.
    ops = flat.ops.take(pc.coalesce(since, last))
    sources = [
        _greatest(groups, pc.if_else(pc.and_(counts, _is_set(flat, n)), places, nothing))
        if _ever_unset(flat, n)
        else last
        for n in range(flat.columns.num_columns)
    ]
    unset = pc.if_else(pc.equal(ops, int(Op.DELETE)), pa.scalar(None, pa.binary()), _bitmaps(sources, since))
    taken = [flat.columns.column(n).take(source) for n, source in enumerate(sources)]
    columns = pa.RecordBatch.from_arrays(taken, schema=flat.columns.schema)
    return Folded(ops, unset, columns, flat.partition.take(last), flat.offset.take(last))


def _ever_unset(flat: Folded, n: int) -> bool:
    return not pc.all(_is_set(flat, n)).as_py()


def _is_set(flat: Folded, n: int) -> pa.Array[Any]:
    """For each row, whether it has field n."""
    return pc.invert(unset_at(flat.unset, n))


def _bitmaps(sources: list[pa.Array[Any]], since: pa.Array[Any]) -> pa.Array[Any]:
    """The bitmap of each group: the fields that no row of the group has set.  Null if a whole document is among the
    group's rows (`since`) and no field is missing."""
    rows = len(sources[0])
    bits = [0] * rows
    for n, source in enumerate(sources):
        if source.null_count:
            for row, missing in enumerate(source.is_null().to_pylist()):
                bits[row] |= missing << n
    whole = since.is_valid().to_pylist()
    filled = [
        None if done and not one else from_number(one, len(sources)) for one, done in zip(bits, whole, strict=True)
    ]
    return pa.array(filled, pa.binary())


def _netted(flat: Folded, groups: pa.Array[Any]) -> Folded:
    """Rows without an id: for each distinct row, as many inserts or deletes as remain after the two cancel out."""
    signs = pc.if_else(pc.equal(flat.ops, int(Op.DELETE)), -1, 1)
    table = pa.table({"group": groups, "sign": signs, "at": pa.arange(0, flat.rows)})
    sums = table.group_by("group", use_threads=False).aggregate([("sign", "sum"), ("at", "max")])
    nets, places = sums.column("sign_sum").to_pylist(), sums.column("at_max").to_pylist()
    repeated = pa.array([at for net, at in zip(nets, places, strict=True) for _ in range(abs(net))], pa.int64())
    ops = [Op.DELETE if net < 0 else Op.INSERT for net in nets for _ in range(abs(net))]
    return flat.take(repeated)._replace(ops=pa.array(ops, pa.uint8()))
