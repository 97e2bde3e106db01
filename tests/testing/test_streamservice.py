"""The simulated stream service over HTTP, read by tailrace's own client of DynamoDB Streams and by bloop."""

from __future__ import annotations

import json
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from tailrace.errors import BadInput, HomeError, IteratorExpired, NotThere, Throttled, Trimmed
from tailrace.storage.aws.dynamostreams import DynamoChanges
from tailrace.storage.aws.session import connect
from tailrace.storage.changes import Change, Changes
from tailrace.storage.keys import KeySchema
from tailrace.storage.tables import Key
from tailrace.streams.stream import Stream
from tailrace.testing import ManualClock, SimulatedChanges, StreamService
from tests.conftest import NONE
from tests.servers.environment import environment
from tests.servers.process import Missing
from tests.streams.reading import Restless, check, compare, schedule

SESSION = boto3.Session(aws_access_key_id="tailrace", aws_secret_access_key="not-a-secret", region_name="us-east-1")
NAMES = KeySchema("name", "S", None)


@contextmanager
def client(service: StreamService, table: str = "users", **settings: Any) -> Iterator[DynamoChanges]:
    """Tailrace's own reader of DynamoDB Streams."""
    clients = [connect(kind, session=SESSION, endpoint=service.url) for kind in ("dynamodbstreams", "dynamodb")]
    try:
        yield DynamoChanges(*clients, table, **settings)
    finally:
        for one in clients:
            one.close()


@pytest.fixture
def served() -> Iterator[Callable[[Changes], DynamoChanges]]:
    """Serve changes; gives the way to them over HTTP."""
    with ExitStack() as stack:

        def serve(changes: Changes, page: int = 100) -> DynamoChanges:
            service = stack.enter_context(StreamService({"users": changes}, page=page))
            return stack.enter_context(client(service))

        yield serve


def fill(changes: SimulatedChanges, keys: int = 9, rounds: int = 6) -> None:
    """Changes of some items, while shards split and roll: several generations, closed and open ones."""
    rng = random.Random(5)
    items: dict[Key, dict[str, Any]] = {}
    for n in range(rounds * keys):
        key = Key(f"user-{n % keys}")
        gone = n % 7 == 6 and key in items
        old, new = items.get(key), None if gone else {"n": n, "photo": b"\x00\xff", "tags": frozenset({"a", "b"})}
        changes.capture(key, old, new)
        items.pop(key, None)
        if new is not None:
            items[key] = new
        if n % 8 == 7:
            shard = rng.choice([one.id for one in changes.every() if one.last is None])
            changes.split(shard) if n % 16 == 7 else changes.roll(shard)
        changes.clock.move(1)


def direct(changes: Changes, limit: int = 1000) -> dict[str, list[Change]]:
    """What is in each shard, read to its end or till nothing comes."""
    found = {}
    for shard in changes.shards():
        read = changes.read(changes.iterator(shard.id, "TRIM_HORIZON"), limit)
        found[shard.id] = read.changes
        while read.next is not None and read.changes:
            read = changes.read(read.next, limit)
            found[shard.id] = found[shard.id] + read.changes
    return found


@pytest.mark.parametrize("limit", [1, 1000])
def test_tailrace_s_client_reads_what_the_service_serves(
    served: Callable[[Changes, int], DynamoChanges], limit: int
) -> None:
    changes = SimulatedChanges(shards=2)
    fill(changes)
    seen = served(changes, 2)
    assert sorted(seen.shards()) == sorted(changes.shards())
    assert sum(shard.parent is not None for shard in seen.shards()) > 5
    over, within = direct(seen, limit), direct(changes, limit)
    assert over.keys() == within.keys()
    for shard, expected in within.items():
        assert over[shard] == [keyed(change) for change in expected]


def keyed(change: Change) -> Change:
    """A change whose images have their keys, as DynamoDB's do."""
    keys = {"p": change.key.p, "i": change.key.i}
    return change._replace(new=change.new and {**change.new, **keys}, old=change.old and {**change.old, **keys})


@pytest.mark.parametrize("seed", range(6))
def test_random_lives_over_http(served: Callable[[Changes], DynamoChanges], seed: int) -> None:
    """Splits, rolls, empty pages, expired iterators, throttling and late children, through the real client."""
    schedule(seed, served)


def test_refusals_arrive_as_themselves(served: Callable[[Changes], DynamoChanges]) -> None:
    clock = ManualClock()
    changes = SimulatedChanges(clock=clock)
    seen = served(changes)
    changes.capture(Key("user-1"), None, {"n": 1})
    (first,) = seen.shards()
    iterator = seen.iterator(first.id, "TRIM_HORIZON")
    changes.expire()
    with pytest.raises(IteratorExpired):
        seen.read(iterator)
    with pytest.raises(NotThere):
        seen.iterator("shardId-00000000000000000000-00000000", "TRIM_HORIZON")
    (change,) = seen.read(seen.iterator(first.id, "TRIM_HORIZON")).changes
    iterator = seen.iterator(first.id, "AT_SEQUENCE_NUMBER", change.sequence)
    clock.set_wall(clock.wall() + 25 * 3600)
    changes.capture(Key("user-1"), {"n": 1}, {"n": 2})
    changes.trim()
    with pytest.raises(Trimmed):
        seen.read(iterator)
    with pytest.raises(BadInput):
        seen.read("no-iterator")
    changes.throttled = 1.0
    with pytest.raises(Throttled):
        seen.shards()
    changes.throttled = 0.0
    assert seen.shards()
    assert seen.time() == changes.time()


