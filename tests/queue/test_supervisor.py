"""Supervising: pause, play, rebalance, replay, drain, purge, dead letters, stats, upkeep."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.coordination import guard
from tailrace.errors import BadInput, UnknownQueue
from tailrace.home import Home
from tailrace.log import catalog
from tailrace.log.upkeep.retention_holds import held
from tailrace.queue import Envelope, Message, Stats, dead_letters, delayed, supervisor
from tailrace.queue.dedup import dedup_key
from tailrace.queue.lending import Lender
from tailrace.queue.stats import stats
from tailrace.storage.calls import ProtocolRun, Write
from tailrace.storage.tables import Absent, Key, Put, Update
from tests.log.driving import Driven, land, simulated_home
from tests.log.homes import EVERYWHERE, homes
from tests.queue.conftest import until

home = homes(EVERYWHERE)


def adds_up(now: Stats) -> None:
    """What must hold of stats whenever one looks."""
    for one in (now, *now.shards.values()):
        assert one.routed == one.acked + one.dead + one.purged + one.backlog, one
        assert 0 <= one.running <= one.backlog, one
        assert one.emitted >= one.acked + one.dead, one
    assert now.inserted == now.routed + now.delayed
    for name in ("routed", "emitted", "acked", "errored", "dead", "backlog", "running"):
        assert getattr(now, name) == sum(getattr(one, name) for one in now.shards.values())


def test_paused_nothing_is_handled_and_play_goes_on(home: Home) -> None:
    queue, got = home.queue("q", shards=3), list[Any]()
    with queue.tail(lambda envelope: got.append(envelope.message)):
        queue.pause()
        queue.push_many(range(10))
        time.sleep(0.3)
        assert got == []
        assert queue.stats().paused
        queue.play()
        until(lambda: len(got) == 10)
    assert not queue.stats().paused


def test_a_pause_holds_for_what_consumers_have_in_hand(home: Home) -> None:
    """Messages that were emitted before it, and those that are tried again, wait until the queue goes on."""
    queue, began = home.queue("q", shards=3, attempts=1000, backoff=0.001, max_backoff=0.01), list[int]()
    ok = threading.Event()

    def handler(envelope: Envelope) -> None:
        began.append(envelope.message)
        time.sleep(0.002)
        if envelope.message % 2 and not ok.is_set():
            raise ValueError

    queue.push_many(range(300))
    with queue.tail(handler, threads=2) as worker:
        until(lambda: worker.emitted > 200 and worker.errored > 10)
        queue.pause()
        before = len(began)
        time.sleep(0.4)
        assert len(began) <= before + 2, "each thread may have taken one just before"
        assert queue.stats().backlog > 100
        ok.set()
        queue.play()
        assert queue.drain(60)


def test_a_pause_holds_for_loans_and_replays(home: Home) -> None:
    queue, got = home.queue("q", shards=1), list[Any]()
    queue.push_many(range(40))
    lender = Lender(queue, grace=0.1)
    with lender:
        until(lambda: len(lender.take(1, 60.0)) == 1)
        queue.pause()
        assert lender.take(10, 60.0) == []
    queue.play()
    with queue.tail(lambda envelope: got.append(envelope.replayed)):
        assert queue.drain(30)
        queue.pause()
        queue.replay(0)
        time.sleep(0.4)
        assert True not in got
        queue.play()
        until(lambda: got.count(True) == 40)


def test_a_consumer_that_has_not_looked_at_the_queue_for_long_hands_nothing_out(home: Home) -> None:
    """A supervisor waits no longer for one that is stopped, and it may not go on with what it had when it wakes up."""
    queue = home.queue("q", shards=1)
    queue.push_many(range(5))
    with Lender(queue, ttl=60.0, grace=0.1) as lender:
        until(lambda: len(lender.take(1, 60.0)) == 1)
        until(lambda: len(lender._consumer.take(1, home.store.clock())) == 1)
        assert lender._consumer.take(1, home.store.clock() + 5.1) == []


def test_stats_add_up_whenever_one_looks(home: Home) -> None:
    queue, over = home.queue("q", shards=4, attempts=2, backoff=0.001), threading.Event()

    def handler(envelope: Envelope) -> None:
        if envelope.message % 10 == 0:
            raise ValueError

    def pushes() -> None:
        for n in range(40):
            queue.push_many([Message(n * 10 + k, f"k{k}") for k in range(10)])
        over.set()

    with queue.tail(handler), queue.tail(handler):
        threading.Thread(target=pushes).start()
        while not over.is_set() or queue.stats().backlog:
            adds_up(queue.stats())
    now = queue.stats()
    adds_up(now)
    assert (now.acked, now.dead, now.errored) == (360, 40, 80)


def test_more_shards_keep_the_order_of_a_key(home: Home) -> None:
    queue, lock, done = home.queue("q", shards=2), threading.Lock(), dict[str, list[int]]()

    def handler(envelope: Envelope) -> None:
        with lock:
            done.setdefault(str(envelope.shard_key), []).append(envelope.message)

    for n in range(10):
        queue.push_many([Message(n, f"k{k}") for k in range(8)])
    queue.rebalance(shards=5)
    for n in range(10, 20):
        home.queue("q").push_many([Message(n, f"k{k}") for k in range(8)])
    workers = [queue.tail(handler) for _ in range(2)]
    assert queue.drain(60)
    for worker in workers:
        worker.shutdown()
    assert queue.shards == 5
    assert all(some == list(range(20)) for some in done.values())


def test_a_replay_delivers_again_and_moves_no_position(home: Home) -> None:
    queue, got = home.queue("q", shards=2), list[Any]()
    queue.push_many([Message(n, f"k{n % 4}") for n in range(20)])
    with queue.tail(lambda envelope: got.append((envelope.message, envelope.replayed))):
        assert queue.drain(30)
        before = queue.stats()
        replay = queue.replay(datetime.now(UTC) - timedelta(hours=1))
        assert replay.messages == 20
        queue.push(b"live")
        until(lambda: len(got) == 41)
        until(lambda: [one.left for one in queue.replays()] == [0])
    assert sorted(n for n, again in got if again) == list(range(20))
    assert queue.stats().acked == before.acked + 1
    queue.upkeep()
    assert queue.replays() == []


def test_a_replay_by_offset_goes_on_after_its_consumer_went(home: Home) -> None:
    queue, got = home.queue("q", shards=1), list[int]()
    queue.push_many(range(30))
    with queue.tail(lambda envelope: None):
        assert queue.drain(30)
    queue.replay(5, 25)

    def handler(envelope: Envelope) -> None:
        assert envelope.replayed
        time.sleep(0.005)
        got.append(envelope.offset)

    for _ in range(2):
        seen = len(got)
        with queue.tail(handler, threads=1, batch_size=3):
            until(lambda seen=seen: len(got) in (20, *range(seen + 1, 20)))  # type: ignore[misc]
    with queue.tail(handler):
        until(lambda: [one.left for one in queue.replays()] == [0])
    assert sorted(set(got)) == list(range(5, 25))
    assert len(got) == 20
    with pytest.raises(BadInput, match="ends before it starts"):
        queue.replay(9, 3)
    with pytest.raises(UnknownQueue):
        home.queue("none").replay(0)


def test_purge_asks_first(home: Home) -> None:
    queue, got = home.queue("q", shards=2), list[Any]()
    queue.push_many(range(10))
    with pytest.raises(BadInput, match="would drop 10 messages"):
        queue.purge()
    assert queue.purge(sure=True) == 10
    queue.push(b"after")
    with queue.tail(lambda envelope: got.append(envelope.message)):
        assert queue.drain(30)
    now = queue.stats()
    adds_up(now)
    assert (got, now.purged, now.acked) == ([b"after"], 10, 1)


@pytest.mark.parametrize("when", ["landed", "late", "lost"])
def test_a_purge_whose_write_had_no_answer_is_counted_once_and_told(when: str) -> None:
    """The write lands at once, or just before the next attempt, or never."""
    home, _ = simulated_home()
    queue = home.queue("q", shards=1)
    with queue.tail(lambda envelope: None):
        queue.push("handled")
        assert queue.drain(30)
    queue.push_many(["dropped", "dropped, too"])
    steps, sent = Driven(home.store, supervisor.purge(queue._group(), int(time.time() * 1000))), list[Any]()
    while not steps.done:
        if isinstance(steps.call, Write) and isinstance(steps.call.actions[0], Update):
            if when == "late" and len(sent) == 1:
                land(home.store, sent[0])
            sent.append(steps.call)
            if len(sent) == 1:
                steps.lose()
                if when == "landed":
                    land(home.store, sent[0])
                continue
        steps.step()
    assert (steps.run(), queue.stats().purged) == (2, 2)
    told = queue.explain(0, 1)
    assert (told.state, told.moments[-1].what) == ("purged", "purged")


def test_dead_letters_are_put_back_once(home: Home) -> None:
    queue, fails, got = home.queue("q", shards=1, attempts=1), [True], list[Any]()
    queue.push_many([Message({"n": n}, "key") for n in range(3)])

    def handler(envelope: Envelope) -> None:
        if fails[0]:
            raise ValueError("down")
        got.append((envelope.message["n"], envelope.shard_key))

    with queue.tail(handler):
        assert queue.drain(30)
        fails[0] = False
        assert [letter.number for letter in queue.dead()] == [0, 1, 2]
        assert queue.requeue(1) == 1
        assert queue.requeue() == 2
        assert queue.requeue() == 0
        with pytest.raises(BadInput, match="no dead letters"):
            queue.requeue(1)
        assert queue.drain(30)
    assert sorted(got) == [(0, "key"), (1, "key"), (2, "key")]
    assert all(letter.requeued for letter in queue.dead())


def test_a_letter_whose_numbers_are_none_hides_no_other(home: Home) -> None:
    """Any producer may write into the topic of the dead letters."""
    letters = home.topic("emails-dead", partitions=1)
    with letters.producer() as out:
        for number in (b"seven", b"-1", b"\xb2", b"9" * 5000, b"7"):
            out.send(None, b"m", headers=[("queue", b"emails"), ("offset", number)])
    home.queue("emails").push(b"made")
    assert [letter.offset for letter in home.queue("emails").dead()] == [-1, -1, -1, -1, 7]


def test_upkeep_removes_what_is_acknowledged_and_nothing_else(home: Home) -> None:
    queue = home.queue("q", shards=1, retention_ms=1)
    for _ in range(300):
        queue.push(b"x" * 300)
    time.sleep(0.01)
    home.upkeep("q")
    assert queue.topic().ends()[0][0] == 0, "nothing is acknowledged, so all is kept"
    with queue.tail(lambda envelope: None):
        assert queue.drain(30)
    queue.push(b"new")
    until(lambda: home.upkeep("q")[0].error is None and queue.topic().ends()[0][0] > 0)
    got: list[Any] = []
    with queue.tail(lambda envelope: got.append(envelope.message)):
        assert queue.drain(30)
    assert got == [b"new"]
    adds_up(queue.stats())


def test_upkeep_in_the_background_tends_queues(home: Home) -> None:
    home.topic("other", partitions=1)
    queue = home.queue("q", shards=1)
    home.store.table.write(Put(dedup_key(queue.topic().id, "old"), {"id": "old", "token": "", "page": -1}, (Absent(),)))
    assert queue.has("old")
    background = home.start_upkeep(every=0.05)
    until(lambda: not queue.has("old"))
    background.stop()
    assert [one.error for one in background.last] == [None, None]


@pytest.mark.parametrize("step", ["groups.make", "retention_holds.hold", "existence.settle"])
def test_a_queue_whose_creator_was_killed_keeps_what_is_not_acknowledged(
    home: Home, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"tailrace.queue.queue.{step}", killed)
    with pytest.raises(KeyboardInterrupt):
        home.queue("q", shards=1, retention_ms=1)
    monkeypatch.undo()
    queue = home.queue("q")
    queue.push(b"kept")
    assert home.store.run(held(queue.topic().id, [0])) == {0: 0}


def test_a_scrub_finds_nothing_and_a_copy_goes_on(home: Home, tmp_path: Path) -> None:
    queue, got = home.queue("q", shards=2, attempts=1), list[Any]()
    queue.push_many([Message(n, f"k{n}", dedup=str(n)) for n in range(5)])
    queue.push(b"later", not_before=0.01)
    with queue.tail(lambda envelope: 1 / envelope.message if envelope.message == 0 else None):
        assert queue.drain(30)
    queue.push_many([Message(n, "k") for n in range(5, 8)])
    queue.replay(0)
    report = home.scrub()
    assert not report.found.damages, report.found.damages
    home.copy(tmp_path / "copy")
    with tailrace.open(tmp_path / "copy") as copied:
        again = copied.queue("q")
        assert again.push(b"x", dedup="1").duplicate
        with again.tail(lambda envelope: got.append((envelope.replayed, envelope.message))):
            until(lambda: len(got) == 12)
        assert again.stats().dead == 1


def test_a_pause_holds_for_shards_that_are_added_meanwhile(home: Home) -> None:
    """Also if the process that adds them is killed right after, or knows nothing of queues."""
    queue, got = home.queue("q", shards=1), list[Any]()
    with queue.tail(lambda envelope: got.append(envelope.message), ttl=1.0) as worker:
        until(lambda: worker.shards == [0])
        queue.pause()
        queue.topic().grow(4)
        until(lambda: worker.shards == [0, 1, 2, 3])
        queue.push_many(range(8))
        with queue.tail(lambda envelope: got.append(envelope.message), ttl=1.0) as other:
            until(lambda: len(other.shards) == 2)  # it has looked, and taken what is its
            assert (got, queue.stats().paused, queue.stats().emitted) == ([], True, 0)
            assert all(shard.paused for shard in queue.stats().shards.values())
            queue.play()
            assert queue.drain(60)
    assert sorted(got) == list(range(8))


def test_a_message_that_is_moved_while_one_looks_is_in_one_number(home: Home) -> None:
    """Else `drain` would find nothing, although it waits."""
    queue, place, pushed = home.queue("q", shards=1), 0, 0
    while True:
        queue.push("x", not_before=60)
        pushed += 1
        looking, calls = ProtocolRun(stats(queue._group(), time.time()), home.store.clock), 0
        while (call := looking.next_call()) is not None:
            if calls == place:
                home.store.run(delayed.move_due(queue.topic().log, int(time.time() + 120) * 1000))
            looking.answer = home.store.answer(call)
            calls += 1
        now = looking.result
        assert (now.inserted, now.backlog + now.delayed) == (pushed, pushed), f"moved before call {place}"
        place += 1
        if place > calls:
            return


def test_many_dead_letters_are_put_back_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their marks are in items of a bounded size; those that an older version wrote into the first item hold."""
    monkeypatch.setattr(dead_letters, "MARKS", 10)
    queue = home.queue("q", shards=1, attempts=1)
    queue.push_many(range(23))
    with queue.tail(lambda envelope: 1 / 0, threads=1):
        assert queue.drain(60)
    found = home.store.run(catalog.describe("q-dead"))
    old = Put(Key(f"$Requeued-{found.id}"), {"numbers": {"3": True, "15": True}}, (Absent(),))
    home.store.run(guard.attempt(old))
    assert queue.requeue(7, 11, 20) == 3
    with pytest.raises(BadInput, match=r"\[3, 7, 15\]"):
        queue.requeue(3, 7, 8, 15)
    assert queue.requeue() == 23 - 5
    assert queue.requeue() == 0
    assert queue.stats().routed == 23 + 21
    sizes = [len(item["numbers"]) for item in home.store.run(guard.read_all(f"$Requeued-{found.id}"))]
    assert sizes == [11, 9, 3]


def test_what_fails_again_is_not_put_back_twice_by_one_call(home: Home) -> None:
    queue = home.queue("q", shards=1, attempts=1)
    queue.push_many(range(60))
    with queue.tail(lambda envelope: 1 / 0, threads=1):
        assert queue.drain(60)
        assert queue.requeue() == 60
        assert queue.drain(60)
    assert queue.stats().dead == 120
