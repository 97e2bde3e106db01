"""The state that a sink keeps for its pipelines, in a schema of its own.

    tailrace.offsets       pipeline, writer (key), epoch, offsets (jsonb), finished_at
    tailrace.stage_…       what tasks have staged; see unit

The row of a writer is locked while it finishes a batch, and written in the same transaction as the batch.  The higher
epoch wins, then the higher offsets; what is neither is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tailrace.adaptors.contract import Who
from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.unit import made_at
from tailrace.errors import Fenced

if TYPE_CHECKING:
    from psycopg import Connection

ORPHANED = 3600
"""Seconds after which a staging table belongs to nobody: a batch takes far less, and else finds that it is gone."""


def exists(schema: str) -> str:
    """An expression: whether the state's table is there."""
    return f"to_regclass({names.literal(names.quote(schema, 'offsets'))}) IS NOT NULL"


def create(connection: Connection[Any], schema: str) -> None:
    """Make the state's schema and table; several may do so at once."""
    import psycopg

    table = f"""CREATE TABLE IF NOT EXISTS {names.quote(schema, "offsets")} (
        pipeline text, writer text, epoch bigint NOT NULL, offsets jsonb NOT NULL,
        finished_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, writer))"""
    for sql in (f"CREATE SCHEMA IF NOT EXISTS {names.quote(schema)}", table):
        try:
            connection.execute(sql)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable, psycopg.errors.DuplicateSchema):
            continue  # Somebody else has made it at the same moment.


def read(connection: Connection[Any], schema: str, pipeline: str, writer: str) -> tuple[int, Any] | None:
    """Epoch and offsets of a writer."""
    row = connection.execute(f"SELECT {exists(schema)}").fetchone()
    if row is None or not row[0]:
        return None
    sql = f"SELECT epoch, offsets FROM {names.quote(schema, 'offsets')} WHERE pipeline = %s AND writer = %s"
    found = connection.execute(sql, [pipeline, writer]).fetchone()
    return (found[0], found[1]) if found and found[0] >= 0 else None


def lock(connection: Connection[Any], schema: str, who: Who) -> tuple[int, Any]:
    """The writer's epoch and offsets, which nobody else can change before this transaction ends."""
    table = names.quote(schema, "offsets")
    sql = f"INSERT INTO {table} VALUES (%s, %s, -1, '{{}}') ON CONFLICT DO NOTHING"
    connection.execute(sql, [who.pipeline, who.writer])
    sql = f"SELECT epoch, offsets FROM {table} WHERE pipeline = %s AND writer = %s FOR UPDATE"
    row = connection.execute(sql, [who.pipeline, who.writer]).fetchone()
    assert row is not None
    return row[0], row[1]


def store(connection: Connection[Any], schema: str, who: Who, offsets: Mapping[str, Any]) -> None:
    """Keep the offsets of a finished batch."""
    sql = f"""UPDATE {names.quote(schema, "offsets")} SET epoch = %s, offsets = %s, finished_at = now()
              WHERE pipeline = %s AND writer = %s"""
    connection.execute(sql, [who.epoch, msgspec.json.encode(offsets).decode(), who.pipeline, who.writer])


def judge(who: Who, offsets: Mapping[str, Any], epoch: int, stored: Mapping[str, Any]) -> Literal["new", "done"]:
    """Whether a batch is new, or was finished before; `Fenced` if another has gone further."""
    if who.epoch > epoch:
        return "new"
    order = compare(offsets, stored) if who.epoch == epoch else -1
    if order == 0:
        return "done"
    if order > 0:
        return "new"
    raise Fenced(
        f"{who.pipeline}/{who.writer}: the sink has epoch {epoch} and higher offsets than this run, of epoch "
        f"{who.epoch}, would store; another run has taken over, and this one must stop",
        item={"epoch": epoch, "offsets": stored},
    )


def compare(new: Mapping[str, Any], old: Mapping[str, Any]) -> int:
    """1 if offsets are further somewhere and behind nowhere, 0 if they are equal, -1 else."""
    ahead = behind = False
    for partition in {*new, *old}:
        mine, theirs = new.get(partition, -1), old.get(partition, -1)
        for namespace in {None, *_ahead(mine), *_ahead(theirs)}:
            a, b = _reached(mine, namespace), _reached(theirs, namespace)
            ahead, behind = ahead or a > b, behind or a < b
    return -1 if behind else int(ahead)


def _ahead(mark: Any) -> Mapping[str, int]:
    return mark.get("ahead", {}) if isinstance(mark, Mapping) else {}


def _reached(mark: Any, namespace: str | None) -> int:
    low: int = mark["low"] if isinstance(mark, Mapping) else mark
    return low if namespace is None else max(low, _ahead(mark).get(namespace, -1))


def orphans(connection: Connection[Any], schema: str) -> list[str]:
    """Staging tables of batches that were never finished."""
    sql = """SELECT relname, extract(epoch FROM now())::bigint FROM pg_class
             WHERE relnamespace = to_regnamespace(%s) AND relname ~ '^stage_[0-9a-f]+_[0-9a-f]{32}$'"""
    found = connection.execute(sql, [names.quote(schema)]).fetchall()
    return [table for table, now in found if now - made_at(table) > ORPHANED]
