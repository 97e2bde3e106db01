"""Target tables: finds the table of each namespace once, and creates it if that is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tailrace.adaptors.contract import Who
from tailrace.adaptors.dynamodb.service import DynamoService, TableDescription
from tailrace.adaptors.dynamodb.settings import DynamoSink
from tailrace.adaptors.dynamodb.sink.state import WrittenTable, make_table, order_for
from tailrace.adaptors.sinks import missing_targets
from tailrace.errors import NotReady, UnknownTable
from tailrace.storage.keys import KeySchema

_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_KINDS = {"S": "text", "N": "a number", "B": "bytes"}


class TargetTables:
    """The tables of a sink, by namespace."""

    def __init__(self, service: DynamoService, settings: DynamoSink) -> None:
        self._service, self._settings = service, settings
        self._known: dict[str, TableDescription] = {}

    def name(self, namespace: str) -> str:
        """Return the name of a namespace's table; raise `NotReady` if no table can have it."""
        name = f"{self._settings.prefix}{namespace}"
        if not _NAME.fullmatch(name) or name == self._settings.state:
            raise NotReady(
                f"{namespace} would be written to a table {name!r}, which cannot be one of its own; "
                "names have 3 to 255 of a-z, A-Z, 0-9, _, - and .; rename it on its way: remap({…})"
            )
        return name

    def found(self, namespace: str) -> TableDescription | None:
        """Return the table of a namespace, once it is active; None if it does not exist."""
        name = self.name(namespace)
        if name not in self._known:
            try:
                self._known[name] = self._service.wait_active(name)
            except UnknownTable:
                return None
        return self._known[name]

    def prepare(self, namespace: str, schema: KeySchema, who: Who, written: Mapping[str, WrittenTable]) -> WrittenTable:
        """Return the table of a namespace, and create it if it is missing and the settings allow that.

        Raise `NotReady` if the table is missing, was replaced by another program, or has another key than the rows."""
        table, before = self.found(namespace), written.get(namespace)
        name = self.name(namespace)
        if before is not None and (table is None or table.id != before.id):
            self._known.pop(name, None)
            raise missing_targets.gone(who, namespace, name, "table")
        if table is None:
            if not self._settings.create:
                raise missing_targets.not_made(namespace, "table", order_for(name, schema))
            make_table(self._service, name, schema)
            table = self.found(namespace)
            assert table is not None
        _check_key(namespace, table, schema)
        return before or WrittenTable(name, table.id, filled=False)


def _check_key(namespace: str, table: TableDescription, rows: KeySchema) -> None:
    there, here = _kinds(table.schema), _kinds(rows)
    if there != here:
        raise NotReady(
            f"the sink's table {table.name} has the key {_said(there)}, and rows of {namespace} have {_said(here)}; "
            "make a table with that key, or rename and convert fields on their way"
        )


def _kinds(schema: KeySchema) -> dict[str, str]:
    keys = {schema.hash: schema.hash_kind}
    return {**keys, schema.range: schema.range_kind} if schema.range is not None else {**keys}


def _said(keys: Mapping[str, str]) -> str:
    return " and ".join(f"{name} ({_KINDS[kind]})" for name, kind in keys.items())
