"""The state that a sink keeps for its pipelines, in a schema of its own.

    tailrace.offsets       pipeline, writer (key), epoch, offsets (jsonb; null: none yet), claimed, changed_at
    tailrace.stage_…       what tasks have staged; see unit

The row of a writer is locked while it finishes a batch, and written in the same transaction as the batch.  The higher
epoch wins, then the higher offsets.  `claimed`: the epoch has begun, and the offsets are those of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.adaptors import turn
from tailrace.adaptors.contract import Who
from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.unit import made_at

if TYPE_CHECKING:
    from psycopg import Connection

ORPHANED = 3600
"""Seconds after which a staging table belongs to nobody: a batch takes far less, and else finds that it is gone."""


def exists(schema: str) -> str:
    """An expression: whether the state's table is there."""
    return f"to_regclass({names.literal(names.quote(schema, 'offsets'))}) IS NOT NULL"


def missing(connection: Connection[Any], schema: str) -> bool:
    """Whether the state's table is not there yet."""
    return connection.execute(f"SELECT 1 WHERE {exists(schema)}").fetchone() is None


def create(connection: Connection[Any], schema: str) -> None:
    """Make the state's schema and table; several may do so at once."""
    import psycopg

    table = f"""CREATE TABLE IF NOT EXISTS {names.quote(schema, "offsets")} (
        pipeline text, writer text, epoch bigint NOT NULL, offsets jsonb, claimed boolean NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, writer))"""
    for sql in (f"CREATE SCHEMA IF NOT EXISTS {names.quote(schema)}", table):
        try:
            connection.execute(sql)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable, psycopg.errors.DuplicateSchema):
            continue  # Somebody else has made it at the same moment.


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept for a writer."""

    epoch: int
    offsets: Mapping[str, Any] | None
    claimed: bool

    def is_repeat(self, who: Who, offsets: Mapping[str, Any]) -> bool:
        """Whether a batch is finished already; `Fenced` if it may no longer be."""
        repeat = turn.is_repeat((self.epoch, {} if self.claimed else self.offsets or {}), who, offsets)
        return repeat and not self.claimed


def read(connection: Connection[Any], schema: str, pipeline: str, writer: str) -> Kept | None:
    """What is kept for a writer, if anything is."""
    if missing(connection, schema):
        return None
    sql = f"SELECT epoch, offsets, claimed FROM {names.quote(schema, 'offsets')} WHERE pipeline = %s AND writer = %s"
    found = connection.execute(sql, [pipeline, writer]).fetchone()
    return Kept(*found) if found else None


def lock(connection: Connection[Any], schema: str, who: Who) -> Kept:
    """What is kept for a writer, which nobody else can change before this transaction ends."""
    table = names.quote(schema, "offsets")
    sql = f"INSERT INTO {table} VALUES (%s, %s, -1, NULL, false) ON CONFLICT DO NOTHING"
    connection.execute(sql, [who.pipeline, who.writer])
    sql = f"SELECT epoch, offsets, claimed FROM {table} WHERE pipeline = %s AND writer = %s FOR UPDATE"
    row = connection.execute(sql, [who.pipeline, who.writer]).fetchone()
    assert row is not None
    return Kept(*row)


def store(connection: Connection[Any], schema: str, who: Who, kept: Kept) -> None:
    """Keep this from now on."""
    sql = f"""UPDATE {names.quote(schema, "offsets")} SET epoch = %s, offsets = %s, claimed = %s, changed_at = now()
              WHERE pipeline = %s AND writer = %s"""
    offsets = None if kept.offsets is None else msgspec.json.encode(kept.offsets).decode()
    connection.execute(sql, [kept.epoch, offsets, kept.claimed, who.pipeline, who.writer])


def orphans(connection: Connection[Any], schema: str) -> list[str]:
    """Staging tables of batches that were never finished."""
    sql = """SELECT relname, extract(epoch FROM now())::bigint FROM pg_class
             WHERE relnamespace = to_regnamespace(%s) AND relname ~ '^stage_[0-9a-f]+_[0-9a-f]{32}$'"""
    found = connection.execute(sql, [names.quote(schema)]).fetchall()
    return [table for table, now in found if now - made_at(table) > ORPHANED]
