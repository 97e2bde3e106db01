"""MySQL and MariaDB into PostgreSQL and into their own kind, by runs that die at every point that matters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import tailrace
from tests.adaptors.killed_runs import DEATHS, FEW, Death, Trade, survive
from tests.adaptors.mysql.place import Place
from tests.adaptors.postgres.place import Place as Tables

pytestmark = [pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(900)]
ROWS = 300
SETUP = (
    "CREATE TABLE journal (k int PRIMARY KEY)",
    "CREATE TABLE orders (id int PRIMARY KEY, v int, note varchar(40))",
    "CREATE TABLE notes (a int, b varchar(40))",
    f"INSERT INTO orders VALUES {', '.join(f'({n}, 0, NULL)' for n in range(ROWS))}",
    f"INSERT INTO notes VALUES {', '.join(f'({n % 7}, NULL)' for n in range(50))}",
    "ANALYZE TABLE orders",
)
DRIFTS = {
    "before finish 0": ("ALTER TABLE orders MODIFY note varchar(400)",),
    "within position": (
        "ALTER TABLE orders ADD COLUMN extra int NOT NULL DEFAULT 7",
        "ALTER TABLE notes ADD COLUMN c int",
    ),
    "after position": (
        "TRUNCATE TABLE notes",
        "CREATE TABLE later (id int PRIMARY KEY, v text)",
        "INSERT INTO later VALUES (1, 'x')",
    ),
    "before finish 1": ("ALTER TABLE orders RENAME COLUMN extra TO more", "UPDATE later SET v = 'y'"),
}
"""What is altered between two lives: while tables are copied, and while they are followed."""
COMPARED = {
    "journal": "k",
    "orders": "id, v, note, more",
    "notes": "a, b, c",
    "later": "id, v",
}


class Shop(Trade):
    """Tables with a key and without one."""

    def __init__(self, source: Place, sink: Place, warehouse: Tables, folder: Path) -> None:
        self._source, self._sink, self._warehouse = source, sink, warehouse
        self._drifting, self._drifted = source.connect(), set[str]()
        source.run(*SETUP)
        self.definition = (
            tailrace.pipeline("shop", home=str(folder / "home"), partitions=2, piece_rows=50)
            .source("mysql", uri=source.uri)
            .branch().save("mysql", uri=sink.uri, state=f"{sink.name}_state", create=True, alter=True)
            .branch().save("postgres", uri=warehouse.uri, schema="public", create=True, alter=True)
        ).definition()  # fmt: skip

    def step(self, number: int, rng: random.Random) -> None:
        id = rng.randrange(ROWS)
        with self._source.connection.cursor() as cursor:
            self._source.connection.begin()
            cursor.execute(f"INSERT INTO journal VALUES ({number})")
            cursor.execute(f"UPDATE orders SET v = {number}, note = 'step {number}' WHERE id = {id}")
            cursor.execute(f"DELETE FROM orders WHERE id = {rng.randrange(ROWS)}")
            cursor.execute(f"REPLACE INTO orders (id, v) VALUES ({ROWS + number % 50}, {number})")
            cursor.execute(f"INSERT INTO notes (a, b) VALUES ({number % 7}, 'step {number}')")
            cursor.execute(f"DELETE FROM notes WHERE a = {rng.randrange(7)} LIMIT 1")
            self._source.connection.commit()

    def drift(self, death: str) -> None:
        with self._drifting.cursor() as cursor:
            for sql in DRIFTS.get(death, ()) if death not in self._drifted else ():
                cursor.execute(sql)
        self._drifted.add(death)

    def check(self) -> None:
        for table, columns in COMPARED.items():
            expected = sorted(map(repr, self._source.ask(f"SELECT {columns} FROM {table}")))
            assert sorted(map(repr, self._sink.ask(f"SELECT {columns} FROM {table}"))) == expected, table
            assert sorted(map(repr, self._warehouse.ask(f"SELECT {columns} FROM {table}"))) == expected, table

    def close(self) -> None:
        self._drifting._force_close()


@pytest.mark.parametrize("deaths", [FEW, pytest.param(DEATHS, marks=pytest.mark.soak)], ids=["few", "all"])
def test_nothing_is_lost_wherever_a_run_dies(
    source: Place, sink: Place, warehouse: Tables, tmp_path: Path, deaths: Sequence[Death]
) -> None:
    shop = Shop(source, sink, warehouse, tmp_path)
    try:
        survive(shop, deaths)
    finally:
        shop.close()
