"""Appending, one call at a time: what is answered, what is in doubt, and what threads that share a topic may see."""

from __future__ import annotations

import pytest

from tailrace.errors import (
    Broken,
    Closed,
    Conflict,
    Expected,
    HomeError,
    OutcomeUnknown,
    Throttled,
    TimedOut,
    Unavailable,
)
from tailrace.log.format import head as heads
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.clean import clean
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.placement import place
from tailrace.storage.calls import Get, Now, PutObject, Store, Write
from tests.log.driving import TABLES, Driven, chunk, land, new_log, simulated, stored, view


def append(store: Store, log: TopicLog, *records: tuple[int, bytes]) -> dict[int, int]:
    """Append a chunk here and now; gives its offsets."""
    placed = store.run(place(log, chunk(*records)))
    (appended,) = store.run(commit([placed]))
    return {q: appended.offsets[q] for q in appended.counts}


@pytest.mark.parametrize("kept", TABLES)
def test_offsets_follow_each_other_in_each_partition(kept: str) -> None:
    store, _ = simulated(kept)
    log = new_log(store)
    assert append(store, log, (0, b"a"), (0, b"b")) == {0: 0}
    assert append(store, log, (1, b"c"), (0, b"d")) == {0: 2, 1: 0}
    assert append(store, view(store), (1, b"e")) == {1: 1}
    assert stored(store, log, 0) == [b"a", b"b", b"d"]
    assert stored(store, log, 1) == [b"c", b"e"]


