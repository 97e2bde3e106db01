"""DynamoDB into PostgreSQL and into DynamoDB, by runs that die at every point that matters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.storage.keys import KeySchema
from tests.adaptors.dynamodb.place import Place
from tests.adaptors.killed_runs import DEATHS, FEW, JOURNAL, Death, Trade, survive
from tests.adaptors.postgres.place import Place as Tables

pytestmark = [pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(900)]
ITEMS = 300
AHEAD = (Death("take over", "before"), Death("take over"), Death("take over", "after", 2))
"""What was read while tables were copied goes into the commit log behind them."""


def item(id: str, v: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "v": v, "price": Decimal(f"{v}.25"), "tags": frozenset({"a", f"b{v % 3}"}), **more}


class Shop(Trade):
    """Tables that change, and a table that comes later."""

    def __init__(self, place: Place, warehouse: Tables, folder: Path) -> None:
        self._place, self._warehouse = place, warehouse
        self._journal = place.table(JOURNAL, KeySchema("k", "N", None))
        self._orders = place.table("orders", KeySchema("id", "S", None))
        self._later = f"{place.prefix}later"
        place.put(self._orders, *(item(f"id {n}", 0) for n in range(ITEMS)))
        settings = {"endpoint": place.server.url}
        self.definition = (
            tailrace.pipeline("shop", home=str(folder / "home"), partitions=2, piece_rows=50)
            .source("dynamodb", namespace=f"^{place.prefix}(journal|orders|later)$", shape="columns", **settings)
            .branch().save(
                "dynamodb", prefix=f"{place.prefix}copy-", state=f"{place.prefix}state", create=True, **settings
            )
            .branch().save("postgres", uri=warehouse.uri, schema="public", create=True, alter=True)
        ).definition()  # fmt: skip

    def step(self, number: int, rng: random.Random) -> None:
        self._place.put(self._journal, {"k": number})
        self._place.put(self._orders, item(f"id {rng.randrange(ITEMS)}", number))
        self._place.put(self._orders, item(f"new {number % 50}", number, bytes=b"\0\xff"))
        self._place.delete(self._orders, id=f"id {rng.randrange(ITEMS)}")

    def drift(self, death: str) -> None:
        if death == "after position":
            self._place.table("later", KeySchema("id", "S", None))
            self._place.put(self._later, item("only", 1, more={"deep": [1, None]}))

    def check(self) -> None:
        for table, key in ((self._journal, "k"), (self._orders, "id"), (self._later, "id")):
            expected = {one[key]: one for one in self._place.items(table)}
            assert {one[key]: one for one in self._place.items(f"{self._place.prefix}copy-{table}")} == expected, table
        rows = self._warehouse.ask(f'SELECT id, v, price FROM "{self._orders}"')
        expected = {one["id"]: (one["v"], one["price"]) for one in self._place.items(self._orders)}
        assert {id: (v, price) for id, v, price in rows} == expected
        numbers = self._warehouse.ask(f'SELECT k FROM "{self._journal}"')
        assert {int(k) for (k,) in numbers} == {int(one["k"]) for one in self._place.items(self._journal)}


ALL = (*DEATHS[:8], *AHEAD, *DEATHS[8:])


@pytest.mark.parametrize(
    "deaths", [(*FEW[:4], AHEAD[1], *FEW[4:]), pytest.param(ALL, marks=pytest.mark.soak)], ids=["few", "all"]
)
def test_nothing_is_lost_wherever_a_run_dies(
    place: Place, warehouse: Tables, tmp_path: Path, deaths: Sequence[Death]
) -> None:
    survive(Shop(place, warehouse, tmp_path), deaths)
