"""What a sink says of a table that it may not make."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import NotReady
from tests.adaptors.postgres.place import Place as Tables

WHO = Who("pipeline", "writer", 1)


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