@pytest.mark.parametrize("kept", TABLES)
def test_a_full_head_is_rolled_by_whoever_meets_it(kept: str) -> None:
    store, _ = simulated(kept)
    log = new_log(store)
    for n in range(300):
        assert append(store, log, (n % 2, b"%d" % n)) == {n % 2: n // 2}
    head = store.run(log.head())
    assert head.page > 2
    assert head.entry_bytes <= heads.MAX_ENTRY_BYTES + 100
    assert stored(store, log, 0) == [b"%d" % n for n in range(0, 300, 2)]


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("when", ["landed", "late", "lost"])
def test_a_missing_answer_is_no_second_record(kept: str, when: str) -> None:
    store, _ = simulated(kept)
    log = new_log(store)
    steps = Driven(store, commit([store.run(place(log, chunk((0, b"a"))))]))
    sent = steps.until(Write).call
    if when == "landed":
        land(store, sent)
    steps.fail(TimedOut("sent, no answer"))
    (appended,) = steps.run()
    if when == "late":
        land(store, sent)
    assert appended.offsets[0] == 0
    assert stored(store, log, 0) == [b"a"]


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("seen", [True, False], ids=["newer head seen", "stale head"])
def test_who_takes_over_from_an_interrupted_thread_finds_what_it_sent(kept: str, landed: bool, seen: bool) -> None:
    store, _ = simulated(kept)
    log = new_log(store)
    placed = store.run(place(log, chunk((0, b"a"))))
    sent = Driven(store, commit([placed])).until(Write).call
    if landed:
        land(store, sent)
    store.run(roll(view(store), store.run(view(store).head())))
    append(store, view(store), (0, b"b"))
    if seen:
        store.run(log.head())
    (appended,) = store.run(commit([placed]))
    assert appended.offsets is not None
    assert appended.offsets[0] == (0 if landed else 1)
    assert sorted(stored(store, log, 0)) == [b"a", b"b"]


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("landed", [True, False])
def test_who_takes_over_goes_on_with_the_names_that_a_fence_made_a_chunk_take(kept: str, landed: bool) -> None:
    """Else it would put the records under yet another name, beside those that the interrupted thread had sent."""
    store, _ = simulated(kept)
    log = new_log(store)
    placed = store.run(place(log, chunk((0, b"a"))))
    for _ in range(3):
        store.run(clean(view(store)))
    steps = Driven(store, commit([placed]))
    while placed.attempt.became is None:
        steps.step()
    sent = steps.until(Write).call
    if landed:
        land(store, sent)
    (appended,) = store.run(commit([placed]))
    assert appended.offsets[0] == 0
    assert stored(store, log, 0) == [b"a"]


class Moving(TopicLog):
    """A topic that another thread has seen a newer head of, just after this one has looked."""

    newer: heads.Head | None = None

    @property
    def newest(self) -> heads.Head:
        if self.newer is not None:
            self.seen, self.newer = self.newer, None
        return TopicLog.newest.fget(self)  # type: ignore[attr-defined]


def in_doubt(store: Store, log: TopicLog, **settings: object) -> tuple[Driven, Write]:
    """An append whose write is in flight, and which has looked at the head without it."""
    steps = Driven(store, commit([store.run(place(log, chunk((0, b"a")), **settings))])).until(Write)
    sent = steps.lose()
    assert isinstance(steps.call, Get)
    steps.step()
    assert isinstance(steps.call, Now)
    return steps, sent


def test_another_threads_newer_page_does_not_end_the_doubt() -> None:
    store, _ = simulated()
    log = Moving("t", new_log(store).id, 65536, True)
    steps, sent = in_doubt(store, log)
    land(store, sent)
    other = view(store)
    store.run(roll(other, store.run(other.head())))
    log.newer = store.run(other.head())
    steps.run()
    assert stored(store, log, 0) == [b"a"]


def test_another_threads_newer_fence_does_not_end_the_doubt() -> None:
    store, _ = simulated()
    log = Moving("t", new_log(store).id, 65536, True)
    steps, sent = in_doubt(store, log)
    land(store, sent)
    store.run(clean(view(store)))
    store.run(clean(view(store)))
    log.newer = store.run(view(store).head())
    steps.run()
    assert stored(store, log, 0) == [b"a"]


def test_another_threads_newer_head_is_no_unexpected_offset() -> None:
    store, _ = simulated()
    log = Moving("t", new_log(store).id, 65536, True)
    steps, sent = in_doubt(store, log, expected={0: 0})
    land(store, sent)
    log.newer = store.run(view(store).head())
    (appended,) = steps.run()
    assert appended.offsets[0] == 0


FATAL = [
    Unavailable("no route"),
    Broken("EIO"),
    HomeError("expired credentials"),
    Closed("the home was closed"),
    RuntimeError("anything"),
]


@pytest.mark.parametrize("error", FATAL, ids=lambda e: type(e).__name__)
def test_who_fails_in_doubt_does_not_say_that_nothing_happened(error: Exception) -> None:
    store, clock = simulated()
    log = new_log(store)
    steps = Driven(store, commit([store.run(place(log, chunk((0, b"a"))))])).until(Write)
    sent = steps.lose()
    while not steps.done:
        if isinstance(steps.call, Get):
            clock.move(30)
            steps.fail(error)
        else:
            steps.step()
    assert isinstance(steps.error, OutcomeUnknown)
    assert "may be in the log" in str(steps.error)
    land(store, sent)
    assert stored(store, log, 0) == [b"a"]


def test_who_is_refused_in_doubt_does_not_say_that_nothing_happened() -> None:
    store, clock = simulated()
    log = new_log(store)
    steps, _ = in_doubt(store, log)
    while not steps.done:
        if isinstance(steps.call, Write):
            clock.move(30)
            steps.fail(Throttled("too much"))
        else:
            steps.step()
    assert isinstance(steps.error, OutcomeUnknown)


def test_without_doubt_a_refusal_is_just_that() -> None:
    store, clock = simulated()
    log = new_log(store)
    steps = Driven(store, commit([store.run(place(log, chunk((0, b"a"))))]))
    while not steps.done:
        if isinstance(steps.call, Write):
            clock.move(30)
            steps.fail(Throttled("too much"))
        else:
            steps.step()
    assert isinstance(steps.error, Unavailable)
    assert stored(store, log, 0) == []


def test_an_answer_that_never_comes_is_waited_for_a_minute() -> None:
    store, clock = simulated()
    log = new_log(store)
    steps = Driven(store, commit([store.run(place(log, chunk((0, b"a"))))]))
    while not steps.done:
        if isinstance(steps.call, Write):
            clock.move(10)
            steps.lose()
        else:
            steps.step()
    assert isinstance(steps.error, OutcomeUnknown)
    assert 60 < clock.monotonic() < 120


@pytest.mark.parametrize("kept", TABLES)
def test_two_topics_at_once_or_not_at_all(kept: str) -> None:
    store, _ = simulated(kept)
    one, two = new_log(store), new_log(store, "t1")
    append(store, one, (0, b"before"))
    both = [store.run(place(log, chunk((0, b"x"), (1, b"y")))) for log in (one, two)]
    here, there = store.run(commit(both))
    assert (here.offsets[0], here.offsets[1], there.offsets[0]) == (1, 0, 0)
    assert stored(store, one, 0) == [b"before", b"x"]
    assert stored(store, two, 1) == [b"y"]


def test_two_topics_whose_offsets_cannot_be_read_are_not_called_failed() -> None:
    store, clock = simulated("objects")
    both = [store.run(place(new_log(store, id), chunk((0, b"x")))) for id in ("t0", "t1")]
    steps = Driven(store, commit(both)).until(Write).step()
    while not steps.done:
        clock.move(30)
        steps.fail(Unavailable("no route")) if isinstance(steps.call, Get) else steps.step()
    assert isinstance(steps.error, OutcomeUnknown)
    assert stored(store, view(store, "t1"), 0) == [b"x"]


def test_the_expected_offset() -> None:
    store, _ = simulated()
    log = new_log(store)
    append(store, log, (0, b"a"))
    with pytest.raises(Expected, match=r"'t' are \{0: 1\}, not \{0: 0\}") as caught:
        store.run(commit([store.run(place(log, chunk((0, b"b")), {0: 0}))]))
    assert caught.value.actual == {0: 1}
    store.run(commit([store.run(place(log, chunk((0, b"b")), {0: 1, 1: 0}))]))
    assert stored(store, log, 0) == [b"a", b"b"]


def test_a_put_without_an_answer_goes_under_another_name() -> None:
    store, _ = simulated("objects")
    log = new_log(store)
    steps = Driven(store, place(log, chunk((0, b"a")))).until(PutObject)
    sent = steps.lose()
    placed = steps.run()
    land(store, sent)
    store.run(commit([placed]))
    assert len(store.objects.items) == 2
    assert stored(store, log, 0) == [b"a"]


def test_a_listener_that_fails_does_not_fail_the_append() -> None:
    store, _ = simulated()
    log = new_log(store)
    log.on_commit = lambda: 1 / 0
    assert append(store, log, (0, b"a")) == {0: 0}


def test_a_refusal_that_does_not_show_the_item_is_no_deleted_topic() -> None:
    store, _ = simulated()
    log = new_log(store)
    steps = Driven(store, commit([store.run(place(log, chunk((0, b"a"))))])).until(Write)
    steps.fail(Conflict("a condition did not hold", index=0, item=None))
    steps.run()
    assert stored(store, log, 0) == [b"a"]


def test_a_deleted_topic_is_said_so() -> None:
    store, _ = simulated()
    log = new_log(store)
    placed = store.run(place(log, chunk((0, b"a"))))
    store.table.items.clear()
    with pytest.raises(LookupError, match="topic 't' was deleted"):
        store.run(commit([placed]))
