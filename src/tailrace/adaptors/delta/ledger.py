"""The ledger of a writer: a Delta table without rows, `_tailrace/<pipeline>.<writer>`, with the state in a property.

If two processes change a table's properties from the same version, Delta refuses one of the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tailrace.adaptors.delta.durable import hooks, make_durable
from tailrace.adaptors.delta.errors import explained, said
from tailrace.adaptors.delta.store import DeltaStore, missing
from tailrace.adaptors.lake.ledger import Ledger, State
from tailrace.adaptors.lake.stores import OWN
from tailrace.adaptors.lake.table import Raced
from tailrace.errors import Damaged

if TYPE_CHECKING:
    from deltalake import DeltaTable

PROPERTY = "tailrace.state"
_KEPT = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 1 hours"}
"""Properties of the ledger's table.  Only the end of its log is ever needed."""


class DeltaLedger(Ledger):
    """The ledger of one writer, in a Delta table."""

    def __init__(self, store: DeltaStore, name: str) -> None:
        self._store, self._name = store, f"{OWN}/{name}"
        self._table: DeltaTable | None = None
        self._durable = -1
        """The version up to which this process has synced the table: another may have died before it synced its own."""

    @property
    def id(self) -> str:
        """The id of the ledger's table, which is made if there is none."""
        return str(self._loaded().metadata().id)

    def read(self) -> State:
        """Read the state; an empty one if none is stored yet.  `Damaged` if it cannot be decoded."""
        with explained(self._store.shown):
            table = self._found()
            text = table.metadata().configuration.get(PROPERTY) if table is not None else None
        try:
            return msgspec.json.decode(text, type=State) if text else State()
        except msgspec.MsgspecError as error:
            where = self._store.uri(self._name)
            raise Damaged(f"{where} is not what was written there: {error}", where=where) from None

    def swap(self, now: State) -> bool:
        """Write a state if the table is still as it was read.  Returns False if it is not."""
        with explained(self._store.shown):
            if self._table is None and PROPERTY in self._loaded().metadata().configuration:
                return False  # another run has made the ledger since it was read
            table = self._loaded()
            before = min(self._durable, table.version())
            try:
                with explained(self._store.shown):
                    text = msgspec.json.encode(now).decode()
                    table.alter.set_table_properties(
                        {PROPERTY: text}, raise_if_not_exists=False, post_commithook_properties=hooks(self._store)
                    )
            except (Raced, OSError) as error:
                # The commit may have been made although its answer was lost; then Delta has refused its repetition.
                self._table = None
                if self.read().mark != now.mark:
                    if isinstance(error, Raced):
                        return False
                    raise
                table = self._loaded()
        make_durable(self._store, self._name, before, table)
        self._durable = table.version()
        return True

    def _found(self) -> DeltaTable | None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise missing(error) from None
        self._table = None  # opened again: an update would not notice that the folder is gone or was replaced
        try:
            self._table = DeltaTable(self._store.uri(self._name), storage_options=self._store.options)
        except TableNotFoundError:
            return None
        return self._table

    def _loaded(self) -> DeltaTable:
        """The table as it was read last.  Makes it if there is none."""
        if self._table is not None:
            return self._table
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        if (found := self._found()) is not None:
            return found
        uri, self._durable = self._store.uri(self._name), -1
        schema = Schema.from_arrow(pa.schema([("nothing", pa.string())]))
        try:
            self._table = DeltaTable.create(uri, schema, configuration=_KEPT, storage_options=self._store.options)
        except DeltaError as error:
            if "already exists" not in said(error):
                raise
            self._table = DeltaTable(uri, storage_options=self._store.options)
        return self._table
