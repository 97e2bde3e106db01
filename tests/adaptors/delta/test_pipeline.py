"""PostgreSQL into Delta tables, as states and as a log of changes, while the run is killed: equal row by row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.adaptors.delta.place import Place
from tests.adaptors.kafka.test_pipelines import ROUNDS, catch_up, killed
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.place import Place as Tables
from tests.conftest import started
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(600)]
FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("shop", partitions=2)
    .source("postgres", uri="${{SHOP}}", namespace=r"^public\\.", slot="{slot}")
    .branch().save("delta", path="{states}", storage_options={options}, every=0.5, compact_every=5)
    .branch().save("delta", path="./log", keep="changes", every=0.5, compact_every=5)
)
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as made:
        yield made


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_database_into_delta(remote: Place, postgres: Postgres, tmp_path: Path, rounds: int) -> None:
    name = f"shop_{random.randrange(1 << 30)}"
    with psycopg.connect(postgres.uri(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    file = FILE.format(slot=name, states=remote.path, options=remote.options)
    (tmp_path / "shop.py").write_text(file)
    with Tables(postgres, name) as shop:
        shop.run("CREATE TABLE orders (id int PRIMARY KEY, v text, changes int)")
        shop.run("CREATE TABLE lines (id bigint, line int, price numeric(12,2), PRIMARY KEY (id, line))")
        shop.run("CREATE TABLE nothing (id int PRIMARY KEY, at timestamptz)")
        shop.run("INSERT INTO orders SELECT n, 'copied', 0 FROM generate_series(1, 2000) n")
        rng, made = random.Random(3), [2000]

        def trade() -> None:
            made[0] += 1
            shop.run("INSERT INTO orders VALUES (%s, 'new', 0)", made[0])
            shop.run("INSERT INTO lines VALUES (%s, 1, 2.50), (%s, 2, -1)", made[0], made[0])
            shop.run("UPDATE orders SET v = v || '.', changes = changes + 1 WHERE id = %s", rng.randrange(1, 2000))
            shop.run("DELETE FROM orders WHERE id = %s", rng.randrange(1, 2000))

        killed(tmp_path, "shop.py", {"SHOP": shop.uri}, rounds, trade)
        shop.run("ALTER TABLE lines ADD COLUMN note text, ALTER COLUMN line TYPE bigint")
        shop.run("INSERT INTO lines VALUES (1, 5000000000, 7, 'new')")
        shop.run("TRUNCATE nothing")
        catch_up(tmp_path, "shop.py", {"SHOP": shop.uri})
        orders = shop.ask("SELECT id, v, changes FROM orders ORDER BY id")
        lines = shop.ask("SELECT id, line, price, note FROM lines ORDER BY id, line")
    log = Place(tmp_path / "log", keep="changes")
    for place in (remote, log):
        found = place.documents()
        assert sorted((row["id"], row["v"], row["changes"]) for row in found) == orders
    rows = remote.rows("public.lines")
    assert (
        sorted(((row["id"], row["line"], row["price"], row["note"]) for row in rows), key=lambda row: row[:2]) == lines
    )
    assert remote.rows("public.nothing") == []
    changes = log.rows("public.orders")
    assert set(Counter((row["_partition"], row["_offset"]) for row in changes).values()) == {1}, "each change once"
    assert sum(row["_op"] == "insert" for row in changes) >= made[0]
