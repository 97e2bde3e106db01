"""Commands: what a source did to a whole namespace, as a row of the commit log.

    truncate            all documents of the namespace are gone
    drop                the namespace itself is gone
    rename, to=other    the namespace has the name `other` from now on

A command is a row with op COMMAND, whose document has the command's name and, for a rename, the new name.  The commit
log has the row in every partition, after all rows that came before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from tailrace.adaptors.rows.rows import columns_of, make_rows, ops_of
from tailrace.log.record import Mode, Op

TRUNCATE, DROP, RENAME = "truncate", "drop", "rename"


class Command(NamedTuple):
    """What a source did to a namespace.  `to` is the new name of a namespace that was renamed."""

    name: str
    to: str = ""

    def __str__(self) -> str:
        return f"{self.name} to {self.to}" if self.to else self.name


def command_rows(namespace: str, command: Command, timestamp: int = 0) -> pa.RecordBatch:
    """Return a command as a batch of one row."""
    fields = {"command": pa.array([command.name], pa.string())}
    if command.to:
        fields["to"] = pa.array([command.to], pa.string())
    columns = pa.RecordBatch.from_pydict(fields)
    return make_rows(namespace, columns, (), op=Op.COMMAND, mode=Mode.SYNC, timestamp=timestamp)


def commands_of(batch: pa.RecordBatch) -> Iterator[tuple[int, Command]]:
    """Yield the commands in a batch, each with the number of its row."""
    ops = ops_of(batch).to_pylist()
    if Op.COMMAND not in ops:
        return
    documents = columns_of(batch).to_pylist()
    for n, op in enumerate(ops):
        if op == Op.COMMAND:
            yield n, Command(documents[n].get("command") or TRUNCATE, documents[n].get("to") or "")
