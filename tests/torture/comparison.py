"""Comparison: the source and each sink, row by row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from tailrace.adaptors.postgres.names import namespace, quote
from tests.torture import sinks
from tests.torture.sinks import Row, Shape

SHOWN = 5
"""So many of the differing rows are shown."""
_SHAPES = """
    SELECT n.nspname, c.relname, c.relkind = 'p',
           COALESCE((SELECT json_agg(json_build_array(a.attname, format_type(atttypid, atttypmod)) ORDER BY a.attnum)
                     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                     AND a.attgenerated <> 'v'), '[]'),
           (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
            WHERE i.indrelid = c.oid AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
      AND n.nspname NOT IN ('information_schema', 'ledger') AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY 1, 2
"""


@dataclass(frozen=True)
class Difference:
    """A table of which a sink holds something else than the source."""

    sink: str
    namespace: str
    lacks: list[str]
    has: list[str]
    note: str = ""

    def __str__(self) -> str:
        said = [
            f"{self.sink}: {self.namespace!r}: lacks {len(self.lacks)} rows, has {len(self.has)} that are not there"
        ]
        said += [f"    {self.note}"] if self.note else []
        said += [f"    - {row[:300]}" for row in self.lacks[:SHOWN]]
        said += [f"    + {row[:300]}" for row in self.has[:SHOWN]]
        return "\n".join(said)


@dataclass(frozen=True)
class Places:
    """Where everything is."""

    source: str
    sink: str
    files: Path
    topics: Path


def shapes(source: psycopg.Connection[Any]) -> dict[str, Shape]:
    """The tables of the source that the pipeline follows."""
    return {
        namespace(schema, name): Shape(schema, name, tuple(map(tuple, columns)), tuple(key or ()), parted)
        for schema, name, parted, columns, key in source.execute(_SHAPES).fetchall()
    }


def compare(places: Places) -> list[Difference]:
    """What is not the same."""
    options = "-c TimeZone=UTC"
    out: list[Difference] = []
    with (
        psycopg.connect(places.source, autocommit=True, options=options) as source,
        psycopg.connect(places.sink, autocommit=True, options=options) as sink,
    ):
        for name, shape in shapes(source).items():
            columns = ", ".join(quote(column) for column, _ in shape.columns)
            there = sinks.texts(source, f"SELECT {columns} FROM {shape.sql}")
            out += differs("postgres", name, there, sinks.postgres(sink, shape))
            out += _carried(source, "parquet", name, shape, there, sinks.parquet(places.files, name, shape))
            plain, there = _as_json(source, shape)
            out += _carried(source, "topic", name, plain, there, sinks.topic(places.topics, name, plain))
    return out


def _as_json(source: psycopg.Connection[Any], shape: Shape) -> tuple[Shape, list[str]]:
    """A table as JSON can tell of it: json and jsonb are one, and their null is no other than SQL's."""
    json = {name for name, kind in shape.columns if kind in ("json", "jsonb")}
    columns = [
        f"NULLIF({quote(name)}::jsonb, 'null') AS {quote(name)}" if name in json else quote(name)
        for name, _ in shape.columns
    ]
    kinds = tuple((name, "jsonb" if name in json else kind) for name, kind in shape.columns)
    there = sinks.texts(source, f"SELECT {', '.join(columns)} FROM {shape.sql}")
    return replace(shape, columns=kinds), there


def _carried(
    source: psycopg.Connection[Any], sink: str, name: str, shape: Shape, there: list[str], rows: list[Row] | None
) -> list[Difference]:
    try:
        found = None if rows is None else sinks.back_in_the_source(source, shape, rows)
    except psycopg.Error as error:
        return [Difference(sink, name, [], [], f"what it holds is no row of the table: {error}")]
    return differs(sink, name, there, found)


def differs(sink: str, name: str, there: list[str], found: list[str] | None) -> list[Difference]:
    """The difference between rows as texts; None: the sink knows nothing of the table."""
    if found is None:
        return [Difference(sink, name, there, [], "it has no such table")] if there else []
    wanted, held = Counter(there), Counter(found)
    lacks, has = list((wanted - held).elements()), list((held - wanted).elements())
    return [Difference(sink, name, lacks, has)] if lacks or has else []
