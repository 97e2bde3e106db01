"""Reading: in order, without a gap, past stalled writers, and honest about what is damaged or gone."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tailrace.coordination import guard
from tailrace.errors import Damaged, OutOfRange, Unavailable
from tailrace.log.format import head as heads
from tailrace.log.format.head import Page
from tailrace.log.read.reader import Reader
from tailrace.log.read.seek import seek
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.placement import place
from tailrace.storage.calls import Get, GetObject, Store
from tailrace.storage.tables import LAST, Key
from tests.log.driving import TABLES, Driven, chunk, new_log, simulated, stored, view


def filled(kept: str, chunks: int = 6, rolls: tuple[int, ...] = (1, 3)) -> Store:
    """A topic t0 of two partitions: chunk n holds 0:n and 1:n; a page ends after each of `rolls`."""
    store, _ = simulated(kept)
    log = new_log(store)
    for n in range(chunks):
        store.run(commit([store.run(place(log, chunk((0, b"0:%d" % n), (1, b"1:%d" % n))))]))
        if n in rolls:
            store.run(roll(log, store.run(log.head())))
    return store


def pages(store: Store) -> list[Page]:
    return [Page.of(item) for item in store.run(guard.read_all(heads.head_key("t0").p, 0, LAST - 1))]


def names(store: Store) -> list[str]:
    """Where the chunks are, in order."""
    entries = [e for page in pages(store) for e in page.entries] + list(store.run(view(store).head()).own.entries)
    return [heads.object_name("t0", e.gen, e.id) for e in entries]


# --- in order, without a gap
@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
def test_everything_once_in_order_whatever_the_size_of_a_poll(kept: str, max_bytes: int) -> None:
    store = filled(kept)
    reader, seen = Reader(view(store), {0: 0, 1: 2}), {0: [], 1: []}
    while fetched := store.run(reader.poll(max_bytes)):
        for run in fetched:
            assert run.offset == reader.positions[run.partition] - run.data.num_rows or max_bytes > 1
            seen[run.partition] += run.data.column("value").to_pylist()
    assert seen == {0: [b"0:%d" % n for n in range(6)], 1: [b"1:%d" % n for n in range(2, 6)]}


@pytest.mark.parametrize("until", range(1, 8))
def test_reading_stops_before_an_offset_in_the_middle_of_a_chunk(until: int) -> None:
    store, _ = simulated("objects")
    log = new_log(store)
    for first in 0, 4:
        some = chunk(*((0, b"%d" % n) for n in range(first, first + 4)))
        store.run(commit([store.run(place(log, some))]))
    reader, seen = Reader(view(store), {0: 0}, until={0: until}), []
    while fetched := store.run(reader.poll(1)):
        seen += [v for run in fetched for v in run.data.column("value").to_pylist()]
    assert seen == [b"%d" % n for n in range(until)]
    assert reader.positions == {0: until}


def test_partitions_that_stand_far_apart() -> None:
    store = filled("objects", 12, (0, 1, 2, 3, 4, 5, 6, 7))
    reader, seen = Reader(view(store), {0: 1, 1: 9}), []
    while fetched := store.run(reader.poll(1)):
        seen += [v for run in fetched for v in run.data.column("value").to_pylist()]
    assert sorted(seen) == sorted([b"0:%d" % n for n in range(1, 12)] + [b"1:%d" % n for n in range(9, 12)])
    assert [v for v in seen if v.startswith(b"0")] == [b"0:%d" % n for n in range(1, 12)]


def test_a_stalled_writer_is_neither_waited_for_nor_skipped() -> None:
    """Of two producers, one stalled at any point between encoding and acknowledgement: the reader goes on."""
    for kept in TABLES:
        for stalled_after in range(6):
            store, _ = simulated(kept)
            log = new_log(store)
            slow = Driven(store, _append(view(store), (0, b"slow")))
            for _ in range(stalled_after):
                if not slow.done:
                    slow.step()
            store.run(commit([store.run(place(log, chunk((0, b"quick"))))]))
            reader = Reader(view(store), {0: 0})
            seen = [v for run in store.run(reader.poll()) for v in run.data.column("value").to_pylist()]
            assert b"quick" in seen, "waited for the stalled one"
            slow.run()
            while fetched := store.run(reader.poll()):
                seen += [v for run in fetched for v in run.data.column("value").to_pylist()]
            assert sorted(seen) == [b"quick", b"slow"], "skipped the stalled one"
            assert seen == stored(store, log, 0)


def _append(log, *records):  # type: ignore[no-untyped-def]
    placed = yield from place(log, chunk(*records))
    return (yield from commit([placed]))


def test_at_the_end_is_nothing_and_beyond_it_is_waiting() -> None:
    store = filled("joined")
    assert store.run(Reader(view(store), {0: 6}).poll()) == []
    ahead = Reader(view(store), {0: 7})
    assert store.run(ahead.poll()) == []
    log = view(store)
    for value in (b"six", b"seven"):
        store.run(commit([store.run(place(log, chunk((0, value))))]))
    (run,) = store.run(ahead.poll())
    assert (run.offset, run.data.column("value").to_pylist()) == (7, [b"seven"])


def test_a_page_that_is_merged_under_a_reader_is_found_again() -> None:
    store = filled("objects")
    reader = Reader(view(store), {0: 0})
    assert [run.offset for run in store.run(reader.poll(1))] == [0]
    assert store.run(merge(view(store), pages(store)[:2]))
    for _ in range(2):
        store.run(clean(view(store)))
    seen = []
    while fetched := store.run(reader.poll(1)):
        seen += [v for run in fetched for v in run.data.column("value").to_pylist()]
    assert seen == [b"0:%d" % n for n in range(1, 6)]


def test_every_offset_is_found_on_its_page() -> None:
    store = filled("objects", 60, (0, 1, 2, 5, 9, 10, 11, 12, 20, 21, 30, 40, 41, 42, 43, 50))
    for merged in (None, slice(3, 6), slice(0, 2), slice(-4, None)):
        if merged is not None:
            assert store.run(merge(view(store), pages(store)[merged]))
        head = store.run(view(store).head())
        for offset in range(head.own.base[0]):
            page = store.run(seek(view(store), head, 0, offset))
            assert page is not None
            assert page.base[0] <= offset < page.end[0], offset


# --- below the floor
def test_below_the_floor_is_an_error_that_says_the_floor() -> None:
    store = filled("objects")
    store.run(raise_floor(view(store), {0: 3}))
    with pytest.raises(
        OutOfRange, match="offset 0 of partition 0 of 't' was removed; the first that is kept is 3"
    ) as e:
        store.run(Reader(view(store), {0: 0}).poll())
    assert (e.value.floor, e.value.end) == (3, 6)
    (run, *_) = store.run(Reader(view(store), {0: 0}, from_floor=True).poll())
    assert run.offset == 3


@pytest.mark.parametrize("rolls", [(), (1, 3)])
def test_what_is_removed_is_never_given_though_its_page_is_still_there(rolls: tuple[int, ...]) -> None:
    store = filled("objects", rolls=rolls)
    store.run(raise_floor(view(store), {0: 3}))
    with pytest.raises(OutOfRange, match="offset 2 of partition 0"):
        store.run(Reader(view(store), {0: 2}).poll())
    for at in 2, 3:
        assert store.run(Reader(view(store), {0: at}, from_floor=True).poll(1))[0].offset == 3


def test_the_floor_rises_under_a_reader() -> None:
    store = filled("objects")
    reader = Reader(view(store), {0: 0}, from_floor=True)
    store.run(reader.poll(1))
    store.run(raise_floor(view(store), {0: 4, 1: 4}))
    assert store.run(drop_pages(view(store))) == 2
    assert [run.offset for run in store.run(reader.poll())] == [4, 5]


# --- trouble
def test_what_was_not_given_is_not_passed_over() -> None:
    """A poll that fails in the middle has given nothing, so the next one begins where it began."""
    store = filled("objects", 4, ())
    reader = Reader(view(store), {0: 0})
    poll = Driven(store, reader.poll()).until(GetObject).step()
    assert isinstance(poll.call, GetObject)
    poll.steps.close()  # cancelled, as asyncio does
    assert [run.offset for run in store.run(reader.poll())] == [0, 1, 2, 3]


def test_a_poll_gives_what_it_has_before_it_fails() -> None:
    store = filled("objects", 4, ())
    store.objects.drop(names(store)[2:3])
    reader = Reader(view(store), {0: 0})
    assert [run.offset for run in store.run(reader.poll())] == [0, 1]
    with pytest.raises(Damaged):
        store.run(reader.poll())
    assert reader.positions == {0: 2}


def test_storage_that_goes_away_costs_no_record() -> None:
    store = filled("objects", 4, ())
    reader = Reader(view(store), {0: 0})
    poll = Driven(store, reader.poll()).until(GetObject).step()
    seen = []
    for _ in range(100):
        if poll.done:
            break
        if isinstance(poll.call, GetObject):
            store.sleep(61)
            poll.fail(Unavailable("no route"))
        else:
            poll.step()
    assert poll.done
    if poll.error is None:
        seen += [run.offset for run in poll.result]
    while fetched := store.run(reader.poll()):
        seen += [run.offset for run in fetched]
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("kept", TABLES)
def test_damaged_bytes_are_named_with_their_offsets(kept: str) -> None:
    store = filled(kept, 4, (1,))
    flip(store, names(store)[2], 2)
    reader = Reader(view(store), {0: 0})
    seen = []
    with pytest.raises(Damaged, match=r"checksum differs.*offset 2 of partition 0 of 't'.*scrub t --quar") as error:
        while fetched := store.run(reader.poll()):
            seen += [run.offset for run in fetched]
    assert error.value.where
    assert error.value.where in str(error.value)
    assert seen == [0, 1]
    assert stored(store, view(store), 1) == [b"1:%d" % n for n in range(4)], "another partition's bytes are whole"
    assert [run.offset for run in store.run(Reader(view(store), {0: 3}).poll())] == [3]


def flip(store: Store, name: str, which: int) -> None:
    """Change a byte of partition 0's run in a chunk, wherever it is kept."""
    entry = [e for page in pages(store) for e in page.entries] + list(store.run(view(store).head()).own.entries)
    run = entry[which].runs[0]
    if name in store.objects.items:
        data = bytearray(store.objects.items[name])
    else:
        key = heads.chunk_key("t0", entry[which].gen, entry[which].id)
        data = bytearray(store.table.items[key]["d"])
    data[run.position + run.length // 2] ^= 1
    if name in store.objects.items:
        store.objects.items[name] = bytes(data)
    else:
        store.table.items[key] = {**store.table.items[key], "d": bytes(data)}


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_bytes_that_were_cut_are_named(cut: int) -> None:
    store = filled("objects", 2, ())
    name = names(store)[1]
    store.objects.items[name] = store.objects.items[name][:cut]
    with pytest.raises(Damaged, match=rf"{name}.*cut to"):
        store.run(Reader(view(store), {0: 1}).poll())


@pytest.mark.parametrize("rolled", [(), (1, 3)])
def test_an_object_deleted_by_hand_is_named(rolled: tuple[int, ...]) -> None:
    store = filled("objects", 4, rolled)
    name = names(store)[1]
    store.objects.drop([name])
    reader = Reader(view(store), {0: 1, 1: 1})
    for _ in range(2):
        with pytest.raises(Damaged, match=rf"{name} is gone.*offset 1 of partition 0.*offset 1 of partition 1"):
            store.run(reader.poll())
    reader.positions = {0: 2, 1: 2}
    assert {(run.partition, run.offset) for run in store.run(reader.poll())} >= {(0, 2), (1, 2)}


def test_an_item_deleted_by_hand_is_named() -> None:
    store = filled("joined", 3, ())
    entry = store.run(view(store).head()).own.entries[1]
    key = heads.chunk_key("t0", entry.gen, entry.id)
    del store.table.items[key]
    with pytest.raises(Damaged, match=rf"item \{key.p}/{key.i} is gone"):
        store.run(Reader(view(store), {0: 1}).poll())


@pytest.mark.parametrize("number", [0, 1])
def test_a_page_deleted_by_hand_is_said_to_be_missing(number: int) -> None:
    store = filled("objects", 6, (1, 3))
    key = Key(heads.head_key("t0").p, number)
    del store.table.items[key]
    store.table._ranges[key.p].remove(key.i)
    with pytest.raises(Damaged, match=rf"page {number} of .* 't' .* offsets {2 * number} to {2 * number + 1} of part"):
        store.run(Reader(view(store), {0: 2 * number}).poll())
    assert [run.offset for run in store.run(Reader(view(store), {0: 4}).poll())] == [4, 5]


def test_opening_costs_the_same_however_long_the_topic_is() -> None:
    def cost(count: int) -> int:
        store = filled("objects", count, tuple(range(0, count, 2)))
        before = sum(store.table.calls.values())
        store.run(Reader(view(store), {0: count // 3}).poll(1))
        return sum(store.table.calls.values()) - before

    assert cost(400) <= cost(25) + 4


def test_a_reader_asks_only_the_head_when_there_is_nothing_new() -> None:
    store = filled("objects")
    reader = Reader(view(store), {0: 6})
    poll = Driven(store, reader.poll())
    assert isinstance(poll.call, Get)
    assert poll.step().done


def test_misuse_of_steps_is_no_loss() -> None:
    """Steps that are dropped half-way at any call, then asked anew."""
    for calls in range(10):
        store = filled("objects")
        reader = Reader(view(store), {0: 0, 1: 0})
        poll = Driven(store, reader.poll())
        for _ in range(calls):
            if not poll.done:
                poll.step()
        if poll.done:
            break
        with suppress(RuntimeError):
            poll.steps.close()
        seen = []
        while fetched := store.run(reader.poll()):
            seen += [v for run in fetched for v in run.data.column("value").to_pylist()]
        assert len(seen) == len(set(seen)) == 12, calls
