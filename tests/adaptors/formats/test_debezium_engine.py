"""One PostgreSQL, followed by Debezium's own engine and by tailrace: each understands what the other writes."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from tailrace.adaptors.formats.debezium import DebeziumDecoder
from tailrace.adaptors.formats.outgoing import outgoing
from tailrace.adaptors.kafka.settings import KafkaSink, KafkaSource
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import messages_of, namespace_of
from tailrace.log.record import Op
from tests.adaptors.formats.records import Record
from tests.adaptors.formats.test_debezium import PLACEHOLDERS
from tests.adaptors.postgres.conftest import FAST, fresh
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place
from tests.conftest import started
from tests.servers import debezium as engines
from tests.servers import postgres as servers
from tests.servers.debezium import Debezium

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
TABLES = ("orders", "lines", "keyless")
KEYED = TABLES[:2]
SCHEMA = """
CREATE TYPE mood AS ENUM ('fine', 'so so');
CREATE TABLE orders (id int PRIMARY KEY, v text, big text, tags text[], counts int[], longs bigint[], ids uuid[],
    doc jsonb, raw bytea, total numeric(12,3), any_number numeric, paid boolean, share double precision, half real,
    small smallint, long bigint, at timestamptz, local timestamp, day date, hour time, mood mood, uid uuid);
