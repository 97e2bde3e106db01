"""The indexer's Lambda function, on events that a DynamoDB server wrote into its streams."""

from __future__ import annotations

import contextlib
import copy
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.errors import BadInput, BadSetting, MissingEvents
from tailrace.events import Event, Events
from tailrace.events.tip import TIP
from tailrace.feed.epoch import EpochLimits
from tailrace.feed.feed import Feed
from tailrace.feed.state import look, partitions_of
from tailrace.lambdas import indexer as function
from tailrace.lambdas.indexer import IndexerFunction, handler, of_environment
from tailrace.lambdas.stream_event import changes_of
from tailrace.storage.aws.dynamodb import DynamoTable
from tailrace.storage.calls import Store
from tailrace.storage.objects import NoObjects
from tailrace.storage.tables import Absent, Delete, Key, Put
from tests.lambdas.delivery import batches, records_of
from tests.servers.aws import table

pytestmark = pytest.mark.server


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[DynamoTable]:
    """The table of a home, with its stream."""
    with table(request.getfixturevalue(getattr(request, "param", "dynoxide"))) as handle:
        handle.capture("new")
        yield handle


@pytest.fixture
def store(home: DynamoTable) -> Store:
    return Store(home, NoObjects())


@pytest.fixture
def indexer(store: Store, home: DynamoTable) -> IndexerFunction:
    return IndexerFunction(store, home.name)


def fill(store: Store, carts: int = 3, each: int = 8) -> dict[str, list[int]]:
    """Appends of different sizes, with Tips that calve, and things in the table that are no events."""
    events, rng, expected = Events(store, max_events=3), random.Random(7), defaultdict(list)
    for n in range(carts * each):
        stream, count = f"Cart-{n % carts}", rng.randint(1, 3)
        events.stream(stream).append([Event(f"T{n}", b"\x00\xff" * n) for _ in range(count)])
        expected[stream] += range(len(expected[stream]), len(expected[stream]) + count)
    store.table.write(Put(Key("$Log-1", 2**63 - 1), {"nx": {"0": 1}, "bytes": frozenset({b"\xfe"})}, (Absent(),)))
    store.table.write(Put(Key("$Group-g_1", 0), {"position": 4}, (Absent(),)))
    store.table.write(Delete(Key("$Group-g_1", 0)))
    return dict(expected)


def fed(store: Store, start: int = 0) -> dict[str, list[int]]:
    """The indices of each stream, in the order of the feed."""
    found: dict[str, list[int]] = defaultdict(list)
    with Feed(Events(store), start, bodies=False) as feed:
        for event in feed:
            found[event.stream].append(event.index)
    return dict(found)


@pytest.mark.parametrize(("home", "size"), [("dynoxide", 1), ("dynoxide", 10_000), ("moto", 7)], indirect=["home"])
def test_a_server_s_stream_becomes_the_feed(
    store: Store, home: DynamoTable, indexer: IndexerFunction, size: int
) -> None:
    expected = fill(store)
    records = records_of(home)
    done = [indexer.index(event) for event in batches(records, size)]
    assert sum(one["changes"] for one in done) == len(records)
    assert sum(one["events"] for one in done) == sum(map(len, expected.values()))
    assert fed(store) == expected
    with Feed(Events(store), 0) as feed:
        assert all(event.event is not None and event.event.type == event.type for event in feed)


def test_a_batch_that_is_delivered_again_adds_nothing_to_a_warm_or_a_cold_function(
    store: Store, home: DynamoTable, indexer: IndexerFunction
) -> None:
    expected = fill(store)
    events = list(batches(records_of(home), 5))
    for event in events:
        indexer.index(event)
        assert indexer.index(event)["events"] == 0
        assert IndexerFunction(store, home.name).index(event)["events"] == 0
    for event in events:
        assert indexer.index(event)["events"] == 0
    assert fed(store) == expected


def test_its_own_writes_come_back_and_are_passed_over(
    store: Store, home: DynamoTable, indexer: IndexerFunction
) -> None:
    expected = fill(store)
    before = records_of(home)
    indexer.index({"Records": before})
    echo = records_of(home)[len(before) :]
    assert echo
    assert indexer.index({"Records": echo}) == {"changes": len(echo), "spans": 0, "events": 0}
    assert len(records_of(home)) == len(before) + len(echo)  # the echo has no echo
    assert fed(store) == expected


@pytest.mark.parametrize("cut", range(1, 7))
def test_a_batch_cut_off_at_a_write_is_completed_by_the_next_delivery(
    store: Store, home: DynamoTable, cut: int
) -> None:
    """The function's process may end before or after any write; Lambda then delivers the batch again, to a new one."""
    expected, limits = fill(store, carts=2, each=3), EpochLimits(max_version=1)
    for event in batches(records_of(home), 2):
        with contextlib.suppress(KeyboardInterrupt):
            IndexerFunction(Store(Dying(home, cut), NoObjects()), home.name, limits=limits).index(event)
        IndexerFunction(store, home.name, limits=limits).index(event)
    assert fed(store) == expected


class Dying:
    """A table whose process ends at one of its writes: odd ones before, even ones after it has happened."""

    def __init__(self, table: DynamoTable, at: int) -> None:
        self._table, self._left, self._after = table, (at + 1) // 2, at % 2 == 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def write(self, *actions: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._after:
            self._table.write(*actions)
        if self._left == 0:
            raise KeyboardInterrupt
        return self._table.write(*actions)


