"""Offsets: the document's runs, and marks that only rise, unless an operator says so."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace
from tailrace.errors import Fenced
from tailrace.pipeline.deliver import offsets
from tailrace.pipeline.deliver.offsets import Mark, restored, stored
from tailrace.storage.calls import Store, Write
from tests.log.driving import Driven, land

NORMAL = "AABBAABBCACBAACB"
OLD, ACTIVE = "AABBAABBCACBAACBA", "AABBAABBCAC"


def pending(mark: Mark, keys: str) -> list[int]:
    return [n for n, key in enumerate(keys) if n >= mark.resume and mark.pending(key, n)]


@pytest.fixture
def store() -> Iterator[Store]:
    with tailrace.open("memory://") as home:
        yield home.store


# -- the document
def test_normal_run() -> None:
    assert pending(Mark(12), NORMAL) == [13, 14, 15]
    assert pending(Mark(13), NORMAL) == [14, 15]


def test_failure_run() -> None:
    mark, keys = Mark(8), "A" * 16
    assert pending(mark, keys) == list(range(9, 16))
    for n in range(9, 14):
        mark.acknowledge(n)
    assert (mark.low, mark.ahead) == (13, {})
    assert pending(mark, keys) == [14, 15]
    mark.acknowledge(14)
    mark.acknowledge(15)
    assert pending(mark, keys) == []


def test_compaction_example() -> None:
    mark = Mark()
    mark.acknowledge(23)
    for namespace, offset in {"A": 26, "B": 23, "C": 27}.items():
        mark.acknowledge(offset, namespace)
    assert [mark.reached(namespace) for namespace in "ABC"] == [26, 23, 27]
    assert (mark.low, mark.ahead) == (23, {"A": 26, "C": 27})
    assert pending(mark, OLD + ACTIVE) == [24]


# -- marks
def test_a_lower_offset_changes_nothing() -> None:
    mark = Mark(5, {"A": 9})
    for offset, namespace in ((4, None), (5, "A"), (8, "A"), (3, "B")):
        mark.acknowledge(offset, namespace)
    assert (mark.low, mark.ahead) == (5, {"A": 9})


def test_a_quiet_namespace_costs_nothing() -> None:
    mark = Mark(5, {"A": 9, "B": 7})
    mark.acknowledge(8)
    assert (mark.low, mark.ahead) == (8, {"A": 9})


def test_never_the_maximum_over_namespaces() -> None:
    mark = Mark(-1)
    mark.acknowledge(10, "A")
    assert mark.pending("B", 3)
    assert mark.resume == 0


@given(st.text("ABC", max_size=30), st.lists(st.tuples(st.integers(0, 29), st.sampled_from([None, "A", "B", "C"]))))
def test_what_is_reached_is_just_before_what_is_pending(keys: str, done: list[tuple[int, str | None]]) -> None:
    mark = Mark()
    for offset, namespace in done:
        mark.acknowledge(offset, namespace)
    for n, key in enumerate(keys):
        assert mark.pending(key, n) == (n > mark.reached(key))
    assert all(at > mark.low for at in mark.ahead.values())


def test_as_a_sink_keeps_them() -> None:
    marks = {0: Mark(5, {"A": 9}), 11: Mark()}
    assert restored(json.loads(json.dumps(stored(marks)))) == marks


# -- stored
def test_a_run_takes_over_and_saves(store: Store) -> None:
    epoch, marks = store.run(offsets.take("shop", "c0", 2))
    assert (epoch, marks) == (1, {0: Mark(), 1: Mark()})
    marks[0].acknowledge(7)
    marks[1].acknowledge(3, "A")
    store.run(offsets.save("shop", "c0", epoch, marks))
    assert store.run(offsets.take("shop", "c0", 2)) == (2, marks)
    with pytest.raises(Fenced, match="taken over by another run"):
        store.run(offsets.save("shop", "c0", epoch, marks))
    assert store.run(offsets.load("shop", "c1", 2)) == (0, {0: Mark(), 1: Mark()})


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("steps", range(1, 6))
def test_of_two_runs_that_begin_together_only_one_has_an_epoch(store: Store, steps: int, times: int) -> None:
    """One has read, and was then stopped for so long that another was started, or two: it may not take them for
    itself, nor fence them."""
    stopped = Driven(store, offsets.take("shop", "c0", 2))
    for _ in range(steps):
        stopped.step()
    epoch = [store.run(offsets.take("shop", "c0", 2))[0] for _ in range(times)][-1]
    with pytest.raises(Fenced, match="must stop"):
        stopped.run()
    assert [item["epoch"] for item in store.table.query("$Offsets-shop.c0").items] == [epoch, epoch]
    store.run(offsets.save("shop", "c0", epoch, {0: Mark(1), 1: Mark(1)}))


@pytest.mark.parametrize("lost", range(2))
def test_a_run_that_begins_without_an_answer_knows_that_it_was_its_own(store: Store, lost: int) -> None:
    run = Driven(store, offsets.take("shop", "c0", 2)).until(Write)
    for _ in range(lost):
        run.step().until(Write)
    assert run.call is not None
    store.answer(run.call)
    run.lose()
    assert run.run() == (1, {0: Mark(), 1: Mark()})


def test_who_dies_between_two_partitions_has_stored_all_or_none(store: Store) -> None:
    """Else a command would be behind one partition and before another, which would wait for it for ever."""
    epoch, marks = store.run(offsets.take("shop", "c0", 2))
    for q in marks:
        marks[q].acknowledge(3 + q)
    Driven(store, offsets.save("shop", "c0", epoch, marks)).until(Write).step()
    assert store.run(offsets.take("shop", "c0", 2))[1] == {0: Mark(3), 1: Mark(4)}
    store.run(offsets.override("shop", "c0", 1, Mark(0)))
    assert store.run(offsets.take("shop", "c0", 2))[1] == {0: Mark(3), 1: Mark(0)}, "an operator's word counts more"


@pytest.mark.parametrize("writes", range(5))
@pytest.mark.parametrize("landed", [False, True])
def test_who_dies_after_a_write_without_an_answer_has_stored_all_or_none(
    store: Store, writes: int, *, landed: bool
) -> None:
    """Though partition 0 has not moved: with it go the marks of all partitions."""
    epoch, before = store.run(offsets.take("shop", "c0", 3))
    for mark in before.values():
        mark.acknowledge(3)
    store.run(offsets.save("shop", "c0", epoch, before))
    after = {0: Mark(3), 1: Mark(7), 2: Mark(8)}
    run = Driven(store, offsets.save("shop", "c0", epoch, after, after)).until(Write)
    sent = run.lose()
    if landed:
        land(store, sent)
    for _ in range(writes):
        if not run.until(Write).done:
            run.step()
    marks, finished = store.run(offsets.load("shop", "c0", 3))[1], store.run(offsets.load_finished("shop", "c0"))
    assert (marks, finished) == ((after, after) if landed or writes else (before, {}))


@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("partition", range(3))
def test_a_write_that_lands_late_takes_nothing_back(store: Store, partition: int, writes: int) -> None:
    """A write had no answer and was made again; it arrives after so many writes of the next save, or behind them."""
    epoch, _ = store.run(offsets.take("shop", "c0", 3))
    store.run(offsets.save("shop", "c0", epoch, {q: Mark(3) for q in range(3)}))
    before = {q: Mark(3 + 4 * q, {"A": 20}) for q in range(3)}
    after = {q: Mark(3 + 30 * q, {"A": 40 + 30 * q}) for q in range(3)}
    run = Driven(store, offsets.save("shop", "c0", epoch, before, before)).until(Write)
    for _ in range(partition):
        run.step().until(Write)
    sent = run.lose()
    run.run()
    run = Driven(store, offsets.save("shop", "c0", epoch, after, after)).until(Write)
    for _ in range(writes):
        if not run.done:
            run.step().until(Write)
    land(store, sent)
    marks, finished = store.run(offsets.load("shop", "c0", 3))[1], store.run(offsets.load_finished("shop", "c0"))
    wanted = before if writes == 0 else after
    assert {q: mark.low for q, mark in marks.items()} == {q: mark.low for q, mark in wanted.items()}
    assert finished == {q: Mark(mark.low) for q, mark in wanted.items()}
    assert [marks[q].ahead for q in range(writes)] == [after[q].ahead for q in range(writes)]


def test_marks_that_are_stored_are_not_written_again(store: Store) -> None:
    epoch, _ = store.run(offsets.take("shop", "c0", 3))
    store.run(offsets.save("shop", "c0", epoch, {q: Mark(3) for q in range(3)}))
    assert Driven(store, offsets.save("shop", "c0", epoch, {q: Mark(3) for q in range(3)})).until(Write).done
    run, written = Driven(store, offsets.save("shop", "c0", epoch, {0: Mark(3), 1: Mark(4), 2: Mark(3)})), []
    while not run.until(Write).done:
        assert isinstance(run.call, Write)
        written += [action.key.i for action in run.call.actions]
        run.step()
    assert written == [0, 1], "partition 0 has the marks of all"


def test_a_lower_mark_never_replaces_a_higher(store: Store) -> None:
    epoch, _ = store.run(offsets.take("shop", "c0", 1))
    store.run(offsets.save("shop", "c0", epoch, {0: Mark(7)}))
    store.run(offsets.save("shop", "c0", epoch, {0: Mark(3)}))
    assert store.run(offsets.load("shop", "c0", 1))[1] == {0: Mark(7)}


def test_an_operator_may_go_back_and_stops_the_run(store: Store) -> None:
    epoch, _ = store.run(offsets.take("shop", "c0", 1))
    store.run(offsets.save("shop", "c0", epoch, {0: Mark(7)}))
    assert store.run(offsets.override("shop", "c0", 0, Mark(2))) > epoch
    with pytest.raises(Fenced):
        store.run(offsets.save("shop", "c0", epoch, {0: Mark(9)}))
    later, marks = store.run(offsets.take("shop", "c0", 1))
    assert marks == {0: Mark(2)}
    store.run(offsets.save("shop", "c0", later, {0: Mark(4)}))
    assert store.run(offsets.load("shop", "c0", 1)) == (later, {0: Mark(4)})


def test_what_a_sink_kept_counts_until_an_operator_speaks(store: Store) -> None:
    _, marks = store.run(offsets.take("shop", "c0", 2))
    kept = restored(json.loads(json.dumps(stored({0: Mark(9), 1: Mark(9)}))))
    assert offsets.reconciled(marks, kept) == {0: Mark(9), 1: Mark(9)}
    store.run(offsets.override("shop", "c0", 0, Mark(2)))
    for _ in range(2):  # a run that died before its first batch has not used the word up
        _, marks = store.run(offsets.take("shop", "c0", 2))
        assert offsets.reconciled(marks, kept) == {0: Mark(2), 1: Mark(9)}
    later = restored(json.loads(json.dumps(stored({**marks, 0: Mark(5, word=marks[0].word)}))))
    assert offsets.reconciled(marks, later)[0] == Mark(5)
    assert offsets.reconciled({0: Mark(7)}, {0: Mark(5)}) == {0: Mark(7)}, "what was filtered leaves no trace there"


def test_the_same_word_again_is_a_new_one(store: Store) -> None:
    first = store.run(offsets.override("shop", "c0", 0, Mark(2)))
    assert store.run(offsets.override("shop", "c0", 0, Mark(2))) == first + 1
    assert store.run(offsets.load("shop", "c0", 1))[1][0].word == 2


def test_who_was_taken_over_cannot_begin_anew(store: Store) -> None:
    epoch, _ = store.run(offsets.take("shop", "c0", 1))
    assert store.run(offsets.take("shop", "c0", 1, epoch))[0] == epoch + 1
    with pytest.raises(Fenced, match="taken over"):
        store.run(offsets.take("shop", "c0", 1, epoch))


def test_an_operator_before_the_first_run(store: Store) -> None:
    store.run(offsets.override("shop", "c0", 1, Mark(5)))
    assert store.run(offsets.take("shop", "c0", 2))[1] == {0: Mark(), 1: Mark(5)}


def test_a_beginning_anew_that_was_cut_off_is_this_runs_own(store: Store) -> None:
    """The home was away in the middle, or the sink after it: the epoch that stands there is no other run's."""
    epoch, _ = store.run(offsets.take("shop", "c0", 2, by="me"))
    Driven(store, offsets.take("shop", "c0", 2, epoch, "me")).until(Write).step()
    assert store.run(offsets.load("shop", "c0", 2))[0] == epoch + 1
    with pytest.raises(Fenced):
        store.run(offsets.take("shop", "c0", 2, epoch, "another"))
    assert store.run(offsets.take("shop", "c0", 2, epoch, "me"))[0] == epoch + 2
    store.run(offsets.override("shop", "c0", 1, Mark(0)))
    with pytest.raises(Fenced):
        store.run(offsets.take("shop", "c0", 2, epoch, "me"))
