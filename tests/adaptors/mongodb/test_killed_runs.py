"""MongoDB into PostgreSQL and into MongoDB, by runs that die at every point that matters."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from bson import Int64, json_util
from pymongo.errors import OperationFailure

import tailrace
from tests.adaptors.killed_runs import DEATHS, FEW, JOURNAL, Death, Trade, survive
from tests.adaptors.mongodb.place import Place
from tests.adaptors.postgres.place import Place as Tables

pytestmark = [pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(900)]
DOCUMENTS = 300


class Shop(Trade):
    """Collections that change, come, and change their names."""

    def __init__(self, source: Place, sink: Place, warehouse: Tables, folder: Path) -> None:
        self._source, self._sink, self._warehouse = source, sink, warehouse
        self._came = False
        source[JOURNAL].insert_one({"_id": 0, "first": True})
        source["orders"].insert_many([{"_id": n, "v": 0, "big": Int64(1)} for n in range(DOCUMENTS)])
        source["passing"].insert_many([{"_id": n, "v": 0} for n in range(20)])
        self.definition = (
            tailrace.pipeline("shop", home=str(folder / "home"), partitions=2, piece_rows=50)
            .source("mongodb", uri=source.uri)
            .branch().save("mongodb", uri=sink.uri, database=sink.name, state=f"state_{sink.name}")
            .branch().save("postgres", uri=warehouse.uri, schema="public", create=True, alter=True)
        ).definition()  # fmt: skip

    def step(self, number: int, rng: random.Random) -> None:
        if number:
            self._source[JOURNAL].insert_one({"_id": number})
        orders = self._source["orders"]
        orders.update_one({"_id": rng.randrange(DOCUMENTS)}, {"$inc": {"v": 1}, "$set": {f"f{number % 5}": number}})
        orders.update_one({"_id": rng.randrange(DOCUMENTS)}, {"$unset": {f"f{number % 5}": ""}})
        orders.delete_one({"_id": rng.randrange(DOCUMENTS)})
        orders.replace_one({"_id": f"new {number % 50}"}, {"n": [number, {"x": 1.5}]}, upsert=True)
        with (
            contextlib.suppress(OperationFailure),
            self._source.client.start_session() as session,
            session.start_transaction(),
        ):
            for id in (-1, -2):
                orders.update_one({"_id": id}, {"$set": {"both": number}}, upsert=True, session=session)

    def drift(self, death: str) -> None:
        if death == "before finish 0":
            self._source["orders"].update_many({}, {"$rename": {"big": "bigger"}})
        elif death == "within position" and not self._came:
            self._came = True
            self._source["later"].insert_many([{"_id": n} for n in range(10)])
            self._source["passing"].drop()
        elif death == "before finish 1":
            self._source["later"].rename("latest")

    def check(self) -> None:
        for name in (JOURNAL, "orders", "latest", "later", "passing"):
            assert self._sink.raw(name) == self._source.raw(name), name
        for name in (JOURNAL, "orders", "latest"):
            rows = [document for (document,) in self._warehouse.ask(f"SELECT document::text FROM {name}")]
            found = sorted((json_util.loads(row) for row in rows), key=lambda document: repr(document["_id"]))
            expected = sorted(self._source[name].find(), key=lambda document: repr(document["_id"]))
            assert found == expected, name


@pytest.mark.parametrize("deaths", [FEW, pytest.param(DEATHS, marks=pytest.mark.soak)], ids=["few", "all"])
def test_nothing_is_lost_wherever_a_run_dies(
    place: Place, sink_place: Place, warehouse: Tables, tmp_path: Path, deaths: Sequence[Death]
) -> None:
    survive(Shop(place, sink_place, warehouse, tmp_path), deaths)
