"""Streams on every table: append, read, prune; the document's vectors; bad input."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest

from tailrace.errors import BadEvent, BadInput, BadName, BadSetting, Damaged, TimedOut, TooLarge, VersionConflict
from tailrace.events.event import Event, split_name, stream_name
from tailrace.events.store import Events, Stream
from tailrace.events.tip import TIP
from tailrace.storage.calls import Store, Write
from tailrace.storage.tables import Absent, Action, Key, Put, Set, Update
from tailrace.testing import SimulatedTable
from tests.log.driving import Driven

NAME = "Cart-1"


def some(count: int, start: int = 0, **more: Any) -> list[Event]:
    return [Event("StuffHappened", b"%d" % n, id=f"id{n}", **more) for n in range(start, start + count)]


def filled(store: Store, *counts: int, name: str = NAME, **settings: Any) -> Stream:
    stream, at = Events(store, **settings).stream(name), 0
    for count in counts:
        at = stream.append(some(count, at), expected=at)
    return stream


def shape(store: Store, name: str = NAME) -> dict[int, tuple[int, int]]:
    return {item["i"]: (len(item["e"]), item["n"]) for item in store.table.query(name).items}


def test_what_is_appended_is_read(store: Store) -> None:
    stream = Events(store).stream(NAME)
    given = Event("ItemAdded", b"x" * 100, b"meta", "one", "corr", "cause")
    assert stream.append([given], expected=0, unfolds=[Event("Snap", b"s" * 60)]) == 1
    (event,) = stream.read()
    assert (event.type, event.data, event.meta, event.id) == ("ItemAdded", b"x" * 100, b"meta", "one")
    assert (event.correlation, event.causation, event.index, event.unfold) == ("corr", "cause", 0, False)
    assert event.time.endswith("+00:00")
    tip = stream.tip()
    (unfold,) = tip.unfolds()
    assert (unfold.type, unfold.data, unfold.index, unfold.unfold) == ("Snap", b"s" * 60, 1, True)
    assert (tip.version, stream.version, stream.category) == (1, 1, "Cart")


def test_a_tip_calves_while_it_is_handy_to_its_table(store: Store) -> None:
    """On a disk each append writes the whole Tip again, so it is smaller there, unless the caller says otherwise."""
    for name, settings, limit in (NAME, {}, store.table.handy_bytes), ("Cart-2", {"max_event_bytes": 20_000}, 20_000):
        stream = Events(store, **settings).stream(name)
        for n in range(12):
            stream.append([Event("A", random.Random(n).randbytes(3000))])
        assert shape(store, name)[0][0] == limit // 3100


@pytest.mark.parametrize("compression", ["none", "deflate", "brotli"])
def test_every_compression_comes_back(store: Store, compression: str) -> None:
    data = [b"", b"a" * 47, b"a" * 48, random.Random(1).randbytes(256), b"abc" * 500]
    stream = Events(store, compression=compression).stream(NAME)
    stream.append([Event("A", one, one) for one in data])
    assert [(e.data, e.meta) for e in Events(store).stream(NAME).read()] == [(one, one) for one in data]
    codes = [one.get("D", 0) for one in stream.tip().stored_events]
    code = {"none": 0, "deflate": 1, "brotli": 2}[compression]
    assert codes == [0, 0, code, 0, code]


def test_the_vectors_of_calving(store: Store) -> None:
    filled(store, 11, 11, max_events=3)
    assert shape(store) == {0: (11, 11), TIP: (11, 22)}
    filled(store, 3, 3, 3, name="Cart-2", max_events=3)
    assert shape(store, "Cart-2") == {0: (3, 3), 3: (3, 6), TIP: (3, 9)}
    stream = filled(store, 9, 1, 1, name="Cart-3", max_events=10)
    assert shape(store, "Cart-3") == {0: (10, 10), TIP: (1, 11)}
    assert stream.tip().calved_bytes == 10 * 53 + 10


@pytest.mark.parametrize("start", range(0, 13, 2))
@pytest.mark.parametrize("stop", [None, 0, 1, 4, 9, 10, 50])
def test_reading_ranges_both_ways(memory: Store, start: int, stop: int | None) -> None:
    stream = filled(memory, 2, 3, 1, 4, max_events=2)
    wanted = [n for n in range(10) if start <= n < (10 if stop is None else stop)]
    assert [e.index for e in stream.read(start, stop)] == wanted
    assert [e.index for e in stream.read(start, stop, backwards=True)] == wanted[::-1]
    assert [e.data for e in stream.read(start, stop)] == [b"%d" % n for n in wanted]


def test_reading_on_every_table(store: Store) -> None:
    stream = filled(store, 2, 3, 1, 4, max_events=2)
    assert [e.index for e in stream.read()] == [*range(10)]
    assert [e.index for e in stream.read(3, 8)] == [*range(3, 8)]
    assert [e.index for e in stream.read(3, 8, backwards=True)] == [7, 6, 5, 4, 3]
    assert [e.index for e in stream.read(limit=4)] == [0, 1, 2, 3]
    assert [e.index for e in stream.read(backwards=True, limit=4)] == [9, 8, 7, 6]
    assert [e.index for e in islice(stream.read(8), 1)] == [8]
    assert [*Events(store).stream("Cart-none").read()] == []
    assert [*Events(store).stream("Cart-none").read(5, backwards=True)] == []


def test_a_long_stream_is_read_by_pages(store: Store) -> None:
    stream = Events(store, compression="none").stream(NAME)
    for n in range(12):
        stream.append([Event("A", b"%d" % n + b"x" * 200_000)])
    assert [e.data[:2].strip(b"x") for e in stream.read()] == [b"%d" % n for n in range(12)]
    assert [e.index for e in stream.read(backwards=True)] == [*range(11, -1, -1)]
    assert len([*stream.pages()]) > 1


def test_the_wrong_version_is_a_conflict_that_says_where_it_is(store: Store) -> None:
    stream = filled(store, 2)
    other = Events(store).stream(NAME)
    for handle in stream, other:
        for expected in 0, 1, 3:
            with pytest.raises(VersionConflict, match=r"'Cart-1' is at version 2, not") as caught:
                handle.append([Event("A")], expected=expected)
            assert (caught.value.version, caught.value.stream) == (2, NAME)
    assert stream.version == 2


def test_a_stale_handle_without_an_expectation_goes_to_the_end(store: Store) -> None:
    one, two = Events(store, max_events=2).stream(NAME), Events(store, max_events=2).stream(NAME)
    for n in range(4):
        assert one.append([Event("One")]) == 2 * n + 1
        assert two.append([Event("Two")]) == 2 * n + 2
    assert [e.type for e in one.read()] == ["One", "Two"] * 4


def test_a_stale_handle_tells_where_the_stream_is_now(store: Store) -> None:
    stale, other = Events(store).stream(NAME), Events(store).stream(NAME)
    stale.append(some(2))
    other.append(some(3, 2))
    with pytest.raises(VersionConflict) as caught:
        stale.append([Event("A")], expected=1)
    assert caught.value.version == 5


def test_the_same_ids_are_answered_not_doubled(store: Store) -> None:
    stream = filled(store, 3, 2, max_events=3)
    again = Events(store).stream(NAME)
    assert again.append(some(3), expected=0) == 3
    assert again.append(some(2, 3), expected=3) == 5
    assert stream.append(some(2, 3), expected=3) == 5
    with pytest.raises(VersionConflict):
        again.append(some(2, 7), expected=3)
    with pytest.raises(VersionConflict):
        again.append([*some(1, 3), Event("A", id="other")], expected=3)
    assert stream.version == 5


def test_prune_by_the_vectors(store: Store) -> None:
    stream = filled(store, 4, 2, max_events=4)
    assert shape(store) == {0: (4, 4), TIP: (2, 6)}
    assert stream.prune(-1) == (0, 0, 0)
    assert stream.prune(2) == (0, 3, 0)
    assert stream.prune(4) == (5, 0, 5)
    assert stream.prune(4) == (0, 0, 5)
    assert [e.index for e in stream.read()] == [5]
    assert stream.prune(5) == (1, 0, 6)
    assert stream.prune(99) == (0, 0, 6)
    assert [*stream.read()] == [*stream.read(backwards=True)] == []
    assert stream.append([Event("A")], expected=6) == 7
    assert [e.index for e in stream.read()] == [e.index for e in stream.read(2)] == [6]
    assert [e.index for e in stream.read(backwards=True)] == [6]


def test_prune_of_some_calves(store: Store) -> None:
    stream = filled(store, 2, 2, 2, 2, max_events=2)
    assert stream.prune(4) == (4, 1, 4)
    assert [e.index for e in stream.read()] == [4, 5, 6, 7]
    assert [e.index for e in stream.read(1, backwards=True)] == [7, 6, 5, 4]
    assert stream.prune(5) == (2, 0, 6)
    assert Events(store).stream("Cart-none").prune(5) == (0, 0, 0)


def test_a_prune_announces_no_appends_and_keeps_unfolds(store: Store) -> None:
    stream = filled(store, 2, 2, max_events=2)
    stream.append([], unfolds=[Event("Snap")], expected=4)
    stream.prune(2)
    item = store.table.get(Key(NAME, TIP))
    assert item is not None
    assert (item["a"], item["n"], len(item["u"])) == (0, 4, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Event("Placed"), r"takes a list of events, not one: \[Event\('Placed', …\)\]"),
        (None, "takes a list of events, not a NoneType"),
        ("Placed", "takes a list of events, not a str"),
        ({"type": "Placed"}, "takes a list of events, not a dict"),
        ([("Placed", b"")], "takes events, not a tuple: Event\\(type, data\\)"),
    ],
)
def test_what_is_no_list_of_events_is_told_how_to_write_one(store: Store, given: Any, said: str) -> None:
    stream = Events(store).stream(NAME)
    with pytest.raises(BadEvent, match=said):
        stream.append(given)
    with pytest.raises(BadEvent, match=said):
        Events(store).append(stream.change(given))
    assert stream.append(Event(name) for name in ("Placed", "Paid")) == 2, "an iterator will do"  # type: ignore[arg-type]


def test_what_was_pruned_is_read_from_the_archive(store: Store) -> None:
    stream = filled(store, 2, 2, 2, 2, max_events=2)
    archive = SimulatedTable()
    for item in store.table.query(NAME, 0, 5).items:
        archive.write(Put(Key(NAME, item["i"]), item, (Absent(),)))
    stream.prune(3)
    whole = Events(store, archive=archive).stream(NAME)
    assert [e.index for e in whole.read()] == [*range(8)]
    assert [e.index for e in whole.read(1, 7)] == [*range(1, 7)]
    assert [e.index for e in whole.read(backwards=True)] == [*range(7, -1, -1)]
    asked = archive.calls["query"]
    assert [e.index for e in whole.read(5, backwards=True)] == [7, 6, 5]
    assert archive.calls["query"] == asked
    assert [e.index for e in stream.read()] == [4, 5, 6, 7]


def test_with_an_archive_a_prune_loses_nothing(store: Store) -> None:
    """Calves go there before they are deleted here; what is still in the Tip stays, and a second prune ends too."""
    archive = SimulatedTable()
    filled(store, 2, 2, 2, 2, max_events=2)
    stream = Events(store, archive=archive, max_events=2).stream(NAME)
    assert stream.prune(3) == (4, 0, 4)
    assert [item["i"] for item in archive.query(NAME).items] == [0, 2]
    assert stream.prune(3) == (0, 0, 4)
    assert stream.prune(7) == (2, 2, 6)
    assert [e.index for e in stream.read()] == [*range(8)]
    assert [e.index for e in Events(store).stream(NAME).read()] == [6, 7]


@pytest.mark.parametrize("landed", [False, True])
def test_a_prune_whose_archive_does_not_answer_deletes_nothing_before_it_does(store: Store, landed: bool) -> None:
    archive = SimulatedTable()
    write, tries = archive.write, [0]

    def lost(*actions: Action) -> object:
        tries[0] += 1
        if tries[0] <= 2:
            if landed:
                write(*actions)
            assert [item["i"] for item in store.table.query(NAME, 0, 5).items] == [0, 2, 4], "deleted before archived"
            raise TimedOut("no answer")
        return write(*actions)

    archive.write = lost  # type: ignore[method-assign, assignment]
    filled(store, 2, 2, 2, 2, max_events=2)
    stream = Events(store, archive=archive, max_events=2).stream(NAME)
    stream.prune(3)
    assert [e.index for e in stream.read()] == [*range(8)]


def test_an_archive_of_something_else_is_not_pruned_into(store: Store) -> None:
    archive = SimulatedTable()
    filled(store, 2, 2, 2, max_events=2)
    archive.write(Put(Key(NAME, 0), {"e": [], "c": [], "n": 2}, (Absent(),)))
    with pytest.raises(BadInput, match=f"the archive has another {NAME!r}/0 than is here"):
        Events(store, archive=archive).stream(NAME).prune(3)
    assert [e.index for e in Events(store).stream(NAME).read()] == [*range(6)]


def test_several_streams_in_one_transaction(store: Store) -> None:
    events = Events(store, max_events=2)
    a, b, c = (events.stream(f"Account-{name}") for name in "abc")
    a.append(some(2), expected=0)
    c.append(some(3), expected=0)
    done = events.append(a.change(some(1, 2), expected=2), b.change([Event("B")], expected=0), c.expect(3))
    assert done == {"Account-a": 3, "Account-b": 1, "Account-c": 3}
    with pytest.raises(VersionConflict, match="Account-c' is at version 3, not 2"):
        events.append(a.change([Event("A")]), c.expect(2))
    with pytest.raises(VersionConflict, match="Account-b"):
        events.append(a.change([Event("A")], expected=3), b.change([Event("A")], expected=0))
    events.append(b.change([Event("B")]), events.stream("Account-none").expect(0))
    assert [len([*s.read()]) for s in (a, b, c)] == [3, 2, 3]
    again = events.append(a.change(some(1, 2), expected=2), b.change([Event("B")], expected=0))
    assert again["Account-a"] == 3


@pytest.mark.parametrize("there", [0, 2])
def test_a_stream_that_is_only_expected_may_not_move_before_the_write(store: Store, there: int) -> None:
    """It was as expected when it was looked at; what counts is the moment of the write."""
    events = Events(store)
    a, c = events.stream("Account-a"), events.stream("Account-c")
    if there:
        c.append(some(there), expected=0)
    late = Driven(store, events.appending([a.change([Event("A")], expected=0), c.expect(there)])).until(Write)
    assert not late.done
    Events(store).stream("Account-c").append([Event("C")], expected=there)
    with pytest.raises(VersionConflict, match=f"Account-c' is at version {there + 1}, not {there}"):
        late.run()
    assert [*events.stream("Account-a").read()] == []


def test_a_hundred_actions_and_no_more(memory: Store) -> None:
    events = Events(memory)
    streams = [events.stream(f"Cart-{n}") for n in range(101)]
    with pytest.raises(TooLarge, match="101 streams takes 101 actions; the limit is 100"):
        events.append(*(s.change([Event("A")]) for s in streams))
    events.append(*(s.change([Event("A")]) for s in streams[:100]))
    assert [s.version for s in streams] == [1] * 100 + [0]
    with pytest.raises(BadInput, match="named twice"):
        events.append(streams[0].change([Event("A")]), streams[0].change([Event("A")]))
    with pytest.raises(BadInput, match="at least one stream"):
        events.append(streams[0].expect(1))


@pytest.mark.parametrize("name", ["", "Cart", "-1", "Cart-", "Cart-1_", "Cart-_1", "Cart-1__2", "$Log-1", "a-\n", 5])
def test_bad_names(memory: Store, name: Any) -> None:
    with pytest.raises(BadName):
        Events(memory).stream(name)


def test_names() -> None:
    assert stream_name("Cart", "a", "b") == "Cart-a_b"
    assert split_name("Cart-a-b_c") == ("Cart", ("a-b", "c"))
    for wrong in ("Ca-rt", "1"), ("Cart", "a_b"), ("Cart", ""), ("Cart",):
        with pytest.raises(BadName):
            stream_name(*wrong)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], 0), ([Event("")], 0), ([Event("A", "text")], 0), ([Event("A", b"", "text")], 0), ([Event("A")], -1),
        ([Event("A")], True), ([Event("A")], "1"), ([Event("A", id=5)], 0), (["A"], 0), ([Event("A", id="x" * 129)], 0),
        ([Event("A", id="x"), Event("A", id="x")], 0), ([Event("A", None)], 0), ([Event("A", float("nan"))], 0),
    ],
)  # fmt: skip
def test_bad_input_writes_nothing(memory: Store, events: Any, expected: Any) -> None:
    with pytest.raises((BadEvent, BadInput), match="Cart-1"):
        Events(memory).stream(NAME).append(events, expected=expected)
    assert memory.table.query(NAME).items == []


def test_too_large_writes_nothing(store: Store) -> None:
    stream = filled(store, 1, compression="none")
    with pytest.raises(TooLarge, match=r"'Cart-1' would make an item of"):
        stream.append([Event("A", b"x" * 420_000)], expected=1)
    assert [e.index for e in stream.read()] == [0]


@pytest.mark.parametrize("given", [{"max_event": 1}, {"compression": "zip"}, {"max_events": 0}])
def test_bad_settings(memory: Store, given: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        Events(memory, **given)


@pytest.mark.parametrize(("start", "stop", "limit"), [(-1, None, None), (0, -1, None), (0, None, -1), (True, None, 1)])
def test_bad_ranges(memory: Store, start: Any, stop: Any, limit: Any) -> None:
    with pytest.raises(BadInput):
        Events(memory).stream(NAME).read(start, stop, limit=limit)


def test_an_unknown_encoding_names_stream_and_index(store: Store) -> None:
    stream = filled(store, 2)
    for changes, said in ([{"t": "T", "d": b"x", "D": 7}], "encoding 7"), ([{"t": "T", "d": b"x", "D": 1}], "unpacked"):
        tip = stream.tip()
        foreign = Update(Key(NAME, TIP), (Set("e", [tip.stored_events[0], *changes]), Set("k", _k(tip, changes))))
        store.table.write(foreign)
        with pytest.raises(Damaged, match=f"event 1 of stream 'Cart-1' .*{said}") as caught:
            [*stream.read()]
        assert (caught.value.where, caught.value.position) == (NAME, 1)


def _k(tip: Any, changes: list[dict[str, Any]]) -> int:
    from tailrace.events.stored import chained, seed

    return chained(seed(NAME, 0), tip.types, [tip.stored_events[0], *changes])


def test_a_calf_that_is_lost_is_damage_not_a_shorter_stream(store: Store) -> None:
    from tailrace.storage.tables import Delete

    stream = filled(store, 2, 2, 2, max_events=2)
    store.table.write(Delete(Key(NAME, 2)))
    for backwards in False, True:
        with pytest.raises(Damaged, match="event 2"):
            [*stream.read(backwards=backwards)]
    store.table.write(Delete(Key(NAME, 0)))
    for backwards in False, True:
        with pytest.raises(Damaged, match="event 0"):
            [*stream.read(backwards=backwards)]
