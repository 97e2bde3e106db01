"""Following a source without Spark: what a reader is handed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, cast
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.contract import Changes
from tailrace.adaptors.rows.rows import make_rows, messages_of
from tailrace.errors import Fenced, Unavailable
from tailrace.log.record import Mode, Op
from tailrace.log.write.placement import Placed
from tailrace.log.write.source_append import SourceGuard, take_in
from tailrace.pipeline.ingest.commit_log import CommitLog, last_message
from tailrace.pipeline.ingest.committer import MAX_WAITING
from tailrace.pipeline.ingest.copying import Copying
from tailrace.pipeline.ingest.following import SourceReceiver
from tailrace.pipeline.runtime.engine import SparkEngine
from tailrace.pipeline.runtime.status import Status
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item
from tests.pipeline.runs import until
from tests.pipeline.toys import SourceSettings, ToySource

TABLE, OTHER = "shop.orders", "shop.items"


class Noting(ToySource):
    """Wants the last messages, and notes what it was handed."""

    wants_last = True
    handed: tuple[Any, Any] = (None, None)

    def resume(self, last: Mapping[str, Mapping[str, Any]]) -> None:
        self.handed = None, last

    def follow(self, position: int, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        self.handed = position, self.handed[1]
        return super().follow(position, namespaces)


def _followed(log: CommitLog, changes: int, truncate: int = -1) -> Noting:
    reader = Noting(SourceSettings(changes=changes, truncate=truncate))
    SourceReceiver(reader, log, Status("shop"), Event(), lambda names: None).run(once=True)
    return reader


class Endless(ToySource):
    """Gives more than may wait, and does not look up."""

    def follow(self, position: int, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        for n in range(1, 10 * MAX_WAITING):
            yield Changes([], n)


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Call it, and fail if it is not over by then: who waits in vain waits in every `finally` again."""
    done: Queue[BaseException | None] = Queue()

    def call() -> None:
        try:
            work()
            done.put(None)
        except BaseException as error:
            done.put(error)

    Thread(target=call, daemon=True).start()
    try:
        error = done.get(timeout=seconds)
    except Empty:
        pytest.fail(f"it is still waiting after {seconds:g} s")
    if error is not None:
        raise error


