"""The state machine of group commit, driven by hand: no threads, no event loop, no storage."""

from __future__ import annotations

import pytest

from tailrace.errors import BadSetting, Broken, Closed, OutcomeUnknown, Unavailable
from tailrace.log.write.acknowledgement import CommitBatch
from tailrace.log.write.append import Appended
from tailrace.log.write.group_commit import (
    CommitOldest,
    GroupCommit,
    GroupSettings,
    PutBytes,
    Stop,
    WaitForWork,
)
from tailrace.log.write.input import CHUNK_BYTES
from tailrace.log.write.linger import Linger

LARGE = bytes(CHUNK_BYTES)


def new_batch() -> CommitBatch:
    return CommitBatch("orders", 1, 2 * CHUNK_BYTES)


def group(linger: Linger | None = None, max_bytes: int = 1 << 30, max_puts: int = 2) -> GroupCommit[CommitBatch, str]:
    return GroupCommit("orders", GroupSettings(linger, max_bytes, max_puts), new_batch)


def send(group: GroupCommit[CommitBatch, str], value: bytes = b"x", now: float = 0.0) -> CommitBatch:
    """Add one record as a sender does; gives its batch."""
    batch = group.open
    before = batch.buffer.size
    batch.buffer.add(None, value, 0, None, 0, None)
    if group.took(batch.buffer.size - before):
        group.seal(now)
    return batch


def put(group: GroupCommit[CommitBatch, str], now: float = 0.0) -> CommitBatch:
    step = group.next_step(now)
    assert isinstance(step, PutBytes)
    return step.flight.batch


def oldest(group: GroupCommit[CommitBatch, str], now: float = 0.0) -> CommitBatch:
    step = group.next_step(now)
    assert isinstance(step, CommitOldest)
    return step.flight.batch


def commit(group: GroupCommit[CommitBatch, str]) -> CommitBatch:
    """Answer that the oldest batch in flight is committed."""
    oldest(group).finish(Appended({0: 0}, {0: 1}), None)
    return group.settled()


def fail(group: GroupCommit[CommitBatch, str], error: Exception) -> list[CommitBatch]:
    """Answer that the oldest batch in flight has failed; gives all that fail with it."""
    group.fail(error, 0.0)
    failed = []
    while group.in_flight:
        group.in_flight[0].batch.finish(None, error)
        failed.append(group.settled())
    return failed


def test_an_empty_producer_waits_for_records():
    assert group().next_step(0.0) == WaitForWork(None)


def test_a_record_is_put_and_then_committed():
    some = group()
    batch = send(some)
    assert some.outstanding == batch.buffer.size
    assert put(some) is batch
    assert oldest(some) is batch
    assert commit(some) is batch
    assert (some.outstanding, some.next_step(0.0)) == (0, WaitForWork(None))


def test_what_comes_during_a_commit_is_the_next_one():
    some = group()
    first = send(some)
    put(some)
    second = send(some)
    assert send(some) is second
    assert second is not first
    assert oldest(some) is first, "a batch that is not full waits for the commit under way"
    commit(some)
    assert put(some) is second


def test_full_batches_are_put_while_another_is_committed_up_to_the_limit():
    some = group(max_puts=2)
    batches = [send(some, LARGE) for _ in range(3)]
    assert [put(some), put(some)] == batches[:2]
    assert commit(some) is batches[0]
    assert put(some) is batches[2]
    assert [commit(some), commit(some)] == batches[1:]


def test_records_linger_from_the_moment_the_driver_sees_them():
    some = group(Linger(2.0))
    batch = send(some)
    assert some.next_step(10.0) == WaitForWork(2.0)
    assert some.next_step(11.5) == WaitForWork(0.5)
    assert put(some, 12.0) is batch


def test_a_batch_that_a_sender_waits_for_lingers_for_the_shortest_time_only():
    some = group(Linger(0.5, 4.0))
    some.linger.seconds = 4.0
    send(some)
    assert some.next_step(0.0) == WaitForWork(4.0)
    some.open.waited = True
    assert some.next_step(0.0) == WaitForWork(0.5)


def test_nothing_lingers_behind_a_flush_or_a_close():
    some = group(Linger(60.0))
    batch = send(some)
    some.seal(0.0)
    assert put(some) is batch
    commit(some)
    last = send(some)
    some.close(0.0)
    assert put(some) is last
    commit(some)
    assert some.next_step(0.0) == Stop()


def test_a_sender_waits_while_too_much_is_outstanding():
    some = group(max_bytes=1)
    assert some.has_room(0.0)
    send(some)
    assert some.outstanding >= some.limit
    assert not some.has_room(0.0)
    put(some)
    commit(some)
    assert some.has_room(0.0)


def test_a_sender_that_waits_for_room_ends_the_lingering():
    some = group(Linger(60.0), max_bytes=1)
    batch = send(some)
    assert some.next_step(0.0) == WaitForWork(60.0)
    assert not some.has_room(0.0)
    assert put(some) is batch


def test_without_lingering_a_sender_that_waits_for_room_leaves_the_open_batch_open():
    some = group(max_bytes=1)
    first = send(some)
    put(some)
    second = send(some)
    assert not some.has_room(0.0)
    assert send(some) is second
    assert commit(some) is first


def test_a_failed_commit_fails_everything_sent_so_far_in_order():
    some = group()
    sent = [send(some, LARGE), send(some, LARGE), send(some, LARGE), send(some)]
    put(some)
    put(some)
    error = Unavailable("away")
    assert fail(some, error) == sent
    assert [batch.error for batch in sent] == [error] * 4
    assert (some.outstanding, some.failed) == (0, None)
    assert some.has_room(0.0), "the producer goes on with what is sent after the failure"
    later = send(some)
    assert put(some) is later


@pytest.mark.parametrize("error", [OutcomeUnknown("no answer"), Broken("a page is lost")])
def test_a_producer_that_does_not_know_the_outcome_takes_nothing_more(error: Exception):
    some = group()
    send(some)
    put(some)
    fail(some, error)
    assert some.outstanding >= some.limit, "senders look at this alone"
    with pytest.raises(Closed, match=r"this producer of 'orders' has failed"):
        some.has_room(0.0)


def test_a_closed_producer_takes_nothing_more():
    some = group()
    some.close(0.0)
    assert some.outstanding >= some.limit
    with pytest.raises(Closed, match=r"this producer of 'orders' is closed"):
        some.has_room(0.0)
    assert some.next_step(0.0) == Stop()


def test_a_failure_is_reported_once():
    some = group()
    send(some)
    put(some)
    (batch,) = fail(some, Unavailable("away"))
    assert some.take_unreported() == [batch]
    assert some.take_unreported([batch]) == []
    assert not some.lost, "its records are not kept for ever"


def test_a_failure_that_every_sender_has_seen_is_not_reported():
    some = group()
    send(some)
    send(some)
    put(some)
    (batch,) = fail(some, Unavailable("away"))
    batch.tell(0)
    batch.tell(1)
    assert some.take_unreported() == []


def test_a_thread_that_waits_takes_the_open_batch_itself():
    some = group()
    batch = send(some)
    assert some.is_idle
    assert some.start_open().batch is batch
    assert not some.is_idle
    assert some.open is not batch
    assert oldest(some) is batch
    assert some.pending() == [batch]


def test_an_open_batch_without_records_is_not_sealed():
    some = group()
    some.seal(0.0)
    some.fail(Unavailable("away"), 0.0)
    assert some.pending() == []


def test_a_bound_of_no_bytes_is_refused():
    with pytest.raises(BadSetting, match="max_bytes is at least 1, not 0"):
        group(max_bytes=0)
