"""DynamoDB's server is killed, in the middle of a batch and while it is followed, and comes back where it was."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.dynamodb.sink.apply import Applier
from tailrace.adaptors.rows.rows import make_rows, messages_of
from tailrace.errors import StorageError
from tailrace.log.record import Mode, Op
from tests.adaptors.dynamodb.place import Place
from tests.servers.dynoxide import dynoxide
from tests.servers.process import free_ports

pytestmark = [pytest.mark.server, pytest.mark.processes]
COUNT = 300


def test_the_server_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    who = Who("pipeline", "writer", 1)
    with dynoxide(tmp_path, port) as server, Place(server) as place:
        table = place.table("items")
        columns = pa.RecordBatch.from_pydict({"id": range(COUNT), "v": ["copied"] * COUNT})
        batch = make_rows(table, columns, ["id"], op=Op.INSERT, mode=Mode.SYNC)
        with closing(place.reader()) as reader:
            position = reader.begin([table])
        with closing(place.writer()) as writer:
            writer.check()
            staged, transact, calls = [writer.stage([batch])], Applier.transact, iter(range(100))

            def fatal(self: Applier, *given: Any) -> None:
                transact(self, *given)
                if next(calls) == 1:
                    os.kill(server.pid, signal.SIGKILL)

            with monkeypatch.context() as patched, pytest.raises(StorageError):
                patched.setattr(Applier, "transact", fatal)
                writer.finish(staged, who, {"0": 1})
        prefix, place.client.list_tables = place.prefix, lambda: {"TableNames": []}  # nothing is left to ask
    with dynoxide(tmp_path, port) as server, Place(server) as place:
        place.prefix = prefix
        assert 0 < len(place.items(table)) < COUNT
        with closing(place.writer()) as writer:
            restored = writer.restore("pipeline", "writer")
            assert restored is None or not restored["offsets"]
            for _ in range(2):
                writer.finish(staged, who, {"0": 1})
        assert sorted(item["id"] for item in place.items(table)) == list(range(COUNT))
        held: dict[str, Any] = {}
        with closing(place.reader()) as reader:
            for changes in reader.follow(position, [table]):
                for rows in changes.rows:
                    held |= {message.id: message.data for message in messages_of(rows)}
                if len(held) == COUNT:
                    break
