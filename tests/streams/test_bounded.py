"""A change stream between two tokens: exactly what was delivered between them, however shards split meanwhile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.home import Home
from tailrace.storage.keys import KeySchema
from tailrace.streams import hash_key, model
from tailrace.streams.arrow import Columns
from tailrace.streams.bounded import between
from tailrace.testing import SimulatedChanges
from tests.streams.test_stream import key_in, put, stream_of


@model(stream={"new"})
class Ann:
    id: int = hash_key()


def test_between_two_tokens_around_a_day_without_changes(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(Ann)
        engine.save(Ann(1))
        stream = engine.stream(Ann, "trim_horizon")
        assert next(stream) is not None
        before = stream.token
        a_day_later(home)
        before["at"] -= 25 * 3600
        engine.save(Ann(2))
        stream = engine.stream(Ann, before)
        assert [record.new.id for record in stream.follow(seconds=0) if record.new] == [2]
        assert stream.trimmed == []
        assert [batch.num_rows for batch in engine.between("Ann", before, stream.token)] == [1]


def a_day_later(home: Home) -> None:
    """Make all changes and shards older than changes are kept."""
    database = home.store.table.database  # type: ignore[attr-defined]
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    for (name,) in database.read(lambda cursor: list(cursor.execute(tables))):
        what = "at" if name.endswith("_changes") else "opened" if name.endswith("_shards") else None
        if what is not None:
            sql = f"UPDATE {name} SET {what} = {what} - 25 * 3600 * 1000"
            database.write(lambda cursor, sql: cursor.execute(sql) and None, sql)


def grow(changes: SimulatedChanges, rng: random.Random, count: int) -> None:
    for n in range(count):
        if rng.random() < 0.1:
            changes.split()
        changes.clock.set_wall(changes.clock.wall() + rng.choice([-3, 0, 1, 5]))
        shard = rng.choice([shard.id for shard in changes.shards() if shard.last is None])
        put(changes, key_in(changes, shard), n)


@pytest.mark.parametrize("seed", range(60))
def test_between_any_two_tokens(seed: int) -> None:
    rng = random.Random(seed)
    changes = SimulatedChanges(shards=rng.randint(1, 3))
    grow(changes, rng, 30)
    stream = stream_of(changes, page=rng.randint(1, 9))
    tokens, delivered, silent = [stream.token], [[]], 0
    seen: list[str] = []
    while silent < 8:
        change: Any = next(stream)
        silent = 0 if change else silent + 1
        if change:
            seen.append(change.sequence)
        tokens.append(stream.token)
        delivered.append(list(seen))
    grow(changes, rng, 20)
    for _ in range(12):
        a, b = sorted(rng.sample(range(len(tokens)), 2))
        batches = between(changes, tokens[a], tokens[b], table="users", columns=lambda: Columns(KeySchema()))
        found = [one for batch in batches for one in batch.column("sequence_number").to_pylist()]
        assert sorted(found) == sorted(delivered[b][len(delivered[a]) :])
