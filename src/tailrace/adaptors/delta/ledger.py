"""The ledger of a writer: a Delta table without rows, `_tailrace/<pipeline>.<writer>`; a property of it has the state.

Of two changes of a table's properties at once Delta refuses one, as long as both began from the same version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tailrace.adaptors.delta.durable import make_durable
from tailrace.adaptors.delta.errors import explained, said
from tailrace.adaptors.delta.store import DeltaStore, missing
from tailrace.adaptors.lake.ledger import Ledger, State
from tailrace.adaptors.lake.names import ledger_of
from tailrace.adaptors.lake.stores import OWN
from tailrace.adaptors.lake.table import Raced
from tailrace.errors import Damaged

if TYPE_CHECKING:
    from deltalake import DeltaTable

PROPERTY = "tailrace.state"
_KEPT = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 1 hours"}
"""Of the ledger's own log nothing but its end is ever needed."""


class DeltaLedger(Ledger):
    """One writer's."""

    def __init__(self, store: DeltaStore, pipeline: str, writer: str) -> None:
        self._store, self._name = store, f"{OWN}/{ledger_of(pipeline, writer)}"
        self._table: DeltaTable | None = None

    @property
    def id(self) -> str:
        """The table's own."""
        return str(self._loaded().metadata().id)

    def read(self) -> State:
        """What is kept."""
        with explained(self._store.shown):
            table = self._found()
            text = table.metadata().configuration.get(PROPERTY) if table is not None else None
        try:
            return msgspec.json.decode(text, type=State) if text else State()
        except msgspec.MsgspecError as error:
            where = self._store.uri(self._name)
            raise Damaged(f"{where} is not what was written there: {error}", where=where) from None

    def swap(self, now: State) -> bool:
        """Write a state, if the table is still as it was read."""
        with explained(self._store.shown):
            if self._table is None and PROPERTY in self._loaded().metadata().configuration:
                return False  # another run has made it, and begun
            table = self._loaded()
            before = table.version()
            try:
                with explained(self._store.shown):
                    text = msgspec.json.encode(now).decode()
                    table.alter.set_table_properties({PROPERTY: text}, raise_if_not_exists=False)
            except (Raced, OSError) as error:
                # A commit without an answer may have been made, and then its repetition is what was refused.
                self._table = None
                if self.read().mark == now.mark:
                    return True
                if isinstance(error, Raced):
                    return False
                raise
        make_durable(self._store, self._name, before, table.version())
        return True

    def _found(self) -> DeltaTable | None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise missing(error) from None
        self._table = None  # read from its start: an update would not notice that the folder is gone, or another
        try:
            self._table = DeltaTable(self._store.uri(self._name), storage_options=self._store.options)
        except TableNotFoundError:
            return None
        return self._table

    def _loaded(self) -> DeltaTable:
        """The table as it was read last; made if there is none."""
        if self._table is not None:
            return self._table
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        if (found := self._found()) is not None:
            return found
        uri = self._store.uri(self._name)
        schema = Schema.from_arrow(pa.schema([("nothing", pa.string())]))
        try:
            self._table = DeltaTable.create(uri, schema, configuration=_KEPT, storage_options=self._store.options)
        except DeltaError as error:
            if "already exists" not in said(error):
                raise
            self._table = DeltaTable(uri, storage_options=self._store.options)
        return self._table
