"""Which chunks are merged: few objects in the end, and no record is written again too often."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.coordination.rules import without
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, PartitionRun
from tailrace.log.format.head import ChunkEntry, Page
from tailrace.log.upkeep.merge_plan import (
    MAX_PAGES_PER_MERGE,
    MAX_REMEMBERED_ID_BYTES,
    SIZE_RATIO_OF_LEVELS,
    MergeWindow,
    kept_ids,
    packs,
    remembered,
)

SIZE = 6400


def entry(size: int, id: str = "x", gen: int = 0, kind: int = 0, made_of: tuple = (), latest: int = 0) -> ChunkEntry:
    return ChunkEntry(id, False, gen, kind, (PartitionRun(0, 1, 0, size, 0, latest, 0),), made_of)


def page(number: int, *entries: ChunkEntry, last: int | None = None) -> Page:
    return Page(number, number if last is None else last, {0: number}, [heads.pack(e) for e in entries], 1, 0)


def sizes(chosen: list[tuple[ChunkEntry, ...]]) -> list[list[int]]:
    return [[e.size for e in pack] for pack in chosen]


def test_small_neighbours_are_packed_and_large_ones_stay() -> None:
    found = packs([entry(n) for n in (100, 3000, 300, 3200, 10, 6400, 50, 7000)], SIZE)
    assert sizes(found) == [[100, 3000, 300], [3200], [10], [6400], [50], [7000]]


def test_a_pack_has_at_most_the_size_wanted() -> None:
    assert sizes(packs([entry(3000) for _ in range(5)], SIZE)) == [[3000, 3000], [3000, 3000], [3000]]


def test_what_is_not_worth_it_is_left() -> None:
    assert sizes(packs([entry(1000), entry(900)], SIZE)) == [[1000], [900]]
    assert sizes(packs([entry(100)] * SIZE_RATIO_OF_LEVELS, SIZE)) == [[100] * SIZE_RATIO_OF_LEVELS]
    assert sizes(packs([entry(1000), entry(900)], SIZE, worthwhile=False)) == [[1000, 900]]


def test_a_manifest_is_left_as_it_is() -> None:
    some = [entry(10), entry(10, kind=MANIFEST), entry(10)]
    assert sizes(packs(some, SIZE, worthwhile=False)) == [[10], [10], [10]]


# --- ids
def test_ids_behind_the_fence_are_forgotten_and_it_is_said() -> None:
    old, new = entry(1, "old", gen=1), entry(1, "new", gen=2)
    assert kept_ids(old, 2) == (("", ((0, 1),)),)
    assert kept_ids(new, 2) == (("new", ((0, 1),)),)
    merged = entry(1, "m", 2, made_of=remembered([old, old, new], 2))
    assert merged.made_of == (("", ((0, 2),)), ("new", ((0, 1),)))
    assert page(7, merged).forgot
    assert not page(7, new).forgot
    assert page(7, merged).offsets_of("new") == {0: 9}


def test_a_merged_entry_is_forgotten_as_a_whole() -> None:
    merged = ChunkEntry("m", False, 2, 0, (PartitionRun(0, 5, 0, 1, 0, 0, 0),), (("a", ((0, 2),)), ("b", ((0, 3),))))
    assert remembered([merged], 3) == (("", ((0, 5),)),)
    assert remembered([merged], 2) == merged.made_of


# --- windows
def groups(pages: list[Page], **settings: int) -> list[list[int]]:
    window = MergeWindow(SIZE, **settings)
    found = [group for one in pages for group in window.add(one)]
    return [[one.first for one in group] for group in [*found, *window.close()]]


def test_neighbouring_pages_are_grouped_up_to_a_large_one() -> None:
    pages = [page(0, entry(2000)), page(1, entry(2000)), page(2, entry(6000)), page(3, entry(5)), page(4, entry(5))]
    assert groups(pages) == [[0, 1]]


def test_a_page_of_many_small_chunks_is_merged_by_itself() -> None:
    assert groups([page(0, *[entry(400)] * 10)]) == [[0]]


def test_what_is_small_behind_something_larger_is_merged_without_it() -> None:
    assert groups([page(0, entry(2000)), *(page(n, entry(10)) for n in range(1, 10))]) == [list(range(1, 10))]


def test_pages_that_do_not_join_are_not_grouped() -> None:
    assert groups([page(0, entry(2000)), page(2, entry(2000))]) == []


def test_a_group_fits_a_transaction() -> None:
    found = groups([page(n, entry(10)) for n in range(250)])
    assert [len(group) for group in found] == [MAX_PAGES_PER_MERGE, MAX_PAGES_PER_MERGE, 250 - 2 * MAX_PAGES_PER_MERGE]


def test_a_merged_page_remembers_a_bounded_number_of_ids() -> None:
    pages = [page(n, *[entry(1, f"{n:024}")] * 100) for n in range(60)]
    found = groups(pages)
    assert len(found) > 1
    for group in found:
        made_of = remembered([e for n in group for e in pages[n].entries], 0)
        assert len(heads.pack(entry(1, made_of=made_of))) <= MAX_REMEMBERED_ID_BYTES
    assert len(groups([page(n, *[entry(1, f"{n:024}")] * 100) for n in range(60)], fence=1)) == 1


def test_a_group_does_not_span_more_time_than_it_may() -> None:
    pages = [page(n, *[entry(300, latest=n * 10)] * 10) for n in range(6)]
    assert groups(pages, span=20) == [[0, 1, 2], [3, 4, 5]]


# --- in the long run
@dataclass
class Long:
    """Pages that are merged again and again, each a list of (bytes, how often each has been written)."""

    pages: list[Page]
    written: int = 0
    number: int = 0

    def append(self, size: int) -> None:
        self.pages.append(page(self.number, entry(size)))
        self.number += 1

    def merge(self) -> None:
        merged = True
        while merged:
            merged = False
            window = MergeWindow(SIZE)
            found = [group for one in self.pages for group in window.add(one)]
            for group in [*found, *window.close()]:
                merged = True
                entries = []
                for pack in packs([e for one in group for e in one.entries], SIZE):
                    entries.append(pack[0] if len(pack) == 1 else entry(sum(e.size for e in pack)))
                    self.written += 0 if len(pack) == 1 else entries[-1].size
                at = self.pages.index(group[0])
                self.pages[at : at + len(group)] = [page(group[0].first, *entries, last=group[-1].last)]


def grown(given: list[int], every: int) -> Long:
    log = Long([])
    for n, size in enumerate(given):
        log.append(size)
        if n % every == every - 1:
            log.merge()
    log.merge()
    return log


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(10, 2000), min_size=1, max_size=300), st.integers(1, 50))
def test_no_byte_is_written_too_often_and_few_objects_are_left(given: list[int], every: int) -> None:
    log = grown(given, every)
    total = sum(given)
    assert sum(e.size for one in log.pages for e in one.entries) == total
    tiers = math.log(SIZE / 2 / min(given), SIZE_RATIO_OF_LEVELS)
    assert log.written <= (1 + tiers) * total
    assert sum(len(one.entries) for one in log.pages) <= total / (SIZE / 2) * 2 + SIZE_RATIO_OF_LEVELS * (tiers + 2)


@pytest.mark.parametrize("rule", ["merge.growth", "merge.large"])
def test_each_rule_of_the_tiers_is_needed(rule: str) -> None:
    given = [100] * 400
    bound = (1 + math.log(SIZE / 2 / 100, SIZE_RATIO_OF_LEVELS)) * sum(given)
    assert grown(given, 1).written <= bound
    with without(rule):
        assert grown(given, 1).written > bound
