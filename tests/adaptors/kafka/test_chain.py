"""The whole way, by runs that die: PostgreSQL, Kafka with Debezium's envelopes, tailrace, Delta tables and indexes."""

from __future__ import annotations

import datetime as dt
import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.pipeline.define.definition import Definition
from tests.adaptors.delta.place import Place as Lake
from tests.adaptors.kafka.place import Place
from tests.adaptors.killed_runs import JOURNAL, Death, Load, Trade, live
from tests.adaptors.opensearch.place import Place as Search
from tests.adaptors.postgres.conftest import FAST, fresh
from tests.adaptors.postgres.place import Place as Tables
from tests.conftest import started
from tests.servers import opensearch
from tests.servers import postgres as servers
from tests.servers.process import Server

pytestmark = [pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(900)]
TABLES = {"orders": "id", "lines": "order_id, line", "late": "id", JOURNAL: "n"}
"""The tables, and what their rows are sorted by."""
SETUP = f"""
CREATE TABLE {JOURNAL} (n int PRIMARY KEY);
CREATE TABLE orders (id int PRIMARY KEY, v text, big text, total numeric(12,3), paid boolean, at timestamptz,
    tags text[], doc jsonb);
ALTER TABLE orders ALTER big SET STORAGE EXTERNAL;
CREATE TABLE lines (order_id int, line text, count int, PRIMARY KEY (order_id, line));
INSERT INTO {JOURNAL} VALUES (0);
INSERT INTO orders SELECT n, 'copied', repeat('b', 3000), n / 7.0, n % 2 = 0, now(), ARRAY['a', NULL, 'ä"'],
    jsonb_build_object('n', n, 'inner', ARRAY[n]) FROM generate_series(1, 300) n;
INSERT INTO lines SELECT n, 'line ' || n % 3, n FROM generate_series(1, 300) n;
"""
LIVES = (
    ("out", Death("piece", "within")), ("out", Death("finish 0", "before")), ("out", Death("finish 0")),
    ("in", Death("finish 0")), ("out", Death("position", "within", 2)), ("out", Death("finish 0")),
    ("in", Death("position", "within")), ("in", Death("finish 1", "before")), ("out", Death("finish 0")),
    ("in", Death("finish 1")), ("out", Death("finish 0")), ("in", Death("finish 0", "before")),
)  # fmt: skip
"""The runs of both pipelines, and how each ends."""


@pytest.fixture(scope="module")
def shop() -> Iterator[Tables]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as server:
        yield from fresh(server, "chain")


@pytest.fixture(scope="module")
def search() -> Iterator[Server]:
    with started("OpenSearch", opensearch.opensearch) as server:
        yield server


