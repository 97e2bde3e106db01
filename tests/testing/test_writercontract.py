"""The contract of writers with one in memory that knows every command."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import DROP, RENAME, TRUNCATE, Command, Staged, Who, Writer
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.removal import removed_of, take_away
from tailrace.adaptors.rows.rows import messages_of
from tailrace.log.record import Op
from tailrace.testing import WriterContract
from tailrace.testing.readercontract import Document


class Memory:
    """Documents by namespace and id, as a system keeps them that other processes write to."""

    namespace = "documents"

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Document]] = collections.defaultdict(dict)

    def writer(self) -> MemoryWriter:
        return MemoryWriter(self)

    def documents(self) -> list[Document]:
        return list(self.held[self.namespace].values())


class MemoryWriter(Writer):
    guarantee = "idempotent by id"
    commands = frozenset({TRUNCATE, DROP, RENAME})

    def __init__(self, memory: Memory) -> None:
        self._held = memory.held

    def check(self) -> None:
        pass

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        detail: list[tuple[Message, list[str]]] = []
        for batch in rows:
            detail += zip(messages_of(batch), removed_of(batch), strict=True)
        return Staged(len(detail), detail)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        for message, removed in (one for share in staged for one in share.detail):
            held = self._held[message.namespace]
            if message.op == Op.DELETE:
                held.pop(message.id, None)
                continue
            document = message.data if message.whole else {**held.get(message.id, {}), **message.data}
            take_away(document, removed)
            held[message.id] = document

    def command(self, namespace: str, command: Command, who: Who) -> None:
        found = self._held.pop(namespace, {})
        if command.name == RENAME:
            self._held[command.to] = found


class TestMemory(WriterContract):
    @pytest.fixture
    def sink(self) -> Memory:
        return Memory()
