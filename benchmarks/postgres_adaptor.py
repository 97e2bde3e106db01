"""How fast the postgres adaptor is alone, without the log and without Spark: `python -m benchmarks.postgres_adaptor`.

copy      a table through ADBC into rows, as one task does it
follow    single-row transactions, from the server's log into rows; and of the time, what the decoder's core needs
bulk      one transaction of many rows, from the server's log into rows
write     rows staged by one task, and finished
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
from tests.servers.postgres import Postgres, postgres

from tailrace.adaptors.contract import Who
from tailrace.adaptors.postgres.settings import PostgresSink, PostgresSource
from tailrace.adaptors.postgres.sink.writer import PostgresWriter
from tailrace.adaptors.postgres.source.reader import PostgresReader

TABLE = "(id bigint PRIMARY KEY, v text, n int, at timestamptz, price numeric(12,2), pad text)"
VALUES = "i, 'row ' || i, i % 1000, now(), i / 7.0, repeat('x', 120)"
LOAD = f"""CREATE PROCEDURE load(many int) LANGUAGE plpgsql AS $$
    BEGIN FOR i IN 1..many LOOP INSERT INTO followed SELECT {VALUES}; COMMIT; END LOOP; END $$"""


def main() -> None:
    """Ask each question some times, one after the other, and print every answer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres_adaptor", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with postgres() as server:
        for _ in range(given.rounds):
            for question in (copy, follow, bulk, write):
                print(json.dumps(question(server, given.rows)), flush=True)


@contextlib.contextmanager
def database(server: Postgres) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A database that is not there afterwards."""
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE bench")
        with psycopg.connect(server.uri("bench"), autocommit=True) as connection:
            yield server.uri("bench"), connection
        while admin.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchone():
            time.sleep(0.05)
        admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        admin.execute("DROP DATABASE bench WITH (FORCE)")


def timed(rows: int, name: str, do: Callable[[], Any]) -> dict[str, Any]:
    """Rows a second, by the clock and by this process's own use of a core."""
    clock, core = time.perf_counter(), time.process_time()
    do()
    clock, core = time.perf_counter() - clock, time.process_time() - core
    return {"question": name, "rows": rows, "rows_per_s": round(rows / clock), "rows_per_core_s": round(rows / core)}


def copy(server: Postgres, rows: int) -> dict[str, Any]:
    """A table, in one piece."""
    with database(server) as (uri, connection):
        connection.execute(f"CREATE TABLE copied {TABLE}")
        connection.execute(f"INSERT INTO copied SELECT {VALUES} FROM generate_series(1, {rows}) i")
        connection.execute("VACUUM ANALYZE copied")
        reader = PostgresReader(PostgresSource(uri=uri))
        (piece,) = reader.pieces("public.copied", 10 * rows)
        return timed(rows, "copy", lambda: sum(batch.num_rows for batch in reader.copy(piece)))


def follow(server: Postgres, rows: int) -> dict[str, Any]:
    """Transactions of one row."""
    with database(server) as (uri, connection):
        connection.execute(f"CREATE TABLE followed {TABLE}")
        connection.execute(LOAD)
        reader = PostgresReader(PostgresSource(uri=uri, slot="bench"))
        position = reader.begin(["public.followed"])
        connection.execute("SET synchronous_commit = off")
        connection.execute(f"CALL load({rows})")
        return timed(rows, "follow", lambda: drain(reader, position, rows))


def bulk(server: Postgres, rows: int) -> dict[str, Any]:
    """One transaction."""
    with database(server) as (uri, connection):
        connection.execute(f"CREATE TABLE followed {TABLE}")
        reader = PostgresReader(PostgresSource(uri=uri, slot="bench"))
        position = reader.begin(["public.followed"])
        connection.execute(f"INSERT INTO followed SELECT {VALUES} FROM generate_series(1, {rows}) i")
        return timed(rows, "bulk", lambda: drain(reader, position, rows))


def drain(reader: PostgresReader, position: Any, rows: int) -> None:
    """Follow until so many rows have come."""
    got = 0
    with contextlib.closing(reader):
        for changes in reader.follow(position, ["public.followed"]):
            got += sum(batch.num_rows for batch in changes.rows)
            reader.acknowledge(changes.position)
            if got >= rows:
                return


def write(server: Postgres, rows: int) -> dict[str, Any]:
    """What was copied, into an empty table."""
    with database(server) as (uri, connection):
        connection.execute(f"CREATE TABLE copied {TABLE}")
        connection.execute(f"INSERT INTO copied SELECT {VALUES} FROM generate_series(1, {rows}) i")
        reader = PostgresReader(PostgresSource(uri=uri))
        batches = [batch for piece in reader.pieces("public.copied", 10 * rows) for batch in reader.copy(piece)]
        return _written(uri, batches, rows)


def _written(uri: str, batches: list[pa.RecordBatch], rows: int) -> dict[str, Any]:
    with contextlib.closing(PostgresWriter(PostgresSink(uri=uri, schema="sink", create=True))) as writer:
        staged: list[Any] = []
        first = timed(rows, "stage", lambda: staged.append(writer.stage(batches)))
        both = timed(rows, "finish", lambda: writer.finish(staged, Who("bench", "sink", 1), {"0": 1}))
    together = 1 / (1 / first["rows_per_s"] + 1 / both["rows_per_s"])
    shown = {"stage_per_s": first["rows_per_s"], "finish_per_s": both["rows_per_s"]}
    return {"question": "write", "rows": rows, "rows_per_s": round(together), **shown}


if __name__ == "__main__":
    main()
