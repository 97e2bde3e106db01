"""The keeper: upkeep of a home, one at a time, no faster than it may, in the background of whoever wants it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.coordination.lease import Lease, lease_key
from tailrace.errors import Busy, Fenced, UnknownTopic
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.upkeep.scheduler import LEASE, HomeUpkeep, UpkeepPace
from tailrace.log.upkeep.topic_upkeep import UpkeepResult
from tests.log.driving import simulated_home
from tests.log.homes import EVERYWHERE, opened, until


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 300)


def filled(home: Home, name: str = "t", appends: int = 60) -> None:
    topic = home.topic(name, partitions=2)
    for n in range(appends):
        topic.append([(b"%d" % n, b"v%d" % n)])


def test_upkeep_of_a_home_on_disk(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        filled(home)
        filled(home, "u", 2)
        before = sorted(home.topic("t").records())
        first = home.upkeep()
        assert [(one.topic, one.merged_pages > 0) for one in first] == [("t", True), ("u", False)]
        second = home.upkeep()
        assert second[0].cleaned_chunks > 20
        assert second[0].merged_pages == 0
        assert sorted(home.topic("t").records()) == before
        assert all(one.idle for one in home.upkeep("u"))


@pytest.fixture(params=EVERYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with opened(request, tmp_path) as home:
        yield home


def test_upkeep_on_every_table(anywhere: Home) -> None:
    topic = anywhere.topic("t", partitions=2, compact=True)
    for n in range(150):
        topic.append([(b"%d" % (n % 30), b"v%d" % n)])
    want = {r.key: r.value for r in topic.records()}
    done = [anywhere.upkeep("t")[0] for _ in range(2)]
    assert done[0].compacted_records > 80
    assert done[1].cleaned_chunks > 80
    assert {r.key: r.value for r in topic.records()} == want


def test_only_the_topics_named_are_kept_up() -> None:
    home = simulated_home()[0]
    filled(home)
    filled(home, "u")
    assert [one.topic for one in home.upkeep("u")] == ["u"]
    with pytest.raises(UnknownTopic, match="'nope'"):
        home.upkeep("nope")


def test_only_one_process_is_at_it() -> None:
    home = simulated_home()[0]
    filled(home)
    with Lease(home.store, LEASE) as other:
        assert other.acquire()
        with pytest.raises(Busy, match="by process"):
            home.upkeep(wait=0)
    assert home.upkeep(wait=0)


def test_who_loses_the_lease_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    home = simulated_home("objects")[0]
    filled(home)
    written: list[int] = []
    monkeypatch.setattr(Lease, "held", property(lambda lease: lease._held is not None and not written))
    with pytest.raises(Fenced, match="taken over"):
        HomeUpkeep(home.store, UpkeepPace(told=lambda topic, bytes: written.append(bytes))).run()
    assert len(written) == 1


def test_who_loses_the_lease_while_it_holds_its_rate_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    home, lost = simulated_home("objects")[0], threading.Event()
    filled(home)
    monkeypatch.setattr("tailrace.log.upkeep.scheduler.LEASE_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(Lease, "held", property(lambda lease: lease._held is not None and not lost.is_set()))
    written: list[float] = []

    def told(topic: str, bytes: int) -> None:
        if bytes:
            written.append(time.monotonic())
            threading.Timer(0.1, lost.set).start()

    with pytest.raises(Fenced, match="taken over"):
        HomeUpkeep(home.store, UpkeepPace(10, told)).run()
    assert len(written) == 1
    assert time.monotonic() - written[0] < 30, "not only once it may write again"


def test_it_writes_no_faster_than_it_may(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        filled(home)
        began = time.monotonic()
        written: list[int] = []
        done = HomeUpkeep(home.store, UpkeepPace(5_000, lambda topic, bytes: written.append(bytes))).run()
        assert sum(written) == done[0].written_bytes > 1000
        assert time.monotonic() - began >= sum(written) / 5_000


def test_trouble_with_one_topic_does_not_stop_the_others() -> None:
    home = simulated_home("objects")[0]
    filled(home, "a")
    filled(home, "b")
    home.topic("a").configure(compact=True)
    objects: Any = home.store.objects
    prefix = f"topics/{home.topic('a').id}/"
    for name in [name for name in objects.items if name.startswith(prefix)]:
        objects.items[name] = bytes(len(objects.items[name]))
    done = home.upkeep()
    assert "restore it from a backup" in (done[0].error or "")
    assert done[1].error is None
    assert done[1].merged_pages > 0


def test_what_deleted_topics_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    home = simulated_home("objects")[0]
    filled(home)
    monkeypatch.setattr("tailrace.log.catalog.purge", lambda: (call for call in ()))
    id = home.topic("t").id
    home.delete_topic("t")
    assert list(home.store.objects.list(f"topics/{id}/"))
    monkeypatch.undo()
    assert home.upkeep() == []
    assert not list(home.store.objects.list(f"topics/{id}/"))


def test_it_can_be_stopped_in_the_middle(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        filled(home)
        keeper = HomeUpkeep(home.store, UpkeepPace(1.0, lambda topic, bytes: keeper.stop()))
        (done,) = keeper.run()
        assert done.error == "stopped before it was finished"
        assert len(list(home.topic("t").records())) == 60


# --- in the background
def test_a_library_does_no_upkeep_unless_it_is_told_to(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        filled(home)
        assert len(list(home.topic("t").records())) == 60
        assert "tailrace-upkeep" not in {thread.name for thread in threading.enumerate()}
        assert home.store.table.get(lease_key(LEASE)) is None, "and never did"


def test_in_the_background_of_an_open_home(tmp_path: Path) -> None:
    with tailrace.open(tmp_path) as home:
        filled(home)
        background = home.start_upkeep(every=0.05)
        until(lambda: any(one.cleaned_chunks for one in background.last))
        assert len(list(home.topic("t").records())) == 60
    assert not [thread for thread in threading.enumerate() if thread.name == "tailrace-upkeep"]


def test_what_fails_in_the_background_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def fail(self: HomeUpkeep) -> list[Any]:
        calls.append(1)
        raise ZeroDivisionError("not today")

    monkeypatch.setattr(HomeUpkeep, "run", fail)
    with tailrace.open(tmp_path) as home:
        home.start_upkeep(every=0.02)
        until(lambda: len(calls) > 2)
    assert "upkeep failed" in caplog.text
    assert "not today" in caplog.text


def test_trouble_with_one_topic_in_the_background_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise nobody hears that a topic grows for ever."""
    errors, calls = ["its page is gone", "its page is gone", None, "its page is gone"], list[int]()

    def run(self: HomeUpkeep) -> list[UpkeepResult]:
        calls.append(1)
        error = errors[min(len(calls), len(errors)) - 1]
        return [UpkeepResult("orders", error=error), UpkeepResult("clicks")]

    monkeypatch.setattr(HomeUpkeep, "run", run)
    with tailrace.open(tmp_path) as home:
        home.start_upkeep(every=0.02)
        until(lambda: len(calls) > 6)
    assert caplog.text.count("upkeep of 'orders' failed and is tried again in 0 s: its page is gone") == 2
    assert "clicks" not in caplog.text
