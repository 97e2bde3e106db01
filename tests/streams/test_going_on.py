"""Readers that meet an error, Ctrl-C or a cancelled task in the middle, and that go on with the same object: nothing is
lost, and nothing comes twice."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace import stream_copy
from tailrace.errors import BadInput, BadToken, PositionLost, Throttled, TooLarge, Unavailable
from tailrace.storage.changes import Change, ForwardedChanges, Read, Start
from tailrace.storage.tables import Key
from tailrace.streams import hash_key, model
from tailrace.streams.patience import Patience
from tailrace.streams.stream import Stream
from tailrace.testing import SimulatedChanges

CHANGES = 40


class Failing(ForwardedChanges):
    """A stream that raises what it is given at some of its requests."""

    def __init__(self, changes: SimulatedChanges) -> None:
        super().__init__(changes)
        self.raises: Callable[[], BaseException | None] = lambda: None

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard."""
        return self._changes.iterator(shard, start, sequence)

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """The next changes, or an error."""
        if (error := self.raises()) is not None:
            raise error
        return self._changes.read(iterator, limit)


def failing(shards: int = 2) -> Failing:
    changes = SimulatedChanges(shards=shards)
    for n in range(CHANGES):
        changes.capture(Key(f"k{n % 7}"), None, {"n": n})
    return Failing(changes)


def every(count: int, error: Callable[[], BaseException]) -> Callable[[], BaseException | None]:
    """An error at each so many-th request."""
    requests = itertools.count(1)
    return lambda: error() if next(requests) % count == 0 else None


def opened(changes: Any, **settings: Any) -> Stream[Change]:
    given: dict[str, Any] = {"page": 3, "threads": 1, "patience": Patience(0), "columns": lambda: as_batch, **settings}
    return Stream(changes, "trim_horizon", table="t", make=lambda change: change, **given)


def as_batch(changes: list[Change]) -> Any:
    return pa.record_batch({"n": [change.new["n"] for change in changes if change.new is not None]})


def by_next(stream: Stream[Change]) -> list[int]:
    return [change.new["n"] for change in iter(lambda: next(stream), None) if change is not None and change.new]


def by_take(stream: Stream[Change]) -> list[int]:
    return [change.new["n"] for change in stream.take(8) if change.new is not None]


def by_batch(stream: Stream[Change]) -> list[int]:
    return [n for batch in itertools.islice(stream.batches(8), 1) for n in batch.column("n").to_pylist()]


@pytest.mark.parametrize(("often", "error"), [(3, lambda: Throttled("for now")), (11, KeyboardInterrupt)])
@pytest.mark.parametrize("read", [by_take, by_batch])
def test_a_batch_that_is_cut_off_comes_whole_later(read: Any, often: int, error: Any) -> None:
    changes = failing()
    changes.raises = every(often, error)
    stream, found, cut = opened(changes), list[int](), 0
    while len(found) < CHANGES:
        token = stream.token
        try:
            found += read(stream)
        except (Unavailable, KeyboardInterrupt):
            cut += 1
            assert stream.token["shards"] == token["shards"], "the token moved over what was not given"
            assert cut < 1000
    assert sorted(found) == list(range(CHANGES))
    assert cut


def test_a_record_at_a_time_goes_on_after_an_error() -> None:
    changes = failing()
    changes.raises = every(3, lambda: Throttled("for now"))
    stream, found = opened(changes), list[int]()
    for _ in range(1000):
        try:
            if (change := next(stream)) is not None and change.new is not None:
                found.append(change.new["n"])
        except Unavailable:
            continue
    assert sorted(found) == list(range(CHANGES))