def test_a_commit_that_fails_is_heard_of_however_much_waits(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        following = SourceReceiver(Endless(SourceSettings()), log, Status("shop"), Event(), lambda names: None)

        def fails(rows: Any, position: Any, **more: Any) -> bool:
            until(following.committer.queue.full)
            raise Unavailable("the home is away")

        with patch.object(log, "take_in", fails), pytest.raises(Unavailable, match="the home is away"):
            _within(20, following.run)


class Growing(ToySource):
    """Changes a row, and then has a table more."""

    known: list[bool]
    """Whether it is among the pipeline's namespaces, before and after."""

    def follow(self, position: int, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        self.known = [OTHER in namespaces]
        yield Changes([self._change(1)], 1)
        yield Changes([], 2, appeared=[OTHER])
        self.known.append(OTHER in namespaces)
        yield Changes([self._change(3)], 3)
        while True:
            yield Changes([], 3)


def test_a_table_that_appears_is_not_copied_beside_a_commit(tmp_path: Path) -> None:
    """Both move the reader's item on: one of them would take the other for another run, and stop."""
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        copied = Event()

        def copy(found: Changes) -> None:
            log.plan(found.appeared[0], [])
            copied.set()

        def slow(placed: list[Placed], progress: SourceGuard) -> Steps[tuple[bool, Item]]:
            if progress.position == "1":
                copied.wait(0.5)
            return take_in(placed, progress)

        with patch("tailrace.pipeline.ingest.commit_log.take_in", slow):
            reader = Growing(SourceSettings())
            following = SourceReceiver(reader, log, Status("shop"), Event(), copy)
            _within(20, lambda: following.run(once=True))
        assert OTHER in log.phases
        assert reader.known == [False, True]
        assert CommitLog(home, "shop", partitions=2).position == 3
        assert sum(end for _, end in log.topic.ends().values()) == 2


def test_no_table_is_copied_once_a_commit_has_failed(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)

        def fails(rows: Any, position: Any, **more: Any) -> bool:
            raise Unavailable("the home is away")

        def copy(found: Changes) -> None:
            pytest.fail("it is copied")

        with patch.object(log, "take_in", fails), pytest.raises(Unavailable, match="the home is away"):
            _within(20, SourceReceiver(Growing(SourceSettings()), log, Status("shop"), Event(), copy).run)


class Telling(ToySource):
    """Notes what it was told to forget."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self.told: list[Any] = []

    def acknowledge(self, position: Any) -> None:
        self.told.append(position)


def test_a_run_that_another_has_followed_stops_and_the_source_forgets_nothing_for_it(tmp_path: Path) -> None:
    """What it has read is thrown away; the other has its own position, and may not have come as far."""
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        other, reader = CommitLog(home, "shop", partitions=2), Telling(SourceSettings(changes=5))
        assert other.take_in([reader._change(1)], 1)
        following = SourceReceiver(reader, log, Status("shop"), Event(), lambda names: None)
        with pytest.raises(Fenced, match="another run of 'shop' reads the source now"):
            _within(20, lambda: following.run(once=True))
        assert set(reader.told) <= {0}
        other.refresh()
        assert other.position == 1
        assert sum(end for _, end in log.topic.ends().values()) == 1


class Moving(ToySource):
    """Its position moves on though nothing happens."""

    def follow(self, position: int, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        for n in range(1, 10_000):
            yield Changes([self._change(n)] if n == 2 else [], n, caught_up=n >= 3)


def test_catching_up_ends_though_the_position_moves_on(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        following = SourceReceiver(Moving(SourceSettings()), log, Status("shop"), Event(), lambda names: None)
        _within(20, lambda: following.run(once=True))
        assert CommitLog(home, "shop", partitions=2).position == 3
        assert sum(end for _, end in log.topic.ends().values()) == 1


def test_a_reader_that_wants_it_is_handed_the_last_message(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        for name in TABLE, OTHER:
            log.plan(name, [])
            log.set_phases({name: {**log.phases[name], "phase": "sync"}})
        assert _followed(log, 3).handed == (0, {})
        position, last = _followed(CommitLog(home, "shop", partitions=2), 5, truncate=5).handed
        assert position == 3
        data = {"id": 3, "v": "change 3"}
        assert last == {TABLE: {"id": "3", "op": "update", "timestamp": 3, "data": data}}
        _, last = _followed(CommitLog(home, "shop", partitions=2), 5).handed
        assert last[TABLE]["op"] == "command"
        reader = ToySource(SourceSettings(changes=9))
        SourceReceiver(reader, CommitLog(home, "shop", partitions=2), Status("shop"), Event(), lambda names: None).run(
            once=True
        )
        kept = CommitLog(home, "shop", partitions=2).phases[TABLE]["last"]
        assert kept["op"] == "command", "a reader that does not want it costs nothing"


LOGS = {"a": 40, "b": 25, "c": 0}


class Several(ToySource):
    """Three logs; the first is divided after half of it, and goes on in two others."""

    made: list[Several]
    split = ""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self.told: list[Any] = []

    def again(self) -> Several:
        reader = Several(self._settings)
        reader.made = self.made
        self.made.append(reader)
        return reader

    def splits(self, position: Any) -> Sequence[str]:
        return list(position["splits"])

    def acknowledge(self, position: Any) -> None:
        self.told.append(position)

    def follow(self, position: int | None, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        at, self.split = position or 0, split
        while at < LOGS.get(split[0], 0):
            at += 1
            if split == "a" and at > 20:
                yield Changes([], at, opened=["a/0", "a/1"], closed=True)
                return
            if "/" in split and at <= 20:
                continue
            key = f"{split[0]}{int(split[-1]) if '/' in split else at % 2}"
            if "/" in split and at % 2 != int(split[-1]):
                continue
            columns = pa.record_batch({"id": pa.array([key]), "v": pa.array([at])})
            yield Changes([make_rows(TABLE, columns, ["id"], op=Op.UPDATE, mode=Mode.SYNC)], at)
        while True:
            yield Changes([], at)


def _several(home: Any) -> tuple[CommitLog, Several]:
    log, reader = CommitLog(home, "shop", partitions=2), Several(SourceSettings())
    reader.made = []
    if not log.begun:
        log.begin({"splits": dict.fromkeys(LOGS), "other": 1})
    return log, reader


def _values(home: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for q in range(2):
        for fetched in home.topic("shop-log").fetch(q, 0):
            for message in messages_of(fetched.data):
                found.setdefault(message.id, []).append(message.data["v"])
    return found


EXPECTED = {
    **{f"a{n}": [at for at in range(1, 41) if at % 2 == n] for n in range(2)},
    **{f"b{n}": [at for at in range(1, 26) if at % 2 == n] for n in range(2)},
}


def test_each_split_is_followed_in_its_order_and_a_divided_one_goes_on_in_others(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log, reader = _several(home)
        _within(
            30, lambda: SourceReceiver(reader, log, Status("shop"), Event(), lambda c: None, reader.again).run(True)
        )
        assert _values(home) == EXPECTED
        kept = CommitLog(home, "shop", partitions=2).position
        assert kept == {"splits": {"b": 25, "c": 0, "a/0": 40, "a/1": 40}, "other": 1}
        told = {made.split: made.told[-1] for made in reader.made if made.told}
        assert told.pop("a", 0) <= 20
        assert told == {"b": 25, "c": 0, "a/0": 40, "a/1": 40}


def test_splits_go_on_from_positions_that_were_committed_with_their_rows(tmp_path: Path) -> None:
    """However often the run is cut off: each change is there once, and each key's in order."""
    with tailrace.open(tmp_path / "home") as home:
        for cut in range(1, 60, 7):
            log, reader = _several(home)
            took, left = log.take_in, [cut]

            def cut_off(*some: Any, took: Any = took, left: list[int] = left, **more: Any) -> bool:
                left[0] -= 1
                if left[0] < 0:
                    raise Unavailable("the home is away")
                return bool(took(*some, **more))

            receiver = SourceReceiver(reader, log, Status("shop"), Event(), lambda c: None, reader.again)
            with patch.object(log, "take_in", cut_off), suppress(Unavailable):
                _within(30, lambda receiver=receiver: receiver.run(True))
        log, reader = _several(home)
        _within(
            30, lambda: SourceReceiver(reader, log, Status("shop"), Event(), lambda c: None, reader.again).run(True)
        )
        assert _values(home) == EXPECTED


def test_a_split_that_fails_ends_the_others(tmp_path: Path) -> None:
    class Failing(Several):
        def again(self) -> Several:
            return Failing(self._settings)

        def follow(self, position: int | None, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
            if split == "b":
                raise Unavailable("this shard is away")
            return super().follow(position, namespaces, split)

    with tailrace.open(tmp_path / "home") as home:
        log, _ = _several(home)
        reader = Failing(SourceSettings())
        following = SourceReceiver(reader, log, Status("shop"), Event(), lambda c: None, reader.again)
        with pytest.raises(Unavailable, match="this shard is away"):
            _within(30, following.run)


class Ending(ToySource):
    """One table ends, and goes on after all."""

    log: CommitLog
    phase = ""

    def follow(self, position: int, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        yield Changes([self._change(1)], 1)
        yield Changes([], 2, ended=[TABLE, "unknown"])
        self.phase = self.log.phases[TABLE]["phase"]
        yield Changes([self._change(3)], 3)
        while True:
            yield Changes([], 3)


def test_a_namespace_that_has_ended_is_complete_until_it_goes_on(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        for name in TABLE, OTHER:
            log.plan(name, [])
            log.set_phases({name: {**log.phases[name], "phase": "sync"}})
        reader, status = Ending(SourceSettings()), Status("shop")
        reader.log = log
        SourceReceiver(reader, log, status, Event(), lambda changes: None).run(once=True)
        assert reader.phase == "complete"
        assert {name: source.phase for name, source in status.sources.items()} == {TABLE: "sync"}
        assert {name: phase["phase"] for name, phase in log.phases.items()} == {TABLE: "sync", OTHER: "sync"}
        log.complete_phases([OTHER])
        assert CommitLog(home, "shop", partitions=2).phases[OTHER]["phase"] == "complete"


def test_a_namespace_that_is_gone_when_a_run_begins_is_complete(tmp_path: Path) -> None:
    made = (
        tailrace.pipeline("shop", home=tmp_path / "home")
        .source("tests.pipeline.toys:source", tables=[TABLE])
        .save("stdout")
        .definition()
    )
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        for name in TABLE, OTHER:
            log.plan(name, [])
            log.set_phases({name: {**log.phases[name], "phase": "sync"}})
        copying = Copying(cast(SparkEngine, None), made, log, Status("shop"), Event())
        assert copying.plan(ToySource(SourceSettings(tables=(TABLE,)))) == []
        kept = CommitLog(home, "shop", partitions=2)
        assert {name: phase["phase"] for name, phase in kept.phases.items()} == {TABLE: "sync", OTHER: "complete"}


def test_the_last_message_of_a_table_whose_id_is_no_text() -> None:
    columns = pa.record_batch({"id": pa.array([b"\x00\xff"]), "v": pa.array(["a"])})
    kept = last_message(make_rows("shop.orders", columns, ["id"]))
    assert msgspec.json.decode(msgspec.json.encode(kept))["id"] == "\x00\\xff"
