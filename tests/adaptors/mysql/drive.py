"""A stand-in for the runner: copies and follows into a sink that is a dictionary."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.rows.command import TRUNCATE, Command, commands_of
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import keys_of, messages_of, namespace_of
from tailrace.log.record import Op
from tests.adaptors.mysql.place import Place
from tests.adaptors.source_drive import WHO, SourceDrive


class Held:
    """What a sink holds: of each table with a key the last row of each id, of others each row as often as it is."""

    def __init__(self) -> None:
        self.keyed: dict[str, dict[str, dict[str, Any]]] = collections.defaultdict(dict)
        self.counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.commands: list[tuple[str, Command]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Rows, or a command."""
        name = namespace_of(batch)
        if commands := [command for _, command in commands_of(batch)]:
            self.commands += [(name, command) for command in commands]
            if Command(TRUNCATE) in commands:
                self.keyed.pop(name, None)
                self.counted.pop(name, None)
            return
        for message in messages_of(batch):
            (self._keyed if keys_of(batch) else self._counted)(name, message)

    def _keyed(self, name: str, message: Message) -> None:
        if message.op == Op.DELETE:
            self.keyed[name].pop(message.id, None)
        else:
            self.keyed[name][message.id] = message.data

    def _counted(self, name: str, message: Message) -> None:
        self.counted[name][message.id] += -1 if message.op == Op.DELETE else 1

    def of(self, name: str) -> Any:
        """A table, to be compared."""
        counted = {id: count for id, count in self.counted[name].items() if count}
        return self.keyed[name], counted


class Drive(SourceDrive):
    """A pipeline of some tables of a database."""

    def __init__(self, source: Place, *tables: str, sink: Place | None = None, **reading: Any) -> None:
        namespaces = [f"{source.name}.{table}" for table in tables]
        super().__init__(source, sink, namespaces, reading, {"create": True, "alter": True})
        self.held = Held()
        self.batches: list[pa.RecordBatch] = []
        self.recopied: list[str] = []

    @property
    def source(self) -> Any:
        """The database; another one is read from when it is followed next."""
        return self._place

    @source.setter
    def source(self, place: Place) -> None:
        self._place = place

    # -- sync
    def follow(self, seconds: float = 60) -> None:
        """Follow until all is read that the log has now."""
        self.stop()
        deadline = time.monotonic() + seconds
        while True:
            assert time.monotonic() < deadline, f"not there after {seconds} s: {self.position}"
            if self.step().caught_up:
                return

    def step(self) -> Changes:
        """The next changes; also keeps which tables the source copies again."""
        changes = super().step()
        self.recopied += self.position.get("recopy", ())
        return changes

    def _write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Rows up to a command, the command, and so on."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            batch.validate(full=True)
            self.batches.append(batch)
            self.held.write(batch)
            if not (commands := [command for _, command in commands_of(batch)]):
                held.append(batch)
                continue
            self._finish(held)
            held = []
            if self._sink is not None and Command(TRUNCATE) in commands:
                with contextlib.closing(self._sink.writer()) as writer:
                    writer.command(namespace_of(batch), Command(TRUNCATE), WHO)
        self._finish(held)

    # -- comparing
    def assert_same(self, *tables: str) -> None:
        """What was copied and followed is what a copy of the tables now has, row by row."""
        for name in [f"{self.source.name}.{table}" for table in tables] or self.namespaces:
            now = Held()
            with contextlib.closing(self.source.reader(**self._reading)) as reader:
                for piece in reader.pieces(name, 10**9):
                    for batch in reader.copy(piece):
                        now.write(batch)
            assert self.held.of(name) == now.of(name), f"{name}: {_difference(self.held.keyed[name], now.keyed[name])}"


def _difference(had: Any, has: Any) -> list[Any]:
    """Some of what differs, as it was followed and as it is."""
    fields = [
        (id, field, had[id][field], has[id].get(field))
        for id in had.keys() & has.keys()
        for field in had[id]
        if had[id][field] != has[id].get(field)
    ]
    return [*fields[:20], *[(id, "only in one") for id in list(had.keys() ^ has.keys())[:20]]]