@pytest.mark.parametrize("wrong", ["nowhere", datetime(2026, 1, 1), {"version": 1}, "throttled"])
def test_a_move_that_fails_leaves_the_stream_where_it_was(wrong: Any) -> None:
    changes = failing()
    stream = opened(changes)
    first = by_take(stream)
    token = stream.token
    with pytest.raises((BadInput, BadToken, Unavailable)):
        if wrong == "throttled":
            changes.raises = lambda: Throttled("for now")
            changes.shards = lambda: (_ for _ in ()).throw(Throttled("for now"))  # type: ignore[method-assign]
            stream.move_to("trim_horizon")
        else:
            stream.move_to(wrong)
    vars(changes).pop("shards", None)
    changes.raises = lambda: None
    assert stream.token["shards"] == token["shards"]
    assert sorted(first + by_next(stream)) == list(range(CHANGES))


# -- asyncio
def test_a_cancelled_task_takes_no_record_with_it() -> None:
    """`asyncio.timeout` around a loop over a stream is how most programs wait for some time."""
    changes = failing(1)
    asked, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        asked.set()
        go_on.wait(30)

    async def main() -> list[int]:
        changes.raises = slow
        stream = opened(changes)
        follower = stream.follow()
        waiting = asyncio.ensure_future(anext(follower))
        await asyncio.to_thread(asked.wait, 30)
        waiting.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert all("after" not in place for place in stream.token["shards"]), "nothing was given yet"
        found: list[int] = []
        async for change in follower:
            assert change.new is not None
            found.append(change.new["n"])
            if len(found) == CHANGES:
                break
        return found

    assert asyncio.run(main()) == list(range(CHANGES))


# -- into a topic
@model(stream={"new", "old"})
class User:
    id: str = hash_key()
    n: int = 0


@pytest.mark.parametrize("error", [lambda: Unavailable("it does not answer"), KeyboardInterrupt])
def test_a_copy_goes_on_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    monkeypatch.setattr(stream_copy, "MAX_RECORDS", 5)
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(User)
        for n in range(CHANGES):
            engine.save(User(f"u{n}", n))
        home.topic("users", 1)
        with home.copy_stream("User", "users") as copying:
            fails = every(7, error)

            def failing_next(stream: Any) -> Any:
                if (failure := fails()) is not None:
                    raise failure
                return following(stream)

            following = Stream.__next__
            monkeypatch.setattr(Stream, "__next__", failing_next)
            cut = 0
            while copying.records < CHANGES:
                try:
                    copying.once()
                except (Unavailable, KeyboardInterrupt):
                    cut += 1
                    assert cut < 1000
        assert cut or error is not KeyboardInterrupt
        keys = [record.key for record in home.topic("users").records()]
        assert keys == [b'{"id":"u%d"}' % n for n in range(CHANGES)]


def saved(home: tailrace.Home, *texts: str) -> None:
    engine = home.engine()
    engine.bind(User)
    for n, text in enumerate(texts):
        engine.save(User(f"u{n}{text}", n))
    home.topic("users", 1)


def test_a_copy_brings_what_came_before_a_change_that_is_too_large(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        saved(home, "", "", "x" * 900, "")
        home.topic("users").configure(max_record_bytes=1000)
        with home.copy_stream("User", "users") as copying:
            for _ in range(2):
                with pytest.raises(TooLarge, match=r"the change of item .*u2xxx.* of table 'User'.*max_record_bytes"):
                    copying.once()
                assert copying.records == 2
        home.topic("users").configure(max_record_bytes=100_000)
        assert home.copy_stream("User", "users").once() == 2


def test_a_copy_brings_the_last_changes_of_a_stream_that_was_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tailrace.open(tmp_path / "home") as home:
        saved(home, *[""] * 4)

        def ends(stream: Any) -> Any:
            if (record := following(stream)) is None:
                raise PositionLost("the stream was switched off")
            return record

        following = Stream.__next__
        with home.copy_stream("User", "users") as copying:
            monkeypatch.setattr(Stream, "__next__", ends)
            for _ in range(2):
                with pytest.raises(PositionLost, match=r"switched off.*`tailrace stream copy User users --restart`"):
                    copying.once()
                assert copying.records == 4
