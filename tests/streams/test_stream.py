"""Reading a change stream: the order, tokens, positions, iterators; the examples of the source document."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest

from tailrace.errors import BadInput, BadToken, NotThere, PositionLost, Unavailable
from tailrace.storage.changes import Change, Shard
from tailrace.storage.tables import Key
from tailrace.streams.patience import Patience
from tailrace.streams.stream import Stream
from tailrace.testing import ManualClock, SimulatedChanges
from tests.streams.reading import schedule


def stream_of(changes: SimulatedChanges, position: Any = "trim_horizon", **settings: Any) -> Stream[Change]:
    clock = changes.clock
    settings = {"table": "users", "make": lambda change: change, "threads": 1} | settings
    patience = Patience(60, clock.monotonic, clock.move)
    return Stream(changes, position, clock=clock.monotonic, patience=patience, **settings)


def put(changes: SimulatedChanges, name: str, number: int = 0) -> None:
    """A change of the item `name`, told apart by its number."""
    changes.capture(Key(name), None, {"name": name, "n": number})


def names(stream: Stream[Change], rounds: int = 8) -> list[str]:
    """What a stream gives until it has nothing for a while."""
    found, silent = [], 0
    while silent < rounds:
        change = next(stream)
        silent = 0 if change else silent + 1
        if change:
            assert change.new is not None
            found.append(change.new["name"] + (str(change.new["n"]) if change.new["n"] else ""))
    return found


def key_in(changes: SimulatedChanges, shard: str, mark: str = "k") -> str:
    """A hash key that falls into an open shard."""
    return next(name for n in range(1000) if changes.shard_of(name := f"{mark}{n}-") == shard)


def document() -> SimulatedChanges:
    """The stream of the source document: S0 => {S1, S2}, with times in hours ago."""
    changes = SimulatedChanges(clock=ManualClock())
    now = changes.clock.wall()

    def at(hours: int, key: str, name: str) -> None:
        changes.clock.set_wall(now - hours * 3600)
        changes.capture(Key(key), None, {"name": name, "n": 0})

    at(7, "any", "R00")
    first, second = changes.split()
    for hours, shard, name in [
        (6, first, "R11"), (4, first, "R12"), (2, first, "R13"),
        (4, second, "R24"), (3, second, "R25"), (3, second, "R26"),
    ]:  # fmt: skip
        at(hours, key_in(changes, shard), name)
    changes.clock.set_wall(now)
    return changes


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_the_documents_example_for_any_page_size(page: int) -> None:
    changes = document()
    assert names(stream_of(changes, page=page)) == ["R00", "R11", "R12", "R24", "R25", "R26", "R13"]


@pytest.mark.parametrize("page", [1, 2, 1000])
@pytest.mark.parametrize("taken", range(8))
def test_a_token_taken_anywhere_goes_on_behind_the_last_record(taken: int, page: int) -> None:
    changes = document()
    stream = stream_of(changes, page=page)
    found = [next(stream) for _ in range(taken)]
    before = [change.new["name"] for change in found if change and change.new]
    after = names(stream_of(changes, stream.token, page=page))
    assert before + after == ["R00", "R11", "R12", "R24", "R25", "R26", "R13"]


@pytest.mark.parametrize("page", [1, 1000])
def test_time_that_runs_back_in_a_shard_does_not_reorder_it(page: int) -> None:
    changes = SimulatedChanges(clock=ManualClock())
    now = changes.clock.wall()
    for n in range(1, 6):
        changes.clock.set_wall(now - n * 60)
        put(changes, "a", n)
    assert names(stream_of(changes, page=page)) == ["a1", "a2", "a3", "a4", "a5"]


def test_a_token_of_a_closed_parent_that_is_half_read_has_the_parent_first() -> None:
    changes = SimulatedChanges()
    for n in range(1, 5):
        put(changes, "a", n)
    changes.split()
    put(changes, "a", 5)
    stream = stream_of(changes, page=2)
    assert [next(stream).new["n"] for _ in range(3)] == [1, 2, 3]  # type: ignore[union-attr,index]
    assert len(stream.token["shards"]) == 1
    assert names(stream_of(changes, stream.token)) == ["a4", "a5"]


def test_the_last_page_of_a_closed_shard_is_given() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    put(changes, "a", 2)
    changes.roll()
    put(changes, "a", 3)
    assert names(stream) == ["a2", "a3"]


def test_children_that_appear_late_are_found_also_after_a_restart() -> None:
    changes = SimulatedChanges(late=5)
    put(changes, "a", 1)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    changes.split()
    put(changes, "a", 2)
    found: list[str] = []
    for _ in range(8):
        found += names(stream, rounds=1)
        changes.clock.move(2)
        stream = stream_of(changes, stream.token)
    assert found == ["a2"]


def test_stale_shards_are_gone_from_a_token_after_a_move() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    changes.roll()
    put(changes, "a", 2)
    stream.move_to("latest")
    open_now = [shard.id for shard in changes.shards() if shard.last is None]
    assert [place["shard"] for place in stream.token["shards"]] == open_now
    put(changes, "a", 3)
    assert names(stream) == ["a3"]
    stream.move_to("trim_horizon")
    assert names(stream) == ["a1", "a2", "a3"]


@pytest.mark.parametrize("exact", [True, False])
def test_latest_is_of_the_shards_at_the_beginning_never_of_their_children(exact: bool) -> None:
    changes = SimulatedChanges(exact=exact)
    put(changes, "a", 1)
    changes.clock.move(10)
    stream = stream_of(changes, "latest")
    changes.split()
    put(changes, "a", 2)
    assert names(stream) == ["a2"]


@pytest.mark.parametrize("exact", [True, False])
def test_a_token_at_latest_that_gave_nothing_misses_nothing(exact: bool) -> None:
    changes = SimulatedChanges(exact=exact)
    put(changes, "a", 1)
    changes.clock.move(10)
    token = stream_of(changes, "latest").token
    changes.clock.move(3600)
    put(changes, "a", 2)
    changes.split()
    put(changes, "a", 3)
    assert names(stream_of(changes, token)) == ["a2", "a3"]


def test_a_time_is_inclusive_in_whole_seconds() -> None:
    changes = SimulatedChanges()
    moments = []
    for n in range(1, 4):
        moments.append(datetime.fromtimestamp(changes.clock.wall() + 0.9, UTC))
        put(changes, "a", n)
        changes.clock.move(10)
    assert names(stream_of(changes, moments[1])) == ["a2", "a3"]
    assert names(stream_of(changes, moments[1] + timedelta(seconds=1))) == ["a3"]
    assert names(stream_of(changes, moments[0] - timedelta(days=3))) == ["a1", "a2", "a3"]
    future = stream_of(changes, datetime.now(UTC) + timedelta(days=365000))
    put(changes, "a", 4)
    assert names(future) == ["a4"]


def test_a_time_passes_over_parents_and_goes_on_in_children() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    changes.split()
    put(changes, "a", 2)
    changes.clock.move(10)
    since = datetime.fromtimestamp(changes.clock.wall(), UTC)
    put(changes, "a", 3)
    stream = stream_of(changes, since, page=1)
    assert next(stream).new["n"] == 3  # type: ignore[union-attr,index]
    passed = stream_of(changes, since, page=1)
    tokens = [passed.token, *(next(passed) and passed.token for _ in range(2))]
    assert [names(stream_of(changes, token)) for token in tokens if token] == [["a3"], []]


@pytest.mark.parametrize("wrong", ["newest", 7, None, datetime(2026, 1, 1), b"token", ["a"]])
def test_other_positions_are_refused(wrong: Any) -> None:
    with pytest.raises(BadInput):
        stream_of(SimulatedChanges(), wrong)


def test_expired_iterators_are_made_again_unseen() -> None:
    changes = SimulatedChanges(shards=3)
    stream = stream_of(changes, page=1)
    for n in range(1, 10):
        put(changes, "abc"[n % 3], n)
        if n % 2:
            next(stream)
        changes.expire()
    rest = names(stream)
    assert len(rest) == 4
    assert names(stream) == []


def test_a_heartbeat_costs_a_call_only_where_nothing_was_given_yet() -> None:
    changes = SimulatedChanges(shards=4, exact=False)
    stream = stream_of(changes, "latest", heartbeat=False)
    changes.requests.clear()
    stream.heartbeat()
    assert changes.requests == {"read": 20}  # the first time, each is asked up to five times
    changes.requests.clear()
    stream.heartbeat()
    assert changes.requests == {"read": 4}
    put(changes, "a", 1)
    stream.heartbeat()
    changes.requests.clear()
    stream.heartbeat()
    assert changes.requests == {"read": 3}
    assert names(stream) == ["a1"]


def test_next_beats_by_itself_so_latest_survives_its_iterators() -> None:
    changes = SimulatedChanges(exact=False)
    stream = stream_of(changes, "latest")
    for _ in range(10):
        changes.clock.move(13 * 60)
        assert next(stream) is None
    put(changes, "a", 1)
    assert names(stream) == ["a1"]


def test_an_open_shard_without_data_is_asked_five_times_first_and_once_after() -> None:
    changes = SimulatedChanges()
    stream = stream_of(changes)
    changes.requests.clear()
    next(stream)
    assert changes.requests["read"] == 5
    next(stream)
    assert changes.requests["read"] == 6


def test_a_caught_up_shard_is_not_asked_for_every_record_of_another() -> None:
    changes = SimulatedChanges(shards=2)
    a, b = (key_in(changes, shard.id) for shard in changes.shards())
    put(changes, b, 1)
    for n in range(500):
        put(changes, a, n)
    stream = stream_of(changes)
    names(stream)
    changes.requests.clear()
    for n in range(500):
        put(changes, a, n)
    assert len(names(stream, rounds=1)) == 500
    assert changes.requests["read"] <= 6


@pytest.mark.parametrize("shards", [1, 8, 64])
def test_shards_that_ran_dry_are_asked_once_and_not_whenever_another_runs_dry(shards: int) -> None:
    changes = SimulatedChanges(shards=shards)
    keys = [key_in(changes, shard.id) for shard in changes.shards()]
    for n, key in enumerate(keys * 5):
        changes.clock.move(1)
        put(changes, key, n)
    stream = stream_of(changes)
    for _ in range(5 * shards):
        assert next(stream) is not None
    assert changes.requests["read"] <= 2 * shards, "a page of each shard, and an empty answer when it is drained"


def lines_run(stream: Stream[Change]) -> int:
    """How many lines of the package the reading of everything there is takes: a clock that no other process slows."""
    lines = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count if "/tailrace/streams/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(count)
    try:
        while next(stream) is not None:
            pass
    finally:
        sys.settrace(before)
    return lines


def test_no_round_walks_through_all_shards() -> None:
    def each(shards: int) -> float:
        changes = SimulatedChanges(shards=shards)
        for n in range(10 * shards):
            changes.clock.move(1)
            put(changes, f"k{n}", n)
        return lines_run(stream_of(changes)) / (10 * shards)

    few, many = each(32), each(256)
    assert many <= 1.3 * few, f"{few:.0f} lines a change for 32 shards, {many:.0f} for 256"


def test_a_page_goes_only_after_silent_shards_were_asked_again() -> None:
    changes = SimulatedChanges(shards=2)
    a, b = (key_in(changes, shard.id) for shard in changes.shards())
    put(changes, a, 1)
    put(changes, a, 2)
    stream = stream_of(changes, page=1)
    assert next(stream).new["n"] == 1  # type: ignore[union-attr,index]
    changes.clock.set_wall(changes.clock.wall() - 10)
    put(changes, b, 3)
    assert next(stream).new["n"] == 3, "the older head of a shard that said nothing a page ago"  # type: ignore[union-attr,index]
    assert names(stream) == [a + "2"]


class AtOnce:
    """An executor that does what it is told before it answers: pages are read ahead at a known moment."""

    def __init__(self, threads: int, name: str) -> None:
        """As `ThreadPoolExecutor`."""

    def submit(self, work: Any, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Any, arguments: Any) -> list[Any]:
        return [work(argument) for argument in arguments]

    def shutdown(self, **_: Any) -> None:
        """Nothing is under way."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.streams.stream.ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr("tailrace.streams.shard.AHEAD_FROM", 1)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("expire", [False, True])
