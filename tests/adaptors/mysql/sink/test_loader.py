"""The INSERTs that fill staging tables, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from tailrace.adaptors.mysql.sink.loader import MySQLLoader


def test_no_insert_is_larger_than_the_server_takes() -> None:
    """It counts the bytes of a statement, of which a character may have four."""
    sent: list[str] = []
    loader: Any = MySQLLoader.__new__(MySQLLoader)
    loader._connection, loader._packet = SimpleNamespace(execute=sent.append), 4000
    loader._insert("t", pa.RecordBatch.from_pydict({"v": ["\U0001f388" * 50] * 100}))
    assert sum(sql.count("\U0001f388") for sql in sent) == 5000
    assert all(3000 < len(sql.encode()) <= 4000 for sql in sent[:-1])