# --- events that do not come ---
def test_events_that_the_stream_did_not_bring_are_taken_from_the_store(
    store: Store, home: DynamoTable, indexer: IndexerFunction
) -> None:
    expected = fill(store)
    records = records_of(home)
    indexer.index({"Records": records[:6]})
    indexer.index({"Records": records[-8:]})  # what lay between went to the dead-letter queue
    assert fed(store) == expected


def test_events_that_are_nowhere_stop_their_stream_and_no_other(store: Store, home: DynamoTable) -> None:
    events = Events(store, max_events=1)
    for n in range(4):
        events.stream("Cart-1").append([Event(f"{n}")])
    events.stream("Order-1").append([Event("Placed")])
    records = records_of(home)
    indexer = IndexerFunction(store, home.name)
    indexer.index({"Records": records[:1]})
    events.stream("Cart-1").prune(3)
    rest = {"Records": records[3:]}
    with pytest.raises(MissingEvents, match=r"Cart-1"):
        indexer.index(rest)
    assert fed(store) == {"Cart-1": [0], "Order-1": [0]}
    with pytest.raises(MissingEvents):
        indexer.index(rest)
    IndexerFunction(store, home.name, gaps="warn").index(rest)
    assert fed(store)["Cart-1"] in ([0, 3], [0, 2, 3])


def test_a_gap_in_one_partition_does_not_hold_up_the_others(store: Store, home: DynamoTable) -> None:
    events = Events(store, max_events=1)
    for stream in ("Cart-1", "Cart-2", "Cart-3", "Cart-4"):
        for n in range(3):
            events.stream(stream).append([Event(f"{n}")])
    records = records_of(home)
    tips = [one for one in records if one["dynamodb"]["Keys"]["i"]["N"] == str(TIP)]
    indexer = IndexerFunction(store, home.name, partitions=4)
    indexer.index({"Records": tips[:1]})
    events.stream("Cart-1").prune(2)
    with pytest.raises(MissingEvents, match="Cart-1"):
        indexer.index({"Records": tips[2:]})
    found: set[str] = set()
    for partition in range(4):
        with Feed(Events(store), 0, bodies=False, partition=partition) as feed:
            found |= {event.stream for event in feed}
    assert found == {"Cart-1", "Cart-2", "Cart-3", "Cart-4"}


# --- what it is given ---
def test_values_arrive_as_the_sdk_reads_them(store: Store, home: DynamoTable) -> None:
    fill(store)
    read = home.changes()
    (shard,) = read.shards()
    assert (
        changes_of({"Records": records_of(home)}, home.name)
        == read.read(read.iterator(shard.id, "TRIM_HORIZON")).changes
    )


def test_what_is_no_event_of_this_table_is_refused(store: Store, home: DynamoTable, indexer: IndexerFunction) -> None:
    fill(store, 1, 1)
    record = records_of(home)[0]
    for event in (None, {}, {"Records": None}, [record]):
        with pytest.raises(BadInput, match="no event of a DynamoDB stream"):
            indexer.index(event)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"aws:kinesis"):
        indexer.index({"Records": [record | {"eventSource": "aws:kinesis"}]})
    other = record["eventSourceARN"].replace(home.name, "other-table")
    with pytest.raises(BadSetting, match=r"'other-table'.*TAILRACE_TABLE"):
        indexer.index({"Records": [record | {"eventSourceARN": other}]})
    blind = copy.deepcopy(record)
    del blind["dynamodb"]["NewImage"]
    blind["dynamodb"]["StreamViewType"] = "KEYS_ONLY"
    with pytest.raises(BadSetting, match=r"shows KEYS_ONLY"):
        indexer.index({"Records": [blind]})
    assert fed(store) == {}
    assert indexer.index({"Records": []}) == {"changes": 0, "spans": 0, "events": 0}


def test_partitions_share_the_streams(store: Store, home: DynamoTable) -> None:
    expected = fill(store, carts=9, each=2)
    IndexerFunction(store, home.name, partitions=3).index({"Records": records_of(home)})
    found: dict[str, list[int]] = {}
    for partition in range(3):
        with Feed(Events(store), 0, bodies=False, partition=partition) as feed:
            part = defaultdict(list)
            for event in feed:
                part[event.stream].append(event.index)
        assert part
        assert not part.keys() & found.keys()
        found |= part
    assert found == expected


def test_readers_learn_of_the_partitions_and_another_number_is_refused(store: Store, home: DynamoTable) -> None:
    expected = fill(store, carts=5, each=1)
    event = {"Records": records_of(home)}
    IndexerFunction(store, home.name, partitions=3).index(event)
    assert partitions_of(store.run(look())) == 3
    with pytest.raises(BadSetting, match="the index has 3 partitions, not 1: set TAILRACE_PARTITIONS=3"):
        IndexerFunction(store, home.name).index(event)
    assert expected


def test_the_environment_says_what_to_serve(monkeypatch: pytest.MonkeyPatch, home: DynamoTable, store: Store) -> None:
    endpoint = home._client.meta.endpoint_url
    for name, value in {
        "TAILRACE_TABLE": home.name,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "tailrace",
        "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(function, "_functions", [])
    expected = fill(store, 1, 2)
    assert handler({"Records": records_of(home)}, None)["events"] == len(expected["Cart-0"])
    assert fed(store) == expected
    function._functions[0]._store.close()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "TAILRACE_TABLE is not set"),
        ({"TAILRACE_TABLE": "t", "TAILRACE_PARTITIONS": "0"}, "TAILRACE_PARTITIONS is a number from 1 on"),
        ({"TAILRACE_TABLE": "t", "TAILRACE_GAPS": "ignore"}, "TAILRACE_GAPS"),
    ],
)
def test_a_wrong_environment_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        of_environment(environment)
