"""The head, purely: what appends and rolls make of it, and what is found on a page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Conflict
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import PartitionRun
from tailrace.log.format.head import ChunkEntry, Head, Page, pack, unpack
from tailrace.storage.tables import LAST, Key
from tailrace.testing import SimulatedTable

IDS = [f"{n:024x}" for n in range(100)]


def entry(
    id: str = IDS[1], counts: dict[int, int] | None = None, gen: int = 0, latest: int = 5, **more: object
) -> ChunkEntry:
    counts = {0: 1} if counts is None else counts
    return ChunkEntry(
        id, False, gen, 0, tuple(PartitionRun(q, n, 10 * q, 9, 7, latest, 2) for q, n in counts.items()), **more
    )  # type: ignore[arg-type]


def a_table(partitions: int = 2) -> SimulatedTable:
    table = SimulatedTable()
    table.write(heads.new_head("t", partitions))
    return table


def head_of(table: SimulatedTable) -> Head:
    return Head(table.items[heads.head_key("t")])


def refused(table: SimulatedTable, *actions: object) -> bool:
    before = dict(table.items)
    try:
        table.write(*actions)  # type: ignore[arg-type]
    except Conflict:
        assert table.items == before
        return True
    return False


runs = st.builds(
    PartitionRun,
    st.integers(0, 127),
    st.integers(1, 10**6),
    st.integers(0, 2**40),
    st.integers(0, 2**32),
    st.integers(0, 2**32 - 1),
    st.integers(0, 253_402_300_799_999),
    st.integers(0, 253_402_300_799_999),
)


@given(
    st.sampled_from(IDS),
    st.booleans(),
    st.integers(0, 2**20),
    st.lists(runs, max_size=5),
    st.lists(st.tuples(st.sampled_from(IDS), st.lists(st.tuples(st.integers(0, 127), st.integers(1, 99))))),
)
def test_an_entry_is_stored_and_read_back(
    id: str, inline: bool, gen: int, some: list[PartitionRun], made: list
) -> None:  # type: ignore[type-arg]
    made_of = tuple((i, tuple(counts)) for i, counts in made)
    one = ChunkEntry(id, inline, gen, 0, tuple(some), made_of)
    assert unpack(pack(one)) == one


def test_where_things_are() -> None:
    assert heads.head_key("t") == Key("$Log-t", LAST)
    assert heads.page_key("t", 7) == Key("$Log-t", 7)
    assert heads.object_name("t", 3, "abc") == "topics/t/3/abc"
    gen, id = 5, "f" * 24
    key = heads.chunk_key("t", gen, id)
    assert key.p == "$Chunk-t"
    assert key.i >> heads.ID_BITS == gen
    assert key.i < heads.chunk_key("t", gen + 1, "0" * 24).i
    assert heads.chunk_key("t", 2**20 - 1, id).i == LAST


def test_an_append_adds_to_what_is_there() -> None:
    table = a_table(3)
    table.write(heads.append("t", 0, [entry(IDS[1], {0: 2, 1: 3})]))
    table.write(heads.append("t", 0, [entry(IDS[2], {1: 1}), entry(IDS[3], {1: 4, 2: 1})]))
    head = head_of(table)
    assert head.next == {0: 2, 1: 8, 2: 1}
    assert head.appends == 2
    assert head.ids == {IDS[1], IDS[2]}, "the first of several stands for all"
    assert [e.id for e in head.own.entries] == IDS[1:4]
    assert head.own.base == {0: 0, 1: 0, 2: 0}
    assert head.entry_bytes == sum(map(len, head.item["e"]))
    assert head.own.offsets_of(IDS[2]) == {0: 2, 1: 3, 2: 0}
    assert head.own.offsets_of(IDS[9]) is None


def test_an_append_that_must_not_be() -> None:
    table = a_table()
    table.write(heads.append("t", 0, [entry(IDS[1])]))
    assert refused(table, heads.append("t", 0, [entry(IDS[1])])), "the same id again"
    assert refused(table, heads.append("t", 1, [entry(IDS[2])])), "another page"
    assert refused(table, heads.append("t", 0, [entry(IDS[2])], {0: 0})), "another next offset"
    item = table.items[heads.head_key("t")]
    table.items[heads.head_key("t")] = {**item, "gc": 1, "gen": 1}
    assert refused(table, heads.append("t", 0, [entry(IDS[2], gen=0)])), "behind the fence"
    assert refused(table, heads.append("t", 0, [entry(IDS[2], gen=1), entry(IDS[3], gen=0)])), "one behind the fence"
    assert not refused(table, heads.append("t", 0, [entry(IDS[2], gen=1)], {0: 1, 1: 0}))
    table.items[heads.head_key("t")] = {**table.items[heads.head_key("t")], "b": heads.MAX_ENTRY_BYTES}
    assert refused(table, heads.append("t", 0, [entry(IDS[4], gen=1)])), "full"
    del table.items[heads.head_key("t")]
    assert refused(table, heads.append("t", 0, [entry(IDS[5])])), "a topic that is gone is not made"


def test_a_roll_calves_the_entries_off() -> None:
    table = a_table()
    table.write(heads.append("t", 0, [entry(IDS[1], {0: 2}, latest=9)]))
    table.write(heads.append("t", 0, [entry(IDS[2], {0: 1, 1: 1}, latest=4)]))
    before = head_of(table)
    table.write(*heads.roll("t", before))
    head, page = head_of(table), Page.of(table.items[heads.page_key("t", 0)])
    assert (head.page, head.appends, head.entry_bytes, head.ids, head.own.entries) == (1, 0, 0, frozenset(), ())
    assert head.next == {0: 3, 1: 1} == page.end == head.own.base
    assert (page.first, page.last, page.revision, page.latest_so_far, head.closed_latest) == (0, 0, 1, 9, 9)
    assert page.base == {0: 0, 1: 0}
    assert [e.id for e in page.entries] == IDS[1:3]
    assert refused(table, *heads.roll("t", before)), "rolled already"


def test_a_roll_that_has_not_seen_the_last_append_is_refused() -> None:
    table = a_table()
    table.write(heads.append("t", 0, [entry(IDS[1])]))
    before = head_of(table)
    table.write(heads.append("t", 0, [entry(IDS[2])]))
    assert refused(table, *heads.roll("t", before))


def test_the_latest_time_only_rises() -> None:
    table = a_table()
    for n, latest in enumerate([9, 4, 12]):
        table.write(heads.append("t", n, [entry(IDS[n], latest=latest)]))
        table.write(*heads.roll("t", head_of(table)))
    assert [Page.of(table.items[heads.page_key("t", n)]).latest_so_far for n in range(3)] == [9, 9, 12]


def test_a_merged_chunk_is_found_by_what_it_was_made_of() -> None:
    merged = entry(IDS[9], {0: 3, 1: 2}, made_of=((IDS[1], ((0, 1),)), (IDS[2], ((1, 2), (0, 2)))))
    page = Page(3, 5, {0: 10, 1: 20}, [pack(merged), pack(entry(IDS[3], {1: 1}))], 2, 0)
    assert page.offsets_of(IDS[1]) == {0: 10, 1: 20}
    assert page.offsets_of(IDS[2]) == {0: 11, 1: 20}
    assert page.offsets_of(IDS[9]) == {0: 10, 1: 20}
    assert page.offsets_of(IDS[3]) == {0: 13, 1: 22}
    assert page.offsets_of(IDS[4]) is None
    assert page.end == {0: 13, 1: 23}


def test_a_page_of_the_largest_topic_fits_its_item() -> None:
    """128 partitions in every entry, and a merge of as many pages as there may be."""
    table = a_table(128)
    n = 0
    while head_of(table).entry_bytes < heads.MAX_ENTRY_BYTES:
        n += 1
        big = ChunkEntry(
            f"{n:024x}",
            False,
            2**20,
            0,
            tuple(PartitionRun(q, 2**20, 2**31, 2**31, 2**32 - 1, 2**47, 2**40) for q in range(128)),
        )
        table.write(heads.append("t", 0, [big]))
    table.write(*heads.roll("t", head_of(table)))
    made_of = tuple((f"{n:024x}", tuple((q, 2**20) for q in range(128))) for n in range(98))
    page = ChunkEntry("f" * 24, False, 0, 0, big.runs, made_of)
    assert len(pack(page)) < 300_000