def test_a_stream_that_was_made_again(served: Callable[[Changes], DynamoChanges]) -> None:
    changes = SimulatedChanges()
    with StreamService({"users": changes}) as service, client(service) as seen:
        old = seen.stream
        assert seen.current() == old
        service.serve("users", changes.replace())
        assert seen.current() not in (old, None)
        assert seen.stream == old
        assert len(seen.shards()) == 1  # what was in it can still be read
        with client(service, "others") as nothing, pytest.raises(HomeError, match="no table 'others'"):
            nothing.stream  # noqa: B018


# --- bloop ---
READ = """
import json, sys, warnings
warnings.simplefilter("ignore")
import boto3
from bloop import BaseModel, Column, Engine, Integer, Set, String

url = sys.argv[1]
given = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s")

class User(BaseModel):
    class Meta:
        table_name = "users"
        stream = {"include": ["new", "old"]}
    name = Column(String, hash_key=True)
    n = Column(Integer)
    tags = Column(Set(String))

engine = Engine(dynamodb=boto3.client("dynamodb", **given), dynamodbstreams=boto3.client("dynamodbstreams", **given))
engine.bind(User)
stream = engine.stream(User, "trim_horizon")

def shown(user):
    if user is None:
        return None
    return {"name": user.name, "n": user.n, "tags": sorted(user.tags)}

silent = 0
while silent < 40:
    record = next(stream)
    silent = 0 if record else silent + 1
    if record:
        meta = record["meta"]
        told = [meta["sequence_number"], meta["event"]["type"], meta["event"]["id"], meta["created_at"].isoformat()]
        print(json.dumps([*told, shown(record["new"]), shown(record["old"])]), flush=True)
"""


@pytest.fixture(scope="module")
def bloop() -> Path:
    """A Python that has bloop."""
    try:
        return environment("bloop") / "python"
    except Missing as missing:
        pytest.skip(f"{NONE} bloop: {missing}")


def read_by_bloop(python: Path, service: StreamService) -> list[list[Any]]:
    done = subprocess.run([str(python), "-c", READ, service.url], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def read_by_tailrace(changes: Changes) -> list[Change]:
    """Everything, as bloop's program reads it: until nothing came for forty times."""
    found, silent = [], 0
    with Stream(changes, "trim_horizon", table="users", make=lambda change: change) as stream:
        while silent < 40:
            change = next(stream)
            silent = 0 if change else silent + 1
            found += [change] if change else []
    return found


def shown(image: Any) -> Any:
    """An image as the program above prints it: without the photo, since bloop has bytes as base64 of its own."""
    if image is None:
        return None
    return {"name": image["name"], "n": image["n"], "tags": sorted(image["tags"])}


@pytest.mark.server
def test_bloop_reads_the_same_records_as_tailrace(bloop: Path) -> None:
    changes = SimulatedChanges(shards=2)
    fill(changes)
    with StreamService({"users": changes}, schema=NAMES, page=2) as service:
        theirs = read_by_bloop(bloop, service)
        with client(service, schema=NAMES) as seen:
            ours = read_by_tailrace(seen)
    compare(ours, changes, 0)
    assert sorted(theirs) == sorted(
        [c.sequence, c.kind.lower(), c.id, c.created_at.isoformat(), shown(c.new), shown(c.old)] for c in ours
    )
    for key, sequences in _by_name(theirs).items():
        assert sequences == [c.sequence for c in ours if c.key.p == key]


@pytest.mark.server
def test_bloop_reads_while_shards_split_and_roll(bloop: Path) -> None:
    changes = SimulatedChanges(shards=2)
    fill(changes, rounds=2)
    splitting = Splitting(changes)
    with StreamService({"users": check(splitting)}, schema=NAMES) as service:
        theirs = read_by_bloop(bloop, service)
    assert splitting.left == 0
    happened = [c for shard in changes.every() for c in changes.within(shard.id)]
    assert sorted(one[0] for one in theirs) == sorted(c.sequence for c in happened)


class Splitting(Restless):
    """A stream of which, at every fifth request, something is written and a shard splits or rolls."""

    def __init__(self, changes: SimulatedChanges) -> None:
        super().__init__(changes, random.Random(3))
        self.view, self.left, self._asked = changes.view, 12, 0

    def stir(self) -> None:
        self._asked += 1
        if self._asked % 5 or not self.left:
            return
        self.left -= 1
        new = {"n": self.left, "tags": frozenset({"late"})}
        self.changes.capture(Key(f"late-{self.left % 3}"), None, new)
        shard = self.rng.choice([one.id for one in self.changes.every() if one.last is None])
        self.changes.split(shard) if self.left % 2 else self.changes.roll(shard)

    def read(self, iterator: str, limit: int = 1000) -> Any:
        self.stir()
        return self.changes.read(iterator, limit)


def _by_name(records: list[list[Any]]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for sequence, _, _, _, new, old in records:
        found[(new or old)["name"]].append(sequence)
    return found
