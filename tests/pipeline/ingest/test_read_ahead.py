"""Reading ahead, without Spark: what is kept while a source is copied, and how it comes behind the copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.contract import Changes, Reader
from tailrace.adaptors.rows.rows import make_rows, messages_of
from tailrace.errors import PositionLost, Unavailable
from tailrace.home import Home
from tailrace.log.record import Mode, Op
from tailrace.pipeline.ingest import read_ahead
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.following import SourceReceiver
from tailrace.pipeline.ingest.read_ahead import ReadAhead
from tailrace.pipeline.runtime.status import Status
from tests.pipeline.runs import until
from tests.pipeline.toys import SourceSettings, ToySource

TABLE, IDS = "shop.orders", 3


class Forgetful(ToySource):
    """Changes of a few ids, of which those up to `forgotten` are gone; `away` is how often it does not answer."""

    reads_ahead = True
    forgotten = 0
    away = 0

    def follow_ahead(self, position: int) -> Iterator[Changes]:
        return self.follow(position, [])

    def follow(self, position: int, namespaces: Any, split: str = "") -> Iterator[Changes]:
        if type(self).away:
            type(self).away -= 1
            raise Unavailable("the toy shop is closed")
        if position < type(self).forgotten:
            raise PositionLost("what came then is forgotten")
        yield from super().follow(position, namespaces)

    def _change(self, position: int) -> pa.RecordBatch:
        return rows(position % IDS, f"change {position}", Mode.SYNC)


def rows(id: int, text: str, mode: Mode) -> pa.RecordBatch:
    columns = pa.record_batch({"id": pa.array([id]), "v": pa.array([text])})
    return make_rows(TABLE, columns, ["id"], op=Op.UPDATE if mode == Mode.SYNC else Op.INSERT, mode=mode)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    Forgetful.forgotten = Forgetful.away = 0
    with tailrace.open(tmp_path / "home") as made:
        yield made


class Copied:
    """A commit log of a source with so many changes, all of which are read ahead of the copy of each id."""

    def __init__(self, home: Home, changes: int) -> None:
        self.home, self.log, self.status = home, CommitLog(home, "shop", partitions=2), Status("shop")
        self._changes = changes
        if not self.log.begun:
            self.log.begin(0)
        self.watched: list[Reader] = []

    def reader(self) -> Forgetful:
        return Forgetful(SourceSettings(changes=self._changes))

    def ahead(self) -> ReadAhead:
        return ReadAhead(self.log, self.reader, self.status, self.watched.append)

    def kept(self) -> Any:
        return CommitLog(self.home, "shop--ahead", partitions=2).position

    def copy(self) -> None:
        for id in range(IDS):
            assert self.log.take_in([rows(id, "copied", Mode.COPY)], self.log.position)

    def texts(self) -> dict[str, list[str]]:
        """What the commit log has of each id, in its order."""
        self.log.refresh()
        found: dict[str, list[str]] = {}
        for fetched in self.log.topic.fetch():
            for message in messages_of(fetched.data):
                found.setdefault(message.id, []).append(message.data["v"])
        return found


def expected(changes: int) -> dict[str, list[str]]:
    return {str(id): ["copied", *(f"change {n}" for n in range(1, changes + 1) if n % IDS == id)] for id in range(IDS)}


def test_changes_come_behind_the_copy_though_they_are_read_before_it(home: Home) -> None:
    it = Copied(home, 10)
    ahead = it.ahead()
    with ahead.reading():
        until(lambda: it.kept() == 10, 20)
        Forgetful.forgotten = 10
        it.copy()
    ahead.take_over()
    assert it.texts() == expected(10)
    assert it.log.position == 10
    assert not it.ahead().begun
    assert "shop--ahead-log" not in home.topics()
    assert it.watched
    reader = Forgetful(SourceSettings(changes=12))
    SourceReceiver(reader, it.log, it.status, Event(), lambda found: None).run(once=True)
    assert it.texts() == expected(12)


def test_without_it_the_position_is_dead(home: Home) -> None:
    it = Copied(home, 10)
    Forgetful.forgotten = 10
    with pytest.raises(PositionLost):
        SourceReceiver(it.reader(), it.log, it.status, Event(), lambda found: None).run(once=True)


@pytest.mark.parametrize("dies_at", range(4))
def test_a_run_that_dies_while_it_takes_over(home: Home, dies_at: int) -> None:
    """Each change is in the commit log once, whatever had been taken over."""
    it = Copied(home, 30)
    with it.ahead().reading():
        until(lambda: it.kept() == 30, 20)
        it.copy()
    taken, left = CommitLog.take_in, [dies_at]

    def dying(log: CommitLog, *given: Any, **more: Any) -> bool:
        if log.pipeline == "shop" and left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= log.pipeline == "shop"
        return taken(log, *given, **more)

    small = patch.object(read_ahead, "MAX_TAKEN_OVER_BYTES", 1)
    with small, patch.object(CommitLog, "take_in", dying), pytest.raises(KeyboardInterrupt):
        it.ahead().take_over()
    again = Copied(home, 35)
    assert again.ahead().begun
    ahead = again.ahead()
    with ahead.reading():
        until(lambda: again.kept() == 35, 20)
    ahead.take_over()
    assert again.texts() == expected(35)
    assert again.log.position == 35


def test_a_second_copy_begins_where_the_log_is(home: Home) -> None:
    it = Copied(home, 5)
    for changes in (5, 9):
        it._changes = changes
        ahead = it.ahead()
        with ahead.reading():
            until(lambda changes=changes: it.kept() == changes, 20)
            if changes == 5:
                it.copy()
        ahead.take_over()
    assert it.texts() == expected(9)


def test_a_source_that_is_away_is_asked_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "RETRY_PAUSE_SECONDS", 0.01)
    it, Forgetful.away = Copied(home, 3), 3
    with it.ahead().reading():
        until(lambda: it.kept() == 3, 20)
    assert it.status.error == ""


def test_what_is_lost_is_said(home: Home) -> None:
    it, Forgetful.forgotten = Copied(home, 3), 2
    with pytest.raises(PositionLost, match="forgotten"), it.ahead().reading():
        until(lambda: it.status.error, 20)
