"""Pushing: one, many, once, later."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tailrace.errors import AlreadyThere, BadInput, BadName, BadSetting, TooLarge, UnknownQueue
from tailrace.events.event import Event
from tailrace.home import Home
from tailrace.log.record import partition_of
from tailrace.queue import Message, Queue, dedup
from tailrace.storage.calls import Steps
from tests.queue.conftest import until


def messages(queue: Queue) -> list[bytes | None]:
    return sorted(record.value or b"" for record in queue.topic().records())


def test_a_push_makes_the_queue(home: Home) -> None:
    emails = home.queue("emails")
    with pytest.raises(UnknownQueue, match="no queue 'emails'"):
        emails.stats()
    pushed = emails.push({"to": "ada"}, "ada")
    assert (pushed.shard, pushed.offset) == (partition_of(b"ada", 24), 0)
    assert emails.shards == 24
    assert home.queues() == ["emails"]
    assert messages(emails) == [b'{"to":"ada"}']


def test_a_queue_that_must_be_there(home: Home) -> None:
    home.queue("emails").topic(create=True)
    home.topic("plain", partitions=1)
    for name in ("email", "plain"):
        with pytest.raises(UnknownQueue, match=f"no queue '{name}'"):
            home.queue(name, create=False).push("x")
    with pytest.raises(UnknownQueue, match="did you mean 'emails'"):
        home.queue("email", create=False).tail(print)
    with pytest.raises(UnknownQueue), home.transaction() as t:
        t.push(home.queue("email", create=False), "x")
    with pytest.raises(UnknownQueue):
        home.queue("email", shards=2, create=False)
    assert home.queues() == ["emails"]
    emails = home.queue("emails", create=False)
    assert emails.push("x").offset == 0
    home.queue("emails").delete(sure=True)
    with pytest.raises(UnknownQueue, match="was deleted meanwhile; `tailrace queue create emails` makes it"):
        emails.push("x")
    assert home.queues() == []


def test_shards_are_fixed_when_it_is_made(home: Home) -> None:
    assert home.queue("emails", shards=6).shards == 6
    assert home.queue("emails").shards == 6
    with pytest.raises(BadSetting, match="has 6 shards, not 7"):
        home.queue("emails", shards=7)
    with pytest.raises(BadSetting, match="did you mean 'attempts'"):
        home.queue("emails", attemps=3)
    with pytest.raises(BadSetting, match="attempts=5, not 3"):
        home.queue("emails", attempts=3)
    assert home.queue("emails").configure(attempts=3).attempts == 3
    assert home.queue("emails", attempts=3).settings.attempts == 3


def test_settings_that_another_process_has_changed(home: Home) -> None:
    queue, other = home.queue("q", shards=1), home.queue("q")
    assert (queue.settings.attempts, other.settings.timeout) == (5, None)
    other.configure(attempts=1)
    with queue.tail(print):
        assert queue.settings.attempts == 1
    assert other.configure(timeout=60).attempts == 1
    assert queue.configure(backoff=2).timeout == 60
    assert home.queue("q").settings == queue.settings


def test_settings_are_all_changed_or_none(home: Home) -> None:
    queue = home.queue("q", shards=1, retention_ms=60_000)
    with pytest.raises(BadSetting, match="did you mean 'attempts'"):
        queue.configure(retention_ms=1, attemps=3)
    assert queue.topic().settings.retention_ms == 60_000
    home.queue("q", retention_ms=60_000)
    with pytest.raises(BadSetting, match="retention_ms=60000, not 1;"):
        home.queue("q", retention_ms=1)


def test_many_are_one_transaction(home: Home) -> None:
    queue = home.queue("q", shards=3)
    head = queue.store.run(queue.topic().log.head())
    pushed = queue.push_many([b"a", {"b": 1}, Message(b"c", "key"), Message("d")])
    assert queue.store.run(queue.topic().log.head()).appends == head.appends + 1
    assert messages(queue) == [b'"d"', b"a", b"c", b'{"b":1}']
    assert pushed[2].shard == partition_of(b"key", 3)
    assert len({(one.shard, one.offset) for one in pushed}) == 4
    assert queue.push_many([]) == []


def test_a_dedup_id_is_in_the_queue_once(home: Home) -> None:
    queue = home.queue("q", shards=2)
    assert not queue.push(b"a", dedup="1").duplicate
    assert queue.push(b"a again", dedup="1").duplicate
    pushed = queue.push_many([Message(b"b", dedup="1"), Message(b"c", dedup="2"), Message(b"d", dedup="2"), b"e"])
    assert [one.duplicate for one in pushed] == [True, False, True, False]
    assert messages(queue) == [b"a", b"c", b"e"]
    assert queue.has("2")
    assert not queue.has("3")


def test_of_many_pushes_at_once_with_one_dedup_id_one_is_first(home: Home) -> None:
    queue = home.queue("q", shards=2)
    queue.push(b"first")
    told: list[bool] = []
    threads = [
        threading.Thread(target=lambda n=n: told.append(queue.push(b"%d" % n, dedup="one").duplicate)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] + [True] * 7
    assert len(messages(queue)) == 2


def test_a_dedup_id_goes_with_its_message(home: Home) -> None:
    queue = home.queue("q", shards=1)
    topic = queue.topic()
    for n in range(200):
        queue.push(b"x" * 500, dedup=str(n))
    with queue.tail(lambda envelope: None):
        assert queue.drain(30)
    topic.configure(retention_ms=1)
    until(lambda: home.upkeep("q")[0].error is None and topic.ends()[0][0] > 0)
    assert not queue.has("0")
    assert not queue.push(b"again", dedup="0").duplicate
    assert queue.push(b"again", dedup="0").duplicate


def test_a_delayed_message_waits_and_comes_once(home: Home) -> None:
    queue, got = home.queue("q", shards=2), []
    assert queue.push(b"later", not_before=0.3, dedup="d").delayed
    assert queue.push(b"later", not_before=0.3, dedup="d").duplicate
    assert queue.push(b"much later", not_before=timedelta(hours=1)).delayed
    assert not queue.push(b"past", not_before=datetime(2020, 1, 1, tzinfo=UTC)).delayed
    now = queue.stats()
    assert (now.inserted, now.routed, now.delayed, now.backlog) == (3, 1, 2, 1)
    with queue.tail(lambda envelope: got.append((envelope.message, envelope.insertion_time))):
        until(lambda: len(got) == 2)
    assert [message for message, _ in got] == [b"past", b"later"]
    assert datetime.now(UTC) - got[1][1] > timedelta(seconds=0.2), "it says when it was pushed, not when it was moved"
    now = queue.stats()
    assert (now.inserted, now.routed, now.delayed, now.acked) == (3, 2, 1, 2)
    assert queue.push(b"later", dedup="d").duplicate


def test_several_queues_topics_and_streams_in_one_transaction(home: Home) -> None:
    home.topic("audit", partitions=1)
    with home.transaction() as t:
        t.push("a", {"n": 1}, "key")
        t.push("b", b"raw", dedup="x")
        t.send(b"k", b"v", topic="audit")
        t.append("Account-1", [Event("Opened")])
    assert messages(home.queue("a")) == [b'{"n":1}']
    assert messages(home.queue("b")) == [b"raw"]
    assert [r.value for r in home.topic("audit").records()] == [b"v"]
    assert home.events().stream("Account-1").version == 1
    with pytest.raises(ZeroDivisionError), home.transaction() as t:
        t.push("a", {"n": 2})
        t.append("Account-1", [Event("Closed")])
        raise ZeroDivisionError
    with pytest.raises(AlreadyThere), home.transaction() as t:
        t.push("b", b"again", dedup="y")
        assert not t.push("b", b"again", dedup="x")
        home.queue("b").push(b"first", dedup="y")
        t.append("Account-1", [Event("Closed")])
    assert home.events().stream("Account-1").version == 1
    assert home.queue("a").stats().routed == 1


def test_only_events_in_a_transaction(home: Home) -> None:
    with home.transaction() as t:
        t.append("Account-1", [Event("Opened")])
        t.append("Account-2", [Event("Opened")])
    with pytest.raises(BadInput, match="named twice"), home.transaction() as t:
        t.append("Account-1", [Event("A")])
        t.append("Account-1", [Event("B")])
    assert home.events().stream("Account-2").version == 1


def test_what_cannot_be_pushed_is_refused(home: Home) -> None:
    queue = home.queue("q", shards=1)
    for wrong in (object(), {1, 2}, float):
        with pytest.raises(BadInput, match="cannot be encoded by Json"):
            queue.push(wrong)
    with pytest.raises(BadInput, match="a shard key is text or bytes"):
        queue.push(b"a", 7)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a dedup id"):
        queue.push(b"a", dedup="")
    with pytest.raises(BadInput, match="not_before"):
        queue.push(b"a", not_before=-1)
    queue.topic().configure(max_record_bytes=100)
    with pytest.raises(TooLarge):
        home.queue("q").push(b"x" * 101)
    with pytest.raises(TooLarge, match="delayed message"):
        home.queue("other").push(b"x" * 400_000, not_before=10)
    with pytest.raises(BadName):
        home.queue("a/b")
    with pytest.raises(BadName, match="hold dead letters of queues"):
        home.queue("q-dead").push("a")
    with pytest.raises(BadName, match="at most 195"):
        home.queue("q" * 196).push("a")
    assert queue.stats().inserted == 0


def test_a_codec_of_ones_own(home: Home) -> None:
    class Upper:
        def encode(self, message: Any) -> bytes:
            return str(message).upper().encode()

        def decode(self, data: bytes) -> Any:
            return data.decode().lower()

    queue, got = home.queue("q", shards=1, codec=Upper()), []
    queue.push_many(["hello", b"Raw"])
    assert messages(queue) == [b"HELLO", b"Raw"]
    with queue.tail(lambda envelope: got.append(envelope.message)):
        until(lambda: len(got) == 2)
    assert sorted(map(str, got)) == ["b'Raw'", "hello"]


def test_pushing_from_asyncio(home: Home) -> None:
    queue, got = home.queue("q", shards=2), []

    async def handler(envelope: Any) -> None:
        await asyncio.sleep(0)
        got.append(envelope.message)

    async def main() -> None:
        await queue.aio.push({"n": 1})
        await queue.aio.push_many([{"n": 2}, {"n": 3}])
        async with await queue.aio.tail(handler) as worker:
            while len(got) < 3:
                await asyncio.sleep(0.01)
            assert worker.id
        assert (await queue.aio.stats()).acked == 3

    asyncio.run(main())
    assert sorted(one["n"] for one in got) == [1, 2, 3]


def test_nothing_of_a_push_is_stored_before_all_of_it_is_checked(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.make()
    some = [Message("delayed", not_before=60), Message(b"x" * 350_001, not_before=60)]
    many = [Message("delayed", not_before=60), *(Message(n, dedup=str(n)) for n in range(91))]
    for messages, why in ((some, "350,001"), (many, "not 91")):
        with pytest.raises(TooLarge, match=why):
            queue.push_many(messages)
    assert queue.stats().inserted == 0


def test_a_push_of_more_than_a_chunk_can_hold_is_refused(home: Home) -> None:
    queue, large = home.queue("q", shards=1), b"x" * (16 << 20)
    with pytest.raises(TooLarge, match="1,073,741,824 bytes"):
        queue.push_many([large] * 65)
    assert queue.stats().inserted == 0


@pytest.mark.parametrize("given", [{"dedup": "\ud800"}, {"shard_key": "\ud800"}])
def test_text_that_is_none_is_refused(home: Home, given: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="UTF-8"):
        home.queue("q").push("x", **given)  # type: ignore[arg-type]


def test_two_dedup_ids_with_one_hash_are_not_taken_for_one(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second message would be dropped in silence."""
    queue = home.queue("q", shards=1)
    at = dedup.dedup_key
    monkeypatch.setattr(dedup, "dedup_key", lambda topic, id: at(topic, id[:1]))
    queue.push("first", dedup="a1")
    assert queue.push("first", dedup="a1").duplicate
    for later in (None, 60.0):
        with pytest.raises(BadInput, match="same hash as 'a1'"):
            queue.push("second", dedup="a2", not_before=later)
        with monkeypatch.context() as blind:
            blind.setattr(dedup, "is_there", _not_there)  # the other push came between the look and the write
            blind.setattr("tailrace.queue.delayed.dedup_key", dedup.dedup_key)
            with pytest.raises(BadInput, match="same hash as 'a1'"):
                queue.push("second", dedup="a2", not_before=later)
    assert queue.stats().inserted == 1


def _not_there(topic_id: str, id: str) -> Steps[bool]:
    yield from ()
    return False


def test_a_dedup_id_holds_through_growth_and_a_move(home: Home) -> None:
    queue = home.queue("q", shards=2)
    queue.push("a", "key", dedup="before")
    queue.push("b", "key", dedup="later", not_before=0.01)
    queue.rebalance(5, timeout=0)
    assert queue.push("c", "key", dedup="before").duplicate
    assert queue.push("c", "key", dedup="later").duplicate
    got: list[Any] = []
    with queue.tail(lambda envelope: got.append(envelope.message)):
        until(lambda: len(got) == 2)
        assert queue.push("c", "key", dedup="later").duplicate
        assert queue.drain(60)
    assert sorted(got) == ["a", "b"]