class Chain(Trade):
    """A shop whose tables go through Kafka into a lake and into a search engine."""

    def __init__(self, shop: Tables, place: Place, search: Server, folder: Path) -> None:
        self._shop, self._place, self._lake = shop, place, Lake(folder / "lake")
        self._search = Search(search.url, place.prefix)
        self._operator = Tables(shop.server, shop.name)
        shop.run(SETUP)
        home = str(folder / "home")
        self.definition = (
            tailrace.pipeline("out", home=home, partitions=2, piece_rows=100)
            .source("postgres", uri=shop.uri, slot=shop.name, discover=0.3)
            .save("kafka", brokers=place.brokers, prefix=place.prefix, format="debezium", create=True, partitions=1,
                  truncates=True, state=f"__{place.prefix}state")
        ).definition()  # fmt: skip
        self.inward = (
            tailrace.pipeline("in", home=home, partitions=2)
            .source("kafka", brokers=place.brokers, prefix=place.prefix, namespace=r"^public\.", format="debezium",
                    discover=0.3)
            .branch().save("delta", path=self._lake.path, every=0.2)
            .branch().save("opensearch", uri=search.url, index=f"{place.prefix}{{namespace}}", create=True,
                           state=f"{place.prefix}state")
        ).definition()  # fmt: skip

    def pipeline(self, name: str) -> Definition:
        return self.definition if name == "out" else self.inward

    def step(self, number: int, rng: random.Random) -> None:
        """A change of every kind: some alone, some as one transaction, one that is rolled back."""
        run, id, other = self._shop.run, rng.randrange(1, 300), rng.randrange(1, 300)
        if number:
            run(f"INSERT INTO {JOURNAL} VALUES (%s)", number)
        run("UPDATE orders SET v = %s, total = total + 0.125 WHERE id = %s", f"changed {number}", id)  # leaves big out
        run("UPDATE orders SET big = repeat('z', 2500), doc = NULL WHERE id = %s", other)
        run("DELETE FROM orders WHERE id = %s", rng.randrange(1, 300))
        run("INSERT INTO orders (id, v, tags) VALUES (%s, 'back', '{}') ON CONFLICT DO NOTHING", id)
        run("UPDATE lines SET line = 'moved ' || line WHERE order_id = %s", id)  # it is a part of the key
        with self._shop.connection.transaction():
            run("DELETE FROM orders WHERE id = %s", other)
            run("INSERT INTO orders (id, v, big) VALUES (%s, 'again', %s)", other, "q" * 3000)
            run("UPDATE orders SET paid = NOT coalesce(paid, false) WHERE id IN (%s, %s)", id, other)
        with self._shop.connection.transaction():  # two rows that change their keys with each other
            run("UPDATE orders SET id = -1 WHERE id = %s", id)
            run("UPDATE orders SET id = %s WHERE id = %s AND %s <> %s", id, other, id, other)
            run("UPDATE orders SET id = %s WHERE id = -1", other)
        with self._shop.connection.transaction(force_rollback=True):
            run("DELETE FROM lines")
        if number % 40 == 39:
            with self._shop.connection.transaction():
                run("TRUNCATE lines")
                run("INSERT INTO lines SELECT n, 'after', n FROM generate_series(1, 50) n")

    def drift(self, death: str) -> None:
        """Tables and columns that come."""
        with self._operator as operator:
            if death == "before finish 0":
                operator.run("ALTER TABLE lines ADD IF NOT EXISTS note text, ALTER count TYPE bigint")
                operator.run("ALTER TABLE lines ADD IF NOT EXISTS price numeric(6,2) DEFAULT 1.5")
                operator.run(
                    "INSERT INTO lines VALUES (1000, %s, 5000000000, 'a note', 2)", f"{death} {random.random()}"
                )
            elif death == "within position":
                operator.run("CREATE TABLE IF NOT EXISTS late (id int PRIMARY KEY, v text)")
                operator.run("INSERT INTO late SELECT n, 'late' FROM generate_series(1, 50) n ON CONFLICT DO NOTHING")
                operator.run("DELETE FROM late WHERE id = 7")

    def check(self) -> None:
        for table, order in TABLES.items():
            rows = self._shop.connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
            names = [column.name for column in rows.description or ()]
            expected = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
            namespace = f"public.{table}"
            assert expected
            assert as_rows(expected) == as_rows(self._lake.rows(namespace), names), f"{table} in the lake"
            found = self._search.documents(namespace)
            assert len(found) == len(expected)
            assert as_rows(expected) == as_rows(list(found.values()), names), f"{table} in the index"


def as_rows(rows: list[dict[str, Any]], names: list[str] | None = None) -> list[str]:
    """Rows as texts that are equal if the rows are; a field that is not there is null."""
    return sorted(json.dumps({name: plain(row.get(name)) for name in names or row}, sort_keys=True) for row in rows)


def plain(value: Any) -> Any:
    """A value as JSON without types has it, in whatever form it comes."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, str) and value[:1] in "{[2":
        try:
            moment = value[0] == "2" and dt.datetime.fromisoformat(value)
            return plain(moment or json.loads(value))
        except ValueError:
            return value
    return value


def test_a_database_through_kafka_into_a_lake_and_an_index(
    shop: Tables, place: Place, search: Server, tmp_path: Path
) -> None:
    chain = Chain(shop, place, search, tmp_path)
    load = Load(chain)
    with load.going():
        for name, death in LIVES:
            chain.drift(str(death))
            assert live(chain.pipeline(name), death) == -signal.SIGKILL, f"{name} did not come to its end {death}"
    for name in ("out", "in"):
        assert live(chain.pipeline(name), None) == 0, f"the last run of {name} failed"
    chain.check()
    told = [one.document for one in place.read(f"public.{JOURNAL}")]
    assert {one["after"]["n"] for one in told} == set(range(load.steps))
    once = Counter(one["after"]["n"] for one in told if one["op"] == "c")
    assert set(once.values()) == {1}, "a change that came twice"