@pytest.mark.parametrize("taken", range(8))
def test_pages_read_ahead_count_as_delivered_only_when_they_are(taken: int, expire: bool) -> None:
    changes = document()
    stream = stream_of(changes, page=1, threads=2)
    found = [next(stream) for _ in range(taken)]
    before = [change.new["name"] for change in found if change and change.new]
    if expire:
        changes.expire()
    after = names(stream_of(changes, stream.token, page=1, threads=2))
    assert before + after == ["R00", "R11", "R12", "R24", "R25", "R26", "R13"]
    assert before + names(stream) == ["R00", "R11", "R12", "R24", "R25", "R26", "R13"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(200))
def test_random_lives_of_streams_whose_pages_are_read_ahead(seed: int) -> None:
    schedule(seed, threads=2)


def test_a_page_that_failed_ahead_is_asked_for_again(at_once: None) -> None:
    changes = SimulatedChanges()
    for n in range(1, 4):
        put(changes, "a", n)
    stream = stream_of(changes, page=1, threads=2)
    changes.throttled = 1.0
    with pytest.raises(Unavailable):
        next(stream)
    changes.throttled = 0.0
    assert next(stream).new["n"] == 1  # type: ignore[union-attr,index]
    assert names(stream) == ["a2", "a3"]


def test_throttling_is_waited_for_and_given_up_in_the_end() -> None:
    changes = SimulatedChanges(throttled=0.5, seed=3)
    put(changes, "a", 1)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    changes.throttled = 1.0
    with pytest.raises(Unavailable, match=r"has not taken a request for 60 s .* stands where it was"):
        next(stream)
    changes.throttled = 0.0
    put(changes, "a", 2)
    assert names(stream) == ["a2"]


