"""DynamoDB into DynamoDB and into PostgreSQL under load, while the run is killed in the middle of everything."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tailrace
from tests.adaptors.dynamodb.place import Place
from tests.conftest import started
from tests.pipeline.runs import process, until
from tests.servers import postgres as servers
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(900)]
ITEMS, NEW = 400, 100

FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("shop", home="{folder}/home", partitions=2, piece_rows=100)
    .source("dynamodb", endpoint="{url}", namespace="^{prefix}orders$", shape="columns")
    .branch().save("dynamodb", endpoint="{url}", prefix="{prefix}copy-", state="{prefix}state", create=True)
    .branch().save("postgres", uri="${{WAREHOUSE}}", create=True, alter=True)
)
"""


@pytest.fixture(scope="module")
def warehouse() -> Iterator[Postgres]:
    with started("PostgreSQL", lambda: servers.postgres(settings={"fsync": "off"})) as server:
        yield server


def item(n: int, text: str) -> dict[str, Any]:
    return {
        "id": n,
        "text": text,
        "price": Decimal(f"{n}.25"),
        "tags": frozenset({"a", text}),
        "more": {"b": b"\0\xff"},
    }


class Load(threading.Thread):
    """Changes items until told to stop."""

    def __init__(self, place: Place, table: str) -> None:
        super().__init__(daemon=True)
        self._place, self._table, self._over = place, table, threading.Event()

    def run(self) -> None:
        rng, n = random.Random(3), 0
        while not self._over.wait(0.02):
            n += 1
            self._place.put(self._table, item(rng.randrange(ITEMS), f"change {n}"), item(ITEMS + n % NEW, f"new {n}"))
            self._place.delete(self._table, id=rng.randrange(ITEMS))

    def stop(self) -> None:
        self._over.set()
        self.join()


def test_the_run_is_killed(place: Place, warehouse: Postgres, tmp_path: Path) -> None:
    orders = place.table("orders")
    place.put(orders, *(item(n, "copied") for n in range(ITEMS)))
    written = FILE.format(folder=tmp_path, url=place.server.url, prefix=place.prefix)
    (tmp_path / "shop.py").write_text(written)
    env, load = {"WAREHOUSE": warehouse.uri()}, Load(place, orders)
    load.start()
    rng = random.Random(5)
    try:
        for n, state in enumerate(("copying", "following")):
            with process(tmp_path, "run", "shop.py", env=env) as run:
                until(lambda n=n, state=state, run=run: _said(tmp_path, n, state) or run.poll() is not None, 300)
                assert run.poll() is None, (tmp_path / "said").read_text()
                time.sleep(rng.uniform(0.5, 2))
                run.kill()
    finally:
        load.stop()
    with process(tmp_path, "run", "shop.py", "--once", env=env) as run:
        assert run.wait(240) == 0, (tmp_path / "said").read_text()
    expected = {one["id"]: one for one in place.items(orders)}
    copied = {one["id"]: one for one in place.items(f"{place.prefix}copy-{orders}")}
    assert copied == expected
    with psycopg.connect(warehouse.uri()) as connection:
        rows = connection.execute(f'SELECT id, text, price, tags, more FROM "{orders}"').fetchall()
    assert {int(id): (text, price, tags, more) for id, text, price, tags, more in rows} == {
        n: (one["text"], one["price"], {"SS": sorted(one["tags"])}, {"b": {"B": "AP8="}}) for n, one in expected.items()
    }
    with tailrace.open(tmp_path / "home") as home:
        assert [name for name in home.topics() if "ahead" in name] == [], "what was read ahead is taken over"
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in (tmp_path / "said").read_text()


def _said(folder: Path, n: int, state: str) -> bool:
    """Whether the nth run has come so far."""
    runs = (folder / "said").read_text().split("starting Spark")[1:]
    return len(runs) > n and (f"\n{state}" in runs[n] or "\nfollowing" in runs[n])
