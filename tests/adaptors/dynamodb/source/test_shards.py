"""Following shards that split, roll, are trimmed and expire: the simulated service, over DynamoDB's own protocol."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.adaptors.dynamodb.service import DynamoService
from tailrace.adaptors.dynamodb.settings import DynamoSource
from tailrace.adaptors.dynamodb.source import table_stream
from tailrace.adaptors.dynamodb.source.follower import Follower
from tailrace.adaptors.dynamodb.source.progress import ShardProgress
from tailrace.adaptors.dynamodb.source.table_stream import first_position
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import PositionLost
from tailrace.log.record import Op
from tailrace.storage.keys import KeySchema
from tailrace.storage.tables import Key
from tailrace.testing import SimulatedChanges, StreamService

NAMES = KeySchema("name", "S", None)
PATIENCE = 20.0


class Users:
    """A table whose stream is simulated, and a reader of it from the beginning; `seen` has what came of each user."""

    def __init__(self, changes: SimulatedChanges, url: str) -> None:
        self.changes, self.made, self.seen = changes, dict[str, list[int]](), dict[str, list[int]]()
        self._items: dict[str, Any] = {}
        self._service = DynamoService("us-east-1", url, None)
        self.progress = ShardProgress()
        self.position: Any = {"users": first_position(self._service, self._service.describe("users"))}

    def write(self, name: str, n: int) -> None:
        old, self._items[name] = self._items.get(name), {"name": name, "n": n}
        self.changes.capture(Key(name), old, self._items[name])
        self.made.setdefault(name, []).append(n)

    def follow(self, rounds: int) -> None:
        """From the position on, some rounds, as a life of a run does."""
        settings, position = DynamoSource(shape="columns"), json.loads(json.dumps(self.position))
        changes = Follower(self._service, settings, position, (), {}, self.progress).ahead()
        for _, some in zip(range(rounds), changes, strict=False):
            for batch in some.rows:
                for message in messages_of(batch):
                    assert message.op != Op.DELETE
                    self.seen.setdefault(message.id, []).append(int(message.data["n"]))
            self.position = some.position
        changes.close()


@pytest.fixture
def users(request: pytest.FixtureRequest) -> Iterator[Users]:
    changes = SimulatedChanges(**getattr(request, "param", {}))
    with StreamService({"users": changes}, schema=NAMES, page=3) as service:
        yield Users(changes, service.url)


@pytest.mark.parametrize(
    "users", [{}, {"shards": 3, "empty": 0.3, "late": 2}, {"shards": 2, "throttled": 0.05}], indirect=True
)
def test_order_holds_for_each_item_however_shards_split(users: Users) -> None:
    rng = random.Random(4)
    for n in range(300):
        users.write(f"user {rng.randrange(12)}", n)
        if n % 60 == 30:
            (users.changes.split if rng.random() < 0.6 else users.changes.roll)()
        if n % 75 == 0:
            users.changes.expire()
            users.follow(rng.randrange(1, 4))
    deadline = time.monotonic() + PATIENCE
    while users.seen != users.made:
        assert time.monotonic() < deadline, (users.seen, users.made)
        users.follow(3)


def test_the_position_of_each_shard_is_an_entry_of_its_own(users: Users) -> None:
    users.changes.split()
    users.write("ann", 1)
    users.follow(1)
    shards = [place for place in users.position["users"].values() if isinstance(place, dict)]
    assert len(shards) == 2
    assert {"id", "stream", "at"} < users.position["users"].keys()


@pytest.mark.parametrize("read", [True, False])
def test_a_position_that_was_trimmed(users: Users, read: bool) -> None:
    users.write("ann", 1)
    if read:
        users.follow(1)
    users.write("bob", 2)
    users.changes.roll()
    users.changes.clock.move(25 * 3600)
    users.write("cat", 3)
    users.changes.trim()
    with pytest.raises(
        PositionLost, match=r"table users: .*nobody can say what changed since\. Give the pipeline"
    ) as lost:
        users.follow(3)
    assert "\n" not in str(lost.value)
    assert users.seen.get("cat") is None, "never on behind the gap"


def test_the_24_hours_are_told_before_they_bite(users: Users, caplog: pytest.LogCaptureFixture) -> None:
    users.write("ann", 1)
    users.changes.clock.move(13 * 3600)
    with caplog.at_level(logging.WARNING):
        users.follow(2)
    assert users.seen == {"ann": [1]}
    assert "table users: its stream is read 13 hours behind, and keeps changes for 24" in caplog.text


def test_health_is_the_age_of_each_shards_last_answer() -> None:
    now = 0.0
    progress = ShardProgress(lambda: now)
    assert progress.shown() == ""
    progress.keep("users", {"a", "b"})
    now = 7.0
    progress.note("users", "a")
    now = 9.0
    assert progress.shown() == "2 shards, the last progress of each at most 9 s ago (users b)"
    progress.keep("users", {"a"})
    assert progress.shown() == "1 shards, the last progress of each at most 2 s ago (users a)"


def test_a_batch_is_bounded_by_its_bytes(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_stream, "MAX_BATCH_BYTES", 1)
    for n in range(500):
        users.write("ann", n)
    users.follow(1)
    assert len(users.seen["ann"]) == table_stream.CHANGES_AT_ONCE
    users.follow(2)
    assert users.seen == users.made
