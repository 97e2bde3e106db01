"""Consumers of change streams: shared shards, hand-over, failing and hanging handlers, lost places, bad input."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import tailrace
from tailrace.coordination.consumer import UnitConsumer
from tailrace.coordination.handler_settings import HandlerSettings
from tailrace.errors import (
    BadInput,
    BadName,
    BadSetting,
    BadToken,
    Closed,
    Conflict,
    Damaged,
    HandlerFailed,
    HandlerStuck,
    NotThere,
    PositionLost,
    UnknownGroup,
    UnknownTable,
)
from tailrace.home import Home
from tailrace.storage.calls import Store
from tailrace.storage.changes import Change, Read
from tailrace.storage.tables import Key
from tailrace.streams import Absent, Add, Engine, Equals, Record, hash_key, model
from tailrace.streams.engine import embedded
from tailrace.streams.group import StreamGroup
from tailrace.streams.patience import Patience
from tailrace.streams.sharing import ShardSource
from tailrace.streams.stream import Stream
from tailrace.testing import SimulatedChanges, SimulatedObjects, SimulatedTable
from tests.servers import aws
from tests.servers.process import Server

PATIENCE = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@model(stream={"new", "old"})
class User:
    id: str = hash_key()
    n: int = 0


@model()
class Count:
    id: str = hash_key()
    n: int = 0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as home:
        yield home


@pytest.fixture
def engine(home: Home) -> Engine:
    engine = home.engine()
    engine.bind(User, Count)
    return engine


def fill(engine: Engine, *numbers: int) -> None:
    for n in numbers:
        engine.save(User(id=f"u{n}", n=n))


def numbers(engine: Engine, group: str = "mailer", **settings: Any) -> list[int]:
    """What a consumer that catches up is given."""
    seen: list[int] = []

    def handler(record: Record[User]) -> None:
        assert record.new is not None
        seen.append(record.new.n)

    engine.consumer(User, group, handler, **settings).run(PATIENCE, until_caught_up=True)
    return seen


# -- a home's table
def test_a_group_goes_on_where_it_was(engine: Engine) -> None:
    fill(engine, *range(5))
    assert numbers(engine) == [0, 1, 2, 3, 4]
    fill(engine, 5)
    assert numbers(engine) == [5]
    assert numbers(engine, "another") == [0, 1, 2, 3, 4, 5]
    assert numbers(engine) == []


def test_a_new_group_begins_where_it_is_told(engine: Engine) -> None:
    fill(engine, 0, 1)
    token = engine.stream(User, "latest").token
    assert numbers(engine, start="latest") == []
    fill(engine, 2)
    assert numbers(engine, start="trim_horizon") == [2]
    assert numbers(engine, "by-token", start=token) == [2]


def test_records_are_handled_soon_after_they_are_written(engine: Engine) -> None:
    seen: list[Any] = []
    with engine.consumer(User, "mailer", seen.append):
        fill(engine, 1)
        until(lambda: len(seen) == 1)
    assert seen[0].new == User(id="u1", n=1)


def test_what_a_handler_returns_commits_with_its_position(engine: Engine) -> None:
    fill(engine, *range(6))
    engine.save(Count(id="all"))

    def handler(record: Record[User]) -> Any:
        writes = engine.writes()
        writes.update(Count, Add("n", 1), id="all")
        return writes

    assert engine.consumer(User, "count", handler).run(PATIENCE, until_caught_up=True).records == 6
    assert engine.load(Count, id="all") == Count(id="all", n=6)


def test_writes_that_are_refused_are_decided_again(engine: Engine) -> None:
    fill(engine, 1)
    engine.save(Count(id="all", n=7))
    asked = []

    def handler(record: Record[User]) -> Any:
        asked.append(engine.load(Count, id="all"))
        expected = 0 if len(asked) == 1 else asked[-1].n
        writes = engine.writes()
        writes.update(Count, Add("n", 1), when=[Equals("n", expected)], id="all")
        return writes

    engine.consumer(User, "count", handler).run(PATIENCE, until_caught_up=True)
    assert len(asked) == 2
    assert engine.load(Count, id="all") == Count(id="all", n=8)


def test_a_handler_may_be_async(engine: Engine) -> None:
    fill(engine, 1, 2)
    seen: list[int] = []

    async def handler(record: Record[User]) -> None:
        await asyncio.sleep(0)
        assert record.new is not None
        seen.append(record.new.n)

    ran = asyncio.run(engine.consumer(User, "mailer", handler).arun(PATIENCE, until_caught_up=True))
    assert (ran.records, seen) == (2, [1, 2])
    with pytest.raises(BadInput, match="arun"):
        engine.consumer(User, "mailer", handler).run()


@pytest.mark.server
def test_the_same_on_dynamodb(dynoxide: Server) -> None:
    suffix = uuid4().hex[:12]

    @model(stream={"new", "old"}, table=f"Account-{suffix}")
    class Account:
        id: str = hash_key()
        n: int = 0

    @model(table=f"Total-{suffix}")
    class Total:
        id: str = hash_key()
        n: int = 0

    with aws.table(dynoxide) as beside:
        engine = embedded(Store(beside, SimulatedObjects()))
        engine.bind(Account, Total)
        for n in range(1, 6):
            engine.save(Account(id=f"a{n}", n=n))
        asked = []

        def handler(record: Record[Account]) -> Any:
            known = engine.load(Total, id="all") or Total(id="all")
            asked.append(known.n)
            wrong = len(asked) == 1
            writes = engine.writes()
            when = [Equals("n", known.n)] if known.n else [Absent()]
            writes.save(Total(id="all", n=known.n + 1), when=when)
            if wrong:
                writes.check(Account, Absent(), id="a1")  # is refused, in another table than the position
            return writes

        ran = engine.consumer(Account, "totals", handler).run(PATIENCE, until_caught_up=True)
        assert (ran.records, engine.load(Total, id="all")) == (5, Total(id="all", n=5))
        assert asked == [0, 0, 1, 2, 3, 4]
        state = engine.group(Account, "totals").status()
        assert sum(shard.handled for shard in state.shards) == 5
        assert sum(shard.behind_records for shard in state.shards) == 0
        engine.save(Account(id="a6", n=6))
        assert engine.consumer(Account, "totals", handler).run(PATIENCE, until_caught_up=True).records == 1


# -- handlers that fail
def failing(*bad: int) -> Callable[[Record[User]], None]:
    def handler(record: Record[User]) -> None:
        assert record.new is not None
        if record.new.n in bad:
            raise ValueError(f"not {record.new.n}")

    return handler


def test_a_record_that_keeps_failing_stops_the_consumer_before_it(engine: Engine) -> None:
    fill(engine, *range(5))
    with pytest.raises(HandlerFailed, match="failed 2 times: ValueError: not 3") as caught:
        engine.consumer(User, "mailer", failing(3), attempts=2).run(PATIENCE)
    assert caught.value.record.lstrip("0") == "4"
    assert numbers(engine) == [3, 4]


def test_a_record_that_keeps_failing_is_kept_aside(engine: Engine) -> None:
    fill(engine, *range(5))
    run = engine.consumer(User, "mailer", failing(1, 3), on_error="dead_letter", attempts=1)
    assert run.run(PATIENCE, until_caught_up=True).records == 3
    group = engine.group(User, "mailer")
    letters = group.dead_letters()
    assert [letter.record["new"] for letter in letters] == [{"id": "u1", "n": 1}, {"id": "u3", "n": 3}]
    assert letters[0].error == "ValueError: not 1"
    group.settle(letters[0].number)
    assert [letter.error for letter in group.dead_letters()] == ["ValueError: not 3"]
    assert group.status().dead_letters == 1
    assert numbers(engine) == []


def test_a_record_that_keeps_failing_is_skipped(engine: Engine) -> None:
    fill(engine, *range(3))
    engine.consumer(User, "mailer", failing(1), on_error="skip", attempts=1).run(PATIENCE, until_caught_up=True)
    assert engine.group(User, "mailer").dead_letters() == []
    assert numbers(engine) == []


def test_an_item_that_does_not_fit_the_model_is_a_failure_of_its_record(engine: Engine, home: Home) -> None:
    @model(stream={"new", "old"}, table="User")
    class Wrong:
        id: str = hash_key()
        n: str = ""

    fill(engine, 1)
    other = home.engine()
    other.bind(Wrong)
    with pytest.raises(HandlerFailed, match="BadItem"):
        other.consumer(Wrong, "mailer", lambda record: None).run(PATIENCE)


def test_a_handler_that_hangs_ends_its_consumer_and_another_takes_over(engine: Engine) -> None:
    fill(engine, 1, 2)
    free = threading.Event()
    ended: list[BaseException] = []

    def run() -> None:
        try:
            consumer = engine.consumer(User, "mailer", lambda r: free.wait(PATIENCE), max_handler_seconds=0.1, ttl=0.5)
            consumer.run(PATIENCE)
        except HandlerStuck as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert "max_handler_seconds" in str(ended[0])
    assert numbers(engine) == [1, 2]
    free.set()
    assert numbers(engine) == []


@pytest.mark.parametrize("on_error", ["dead_letter", "skip"])
def test_a_record_whose_handler_hangs_is_passed_over_and_its_late_writes_are_refused(
    engine: Engine, on_error: str
) -> None:
    fill(engine, *range(4))
    engine.save(Count(id="all"))
    free, returned = threading.Event(), threading.Event()

    def counting(record: Record[User]) -> Any:
        assert record.new is not None
        if record.new.n == 1:
            free.wait(PATIENCE)
            returned.set()
        writes = engine.writes()
        writes.update(Count, Add("n", 10**record.new.n), id="all")
        return writes

    consumer = engine.consumer(User, "mailer", counting, on_error=on_error, max_handler_seconds=0.2, ttl=1, threads=1)
    with consumer:
        until(lambda: engine.load(Count, id="all").n == 1101)
        free.set()
        until(returned.is_set)
        fill(engine, 4)
        until(lambda: engine.load(Count, id="all").n == 11101)
    letters = engine.group(User, "mailer").dead_letters()
    assert [letter.record["new"]["n"] for letter in letters] == ([1] if on_error == "dead_letter" else [])
    assert all("max_handler_seconds" in letter.error for letter in letters)
    assert numbers(engine) == []


def test_a_consumer_ends_when_too_many_of_its_handlers_hang(engine: Engine) -> None:
    fill(engine, *range(4))
    free = threading.Event()
    settings: dict[str, Any] = {"on_error": "skip", "max_handler_seconds": 0.1, "ttl": 1, "threads": 1}
    with pytest.raises(HandlerStuck, match="as many others hang"):
        engine.consumer(User, "mailer", lambda record: free.wait(PATIENCE), **settings).run(PATIENCE)
    free.set()
    assert numbers(engine) == [1, 2, 3]


@pytest.mark.parametrize("on_error", ["dead_letter", "skip"])
def test_an_async_handler_that_hangs_is_cancelled_and_its_record_passed_over(engine: Engine, on_error: str) -> None:
    fill(engine, *range(6))
    handled: list[int] = []
    cancelled: list[int] = []

    async def handler(record: Record[User]) -> None:
        assert record.new is not None
        if record.new.n % 2:
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                cancelled.append(record.new.n)
                raise
        handled.append(record.new.n)

    consumer = engine.consumer(User, "mailer", handler, on_error=on_error, max_handler_seconds=0.2, ttl=1, threads=1)
    ran = asyncio.run(consumer.arun(PATIENCE, until_caught_up=True))
    assert (ran.records, handled, cancelled) == (3, [0, 2, 4], [1, 3, 5]), "more of them hang than there are threads"
    letters = engine.group(User, "mailer").dead_letters()
    assert [letter.record["new"]["n"] for letter in letters] == ([1, 3, 5] if on_error == "dead_letter" else [])
    assert numbers(engine) == []


def test_an_async_handler_that_hangs_is_cancelled_when_its_consumer_ends(engine: Engine) -> None:
    fill(engine, 1, 2)
    cancelled: list[int] = []

    async def handler(record: Record[User]) -> None:
        assert record.new is not None
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.append(record.new.n)
            raise

    async def main() -> None:
        others = asyncio.all_tasks()
        with pytest.raises(HandlerStuck, match="max_handler_seconds"):
            await engine.consumer(User, "mailer", handler, max_handler_seconds=0.2, ttl=1).arun(PATIENCE)
        while asyncio.all_tasks() - others:
            await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert cancelled == [1]
    assert numbers(engine) == [1, 2]


# -- several shards
class Shared:
    """A stream of several shards, and consumers of it."""

    def __init__(self, shards: int) -> None:
        self.changes = SimulatedChanges(shards=shards)
        self.store = Store(SimulatedTable(), SimulatedObjects())
        self.handled: list[tuple[int, str]] = []
        self.lock = threading.Lock()

    def source(self) -> ShardSource:
        return ShardSource(self.changes, "t", "group", lambda change: change, lambda ask: ask())

    def consumer(self, who: int = 0, start: Any = "trim_horizon", **settings: Any) -> UnitConsumer[Change]:
        def handler(change: Change) -> None:
            with self.lock:
                self.handled.append((who, change.sequence))

        source = self.source()
        return UnitConsumer(
            self.store, source, lambda: source.join(start), handler, HandlerSettings.of({"ttl": 1, **settings})
        )

    def group(self) -> StreamGroup:
        return StreamGroup(self.store, self.source(), Patience(0.1))

    def write(self, count: int) -> None:
        for n in range(count):
            self.changes.capture(Key(f"k{n}"), None, {"n": n})

    @property
    def sequences(self) -> list[str]:
        return [sequence for _, sequence in self.handled]


def test_shards_are_shared_out_evenly_and_more_workers_than_shards_is_normal() -> None:
    shared = Shared(4)
    consumers = [shared.consumer(n) for n in range(6)]
    for consumer in consumers:
        consumer.start()
    try:
        until(lambda: sorted(len(c.units) for c in consumers) == [0, 0, 1, 1, 1, 1])
        shared.write(40)
        until(lambda: len(shared.handled) == 40)
        assert len({who for who, _ in shared.handled}) > 1
        busy = next(c for c in consumers if c.units)
        busy.close()
        consumers.remove(busy)
        until(lambda: sorted(len(c.units) for c in consumers) == [0, 1, 1, 1, 1])
        shared.write(20)
        until(lambda: len(shared.handled) == 60)
    finally:
        for consumer in consumers:
            consumer.close()
    assert len(set(shared.sequences)) == 60


def test_a_child_is_read_after_its_parent_and_a_drained_shard_is_let_go() -> None:
    shared = Shared(1)
    shared.write(5)
    (parent,) = shared.changes.every()
    shared.changes.split()
    shared.write(6)
    assert shared.consumer().run(PATIENCE, until_caught_up=True).records == 11
    assert sorted(shared.sequences[:5]) == [c.sequence for c in shared.changes.within(parent.id)]
    state = {shard.shard: shard for shard in shared.group().status().shards}
    assert state[parent.id].ended
    assert state[parent.id].member is None
    shared.changes.clock.move(25 * 3600)
    shared.write(1)
    shared.changes.trim()
    shared.consumer().run(PATIENCE, until_caught_up=True)
    assert parent.id not in {shard.shard for shard in shared.group().status().shards}


def test_latest_is_not_for_the_children() -> None:
    shared = Shared(1)
    shared.changes.exact = True
    shared.write(5)
    with shared.consumer(start="latest") as consumer:
        until(lambda: consumer.caught_up)
        shared.changes.split()
        shared.write(3)
        until(lambda: len(shared.handled) == 3)


class OneBroken(SimulatedChanges):
    """A stream one of whose shards cannot be read."""

    broken = ""

    def read(self, iterator: str, limit: int = 1000) -> Read:
        if self._iterators[iterator][0] == self.broken:
            raise Damaged("this shard cannot be read", where=self.broken)
        return super().read(iterator, limit)


def test_one_shard_that_cannot_be_read_stops_neither_the_others_nor_discovery() -> None:
    shared = Shared(1)
    shared.changes = changes = OneBroken(shards=3)
    changes.broken, *others = [shard.id for shard in changes.every()]
    with shared.consumer() as consumer:
        until(lambda: len(consumer.units) == 3)
        shared.write(30)
        changes.split(others[0])
        shared.write(30)
        wanted = {
            c.sequence for shard in changes.every() if shard.id != changes.broken for c in changes.within(shard.id)
        }
        until(lambda: set(shared.sequences) == wanted)
        until(lambda: changes.broken in shared.group().status(count=False).errors)
        state = shared.group().status(count=False)
        assert list(state.errors) == [changes.broken]
        assert "cannot be read" in state.errors[changes.broken]
        stuck = next(shard for shard in state.shards if shard.shard == changes.broken)
        assert stuck.progress_age is not None
        assert state.progress_age >= stuck.progress_age > 0
        assert not consumer.caught_up


def test_lag_is_counted_for_each_shard() -> None:
    shared = Shared(2)
    shared.write(10)
    shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.changes.clock.move(7)
    shared.write(12)
    shared.changes.clock.move(30)
    shards = shared.group().status().shards
    assert sum(shard.behind_records for shard in shards) == 12
    assert {shard.behind_seconds for shard in shards} == {30}
    assert sum(shard.handled for shard in shards) == 10


# -- places that are lost
def lost(shared: Shared) -> str:
    """A group whose place is older than what is kept; gives the shard."""
    shared.write(5)
    shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.write(5)
    shared.changes.clock.move(25 * 3600)
    shared.write(2)
    shared.changes.trim()
    return shared.changes.every()[0].id


def test_a_place_older_than_what_is_kept_is_an_error_that_names_the_way_out() -> None:
    shared = Shared(1)
    shard = lost(shared)
    with shared.consumer() as consumer:
        until(lambda: shard in shared.group().status(count=False).errors)
        error = shared.group().status(count=False).errors[shard]
        assert f".skip('{shard}')" in error
        assert '.reset("trim_horizon")' in error
        assert consumer.handled == 0
    with pytest.raises(PositionLost, match="skip"):  # and who waits to be caught up does not wait in vain
        shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.group().skip(shard)
    assert shared.consumer().run(PATIENCE, until_caught_up=True).records == 2


def test_a_place_at_the_beginning_that_was_written_long_ago_may_have_missed_something() -> None:
    shared = Shared(1)
    shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.changes.clock.move(25 * 3600)
    with shared.consumer():
        until(lambda: any("25 hours ago" in error for error in shared.group().status(count=False).errors.values()))
        shared.write(2)
        shared.group().skip(next(iter(shared.group().status(count=False).errors)))  # as the error says
        until(lambda: len(shared.handled) == 2)


def test_a_group_of_a_table_in_which_nothing_happens_goes_on_after_days() -> None:
    shared = Shared(1)
    shared.changes.exact = True
    shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.changes.clock.move(72 * 3600)
    with shared.consumer() as consumer:
        until(lambda: consumer.caught_up)
        shared.write(2)
        until(lambda: len(shared.handled) == 2)
    assert shared.group().status().errors == {}


def test_a_shard_that_is_gone_before_anything_was_read_of_it_is_lost() -> None:
    shared = Shared(1)
    shared.changes.exact = True
    shared.consumer().run(PATIENCE, until_caught_up=True)
    (gone,) = (shard.id for shard in shared.changes.every())
    shared.write(2)
    shared.changes.roll()
    shared.changes.clock.move(25 * 3600)
    shared.changes.trim()
    with pytest.raises(PositionLost, match=f"skip.'{gone}'"):
        shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.group().skip(gone)
    assert shared.consumer().run(PATIENCE, until_caught_up=True).caught_up


def test_a_group_that_nobody_worked_for_in_two_days_has_lost_changes_with_their_shards() -> None:
    shared = Shared(1)
    shared.write(3)
    shared.consumer().run(PATIENCE, until_caught_up=True)
    (first,) = shared.changes.every()
    shared.write(3)
    for _ in range(12):
        shared.changes.clock.set_wall(shared.changes.clock.wall() + 4 * 3600)
        shared.changes.roll()
        shared.write(2)
        shared.changes.trim()
    assert "last read 48 hours ago" in shared.group().status().errors[first.id]
    with pytest.raises(PositionLost, match="skip"):
        shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.group().skip(first.id)
    assert shared.consumer().run(PATIENCE, until_caught_up=True).caught_up
    assert shared.group().status().errors == {}
    assert shared.sequences[3:] == [c.sequence for s in shared.changes.every() for c in shared.changes.within(s.id)]


def test_a_shard_that_is_silent_for_days_is_let_go_in_order() -> None:
    shared = Shared(1)
    shared.write(3)
    with shared.consumer() as consumer:
        until(lambda: len(shared.handled) == 3)
        for _ in range(3):
            shared.changes.clock.set_wall(shared.changes.clock.wall() + 20 * 3600)
            until(lambda: asked(shared) == shared.changes.time())
        shared.changes.clock.set_wall(shared.changes.clock.wall() + 600)
        shared.changes.roll()
        shared.changes.trim()
        shared.write(1)
        until(lambda: len(shared.handled) == 4)
        assert consumer.failure is None


def asked(shared: Shared) -> int:
    """When a shard was last read, by the item of its unit."""
    return max(item["asked"] for key, item in shared.store.table.items.items() if "asked" in item and "unit" in item)  # type: ignore[attr-defined]


def test_a_group_does_not_begin_at_a_token_whose_age_nothing_tells() -> None:
    shared = Shared(1)
    token = Stream(shared.changes, "trim_horizon", table="t", make=lambda change: change).token
    with pytest.raises(BadToken, match="60 minutes from now"):
        shared.consumer(start={**token, "at": token["at"] + 3600}).run(PATIENCE)


def test_a_group_begins_with_the_children_of_shards_that_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    shared = Shared(1)
    shared.write(1)
    shared.changes.clock.move(2 * 3600)
    stream = Stream(shared.changes, "trim_horizon", table="t", make=lambda change: change)
    assert next(stream) is not None
    shared.changes.roll()
    gone, child = (shard.id for shard in shared.changes.every())
    shared.changes.clock.set_wall(shared.changes.clock.wall() + 23 * 3600)
    shared.write(2)
    shared.changes.trim()
    assert shared.consumer(start=stream.token).run(PATIENCE, until_caught_up=True).records == 2
    assert shared.sequences == [change.sequence for change in shared.changes.within(child)]
    assert f"shard {gone} of table t was trimmed" in caplog.text


def test_a_consumer_ends_when_its_table_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def dropped() -> str:
        raise UnknownTable("there is no table 't' any more; its stream went with it")

    shared = Shared(1)
    consumer = shared.consumer()
    consumer.start()
    shared.write(3)
    shared.changes.replace()
    monkeypatch.setattr(shared.changes, "current", dropped)
    until(lambda: consumer.failure is not None)
    consumer.close()
    assert isinstance(consumer.failure, PositionLost)
    assert "group 'group' of table 't' has nothing to read any more: there is no table" in str(consumer.failure)
    assert len(shared.handled) == 3


def test_a_consumer_ends_when_the_server_has_forgotten_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(*_: object) -> Any:
        raise NotThere("there is no such stream")

    shared = Shared(1)
    shared.write(3)
    shared.consumer().run(PATIENCE, until_caught_up=True)
    for operation in ("shards", "iterator", "read"):
        monkeypatch.setattr(shared.changes, operation, forgotten)
    monkeypatch.setattr(shared.changes, "current", lambda: None)
    with pytest.raises(PositionLost, match="it was switched off"):
        shared.consumer().run(PATIENCE)


def test_a_stream_that_was_switched_off_and_on_needs_a_reset() -> None:
    shared = Shared(1)
    shared.write(3)
    shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.changes = shared.changes.replace()
    shared.write(4)
    with pytest.raises(PositionLost, match="reset"):
        shared.consumer().run(PATIENCE)
    shared.group().reset("trim_horizon")
    assert shared.consumer().run(PATIENCE, until_caught_up=True).records == 4


def test_a_stream_that_ends_while_it_is_read_is_read_to_its_end_first() -> None:
    shared = Shared(1)
    consumer = shared.consumer()
    consumer.start()
    shared.write(3)
    shared.changes.replace()
    until(lambda: consumer.failure is not None)
    consumer.close()
    assert isinstance(consumer.failure, PositionLost)
    assert len(shared.handled) == 3


# -- operators
def test_a_reset_fences_who_works_for_the_group() -> None:
    shared = Shared(2)
    shared.write(10)
    with shared.consumer() as consumer:
        until(lambda: len(shared.handled) == 10)
        with pytest.raises(Conflict, match="active members"):
            shared.group().reset("trim_horizon", ttl=60)
        shared.group().reset("trim_horizon", force=True)
        until(lambda: len(shared.handled) == 20)
        assert consumer.failure is None


def test_a_group_is_deleted_and_made_again_from_the_start() -> None:
    shared = Shared(1)
    shared.write(3)
    with pytest.raises(UnknownGroup):
        shared.group().status()
    shared.consumer().run(PATIENCE, until_caught_up=True)
    shared.group().delete()
    with pytest.raises(UnknownGroup):
        shared.group().delete()
    shared.consumer().run(PATIENCE, until_caught_up=True)
    assert len(shared.handled) == 6


def test_bad_input_is_refused_before_anything_is_made(engine: Engine) -> None:
    def nothing(record: Record[User]) -> None:
        pass

    with pytest.raises(BadName):
        engine.consumer(User, "not a name", nothing)
    with pytest.raises(BadInput, match="handler"):
        engine.consumer(User, "mailer", None)  # type: ignore[arg-type]
    bad: list[tuple[str, Any]] = [
        ("on_error", "explode"),
        ("attempts", 0),
        ("threads", 1.5),
        ("ttl", -1),
        ("thread", 2),
    ]
    for name, value in bad:
        with pytest.raises(BadSetting):
            engine.consumer(User, "mailer", nothing, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="starts at"):
        engine.consumer(User, "mailer", nothing, start="the beginning").run()
    with pytest.raises(UnknownGroup):
        engine.group(User, "mailer").status()
    consumer = engine.consumer(User, "mailer", nothing)
    consumer.run(PATIENCE, until_caught_up=True)
    with pytest.raises(Closed):
        consumer.run()
    with pytest.raises(HandlerFailed, match="returns None or a transaction"):
        fill(engine, 1)
        engine.consumer(User, "mailer", lambda record: 7, attempts=1).run(PATIENCE)
