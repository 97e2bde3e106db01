"""Lanes: one key never runs twice at once, and its messages run in order."""

from __future__ import annotations

import random

from tailrace.queue.lanes import Entry, Lanes


def entry(offset: int, key: bytes | None = b"k") -> Entry:
    return Entry(None, 0, offset, 0, key, b"", 0, False)


def offsets(entries: list[Entry]) -> list[int]:
    return [one.offset for one in entries]


def test_one_key_runs_one_at_a_time_in_order() -> None:
    lanes = Lanes()
    first, second = entry(0), entry(1)
    lanes.add(first)
    lanes.add(second)
    assert offsets(lanes.take()) == [0]
    assert lanes.take() == []
    lanes.finish(first)
    assert offsets(lanes.take()) == [1]


def test_messages_without_a_key_run_side_by_side() -> None:
    lanes = Lanes()
    for n in range(3):
        lanes.add(entry(n, None))
    assert [offsets(lanes.take()) for _ in range(4)] == [[0], [1], [2], []]


def test_a_batch_takes_several_of_a_key_in_order() -> None:
    lanes = Lanes()
    for n in range(3):
        lanes.add(entry(n))
    assert offsets(lanes.take(2)) == [0, 1]
    assert lanes.take(2) == []


def test_a_key_waits_for_the_retry_of_its_first_message_and_holds_up_nobody_else() -> None:
    lanes = Lanes()
    first, second, other = entry(0), entry(1), entry(2, b"other")
    for one in (first, second, other):
        lanes.add(one)
    lanes.take()
    lanes.retry(first, at=10.0)
    assert offsets(lanes.take()) == [2]
    assert lanes.wake(9.0) == 10.0
    assert lanes.take() == []
    assert lanes.wake(10.0) is None
    assert offsets(lanes.take()) == [0]
    lanes.finish(first)
    assert offsets(lanes.take()) == [1]


def test_without_order_a_key_does_not_wait() -> None:
    lanes = Lanes(in_order=False)
    lanes.add(entry(0))
    lanes.add(entry(1))
    assert [offsets(lanes.take()) for _ in range(2)] == [[0], [1]]


def test_whatever_happens_a_key_is_in_order_and_never_twice_at_once() -> None:
    for seed in range(200):
        rng, lanes = random.Random(seed), Lanes()
        running: list[Entry] = []
        done: dict[bytes | None, list[int]] = {}
        now, next_offset = 0.0, 0
        for _ in range(60):
            what = rng.random()
            if what < 0.4:
                lanes.add(entry(next_offset, rng.choice([b"a", b"b", None])))
                next_offset += 1
            elif what < 0.7:
                running += lanes.take()
            elif running:
                one = running.pop(rng.randrange(len(running)))
                if rng.random() < 0.3:
                    lanes.retry(one, now + rng.random())
                else:
                    lanes.finish(one)
                    done.setdefault(one.key, []).append(one.offset)
            now += 0.1
            lanes.wake(now)
            keys = [one.key for one in running if one.key is not None]
            assert len(keys) == len(set(keys))
        for _ in range(200):
            now += 1
            lanes.wake(now)
            running += lanes.take()
            if running:
                one = running.pop()
                lanes.finish(one)
                done.setdefault(one.key, []).append(one.offset)
        assert sum(map(len, done.values())) == next_offset
        assert all(some == sorted(some) for key, some in done.items() if key is not None)
