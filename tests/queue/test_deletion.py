"""Deleting a queue: all of it goes, at once, however often the deletion is cut off, and nothing comes back."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tailrace.coordination import guard
from tailrace.errors import BadInput, BadName, UnknownQueue
from tailrace.home import Home
from tailrace.queue import Envelope, Message, dead_letters, deletion, diary, replay
from tailrace.queue.lanes import Entry
from tailrace.queue.window import Window
from tailrace.storage.calls import Store
from tests.log.driving import Driven, simulated_home
from tests.queue.conftest import until

SHARED = {"$Topics", "$Queues", "$Groups"}
"""Items of the home that list names; what they list is looked at apart."""


def used(home: Home) -> Any:
    """A queue that has something of everything."""
    queue = home.queue("q", shards=2, attempts=1)
    queue.push_many([Message(n, f"k{n % 3}", dedup=str(n)) for n in range(6)])
    queue.push("later", not_before=3600)

    def handler(envelope: Envelope) -> None:
        if envelope.message == 0:
            raise ValueError("no")

    with queue.tail(handler, name="one"):
        until(lambda: not queue.stats().backlog)
    queue.push_many([Message(n, "k") for n in range(6, 9)])
    queue.replay(0)
    queue.requeue(0)
    return queue


def left_of(store: Store, before: set[Any]) -> set[str]:
    """What is in the table that was not there before, but for the items that only list names."""
    table: Any = store.table
    lists = {name for key in table.items if key.p in SHARED for name in table.items[key]["names"]}
    return {key.p for key in set(table.items) - before if key.p not in SHARED} | lists


def test_all_of_it_goes_however_often_a_deletion_is_cut_off() -> None:
    cut = 0
    while True:
        home, _ = simulated_home("joined")
        before = set(home.store.table.items)
        queue = used(home)
        id = queue.topic().id
        steps = Driven(home.store, deletion.delete(queue.topic().described))
        for _ in range(cut):
            if not steps.done:
                steps.step()
        steps.steps.close()
        try:
            home.queue("q").delete(sure=True)
        except UnknownQueue:
            assert steps.done
        left = {p for p in left_of(home.store, before) if not p.startswith("$Settings-")}
        assert (left, dict(home.store.objects.items), home.topics(), home.queues()) == (set(), {}, [], []), cut
        assert home.queue("q", shards=1).topic().id != id
        if steps.done:
            return
        cut += 1


def test_a_queue_of_the_same_name_starts_empty(home: Home) -> None:
    queue = used(home)
    with pytest.raises(BadInput, match=r"with 5 messages that are not done; delete\(sure=True\) does"):
        queue.delete()
    queue.delete(sure=True)
    with pytest.raises(UnknownQueue):
        home.queue("q").stats()
    with pytest.raises(UnknownQueue):
        home.queue("q").delete(sure=True)
    again, got = home.queue("q", shards=3), list[Any]()
    assert (again.stats().inserted, list(again.dead()), again.replays(), again.has("1")) == (0, [], [], False)
    assert again.settings.attempts == 5
    again.push("new", dedup="1")
    with again.tail(lambda envelope: got.append(envelope.message), name="one"):
        assert again.drain(30)
    assert got == ["new"]


def test_the_topic_of_a_queue_is_not_deleted_alone(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.push("x")
    with pytest.raises(BadInput, match="`tailrace queue delete q` deletes both"):
        home.delete_topic("q")
    assert queue.stats().backlog == 1


def test_workers_of_a_deleted_queue_end_and_leave_nothing(home: Home) -> None:
    queue, working, go = home.queue("q", shards=2, attempts=1), threading.Event(), threading.Event()

    def handler(envelope: Envelope) -> None:
        working.set()
        go.wait(30)
        raise ValueError("too late")

    queue.push_many(range(4))
    worker = queue.tail(handler, ttl=1.0)
    assert working.wait(30)
    id = queue.topic().id
    home.queue("q").delete(sure=True)
    go.set()
    assert worker.join(30)
    assert isinstance(worker.error, UnknownQueue)
    assert "queue 'q' was deleted" in str(worker.error)
    worker.shutdown()
    with pytest.raises(UnknownQueue, match="the next push makes it again"):
        queue.push("x")
    assert home.topics() == [], "the late failure has made no topic of dead letters"
    scan = home.store.table.scan(None)
    assert [item["p"] for item in scan if id in item["p"] and not item["p"].startswith("$Settings-")] == []
    assert queue.push("x").offset == 0


def test_a_delayed_push_to_a_deleted_queue_is_refused(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.topic()
    home.queue("q").delete(sure=True)
    with pytest.raises(UnknownQueue):
        queue.push("later", not_before=60)


def test_settings_of_a_deleted_queue_are_not_taken_for_changed(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.topic()
    home.queue("q").delete(sure=True)
    with pytest.raises(UnknownQueue, match="was deleted"):
        queue.configure(attempts=7)


def test_dead_letters_go_on_when_their_topic_was_deleted(home: Home) -> None:
    queue = home.queue("q", shards=1, attempts=1)
    queue.push("first")

    def handler(envelope: Envelope) -> None:
        raise ValueError(envelope.message)

    with queue.tail(handler):
        assert queue.drain(30)
        home.delete_topic("q-dead")
        queue.push("second")
        assert queue.drain(30)
    assert [letter.reason for letter in queue.dead()] == ["ValueError: second"]


def test_a_topic_of_others_is_neither_used_nor_deleted(home: Home) -> None:
    home.topic("q-dead", 1).append([(b"writer", b"a pipeline's letter")])
    with pytest.raises(BadName, match="the topic 'q-dead' exists, holds other things"):
        home.queue("q").push("x")
    home.queue("p").push("x")
    home.topic("p-dead", 1).append([(b"writer", b"a pipeline's letter")])
    assert list(home.queue("p").dead()) == []
    home.queue("p").delete(sure=True)
    assert home.topics() == ["p-dead", "q-dead"]


def test_a_topic_of_dead_letters_that_is_deleted_while_one_is_buried(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, real, calls = home.queue("q", shards=1, attempts=1), dead_letters.log_of, list[str]()

    def log_of(*given: Any) -> Any:
        log = real(*given)
        calls.append(log.id)
        if len(calls) == 1:
            home.delete_topic("q-dead")
        return log

    monkeypatch.setattr(dead_letters, "log_of", log_of)
    queue.push("x")
    with queue.tail(lambda envelope: 1 / 0):
        assert queue.drain(30)
    assert len(set(calls)) == 2
    assert [letter.message for letter in queue.dead()] == [b'"x"']


def test_what_comes_too_late_is_not_written(home: Home) -> None:
    queue = home.queue("q", shards=1)
    id, run = queue.topic().id, home.store.run
    queue.delete(sure=True)
    late = diary.Diary(id, "worker", time.time)
    late.failed(Entry(None, 0, 0, 0, None, b"", 0, False), "too late")
    run(late.write())
    run(guard.attempt(*diary.purged(id, 0, 1, 0, Window(), "")))
    with pytest.raises(UnknownQueue, match="was deleted"):
        run(replay.start(id, {0: (0, 1)}))
    with pytest.raises(UnknownQueue, match="queue 'q' was deleted"):
        dead_letters.log_of(home.store, "q", id)
    assert home.topics() == []
    assert [item["p"] for item in home.store.table.scan(None) if id in item["p"]] == [f"$Settings-{id}"]
