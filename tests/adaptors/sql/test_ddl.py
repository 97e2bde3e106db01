"""What a sink says of a table that it may not make, and of columns that are too narrow."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.mysql.sink.dialect import MySQLDialect
from tailrace.adaptors.postgres.settings import PostgresSink
from tailrace.adaptors.postgres.sink.dialect import PostgresDialect
from tailrace.adaptors.rows.rows import make_rows
from tailrace.adaptors.sql import ddl
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.staged_rows import StagedRows
from tailrace.adaptors.sql.target import Target, TargetColumn
from tailrace.errors import NotReady
from tests.adaptors.postgres.place import Place as Tables

WHO = Who("pipeline", "writer", 1)
MYSQL, POSTGRES = MySQLDialect(), PostgresDialect()


@pytest.mark.parametrize(
    ("dialect", "given", "here", "wanted"),
    [
        (MYSQL, pa.decimal128(12, 4), "decimal(10,2)", "comes as decimal(12,4) and decimal(10,2) here"),
        (MYSQL, pa.float64(), "int", "comes as double and int here"),
        (MYSQL, pa.int64(), "double", "comes as bigint and double here"),
        (MYSQL, pa.timestamp("us", "UTC"), "datetime", "MODIFY COLUMN `v` datetime(6)"),
        (MYSQL, pa.decimal128(12, 4), "decimal(12,4)", ""),
        (MYSQL, pa.int32(), "bigint", ""),
        (MYSQL, pa.string(), "varchar(9)", ""),
        (POSTGRES, pa.decimal128(12, 4), "numeric(10,2)", 'ALTER COLUMN "v" TYPE numeric(12,4)'),
        (POSTGRES, pa.float64(), "real", "comes as double precision and real here"),
        (POSTGRES, pa.date32(), "date", ""),
        (POSTGRES, pa.int16(), "integer", ""),
    ],
)
def test_what_a_column_cuts_of_another_systems_values_is_told(
    dialect: Dialect, given: pa.DataType, here: str, wanted: str
) -> None:
    column, _ = dialect.staged(pa.field("v", given), pa.nulls(1, given))
    target = Target("shop", "t", "t", True, None, {"v": TargetColumn("", here, False, False, False, here)})
    said = ddl.Tables(dialect, PostgresSink(uri="")).narrower(target, StagedRows("shop.t", ("id",), (column,), 1, 0, 0))
    assert said.keys() == ({"v"} if wanted else set())
    assert wanted in said.get("v", "")


@pytest.mark.server
def test_the_order_for_a_table_of_a_missing_schema_is_all_it_takes(warehouse: Tables) -> None:
    """What MySQL calls a database is a schema in PostgreSQL, which is rarely there."""
    made = make_rows("shop.orders", pa.record_batch({"id": pa.array([1])}), ["id"])
    with contextlib.closing(warehouse.writer()) as writer:
        with pytest.raises(NotReady) as refused:
            writer.finish([writer.stage([made])], WHO, {"0": 1})
        warehouse.run(str(refused.value).partition("or: ")[2])
        writer.finish([writer.stage([made])], WHO, {"0": 1})
    assert warehouse.ask("SELECT id FROM shop.orders") == [(1,)]
