"""A change stream between two tokens: exactly what was delivered between them, however shards split meanwhile."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tailrace.storage.keys import KeySchema
from tailrace.streams.arrow import Columns
from tailrace.streams.bounded import between
from tailrace.testing import SimulatedChanges
from tests.streams.test_stream import key_in, put, stream_of


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
