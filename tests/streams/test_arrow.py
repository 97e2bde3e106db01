"""A table's changes as Arrow: the same order and token as one by one, typed columns, items that do not fit."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import BadItem
from tailrace.home import Home
from tailrace.storage.keys import KeySchema
from tailrace.storage.tables import Regardless, Set, Update
from tailrace.streams import hash_key, model
from tailrace.streams.arrow import Columns
from tailrace.streams.stream import Stream
from tailrace.testing import SimulatedChanges
from tests.streams.test_stream import key_in, put, stream_of


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    street: str


@model(stream={"new", "old"})
class Thing:
    id: UUID = hash_key()
    text: str
    number: int = 7
    real: float = 0.5
    exact: Decimal = Decimal("1.50")
    yes: bool = True
    raw: bytes = b"\xff"
    at: datetime = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    day: date = date(2026, 1, 2)
    colour: Colour = Colour.RED
    tags: set[int] = dataclasses.field(default_factory=set)
    notes: list[str] = dataclasses.field(default_factory=list)
    address: Address | None = None
    maybe: int | None = None


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as home:
        yield home


def test_typed_columns(home: Home) -> None:
    engine = home.engine()
    engine.bind(Thing)
    thing = Thing(UUID(int=1), "t", tags={3, 1}, notes=["a"], address=Address("Elm"), real=1 / 3)
    engine.save(thing)
    engine.delete(thing)
    (batch,) = engine.stream(Thing, "trim_horizon").batches()
    first, last = batch.to_pylist()
    assert (first["type"], last["type"]) == ("insert", "remove")
    assert (first["old"], last["new"]) == (None, None)
    assert first["key"] == {"id": str(UUID(int=1))}
    assert first["new"] == last["old"] == {
        "id": str(UUID(int=1)), "text": "t", "number": 7, "real": 1 / 3, "exact": "1.50", "yes": True, "raw": b"\xff",
        "at": thing.at, "day": thing.day, "colour": "red", "tags": [1, 3], "notes": ["a"],
        "address": '{"street":"Elm"}', "maybe": None,
    }  # fmt: skip
    assert batch.schema.field("new").type.field("at").type == pa.timestamp("us", "UTC")
    (plain,) = engine.stream("Thing", "trim_horizon").batches()
    assert plain.column("key")[0].as_py() == f'{{"id":"{UUID(int=1)}"}}'


def test_tokens_between_batches_lose_and_repeat_nothing(home: Home) -> None:
    engine = home.engine()
    engine.bind(Thing)
    for n in range(25):
        engine.save(Thing(UUID(int=n), str(n)))
    found: list[str] = []
    stream: Stream[Any] = engine.stream(Thing, "trim_horizon", page=4)
    while batch := next(stream.batches(7), None):
        found += [new["text"] for new in batch.column("new").to_pylist()]
        stream = engine.stream(Thing, stream.token, page=4)
    assert found == [str(n) for n in range(25)]


def test_an_item_that_does_not_fit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = home.engine()
    engine.bind(Thing)
    for n in range(3):
        engine.save(Thing(UUID(int=n), str(n)))
    table: Any = engine._open("Thing").table
    key = table.schema.key_of({"id": str(UUID(int=1))})
    table.write(Update(key, (Set("number", "seven"),), (Regardless(),)))
    table.write(Update(key, (Set("number", 2**80),), (Regardless(),)))
    engine.save(Thing(UUID(int=9), "after"))
    stream = engine.stream(Thing, "trim_horizon")
    batches = stream.batches()
    assert next(batches).num_rows == 3
    with pytest.raises(BadItem, match="number"):
        next(batches)
    with pytest.raises(BadItem, match="number"):
        next(engine.stream(Thing, stream.token).batches())
    skipping = engine.stream(Thing, "trim_horizon", bad_items="skip")
    texts = [new["text"] for batch in skipping.batches() for new in batch.column("new").to_pylist()]
    assert texts == ["0", "1", "2", "after"]
    assert skipping.skipped == 2
    check, checked = Columns.check, list[Any]()

    def interrupted(*args: Any) -> None:
        checked.append(args)
        if len(checked) == 4:
            raise KeyboardInterrupt
        check(*args)

    monkeypatch.setattr(Columns, "check", interrupted)
    skipping = engine.stream(Thing, "trim_horizon", bad_items="skip")
    with pytest.raises(KeyboardInterrupt):
        next(skipping.batches())
    assert [batch.num_rows for batch in skipping.batches()] == [4]
    assert skipping.skipped == 2, "a batch that was cut off and read again counts once"


@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_that_of_next_however_shards_split(seed: int) -> None:
    rng = random.Random(seed)
    changes = SimulatedChanges(shards=rng.randint(1, 4))
    for n in range(120):
        if rng.random() < 0.05:
            changes.split()
        changes.clock.set_wall(changes.clock.wall() + rng.choice([-3, 0, 0, 1, 5]))
        shard = rng.choice([shard.id for shard in changes.shards() if shard.last is None])
        put(changes, key_in(changes, shard), n)
    settings: dict[str, Any] = {"page": rng.randint(1, 9), "columns": lambda: Columns(KeySchema())}
    one_by_one, stream = stream_of(changes, **settings), stream_of(changes, **settings)
    expected, found, silent = [], [], 0
    while silent < 8:
        change = next(one_by_one)
        silent = 0 if change else silent + 1
        if change:
            expected.append(change.sequence)
    for _ in range(8):
        for batch in stream.batches(rng.randint(1, 30)):
            found += batch.column("sequence_number").to_pylist()
    assert found == expected
    assert len(found) == 120
