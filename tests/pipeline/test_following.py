"""Following a source without Spark: what a reader is handed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

import pytest

import tailrace
from tailrace.adaptors.contract import Changes
from tailrace.errors import Fenced, Unavailable
from tailrace.log.append import Placed
from tailrace.log.intake import Progress, take_in
from tailrace.pipeline.commitlog import CommitLog
from tailrace.pipeline.following import AHEAD, Following
from tailrace.pipeline.status import Status
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item
from tests.pipeline.runs import until
from tests.pipeline.toys import SourceSettings, ToySource

TABLE, OTHER = "shop.orders", "shop.items"


class Noting(ToySource):
    """Notes what it was handed."""

    handed: tuple[Any, Any] = (None, None)

    def follow(self, position: int, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        self.handed = position, state
        return super().follow(position, namespaces, state)


def _followed(log: CommitLog, changes: int, truncate: int = -1) -> Noting:
    reader = Noting(SourceSettings(changes=changes, truncate=truncate))
    Following(reader, log, Status("shop"), Event(), lambda names: None).run(once=True)
    return reader


class Endless(ToySource):
    """Gives more than may wait, and does not look up."""

    def follow(self, position: int, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        for n in range(1, 10 * AHEAD):
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
        following = Following(Endless(SourceSettings()), log, Status("shop"), Event(), lambda names: None)

        def fails(rows: Any, position: Any) -> bool:
            until(following._queue.full)
            raise Unavailable("the home is away")

        with patch.object(log, "take_in", fails), pytest.raises(Unavailable, match="the home is away"):
            _within(20, following.run)


class Growing(ToySource):
    """Changes a row, and then has a table more."""

    def follow(self, position: int, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        yield Changes([self._change(1)], 1)
        yield Changes([], 2, appeared=[OTHER])
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

        def slow(placed: list[Placed], progress: Progress) -> Steps[tuple[bool, Item]]:
            if progress.position == "1":
                copied.wait(0.5)
            return take_in(placed, progress)

        with patch("tailrace.pipeline.commitlog.take_in", slow):
            following = Following(Growing(SourceSettings()), log, Status("shop"), Event(), copy)
            _within(20, lambda: following.run(once=True))
        assert OTHER in log.phases
        assert CommitLog(home, "shop", partitions=2).position == 3
        assert sum(end for _, end in log.topic.ends().values()) == 2


def test_no_table_is_copied_once_a_commit_has_failed(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)

        def fails(rows: Any, position: Any) -> bool:
            raise Unavailable("the home is away")

        def copy(found: Changes) -> None:
            pytest.fail("it is copied")

        with patch.object(log, "take_in", fails), pytest.raises(Unavailable, match="the home is away"):
            _within(20, Following(Growing(SourceSettings()), log, Status("shop"), Event(), copy).run)


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
        following = Following(reader, log, Status("shop"), Event(), lambda names: None)
        with pytest.raises(Fenced, match="another run of 'shop' reads the source now"):
            _within(20, lambda: following.run(once=True))
        assert set(reader.told) <= {0}
        other.refresh()
        assert other.position == 1
        assert sum(end for _, end in log.topic.ends().values()) == 1


class Moving(ToySource):
    """Its position moves on though nothing happens."""

    def follow(self, position: int, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        for n in range(1, 10_000):
            yield Changes([self._change(n)] if n == 2 else [], n, caught_up=n >= 3)


def test_catching_up_ends_though_the_position_moves_on(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        following = Following(Moving(SourceSettings()), log, Status("shop"), Event(), lambda names: None)
        _within(20, lambda: following.run(once=True))
        assert CommitLog(home, "shop", partitions=2).position == 3
        assert sum(end for _, end in log.topic.ends().values()) == 1


def test_a_reader_is_handed_phase_position_and_last_message(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        log = CommitLog(home, "shop", partitions=2)
        log.begin(0)
        for name in TABLE, OTHER:
            log.plan(name, [])
            log.set_phase(name, {**log.phases[name], "phase": "sync"})
        position, state = _followed(log, 3).handed
        assert position == 0
        assert {name: (s["phase"], s.get("last")) for name, s in state.items()} == {
            TABLE: ("sync", None),
            OTHER: ("sync", None),
        }
        position, state = _followed(CommitLog(home, "shop", partitions=2), 5, truncate=5).handed
        assert position == 3
        assert state[TABLE]["last"] == {"id": "3", "op": "update", "timestamp": 3}
        assert "last" not in state[OTHER]
        _, state = _followed(CommitLog(home, "shop", partitions=2), 5).handed
        assert state[TABLE]["last"]["op"] == "command"