def test_trimmed_shards_give_way_to_their_children(caplog: pytest.LogCaptureFixture) -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    changes.clock.move(3600)
    assert names(stream) == ["a1"]
    token = stream.token
    changes.split()
    changes.clock.move(23.5 * 3600)
    put(changes, "a", 2)
    changes.trim()
    resumed = stream_of(changes, token)
    assert names(resumed) == ["a2"]
    assert len(resumed.trimmed) == 1
    assert "trimmed" in caplog.text


def test_children_of_a_shard_that_is_trimmed_while_it_is_read_are_found_at_once() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    changes.clock.set_wall(changes.clock.wall() + 2 * 3600)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    changes.split()
    changes.clock.set_wall(changes.clock.wall() + 23 * 3600)
    put(changes, "a", 2)
    changes.trim()
    assert names(stream) == ["a2"]
    assert len(stream.trimmed) == 1


def rolled(changes: SimulatedChanges, hours: int) -> None:
    """A change every four hours, each in a shard of its own; what is older than a day goes."""
    for n in range(hours // 4):
        changes.clock.set_wall(changes.clock.wall() + 4 * 3600)
        changes.roll()
        put(changes, "a", n + 2)
        changes.trim()


def test_a_stream_that_was_not_read_for_more_than_a_day_has_lost_changes() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    rolled(changes, 48)
    for _ in range(2):
        with pytest.raises(PositionLost, match=r"the shard is gone, and was last read 48 hours ago.*trim_horizon"):
            next(stream)
    with pytest.raises(PositionLost):
        stream_of(changes, stream.token)
    stream.move_to("trim_horizon")
    assert names(stream)[-1] == "a13"


def test_a_token_one_of_whose_shards_went_more_than_a_day_after_it_is_refused() -> None:
    changes = SimulatedChanges(shards=2)
    quiet, busy = (shard.id for shard in changes.shards())
    put(changes, key_in(changes, quiet), 1)
    put(changes, key_in(changes, busy), 1)
    stream = stream_of(changes)
    assert len(names(stream)) == 2
    token = stream.token
    put(changes, key_in(changes, busy), 2)
    changes.roll(busy)
    changes.clock.move(25 * 3600)
    changes.trim()
    with pytest.raises(PositionLost, match=f"taken 25 hours ago, and its shard {busy} is gone"):
        stream_of(changes, token)


def test_a_shard_in_which_nothing_was_ever_written_has_lost_nothing() -> None:
    changes = SimulatedChanges(exact=True)
    stream = stream_of(changes)
    token = stream.token
    changes.clock.move(48 * 3600)
    resumed = stream_of(changes, token)
    assert next(stream) is None
    changes.clock.move(48 * 3600)
    assert next(resumed) is None
    for one in (stream, resumed):
        changes.clock.move(24 * 3600)
        put(changes, "a", 1)
        changes.clock.move(25 * 3600)
        changes.trim()
        with pytest.raises(PositionLost, match="nothing of it was read in"):
            next(one)


def test_a_token_is_as_old_as_what_is_known_of_its_shards() -> None:
    changes = SimulatedChanges()
    stream = stream_of(changes)
    put(changes, "a", 1)
    changes.clock.move(25 * 3600)
    changes.trim()
    with pytest.raises(PositionLost, match="taken 25 hours ago"):
        stream_of(changes, stream.token)
    stream.move_to("trim_horizon")
    assert next(stream_of(changes, stream.token)) is None


def test_a_heartbeat_finds_the_shards_that_are_gone() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    changes.clock.set_wall(changes.clock.wall() + 2 * 3600)
    stream = stream_of(changes, "latest")
    changes.split()
    changes.clock.set_wall(changes.clock.wall() + 23 * 3600)
    put(changes, "a", 2)
    changes.trim()
    stream.heartbeat()
    assert names(stream) == ["a2"]


FORK = """
import os, signal
from tailrace.errors import HomeError
from tailrace.testing import SimulatedChanges
from tests.streams.test_stream import names, put, stream_of

changes = SimulatedChanges(shards=4)
for n in range(40):
    put(changes, f"k{n}-", n + 1)
stream = stream_of(changes, threads=4, page=5)
assert next(stream) is not None
token = stream.token
child = os.fork()
if child == 0:
    signal.alarm(30)  # a child that waits for its parent's threads would wait for ever
    refused = 0
    for way in (lambda: next(stream), lambda: stream.move_to(token), stream.check, stream.heartbeat):
        try:
            way()
        except HomeError:
            refused += 1
    stream.close()
    os._exit(refused)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
assert len(names(stream)) == 39
"""


def test_a_forked_child_gives_nothing() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_token_with_nothing_left_in_common_is_refused() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    for n in range(3):
        changes.roll()
        changes.clock.move(13 * 3600)
        put(changes, "a", n + 2)
    changes.trim()
    with pytest.raises(PositionLost, match="older than the 24 hours"):
        stream_of(changes, stream.token)


def test_changes_trimmed_in_a_shard_before_they_were_read_are_an_error() -> None:
    changes = SimulatedChanges()
    for n in range(1, 4):
        put(changes, "a", n)
    stream = stream_of(changes, page=1)
    next(stream)
    token = stream.token
    changes.clock.move(25 * 3600)
    put(changes, "a", 4)
    changes.trim()
    with pytest.raises(PositionLost, match="has been trimmed"):
        names(stream_of(changes, token))
    stream.move_to("trim_horizon")
    assert names(stream) == ["a4"]


def test_an_old_token_of_which_nobody_can_tell_what_was_trimmed_is_refused() -> None:
    changes = SimulatedChanges()
    token = stream_of(changes).token
    put(changes, "a", 1)
    changes.clock.move(25 * 3600)
    changes.trim()
    put(changes, "a", 2)
    with pytest.raises(PositionLost, match="taken 25 hours ago"):
        stream_of(changes, token)


def test_a_stream_that_was_made_again_says_so_after_its_last_record() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    token = stream.token
    changes.replace()
    assert next(stream) is not None
    with pytest.raises(PositionLost, match="has another one by now"):
        next(stream)
    after = SimulatedChanges().replace()
    with pytest.raises(BadToken, match="another stream"):
        stream_of(after, token)


def test_a_stream_that_the_server_has_forgotten_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten() -> list[Shard]:
        raise NotThere("DescribeStream: there is no such stream")

    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    assert names(stream) == ["a1"]
    monkeypatch.setattr(changes, "current", lambda: None)
    monkeypatch.setattr(changes, "shards", forgotten)
    changes.clock.move(3600)
    with pytest.raises(PositionLost, match="it was switched off"):
        next(stream)


@pytest.mark.parametrize(
    "damage",
    [
        lambda token: token | {"table": "orders"},
        lambda token: token | {"shards": "all"},
        lambda token: token | {"shards": token["shards"] * 2},
        lambda token: token | {"version": 2},
        lambda token: {},
        lambda token: token | {"more": 1},
        lambda token: token | {"shards": [{"shard": 7}]},
    ],
)
def test_a_damaged_token_is_refused(damage: Any) -> None:
    stream = stream_of(SimulatedChanges())
    with pytest.raises(BadToken):
        stream.move_to(damage(stream.token))


def test_a_token_with_a_sequence_from_the_future_is_refused() -> None:
    changes = SimulatedChanges()
    put(changes, "a", 1)
    stream = stream_of(changes)
    names(stream)
    token = stream.token
    token["shards"][0]["after"] = "9" * 21
    with pytest.raises(PositionLost):
        names(stream_of(changes, token))


def test_shards_are_asked_at_the_same_time() -> None:
    changes = SimulatedChanges(shards=16)
    for n in range(200):
        put(changes, f"k{n}-", n)
    with stream_of(changes, threads=8) as stream:
        assert len(names(stream)) == 200
