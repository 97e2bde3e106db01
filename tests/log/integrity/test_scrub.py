"""Scrubbing under the simulator: beside producers, merging, retention and cleaning it sees no damage where there is
none, and what is damaged it names."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from tailrace.errors import Lost, OutOfMemory, TailraceError
from tailrace.log.format import head as heads
from tailrace.log.integrity import scrub as scrubbing
from tailrace.log.integrity.damage import Damage
from tailrace.log.integrity.scrub import ScrubResult, scrub_topic
from tailrace.log.upkeep.merge import merge
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.placement import place
from tailrace.storage.calls import GetObject, Steps
from tailrace.storage.tables import Delete, Equals, Set, Update
from tailrace.testing import Life, Simulation, check_schedules
from tests.log.actors import chunk
from tests.log.ghost import PARTITIONS, log_of, must
from tests.log.scenarios import SCENARIOS, TABLES, TORN, small_pages, topic


def scrubber(sim: Simulation) -> None:
    """Scrubs again and again; nothing is damaged, ever."""

    def run(life: Life) -> Steps[None]:
        for _ in range(3):
            found = yield from scrub_topic(log_of(sim))
            must(not found.damages, "a false alarm", *map(str, found.damages))

    sim.spawn("scrub", run)


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("name", ["append", "merge", "retain", "merge2", "floor", "all"])
def test_no_false_alarm(name: str, kept: str) -> None:
    def scenario(sim: Simulation) -> None:
        SCENARIOS[name](sim)
        scrubber(sim)

    with small_pages():
        check_schedules(scenario, range(50), table=TABLES[kept], torn=TORN[kept])


# --- what is damaged
def filled(kept: str = "objects", pages: int = 4) -> Simulation:
    """A topic of some pages with two chunks each, and one in the head."""
    sim = Simulation(table=TABLES[kept]())
    topic(sim)
    log, rng = log_of(sim), random.Random(1)
    log.new_id = lambda: f"{rng.randrange(1 << 96):024x}"
    for n in range(2 * pages + 1):
        records = tuple((q, b"%d.%d" % (n, q)) for q in range(PARTITIONS))
        sim.do(commit([sim.do(place(log, chunk(records)))]))
        if n % 2:
            sim.do(roll(log, sim.do(log.head())))
    sim.check.clear()
    return sim


def scrubbed(sim: Simulation) -> ScrubResult:
    return sim.do(scrub_topic(log_of(sim)))


def the_damage(sim: Simulation) -> Damage:
    (damage,) = scrubbed(sim).damages
    assert damage.topic == log_of(sim).name
    return damage


@pytest.mark.parametrize("kept", TABLES)
def test_a_whole_topic(kept: str) -> None:
    found = scrubbed(filled(kept))
    assert not found.damages
    assert (found.chunks, found.runs, found.records) == (9, 9 * PARTITIONS, 9 * PARTITIONS)


def entry_of(sim: Simulation, n: int) -> heads.ChunkEntry:
    log = log_of(sim)
    pages = [heads.Page.of(sim.table.items[heads.page_key(log.id, p)]) for p in range(4)]
    return [e for page in pages for e in page.entries][n]


def test_an_object_that_is_gone() -> None:
    sim = filled()
    name = heads.object_name(log_of(sim).id, 0, entry_of(sim, 3).id)
    del sim.objects.items[name]
    damage = the_damage(sim)
    assert (damage.kind, damage.where) == ("missing", name)
    assert damage.lost == (Lost(0, 3, 4), Lost(1, 3, 4))


def test_an_object_that_is_gone_below_the_floor_is_no_damage() -> None:
    sim = filled()
    log = log_of(sim)
    del sim.objects.items[heads.object_name(log.id, 0, entry_of(sim, 0).id)]
    sim.table.write(Update(heads.head_key(log.id), (Set(("floor", "0"), 1), Set(("floor", "1"), 1))))
    assert not scrubbed(sim).damages


@pytest.mark.parametrize(("change", "byte"), [("flip", 0), ("cut", -3)])
def test_bytes_that_are_not_those_written(change: str, byte: int) -> None:
    sim = filled()
    entry = entry_of(sim, 2)
    name = heads.object_name(log_of(sim).id, 0, entry.id)
    run = entry.runs[1]
    data = bytearray(sim.objects.items[name])
    at = run.position if byte == 0 else run.position + run.length + byte
    if change == "flip":
        data[at] ^= 4
    else:
        del data[at:]
    sim.objects.items[name] = bytes(data)
    damage = the_damage(sim)
    assert (damage.kind, damage.where, damage.byte, damage.lost) == ("bytes", name, at, (Lost(1, 2, 3),))


def test_a_page_that_is_gone() -> None:
    sim = filled()
    sim.table.write(Delete(heads.page_key(log_of(sim).id, 1)))
    damage = the_damage(sim)
    assert (damage.kind, damage.where) == ("page", f"item $Log-{log_of(sim).id}/1")
    assert damage.lost == (Lost(0, 2, 4), Lost(1, 2, 4))


def test_the_last_page_is_gone() -> None:
    sim = filled()
    sim.table.write(Delete(heads.page_key(log_of(sim).id, 3)))
    assert the_damage(sim).lost == (Lost(0, 6, 8), Lost(1, 6, 8))


def test_a_page_that_does_not_join() -> None:
    sim = filled()
    key = heads.page_key(log_of(sim).id, 2)
    sim.table.write(Update(key, (Set(("base", "1"), 5),), (Equals("v", 1),)))
    found = scrubbed(sim).damages
    assert [d.kind for d in found] == ["page", "page"], "it does not join the one before, nor the one behind"
    assert found[0].lost == (Lost(1, 4, 5),)


def test_a_head_that_cannot_be() -> None:
    sim = filled()
    sim.table.write(Update(heads.head_key(log_of(sim).id), (Set("gc", 3), Set(("floor", "1"), 99))))
    assert [d.text for d in scrubbed(sim).damages] == [
        "gc 3 is above gen 0",
        "partition 1 ends at 9, below its floor 99",
    ]


def test_the_wrong_number_of_records() -> None:
    sim = filled()
    log = log_of(sim)
    page = dict(sim.table.items[heads.page_key(log.id, 0)])
    first = heads.unpack(page["e"][0])
    data = b"".join(chunk(((0, b"a"), (0, b"b"), (1, b"c"))).parts)
    other = chunk(((0, b"a"), (0, b"b"), (1, b"c"))).runs
    runs = tuple(r.__class__(r.partition, 1, r.position, r.length, r.crc, r.latest, r.span) for r in other)
    sim.objects.items[heads.object_name(log.id, 0, first.id)] = data
    packed = [heads.pack(heads.ChunkEntry(first.id, False, 0, 0, runs)), *page["e"][1:]]
    sim.table.write(Update(heads.page_key(log.id, 0), (Set("e", packed),)))
    damage = the_damage(sim)
    assert (damage.kind, damage.lost) == ("records", (Lost(0, 0, 1),))
    assert damage.text == "it has 2 records, and 1 by its reference"


def test_a_merged_page_is_scrubbed() -> None:
    sim = filled()
    log = log_of(sim)
    pages = [heads.Page.of(sim.table.items[heads.page_key(log.id, p)]) for p in range(3)]
    assert sim.do(merge(log, pages))
    found = scrubbed(sim)
    assert (found.chunks, found.records, found.damages) == (4, 9 * PARTITIONS, [])
    merged = heads.Page.of(sim.table.items[heads.page_key(log.id, 0)]).entries[0]
    del sim.objects.items[heads.object_name(log.id, 0, merged.id)]
    assert the_damage(sim).lost == (Lost(0, 0, 6), Lost(1, 0, 6))


# --- what changes while it is read
def scrubbed_while(sim: Simulation, change: Callable[[], None]) -> ScrubResult:
    """Scrub; when the first bytes are asked for, with their page already read, something happens to them first."""

    def steps() -> Steps[ScrubResult]:
        inner, happened, answer = scrub_topic(log_of(sim)), False, None
        raised: Exception | None = None
        while True:
            try:
                call = inner.throw(raised) if raised else inner.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(call, GetObject) and not happened:
                happened = True
                change()
            raised = None
            try:
                answer = yield call
            except TailraceError as error:
                raised = error

    return sim.do(steps())


def merge_and_remove(sim: Simulation) -> list[str]:
    log, rng = log_of(sim), random.Random(2)
    log.new_id = lambda: f"{rng.randrange(1 << 96):024x}"
    pages = [heads.Page.of(sim.table.items[heads.page_key(log.id, p)]) for p in range(3)]
    assert sim.do(merge(log, pages))
    old = [heads.object_name(log.id, 0, e.id) for page in pages for e in page.entries]
    for name in old:
        del sim.objects.items[name]
    return old


def test_chunks_merged_meanwhile_are_scrubbed_where_they_are_now() -> None:
    sim = filled()
    found = scrubbed_while(sim, lambda: merge_and_remove(sim) and None)
    assert not found.damages
    assert found.records >= 9 * PARTITIONS


def test_what_merging_has_made_is_looked_at() -> None:
    sim = filled()

    def change() -> None:
        merge_and_remove(sim)
        merged = heads.Page.of(sim.table.items[heads.page_key(log_of(sim).id, 0)]).entries[0]
        name = heads.object_name(log_of(sim).id, 0, merged.id)
        sim.objects.items[name] = bytes(len(sim.objects.items[name]))

    assert {d.kind for d in scrubbed_while(sim, change).damages} == {"bytes"}


def test_pages_removed_meanwhile_are_no_damage() -> None:
    sim = filled()

    def change() -> None:
        log = log_of(sim)
        sim.do(raise_floor(log, {0: 4, 1: 4}))
        assert sim.do(drop_pages(log)) == 2

    found = scrubbed_while(sim, change)
    assert not found.damages
    assert found.records >= 5 * PARTITIONS


@pytest.mark.parametrize("slice", [64, 300, 1000])
def test_long_runs_are_read_in_slices(slice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "MAX_BYTES_PER_READ", slice)
    sim = filled()
    found = scrubbed(sim)
    assert not found.damages
    assert found.records == 9 * PARTITIONS
    assert not found.at_most, "nothing was compacted"
    whole = {name: bytes(data) for name, data in sim.objects.items.items()}
    entry = entry_of(sim, 2)
    name, run = heads.object_name(log_of(sim).id, 0, entry.id), entry.runs[1]
    for at in run.position, run.position + run.length - 1:
        data = bytearray(whole[name])
        data[at] ^= 1
        sim.objects.items[name] = bytes(data)
        assert (the_damage(sim).byte, the_damage(sim).lost) == (run.position, (Lost(1, 2, 3),))
    sim.objects.items[name] = whole[name][: run.position + 10]
    assert (the_damage(sim).byte, the_damage(sim).lost) == (run.position + 10, (Lost(1, 2, 3),))


def test_too_little_memory_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's error for it is one of its own errors, like that for bytes that it cannot decode."""
    sim = filled()

    def refuse(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 4194304 failed")

    monkeypatch.setattr(pa.ipc, "read_record_batch", refuse)
    with pytest.raises(OutOfMemory, match="they are not damaged"):
        sim.do(scrub_topic(log_of(sim)))
