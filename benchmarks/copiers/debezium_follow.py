"""Debezium's engine, run by the Python of the peers: `python debezium_follow.py HOST PORT DATABASE PASSWORD SLOT POLL
FOLDER FIRST`.

It writes a line for each batch it is handed: when, how many changes so far, and when the source committed each.  After
a restart it is handed some again; those up to the id FIRST do not count.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine


class Counting(BasePythonChangeHandler):
    """Notes when each change came."""

    def __init__(self, path: str, first: int) -> None:
        self._out, self._first, self._count = Path(path), first, 0
        self._out.unlink(missing_ok=True)

    def handleJsonBatch(self, records: Any) -> None:
        """The engine's call."""
        at = time.time()
        changes = [json.loads(str(text)) for record in records if (text := record.value()) is not None]
        rows = [c["payload"] for c in changes if "source" in c["payload"]]
        times = [row["source"]["ts_ms"] for row in rows if row["after"]["id"] > self._first]
        if not times:
            return
        self._count += len(times)
        with self._out.open("a") as out:
            out.write(json.dumps([at, self._count, times]) + "\n")


def main() -> None:
    """Follow one table until killed."""
    host, port, database, password, slot, poll, folder, first = sys.argv[1:]
    properties = {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": host,
        "database.port": port,
        "database.user": "postgres",
        "database.password": password,
        "database.dbname": database,
        "topic.prefix": "bench",
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": slot,
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.orders",
        "snapshot.mode": "no_data",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets.dat",
        "offset.flush.interval.ms": "1000",
    }
    if poll != "default":
        properties["poll.interval.ms"] = poll
    DebeziumJsonEngine(properties=properties, handler=Counting(f"{folder}/arrived.jsonl", int(first))).run()


if __name__ == "__main__":
    main()
