"""Staging: a task's share of a batch, brought into the sink where nobody sees it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.postgres import names, state, trouble, unit
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.unit import Unit
from tailrace.adaptors.rows import namespace_of
from tailrace.errors import Rejected

_AT = re.compile(r"line (\d+), column (c\d+|rest)")


def stage(database: Database, schema: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Bring rows in.  All tables of a share are committed together, so a share that fails leaves none."""
    counts: dict[str, int] = {}
    made: list[Unit] = []
    with contextlib.ExitStack() as stack:
        room, loader = unit.SHARE_BYTES, None
        for one, data in unit.units(_counted(batches, counts)):
            if data.nbytes <= min(unit.INLINE_BYTES, room):
                room -= data.nbytes
                made.append(replace(one, data=_ipc(data)))
                continue
            if loader is None:
                loader = Loader(database, schema, stack.enter_context(database.lent()))
            made.append(loader.load(one, data))
        if loader is not None:
            loader.commit()
    return Staged(sum(counts.values()), made, counts)


def inline(batches: Iterable[pa.RecordBatch]) -> list[Unit]:
    """A few rows that are kept beside the sink."""
    return [replace(one, data=_ipc(data)) for one, data in unit.units(batches)]


def _counted(batches: Iterable[pa.RecordBatch], counts: dict[str, int]) -> Iterable[pa.RecordBatch]:
    for batch in batches:
        name = namespace_of(batch)
        counts[name] = counts.get(name, 0) + batch.num_rows
        if batch.num_rows:
            yield batch


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


class Loader:
    """Makes and fills staging tables on one connection."""

    def __init__(self, database: Database, schema: str, connection: Any) -> None:
        self._database, self._schema, self._connection = database, schema, connection
        with database.guarded("staging"), self._connection.cursor() as cursor:
            # What is staged need not survive a crash of the server: the batch is then staged again.
            cursor.execute("SET synchronous_commit = off")
            cursor.execute(f"SELECT extract(epoch FROM now())::bigint, {state.exists(schema)}")
            self._now, there = cursor.fetchone()
        if not there:
            with database.connect("staging") as connection:
                state.create(connection, schema)

    def load(self, one: Unit, data: pa.RecordBatch) -> Unit:
        """Stage one unit."""
        table = unit.new_table(self._now)
        with self._connection.cursor() as cursor:
            with self._database.guarded(f"staging {one.namespace}", one.namespace):
                cursor.execute(unit.create(self._schema, table, one))
            self._ingest(cursor, table, one, data)
        return replace(one, table=table)

    def _ingest(self, cursor: Any, table: str, one: Unit, data: pa.RecordBatch) -> None:
        import adbc_driver_manager

        try:
            cursor.adbc_ingest(table, data, mode="append", db_schema_name=self._schema)
        except adbc_driver_manager.Error as error:
            found = trouble.failed(error, self._database.where, f"staging {one.namespace}", one.namespace)
            at = _AT.search(str(error))
            raise _named(found, one, data, at) if isinstance(found, Rejected) and at else found from None

    def commit(self) -> None:
        """Keep what was staged."""
        with self._database.guarded("staging"):
            self._connection.commit()


def _named(error: Rejected, one: Unit, data: pa.RecordBatch, at: re.Match[str]) -> Rejected:
    """An error that says which value it is about."""
    row, column = int(at[1]) - 1, at[2]
    name = one.columns[int(column[1:])].name if column != "rest" else "one of its columns"
    id = id_of(one, data.slice(row, 1))
    return Rejected(f"{error}: column {name}, id {id}", namespace=one.namespace, id=id)


def id_of(one: Unit, row: pa.RecordBatch) -> str:
    """The id of a staged row, as people write it."""
    wanted = [n for n, column in enumerate(one.columns) if not one.keys or column.name in one.keys]
    if one.wide:
        values = row.column("rest").to_pylist()[0]
        return "\x1f".join(str(values[n]) for n in wanted)
    return "\x1f".join(str(row.column(f"c{n}")[0].as_py()) for n in wanted)


def drop(tables: Iterable[str], schema: str) -> str:
    """The statement that removes staging tables."""
    return f"DROP TABLE IF EXISTS {', '.join(names.quote(schema, table) for table in tables)}"