CREATE TABLE lines (order_id int, line text, note text, PRIMARY KEY (order_id, line));
CREATE TABLE keyless (a int, b text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
"""
ROWS = """
INSERT INTO orders VALUES (1, 'one', repeat('b', 3000), ARRAY[repeat('t', 3000), NULL], array_fill(7, ARRAY[2000]),
    array_fill(8::bigint, ARRAY[2000]), array_fill('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, ARRAY[2000]),
    jsonb_build_object('n', repeat('j', 3000)), decode(repeat('ff', 3000), 'hex'), 1.5, 123.456000, true, 0.1, 0.5,
    -3, 9007199254740993, '2024-02-29 12:00:00.5+01', '2024-02-29 12:34:56.789012', '2024-02-29', '12:34:56.789012',
    'so so', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11');
INSERT INTO orders (id, v) VALUES (2, '');
INSERT INTO lines VALUES (1, 'ä "quoted"', NULL), (1, E'tab\\t', 'x');
INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (NULL, 'y');
"""
LARGE = ("big", "tags", "counts", "longs", "ids", "doc", "raw")
"""The columns that are kept out of the row, so that an update does not tell them."""
CHANGES = """
UPDATE orders SET v = 'changed';
UPDATE orders SET big = 'small', share = 'NaN', half = '-Infinity' WHERE id = 1;
INSERT INTO orders (id, v) VALUES (3, 'three'), (4, 'four');
UPDATE orders SET id = 30 WHERE id = 3;
DELETE FROM orders WHERE id = 4;
UPDATE lines SET line = 'moved', note = 'y' WHERE note = 'x';
DELETE FROM lines WHERE note IS NULL;
INSERT INTO keyless VALUES (2, 'z');
UPDATE keyless SET b = 'w' WHERE a = 2;
DELETE FROM keyless WHERE ctid = (SELECT min(ctid) FROM keyless WHERE a = 1);
INSERT INTO orders (id, v) VALUES (4, 'back');
"""


@pytest.fixture(scope="module")
def shops() -> Iterator[Callable[[], Iterator[Place]]]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as server:
        yield lambda: fresh(server, "shop")


@pytest.fixture
def shop(shops: Callable[[], Iterator[Place]]) -> Iterator[Place]:
    for place in shops():
        place.run(SCHEMA)
        place.run(f"ALTER TABLE orders {', '.join(f'ALTER {column} SET STORAGE EXTERNAL' for column in LARGE)}")
        place.run(ROWS)
        yield place


def followed(engine: Debezium, shop: Place) -> None:
    """Wait until the engine has told all that has happened."""
    shop.run("INSERT INTO lines VALUES (-1, 'the end', NULL)")
    deadline = time.monotonic() + 60
    while not any(one.key and b"the end" in one.key for one in engine.records("public.lines")):
        assert time.monotonic() < deadline, engine.records()[-3:]
        time.sleep(0.05)


def decoded(engine: Debezium, table: str) -> list[Message]:
    """What a source makes of the engine's records of a table."""
    decoder = DebeziumDecoder(KafkaSource(brokers="none", format="debezium"))
    records = [Record(one.key, one.value, n) for n, one in enumerate(engine.records(f"public.{table}"))]
    return [message for batch in decoder.rows(table, records, 1) for message in messages_of(batch)]


def replayed(messages: list[Message]) -> list[dict[str, Any]]:
    """The rows that are there after these changes."""
    rows: list[tuple[Any, dict[str, Any]]] = []
    for one in messages:
        id = tuple(one.data[name] for name in one.keys)
        at = next((n for n, (key, row) in enumerate(rows) if (key == id if one.keys else row == one.data)), None)
        if one.op == Op.DELETE:
            assert at is not None, one
            del rows[at]
        elif at is None or not one.keys:
            assert one.whole
            rows.append((id, one.data))
        else:
            rows[at] = id, one.data if one.whole else {**rows[at][1], **one.data}
    return [row for _, row in rows]


def texts(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as texts, the same whatever the classes of their values."""
    return sorted(repr(sorted((name, plain(name, value)) for name, value in row.items())) for row in rows)


def plain(name: str, value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, Decimal):
        return value.normalize()
    if name == "doc" and isinstance(value, str):
        return json.loads(value)
    if name == "ids" and value is not None:
        return [str(one) for one in value]
    return str(value) if name == "uid" else value


def of_source(shop: Place, table: str) -> list[dict[str, Any]]:
    answer = shop.connection.execute(f"SELECT * FROM {table}")
    return [dict(zip([c.name for c in answer.description or ()], row, strict=True)) for row in answer.fetchall()]


def test_what_debezium_says_of_a_database_is_the_database(shop: Place) -> None:
    with started("Debezium", lambda: engines.debezium(shop.server, shop.name, schemas=True)) as engine:
        shop.run(CHANGES)
        followed(engine, shop)
        for table in TABLES:
            assert texts(replayed(decoded(engine, table))) == texts(of_source(shop, table)), table


SAME = {"decimal_handling_mode": "string", "time_precision_mode": "isostring"}
"""The settings with which Debezium writes values as tailrace does."""
LOCAL = ("local", "day", "hour")
"""Columns without a zone, which Debezium writes with a Z behind them all the same."""


def test_tailrace_and_debezium_write_the_same_envelopes(shop: Place) -> None:
    """But for what the guide says, and for values that one of them need not leave out."""
    with started("Debezium", lambda: engines.debezium(shop.server, shop.name, **SAME)) as engine:
        with Drive(shop, None, [f"public.{table}" for table in KEYED]) as drive:
            drive.begin()
            drive.copy()
            shop.run(CHANGES)
            followed(engine, shop)
            drive.follow()
        settings = KafkaSink(brokers="none", format="debezium")
        for table in KEYED:
            batches = [batch for batch in drive.seen if namespace_of(batch) == f"public.{table}"]
            ours = [record for batch in batches for record in outgoing(batch, settings).to_pylist()]
            theirs = engine.records(f"public.{table}")
            assert [one["key"] for one in ours] == [one.key for one in theirs]
            for mine, other in zip(ours, theirs, strict=True):
                told = json.loads(mine["value"]) if mine["value"] is not None else None
                assert alike(json.loads(mine["key"]), told, other.document), other.key


def alike(key: dict[str, Any], ours: Any, theirs: Any) -> bool:
    """Whether two envelopes say the same."""
    if ours is None or theirs is None:
        return ours is theirs
    after = theirs["after"]
    if theirs["op"] == "d":
        assert ours["before"] == key == {name: theirs["before"][name] for name in key}
    if after is not None:
        unsent = {name for name, value in after.items() if value in PLACEHOLDERS}
        after |= {name: after[name].removesuffix("Z") for name in LOCAL if after.get(name) is not None}
        sides = [{name: value for name, value in one.items() if name not in unsent} for one in (ours["after"], after)]
        assert sides[0] == sides[1]
    assert set(ours["source"]) <= set(theirs["source"])
    same = ("schema", "table", "snapshot", "ts_ms") if theirs["op"] != "r" else ("schema", "table")
    assert [ours["source"][name] for name in same] == [theirs["source"][name] for name in same]
    return bool(ours["op"] == theirs["op"])
