"""A table followed into an index, while the run and the node are killed: in the end the index is the table."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.adaptors.opensearch.killed import Killed
from tests.adaptors.opensearch.place import Place
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.place import Place as Tables
from tests.conftest import started
from tests.pipeline.runs import process, until
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(900)]
PIPELINE = """
import tailrace

pipeline = (
    tailrace.pipeline("orders", home="{home}/home", partitions=4)
    .source("postgres", uri="${{SHOP}}", namespace=r"^public\\.orders$", slot="{slot}")
    .save("opensearch", uri="${{SEARCH}}", create=True, patience=5)
)
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as made:
        yield made


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Killed]:
    with contextlib.closing(Killed(tmp_path / "node")) as made:
        yield made


def follows(folder: Path, nth: int) -> bool:
    """Whether the run that was started as the nth follows its source."""
    runs = (folder / "said").read_text().split("starting Spark")[1:]
    return len(runs) >= nth and "\nfollowing" in runs[nth - 1]


def change(shop: Tables, rng: random.Random) -> None:
    """Inserts, updates of some fields, deletes, and a key that comes back."""
    first = rng.randrange(1_000_000)
    shop.run(
        f"INSERT INTO orders SELECT n, 'new', 0 FROM generate_series({first}, {first + 20}) n ON CONFLICT DO NOTHING"
    )
    shop.run(f"UPDATE orders SET v = 'changed', changes = changes + 1 WHERE id % 17 = {first % 17}")
    shop.run(f"DELETE FROM orders WHERE id % 29 = {first % 29}")
    shop.run(f"INSERT INTO orders VALUES ({first % 29}, 'again', {first}) ON CONFLICT DO NOTHING")


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(0)])])
def test_a_table_into_an_index(postgres: Postgres, node: Killed, tmp_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    name = f"search_{random.randrange(1 << 30)}"
    with psycopg.connect(postgres.uri(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    with Tables(postgres, name) as shop:
        shop.run("CREATE TABLE orders (id int PRIMARY KEY, v text, changes int)")
        shop.run("INSERT INTO orders SELECT n, 'copied', 0 FROM generate_series(1, 2000) n")
        (tmp_path / "orders.py").write_text(PIPELINE.format(home=tmp_path, slot=name))
        env = {"SHOP": shop.uri, "SEARCH": node.server.url}
        for n in range(rounds):
            with process(tmp_path, "run", "orders.py", env=env) as run:
                until(lambda run=run, n=n: follows(tmp_path, n + 1) or run.poll() is not None, 400)
                assert run.poll() is None, (tmp_path / "said").read_text()
                end = time.monotonic() + rng.uniform(0.3, 1.5)
                while time.monotonic() < end:
                    change(shop, rng)
                if n % 2:
                    node.kill()
                    change(shop, rng)
                    node.start()
                run.kill()
        change(shop, rng)
        with process(tmp_path, "run", "orders.py", "--once", env=env) as run:
            assert run.wait(400) == 0, (tmp_path / "said").read_text()
        expected = {str(id): (id, *rest) for id, *rest in shop.ask("SELECT id, v, changes FROM orders")}
    with Place(node.server.url, "") as place:
        found = place.documents("public.orders")
    assert {id: (d["id"], d["v"], d["changes"]) for id, d in found.items()} == expected
    assert len(expected) > 100
