"""The documents of the reader's and the writer's contract, in a table of a SQL database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Mode
from tailrace.testing.readercontract import Document

NAMESPACE = "public.t"


class SqlPlace(Protocol):
    """A database of a test, and SQL by hand."""

    def run(self, sql: str, /) -> None:
        """Execute something."""

    def ask(self, sql: str, /) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    def reader(self) -> Any:
        """A new reader of it."""

    def writer(self) -> Any:
        """A new writer to it."""


class DocumentsTable:
    """The contract's documents, in a new table."""

    def __init__(self, place: SqlPlace, namespace: str) -> None:
        self._place, self.namespace = place, namespace
        place.run("CREATE TABLE documents (id bigint PRIMARY KEY, text text)")

    def reader(self) -> Any:
        return self._place.reader()

    def writer(self) -> Any:
        return self._place.writer()

    def documents(self) -> list[Document]:
        return [{"id": id, "text": text} for id, text in self._place.ask("SELECT id, text FROM documents")]


def rows(columns: dict[str, Any], keys: Sequence[str] = ("id",), **more: Any) -> pa.RecordBatch:
    """Changes of the table `NAMESPACE`."""
    return make_rows(NAMESPACE, pa.RecordBatch.from_pydict(columns), keys, mode=Mode.SYNC, **more)
