"""Exactly once: what a handler stores commits with the acknowledgement, or not at all."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace.coordination import guard
from tailrace.errors import BadInput, Conflict, Fenced, OutcomeUnknown, TimedOut, VersionConflict
from tailrace.events.event import Event
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.queue import Envelope, Message, supervisor
from tailrace.storage.tables import Absent, Append, Key, Put, Update
from tests.log.homes import EVERYWHERE, homes
from tests.queue.conftest import until

home = homes(EVERYWHERE)


def test_everything_commits_with_the_acknowledgement(home: Home) -> None:
    queue = home.queue("q", shards=2)
    home.topic("audit", partitions=1)
    queue.push_many([Message(n, f"k{n % 3}") for n in range(12)])

    def handler(envelope: Envelope) -> None:
        with envelope.transaction() as t:
            t.append(f"Account-{envelope.message % 2}", [Event("Paid", b"%d" % envelope.message)])
            t.send(None, b"%d" % envelope.message, topic="audit")
            t.push("receipts", envelope.message, dedup=f"receipt-{envelope.message}")
            t.write(Put(Key(f"done/{envelope.message}"), {"by": "handler"}, (Absent(),)))

    with queue.tail(handler, threads=4):
        assert queue.drain(60)
    assert sorted(int(r.value or b"") for r in home.topic("audit").records()) == list(range(12))
    assert home.queue("receipts").stats().routed == 12
    paid = [int(e.data) for n in range(2) for e in home.events().stream(f"Account-{n}").read()]
    assert sorted(paid) == list(range(12))
    assert all(home.store.table.get(Key(f"done/{n}")) for n in range(12))
    assert queue.stats().acked == 12


def test_a_handler_that_raises_stores_nothing(home: Home) -> None:
    queue = home.queue("q", shards=1, backoff=0.01)
    queue.push(b"x")

    def handler(envelope: Envelope) -> None:
        with envelope.transaction() as t:
            t.append("Account-1", [Event("Paid")])
            if envelope.attempt == 1:
                raise RuntimeError("after all, no")

    with queue.tail(handler):
        assert queue.drain(30)
    assert home.events().stream("Account-1").version == 1
    assert queue.stats().errored == 1


@pytest.mark.parametrize("landed", [True, False])
def test_events_alone_are_stored_once_though_their_first_write_has_no_answer(
    home: Home, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    write, lost = type(home.store.table).write, list[Any]()

    def unanswered(table: Any, *actions: Any) -> Any:
        if not lost:
            lost.append(actions)
            if landed:
                write(table, *actions)
            raise TimedOut("no answer")
        return write(table, *actions)

    with monkeypatch.context() as patched:
        patched.setattr(type(home.store.table), "write", unanswered)
        with home.transaction() as t:
            t.append("Account-1", [Event("Paid")])
            t.append("Account-2", [Event("Got")], expected=0)
    assert [home.events().stream(f"Account-{n}").version for n in (1, 2)] == [1, 1]


def test_a_conflict_is_told_to_the_handler_and_nothing_is_stored(home: Home) -> None:
    queue, errors = home.queue("q", shards=1, backoff=0.01), list[Any]()
    home.events().stream("Account-1").append([Event("Opened")])
    home.store.table.write(Put(Key("taken"), {"a": 1}, (Absent(),)))
    queue.push(b"x")

    def handler(envelope: Envelope) -> None:
        try:
            with envelope.transaction() as t:
                t.push("other", b"never")
                if envelope.attempt == 1:
                    t.append("Account-1", [Event("Paid")], expected=0)
                if envelope.attempt == 2:
                    t.write(Put(Key("taken"), {"a": 2}, (Absent(),)))
                if envelope.attempt == 3:
                    t.write(Put(Key("$Home"), {}, (Absent(),)))
        except (Conflict, BadInput) as error:
            errors.append(type(error))
            raise

    with queue.tail(handler):
        assert queue.drain(30)
    assert errors == [VersionConflict, Conflict, BadInput]
    assert home.queue("other").stats().routed == 1


def test_a_past_owner_cannot_commit(home: Home) -> None:
    queue, inside, go = home.queue("q", shards=1), threading.Event(), threading.Event()
    told: list[Any] = []
    queue.push(b"x")

    def handler(envelope: Envelope) -> None:
        try:
            with envelope.transaction() as t:
                t.append("Account-1", [Event("Paid")])
                inside.set()
                go.wait(30)
        except Fenced as error:
            told.append(error)

    with queue.tail(handler, threads=1):
        inside.wait(30)
        home.store.run(supervisor.purge(queue._group(), 0))
        go.set()
        until(lambda: told)
    assert home.events().stream("Account-1").version == 0
    now = queue.stats()
    assert (now.acked, now.purged, now.backlog) == (0, 1, 0)


def test_acknowledgements_before_it_are_written_with_it(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.push_many([Message(n, "key") for n in range(20)])

    def handler(envelope: Envelope) -> None:
        if envelope.message % 3 == 0:
            with envelope.transaction() as t:
                t.append("Log-1", [Event(str(envelope.message))])

    with queue.tail(handler):
        assert queue.drain(30)
    assert [e.type for e in home.events().stream("Log-1").read()] == [str(n) for n in range(0, 20, 3)]
    shard = home.store.run(groups.shards(queue._group()))[0]
    assert (shard["position"], shard["queue"]["acked"]) == (20, 20)


def test_a_message_is_acknowledged_once(home: Home) -> None:
    queue, told = home.queue("q", shards=1), list[Any]()
    queue.push(b"x")

    def handler(envelope: Envelope) -> None:
        envelope.ack()
        with pytest.raises(Exception, match="acknowledged already") as caught, envelope.transaction() as t:
            t.append("Account-1", [Event("Paid")])
        told.append(caught.value)

    with queue.tail(handler):
        until(lambda: told)
    assert home.events().stream("Account-1").version == 0


def test_a_transaction_that_was_given_up_and_lands_late_counts_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lands just before the next write of the shard, which must not take it for itself: else the message would be
    handled again, with its effect."""
    queue, effect = home.queue("q", shards=1, backoff=0.01), Key("effect", 0)
    home.queue("receipts", shards=1).make()
    home.store.run(guard.attempt(Put(effect, {"done": []}, (Absent(),))))
    late: list[tuple[Any, ...]] = []
    given_up, landed = threading.Event(), threading.Event()
    write = type(home.store.table).write

    def slow(table: Any, *actions: Any) -> Any:
        keys = [action.key for action in actions]
        if effect in keys and not given_up.is_set():
            late[:] = [actions]
            raise TimedOut("no answer")
        if given_up.is_set() and not landed.is_set() and queue._group().shard(0) in keys:
            landed.set()
            write(table, *late[0])
        return write(table, *actions)

    def handler(envelope: Envelope) -> None:
        try:
            with envelope.transaction() as t:
                t.write(Update(effect, (Append("done", [envelope.attempt]),)))
                t.push("receipts", envelope.attempt)
        except OutcomeUnknown:
            given_up.set()
            raise

    queue.push("x")
    monkeypatch.setattr(guard, "PATIENCE", 0.05)
    monkeypatch.setattr(type(home.store.table), "write", slow)
    with queue.tail(handler, threads=1, ttl=1.0):
        assert queue.drain(60)
    assert landed.is_set()
    item = home.store.run(guard.read(effect))
    assert item is not None
    assert len(item["done"]) == 1
    assert (home.queue("receipts").stats().routed, queue.stats().acked) == (1, 1)
