"""The lake: the Delta tables below a root, a folder for each namespace."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.adaptors.delta.durable import make_durable
from tailrace.adaptors.delta.errors import explained
from tailrace.adaptors.delta.ledger import DeltaLedger
from tailrace.adaptors.delta.store import DeltaStore, missing
from tailrace.adaptors.delta.table import DeltaLakeTable
from tailrace.adaptors.lake.names import folder_of, ledger_of
from tailrace.adaptors.lake.stores import OWN
from tailrace.errors import NotReady

if TYPE_CHECKING:
    from tailrace.adaptors.delta.settings import DeltaSink


PROPERTIES = {"delta.checkpointInterval": "20"}
"""Properties of new tables.  Each batch opens its tables from their last checkpoint on, so checkpoints are frequent."""


class DeltaLake:
    """The tables below one root."""

    def __init__(self, settings: DeltaSink) -> None:
        self._settings = settings
        self.store = DeltaStore(settings.path, settings.storage_options)

    def check(self) -> None:
        """Write an object and remove it again.  Raises if that fails, or the path is a file or a Delta table itself."""
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise missing(error) from None
        if self.store.folder is not None and self.store.folder.is_file():
            raise NotReady(f"{self.store.shown} is a file; Delta tables are written into a folder")
        if "_delta_log" in self.store.names(""):
            raise NotReady(
                f"{self.store.shown} is a Delta table itself; each namespace has a table of its own in a folder of the "
                "path: name the folder above, or another one"
            )
        name = f"{OWN}/check-{secrets.token_hex(8)}"
        self.store.put(name, [b"?"])
        self.store.remove(name)

    def ledger(self, pipeline: str, writer: str) -> DeltaLedger:
        """A writer's ledger."""
        return DeltaLedger(self.store, ledger_of(pipeline, writer))

    def ledgers(self) -> Iterator[DeltaLedger]:
        """The ledgers of all writers below the root."""
        for name in self.store.names(OWN):
            if "_delta_log" in self.store.names(f"{OWN}/{name}"):
                yield DeltaLedger(self.store, name)

    def place(self, namespace: str) -> str:
        """The path or URL of a namespace's table, whether it exists or not."""
        return f"{self.store.shown}/{folder_of(namespace)}"

    def find(self, namespace: str) -> DeltaLakeTable | None:
        """Open the table of a namespace; None if it does not exist."""
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise missing(error) from None
        name = folder_of(namespace)
        with explained(self.place(namespace)):
            try:
                table = DeltaTable(self.store.uri(name), storage_options=self.store.options)
            except TableNotFoundError:
                return None
        return DeltaLakeTable(self.store, name, table, self._settings)

    def create(self, namespace: str, schema: pa.Schema) -> DeltaLakeTable:
        """Make the table of a namespace, partitioned as the settings say.  `NotReady` if its folder has other files."""
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        name, by = folder_of(namespace), self._settings.partition_by
        if found := [one for one in self.store.names(name) if one != "_delta_log"]:
            raise NotReady(
                f"{self.place(namespace)} has {found[0]!r} in it, and is no Delta table; move it away, or write into "
                "another path"
            )
        with explained(self.place(namespace)):
            try:
                table = DeltaTable.create(
                    self.store.uri(name),
                    Schema.from_arrow(pa.schema(list(schema))),
                    partition_by=list(by) if set(by) <= set(schema.names) else [],
                    configuration={**PROPERTIES, **self._settings.properties},
                    storage_options=self.store.options,
                )
            except DeltaError as error:
                found_table = self.find(namespace)
                if found_table is None:
                    raise NotReady(f"{self.place(namespace)}: no table can be made there: {error}") from None
                return found_table  # another process has just made it
        make_durable(self.store, name, -1, table)
        return DeltaLakeTable(self.store, name, table, self._settings)

    def close(self) -> None:
        """Nothing to close: no connection is open between calls."""
