"""PostgreSQL with SKIP LOCKED through psycopg, one statement for each batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
from psycopg import sql
from tests.servers.postgres import Postgres as Server
from tests.servers.postgres import postgres

from benchmarks.contract import Place
from benchmarks.queues.contract import Got

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_level": "replica"}
TAKE = sql.SQL(
    "DELETE FROM messages WHERE id IN (SELECT id FROM messages ORDER BY id LIMIT {} FOR UPDATE SKIP LOCKED) "
    "RETURNING body"
)


class Postgres:
    """A table of messages: pushing inserts, taking deletes, and the commit of that is the acknowledgement."""

    def __init__(self, address: str) -> None:
        self.connection = psycopg.connect(address, autocommit=True)

    def push(self, message: bytes) -> None:
        """An INSERT."""
        self.connection.execute("INSERT INTO messages (body) VALUES (%b)", (message,))

    def push_many(self, messages: Sequence[bytes]) -> None:
        """One INSERT of an array."""
        self.connection.execute("INSERT INTO messages (body) SELECT unnest(%b::bytea[])", (list(messages),))

    def take(self, batch: int, got: Got) -> None:
        """A DELETE that passes over what others have locked; its commit follows the handler."""
        self.connection.execute("LISTEN pushed")
        query = TAKE.format(batch)
        while True:
            with self.connection.transaction():
                found = self.connection.execute(query, prepare=True, binary=True).fetchall()
                over = got([row[0] for row in found])
            if over:
                return
            if not found:
                for _ in self.connection.notifies(timeout=0.05, stop_after=1):
                    pass


class PostgresWaking(Postgres):
    """The same, where a push also wakes a consumer that waits."""

    def push(self, message: bytes) -> None:
        """An INSERT and a NOTIFY, in one commit."""
        self.connection.execute(
            "WITH added AS (INSERT INTO messages (body) VALUES (%b) RETURNING id) "
            "SELECT pg_notify('pushed', '') FROM added",
            (message,),
        )


@contextlib.contextmanager
def durable(folder: Path) -> Iterator[Server]:
    """PostgreSQL as durable as it can be, on this folder, whose user may have to go through the one above."""
    folder.parent.chmod(0o711)
    with postgres(data=folder, settings=DURABLE) as server:
        yield server


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Place]:
    """The server, with the table."""
    with durable(folder) as server:
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE messages (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)"
            )
            connection.execute("ALTER TABLE messages ALTER COLUMN body SET STORAGE EXTERNAL")
        yield Place(server.uri(), server.pid)


@contextlib.contextmanager
def connect(address: str, kind: type[Postgres] = Postgres) -> Iterator[Postgres]:
    """A client of the server there."""
    queue = kind(address)
    try:
        yield queue
    finally:
        queue.connection.close()
