"""`queue.explain`: one message's life, and what of it was not recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tailrace.errors import BadInput, OutOfRange
from tailrace.home import Home
from tailrace.queue import Envelope, Message
from tailrace.queue.window import MOST_MARKS, Window
from tests.queue.conftest import until

ZONED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+00:00  pushed")


def handler(envelope: Envelope) -> None:
    if envelope.message == "bad" or (envelope.message == "flaky" and envelope.attempt < 3):
        raise ValueError(f"no, for the {envelope.attempt}. time")


def test_a_message_that_goes_well(home: Home) -> None:
    queue = home.queue("q", shards=1, pusher="shop-web-1")
    queue.push("good", "a")
    assert queue.explain(0, 0).state == "waiting"
    with queue.tail(handler, name="w1"):
        assert queue.drain(30)
    told = queue.explain(0, 0)
    assert (told.state, told.shard_key, told.attempts) == ("acked", b"a", 0)
    assert [one.what for one in told.moments] == ["pushed by shop-web-1", "handed to w1, and acked"]
    assert told.moments[1].until is not None
    assert told.pushed <= told.moments[1].at <= told.moments[1].until
    assert ZONED.search(str(told))
    assert len(told.not_recorded) == 1
    assert "between the two times" in told.not_recorded[0]


def test_each_error_and_who_met_it(home: Home) -> None:
    queue = home.queue("q", shards=1, attempts=3, backoff=0.001)
    queue.push_many([Message("flaky", "a"), Message("bad", "b")])
    with queue.tail(handler, name="w1"):
        assert queue.drain(30)
    flaky, bad = queue.explain(0, 0), queue.explain(0, 1)
    errors = [f"attempt {n} by w1 failed: ValueError: no, for the {n}. time" for n in (1, 2, 3)]
    assert (flaky.state, flaky.attempts) == ("acked", 2)
    assert [one.what for one in flaky.moments if "failed" in one.what] == errors[:2]
    assert (bad.state, bad.attempts, bad.reason) == ("dead", 3, "ValueError: no, for the 3. time")
    assert [one.what for one in bad.moments if "attempt" in one.what] == errors
    assert bad.moments[-1].what == "put with the dead letters by w1: ValueError: no, for the 3. time"
    assert "who pushed it" in bad.not_recorded[0]


def test_two_consumers_had_it(home: Home) -> None:
    queue = home.queue("q", shards=1, attempts=3, backoff=600)
    queue.push("flaky")
    with queue.tail(handler, name="w1"):
        until(lambda: queue.stats().errored == 1)
    assert (queue.explain(0, 0).state, queue.explain(0, 0).attempts) == ("waiting", 1)
    with queue.tail(lambda envelope: None, name="w2"):
        assert queue.drain(30)
    told = [one.what for one in queue.explain(0, 0).moments]
    assert told[1] == "attempt 1 by w1 failed: ValueError: no, for the 1. time"
    assert told[2] == "handed to w2, and acked"


def test_a_purge_and_a_delay(home: Home) -> None:
    queue = home.queue("q", shards=1, pusher="shop")
    with queue.tail(lambda envelope: None):
        queue.push("later", not_before=0.05)
        assert queue.drain(30)
    queue.push("dropped")
    queue.purge(sure=True)
    later, dropped = queue.explain(0, 0), queue.explain(0, 1)
    assert [one.what for one in later.moments[:2]] == ["pushed by shop", "due: moved into its shard"]
    assert (later.moments[1].at - later.moments[0].at).total_seconds() >= 0.05
    assert (dropped.state, dropped.moments[-1].what) == ("purged", "purged")


def test_what_older_versions_wrote_is_said_not_to_be_recorded(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.push("good")
    with queue.tail(lambda envelope: None):
        assert queue.drain(30)
    topic = queue.topic()
    from tailrace.coordination import guard
    from tailrace.queue.diary import owners
    from tailrace.storage.tables import Delete, Key

    for one in home.store.run(owners(topic.id, 0)):
        home.store.run(guard.attempt(Delete(Key(f"$Owners-{topic.id}-0", one.epoch))))
    told = queue.explain(0, 0)
    assert told.state == "acked"
    assert "not recorded: who acked it, and when" in str(told)


def test_upkeep_removes_the_diary_with_its_messages(home: Home) -> None:
    queue = home.queue("q", shards=1, attempts=2, backoff=0.001, retention_ms=1)
    for _ in range(300):
        queue.push(b"x" * 300)
    seen: Iterator[int] = iter(range(1000))

    def once(envelope: Envelope) -> None:
        if envelope.attempt == 1 and next(seen) < 3:
            raise ValueError("no")

    with queue.tail(once):
        assert queue.drain(30)
    queue.push(b"new")
    assert _failures(home, queue.topic().id)
    until(lambda: home.upkeep("q")[0].error is None and queue.topic().ends()[0][0] > 10)
    home.upkeep("q")
    floor = queue.topic().ends()[0][0]
    assert all(i >= floor * 1024 for i in _failures(home, queue.topic().id))


def _failures(home: Home, topic_id: str) -> list[int]:
    from tailrace.coordination import guard

    return [item["i"] for item in home.store.run(guard.read_all(f"$Failures-{topic_id}-0"))]


def test_what_cannot_be_explained(home: Home) -> None:
    queue = home.queue("q", shards=1)
    with pytest.raises(OutOfRange, match="has no messages"):
        queue.explain(0, 0)
    queue.push("one")
    with pytest.raises(OutOfRange, match="0 to 0, not 1"):
        queue.explain(0, 1)
    with pytest.raises(BadInput, match="a pusher is a text"):
        home.queue("q", pusher="")


def test_marks_are_few_and_older_ones_are_further_apart() -> None:
    window = Window()
    for n in range(1, 1001):
        window.position = n
        window.mark(n * 1000)
        window.mark(n * 1000 + 1)
    times = [ms for ms, _ in window.marks]
    assert len(times) == MOST_MARKS
    assert times[-1] == 1_000_000
    assert all(position * 1000 == ms for ms, position in window.marks)
    assert times[-1] - times[-2] <= 5000
    assert Window.of(1000, window.stored(1)).marks == window.marks
