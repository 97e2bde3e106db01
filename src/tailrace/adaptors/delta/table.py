"""One Delta table, and the commits that a writer makes to it.

Each commit has a `txn` action with the writer's app id and the step.  Delta refuses a commit if another with the same
app id came after the version that it began from, so a step is in a table once, however many processes commit it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.delta.durable import hooks, make_durable
from tailrace.adaptors.delta.errors import explained
from tailrace.adaptors.delta.store import DeltaStore
from tailrace.adaptors.lake.column_types import cast
from tailrace.adaptors.lake.schemas import Growth
from tailrace.adaptors.lake.table import LakeTable, Mark, Merged
from tailrace.adaptors.rows.unset import unset_at
from tailrace.log.record import Op

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

    from tailrace.adaptors.delta.settings import DeltaSink

_log = logging.getLogger("tailrace")


class DeltaLakeTable(LakeTable):
    """A table that the library deltalake reads and writes."""

    def __init__(self, store: DeltaStore, name: str, table: DeltaTable, settings: DeltaSink) -> None:
        self._store, self._name, self._table, self._settings = store, name, table, settings
        self.place = f"{store.shown}/{name}"

    @property
    def id(self) -> str:
        """The id in the table's metadata."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        """The version that was read last."""
        return int(self._table.version())

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        found = pa.schema(self._table.schema().to_arrow())
        return pa.schema([pa.field(field.name, field.type) for field in found])

    def refresh(self) -> None:
        """Read what other programs have committed."""
        with explained(self.place):
            self._table.update_incremental()

    def step(self, app: str) -> int:
        """The version of the writer's last `txn` in the table; 0 if it has none."""
        return int(self._table.transaction_version(app) or 0)

    def grow(self, growth: Growth) -> None:
        """Add columns and fields by a commit of metadata.  For a wider type rewrite the whole table in one commit."""
        from deltalake import write_deltalake

        with explained(self.place):
            if not growth.widened:
                none = pa.Table.from_batches([], growth.schema)
                write_deltalake(
                    self._table, none, mode="append", schema_mode="merge", post_commithook_properties=self._hooks
                )
                return
            _log.warning("%s is written again, with wider columns: %s", self.place, ", ".join(growth.widened))
            old = pa.RecordBatchReader.from_stream(self._table.scan())
            rows = pa.RecordBatchReader.from_batches(growth.schema, (_in(batch, growth.schema) for batch in old))
            write_deltalake(
                self._table, rows, mode="overwrite", schema_mode="overwrite", post_commithook_properties=self._hooks
            )

    def append(self, rows: Iterator[pa.RecordBatch], schema: pa.Schema, mark: Mark) -> None:
        """Add rows in one commit with this mark."""
        from deltalake import write_deltalake

        with explained(self.place):
            reader = pa.RecordBatchReader.from_batches(schema, rows)
            write_deltalake(self._table, reader, mode="append", **self._commit(mark))

    def merge(self, rows: Merged, mark: Mark) -> None:
        """Insert, update and delete documents in one commit.  If the table has no rows, append the whole documents."""
        if self.is_empty():
            whole = pc.and_(pc.not_equal(rows.ops, int(Op.DELETE)), pc.is_null(rows.unset))
            kept = rows.columns.filter(whole)
            schema = self.schema
            if kept.num_rows:
                self.append(iter([_in(kept, schema)]), schema, mark)
            else:
                self._note(mark)
            return
        source, sets, unset = _source(rows, self.schema)
        with explained(self.place):
            merger = self._table.merge(
                source,
                _same_id(rows),
                source_alias="s",
                target_alias="t",
                **self._commit(mark),
            )
            inserted = "s.op = 0 AND s.whole"
            values = {_quoted(name): f"s.{column}" for name, column in sets.items()}
            changed = {
                _quoted(name): f"CASE WHEN s.{unset[name]} THEN t.{_quoted(name)} ELSE s.{column} END"
                if name in unset
                else f"s.{column}"
                for name, column in sets.items()
            }
            merger = merger.when_matched_delete(f"s.op = {int(Op.DELETE)}").when_matched_update(changed)
            merger.when_not_matched_insert(values, inserted).execute()
        self._note(mark)

    def empty(self, mark: Mark) -> None:
        """Delete all rows, and store this mark."""
        with explained(self.place):
            self._table.delete(**self._commit(mark))
        self._note(mark)

    def _note(self, mark: Mark) -> None:
        """Store the step by an empty commit, unless the table has it.  The library makes no commit where nothing
        changes, and so would not store it."""
        if self.step(mark.app) >= mark.step:
            return
        with explained(self.place):
            self._table.create_write_transaction(
                [],
                "append",
                self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                **self._commit(mark),
            )

    @property
    def _hooks(self) -> PostCommitHookProperties | None:
        return hooks(self._store)

    def _commit(self, mark: Mark) -> dict[str, Any]:
        """The arguments of a commit with this mark."""
        from deltalake import CommitProperties, Transaction

        about = json.dumps(mark.details, separators=(",", ":"))
        # Without the transaction the library would repeat a commit by itself where that is not safe.
        how = CommitProperties(custom_metadata={"tailrace": about}, app_transactions=[Transaction(mark.app, mark.step)])
        return {"commit_properties": how, "post_commithook_properties": self._hooks}

    def is_empty(self) -> bool:
        """Whether the table has no rows."""
        with explained(self.place):
            return not self._table.file_uris() or self._table.count() == 0

    def maintain(self, before: int) -> None:
        """Compact and vacuum, each if the versions since `before` passed a multiple of its setting."""
        every, removal, now = self._settings.compact_every, self._settings.vacuum_every, self.version
        with explained(self.place):
            if every and before // every != now // every:
                self._table.optimize.compact(post_commithook_properties=self._hooks)
            if removal and before // removal != now // removal:
                self._table.vacuum(
                    retention_hours=self._settings.retain_hours,
                    dry_run=False,
                    enforce_retention_duration=False,
                    post_commithook_properties=self._hooks,
                )

    def make_durable(self, before: int) -> None:
        """Sync the commits after the version `before`, and their files, if the table is on a disk."""
        make_durable(self._store, self._name, before, self._table)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _in(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the columns and types of a schema; columns that it lacks are null."""
    arrays = [
        cast(batch.column(f.name), f.type) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _source(rows: Merged, schema: pa.Schema) -> tuple[pa.Table, dict[str, str], dict[str, str]]:
    """The source of a merge; for each of the table's columns the source's column that sets it; and for some the
    source's column that says in which rows it stays as it is."""
    whole = pc.is_null(rows.unset)
    arrays: list[Any] = [rows.ops, whole]
    names = ["op", "whole"]
    sets, unset = {}, {}
    for n, field in enumerate(rows.columns.schema):
        arrays.append(rows.columns.column(n))
        names.append(f"c{n}")
        sets[field.name] = f"c{n}"
        missing = unset_at(rows.unset, n)
        if pc.any(missing).as_py():
            arrays.append(missing)
            names.append(f"u{n}")
            unset[field.name] = f"u{n}"
    if rows.open:
        arrays.append(pc.invert(whole))
        names.append("partial")
        for n, field in enumerate(schema):
            if field.name not in sets:
                arrays.append(pa.nulls(len(whole), field.type))
                names.append(f"n{n}")
                sets[field.name], unset[field.name] = f"n{n}", "partial"
    return pa.Table.from_arrays(arrays, names=names), sets, unset


def _same_id(rows: Merged) -> str:
    """The condition of a merge: the key's columns are equal, and null equals null."""
    names = rows.columns.schema.names
    parts = []
    for key in rows.keys:
        at = names.index(key)
        same = "IS NOT DISTINCT FROM" if rows.columns.column(at).null_count else "="
        parts.append(f"t.{_quoted(key)} {same} s.c{at}")
    return " AND ".join(parts)
