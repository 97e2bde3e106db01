"""Transactions: together or not at all, over one topic or several."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

from tailrace.errors import (
    BadInput,
    BadRecord,
    Closed,
    Expected,
    TooLarge,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from tailrace.log.read.reader import Reader
from tailrace.log.topic import Topic
from tests.log.driving import TABLES, Driven, simulated_home


def values(topic: Topic, partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in topic.records(partition)]


@pytest.mark.parametrize("kept", TABLES)
def test_records_of_all_partitions_show_together(kept: str) -> None:
    home, _ = simulated_home(kept)
    topic = home.create_topic("t", 4)
    with topic.transaction() as t:
        acks = [t.send(b"%d" % n, b"%d" % n) for n in range(20)]
        batch = t.send_batch([(b"x", b"20"), (b"y", b"21")])
        assert values(topic) == []
        assert not acks[0].done()
    found = {(r.partition, r.offset): r.value for r in topic.records()}
    assert sorted(found.values()) == sorted(b"%d" % n for n in range(22))
    assert all(found[ack.partition, ack.result()] == b"%d" % n for n, ack in enumerate(acks))
    assert sum(span.records for span in batch.result()) == sum(span.records for span in t.spans) == 2


@pytest.mark.parametrize("kept", TABLES)
def test_a_hundred_topics_and_no_more(kept: str) -> None:
    home, _ = simulated_home(kept)
    names = [f"t{n}" for n in range(101)]
    topics = [home.create_topic(name) for name in names]
    for count in (51, 100):
        with home.transaction(*names) as t:
            for name in names[:count]:
                t.send(None, b"%d" % count, topic=name)
    assert [values(topic) for topic in topics] == [[b"51", b"100"]] * 51 + [[b"100"]] * 49 + [[]]
    with pytest.raises(TooLarge, match="100 actions"), home.transaction(*names) as t:
        for name in names:
            t.send(None, b"x", topic=name)
    assert values(topics[0]) == [b"51", b"100"]


@pytest.mark.parametrize("kept", TABLES)
def test_several_topics_show_together(kept: str) -> None:
    home, _ = simulated_home(kept)
    one, two = home.create_topic("one"), home.create_topic("two", 3)
    with home.transaction("one", two) as t:
        here = t.send(b"k", b"1", topic="one")
        there = t.send(b"k", b"2", topic="two", partition=2)
        assert values(one) + values(two) == []
    assert (values(one), values(two, 2)) == ([b"1"], [b"2"])
    assert (here.result(), there.result(), there.partition) == (0, 0, 2)


def test_no_reader_sees_a_part_of_it() -> None:
    """After every call of the commit: all of it, or nothing."""
    for kept in TABLES:
        home, _ = simulated_home(kept)
        topic = home.create_topic("t", 3)
        from tailrace.log.write.append import commit
        from tailrace.log.write.placement import place

        buffered = topic.transaction()
        for q in range(3):
            buffered.send(None, b"%d" % q, partition=q)
        chunk = buffered._batch(None).buffer.encode("none")

        def whole(topic: Topic = topic, chunk: object = chunk):  # type: ignore[no-untyped-def]
            placed = yield from place(topic.log, chunk)  # type: ignore[arg-type]
            return (yield from commit([placed]))

        steps = Driven(home.store, whole())
        while not steps.done:
            reader = Reader(topic.log, {0: 0, 1: 0, 2: 0})
            assert len(home.store.run(reader.poll())) in (0, 3)
            steps.step()
        assert len(home.store.run(Reader(topic.log, {0: 0, 1: 0, 2: 0}).poll())) == 3


def test_where_one_topic_cannot_take_its_part_none_does() -> None:
    home, _ = simulated_home()
    one, _two = home.create_topic("one"), home.create_topic("two")
    with pytest.raises(UnknownTopic, match="topic 'two' was deleted"), home.transaction("one", "two") as t:
        t.send(b"k", b"1", topic="one")
        t.send(b"k", b"2", topic="two")
        home.delete_topic("two")
    assert values(one) == []


def test_an_exception_drops_everything() -> None:
    home, _ = simulated_home()
    topic = home.create_topic("t")
    with pytest.raises(KeyError), topic.transaction() as t:
        ack = t.send(b"a", b"1")
        batch = t.send_batch([(b"a", b"2")])
        raise KeyError("mine")
    assert values(topic) == []
    for one in (ack, batch):
        assert one.done(), "nobody is left waiting"
        with pytest.raises(Closed, match="dropped"):
            one.result(1)


def test_a_transaction_ends_once() -> None:
    home, _ = simulated_home()
    topic = home.create_topic("t")
    with topic.transaction() as t:
        t.send(b"a", b"1")
        t.commit()
        with pytest.raises(Closed):
            t.send(b"a", b"2")
    with pytest.raises(Closed, match="this transaction has ended"):
        t.commit()
    with pytest.raises(Closed):
        t.send_batch([(b"a", b"2")])
    assert values(topic) == [b"1"]


def test_nothing_at_all_is_no_write() -> None:
    home, _ = simulated_home()
    topic = home.create_topic("t")
    before = home.store.table.calls["write"]
    with topic.transaction() as t:
        pass
    assert (t.spans, topic.append([])) == ([], [])
    assert home.store.table.calls["write"] == before


# --- the expected offset
def test_an_append_that_nobody_was_before() -> None:
    home, _ = simulated_home()
    topic = home.create_topic("t", 2)
    assert topic.append([(b"a", b"1")], expected={0: 0, 1: 0})[0].records == 1
    ends = {q: end for q, (_, end) in topic.ends().items()}
    with pytest.raises(Expected, match="the next offsets of 't' are") as refused:
        topic.append([(b"a", b"2")], expected={0: 5})
    assert refused.value.actual == {0: ends[0]}
    topic.append([(b"a", b"3")], expected=ends)
    assert values(topic) == [b"1", b"3"]
    with pytest.raises(UnknownPartition, match="topic 't' has no partition 2; it has 0 to 1"):
        topic.transaction(expected={2: 0})


def test_of_two_who_expect_the_same_one_wins() -> None:
    home, _ = simulated_home()
    topic, other = home.create_topic("t"), home.topic("t")
    with topic.transaction(expected={0: 0}) as one:
        one.send(b"a", b"1")
        with other.transaction(expected={0: 0}) as two:
            two.send(b"a", b"2")
        with pytest.raises(Expected):
            one.commit()
    assert values(topic) == [b"2"]


def test_ones_own_success_is_not_a_conflict() -> None:
    """The answer is lost, the records are there: that is no `Expected`."""
    home, _ = simulated_home()
    topic = home.create_topic("t")
    write, lost = home.store.table.write, [True]

    def loses(*actions):  # type: ignore[no-untyped-def]
        from tailrace.errors import TimedOut

        answer = write(*actions)
        if lost.pop():
            lost.append(False)
            raise TimedOut("sent, no answer")
        return answer

    home.store.table.write = loses  # type: ignore[method-assign]
    assert topic.append([(b"a", b"1")], expected={0: 0})[0].offset == 0
    assert values(topic) == [b"1"]


# --- bad input and trouble
def test_what_a_transaction_refuses() -> None:
    home, _ = simulated_home()
    home.create_topic("one")
    home.create_topic("two")
    with home.transaction() as t, pytest.raises(BadInput, match="say which topic"):
        t.send(b"a", b"1")
    with pytest.raises(UnknownTopic, match=r"no topic 'tow'.*did you mean 'two'"):
        home.transaction("one", "tow")
    with home.transaction("one", "two") as t:
        with pytest.raises(BadInput, match="say which topic: 'one', 'two'"):
            t.send(b"a", b"1")
        with pytest.raises(UnknownTopic, match="topic 'three' is not part of this transaction: 'one', 'two'"):
            t.send(b"a", b"1", topic="three")
        with pytest.raises(UnknownPartition):
            t.send(b"a", b"1", topic="one", partition=1)
        with pytest.raises(BadRecord):
            t.send(b"a", "text", topic="one")  # type: ignore[arg-type]
    assert values(home.topic("one")) == []


def test_a_batch_with_a_bad_record_is_refused_whole() -> None:
    home, _ = simulated_home("objects")
    topic = home.create_topic("t", max_record_bytes=5 << 20)
    big = pa.table({"value": [b"x" * (3 << 20)] * 3 + [b"x" * (6 << 20)]})
    with topic.transaction() as t:
        with suppress(TooLarge):
            t.send_batch(big)
        t.send(b"a", b"1")
    assert values(topic) == [b"1"]


def test_a_commit_that_fails_says_so_to_everyone() -> None:
    home, clock = simulated_home()
    topic = home.create_topic("t")
    t = topic.transaction()
    ack = t.send(b"a", b"1")
    write = home.store.table.write

    def away(*actions):  # type: ignore[no-untyped-def]
        clock.move(10)
        raise Unavailable("away")

    home.store.table.write = away  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        t.commit()
    home.store.table.write = write  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        ack.result(1)
    assert values(topic) == []


def test_an_interruption_leaves_nobody_waiting() -> None:
    home, _ = simulated_home()
    topic = home.create_topic("t")
    t = topic.transaction()
    ack = t.send(b"a", b"1")
    write = home.store.table.write

    def interrupted(*actions):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    home.store.table.write = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        t.commit()
    home.store.table.write = write  # type: ignore[method-assign]
    assert ack.done()
