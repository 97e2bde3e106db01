"""A reader of a stream holds some pages, however much there is to read."""

from __future__ import annotations

import pytest

from tailrace.storage.changes import Change
from tailrace.storage.tables import Key
from tailrace.streams.active_shards import MAX_PAGES
from tailrace.streams.stream import Stream
from tailrace.testing import SimulatedChanges


def test_a_batch_ends_after_some_pages() -> None:
    changes = SimulatedChanges(shards=3)
    for n in range(3000):
        changes.capture(Key(f"k{n % 31}"), None, {"n": n})

    def opened() -> Stream[Change]:
        return Stream(changes, "trim_horizon", table="t", make=lambda change: change, page=5, threads=1)

    stream, found = opened(), list[Change]()
    while some := stream.take(3000):
        assert len(some) <= 5 * (MAX_PAGES + 3)
        found += some
    again = opened()
    assert found == list(iter(lambda: next(again), None))


def test_what_is_passed_over_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = SimulatedChanges()
    for n in range(300):
        changes.capture(Key("k"), None, {"n": n})
    sizes: list[int] = []

    def watched(stream: Stream[Change], most: int) -> list[Change]:
        taken = take(stream, most)
        sizes.append(len(taken))
        return taken

    take = Stream.take
    monkeypatch.setattr(Stream, "take", watched)
    monkeypatch.setattr("tailrace.streams.stream.BATCH", 100)
    stream = Stream(changes, "trim_horizon", table="t", make=lambda change: change, page=50, threads=1)
    assert stream.skip(250) == 250
    assert stream.skip(2**62) == 50
    assert stream.skip(2**62) == 0
    assert max(sizes) == 100


def test_a_stream_holds_one_page_of_each_shard() -> None:
    page, shards = 50, 3
    changes = SimulatedChanges(shards=shards)
    for n in range(3000):
        changes.capture(Key(f"k{n % 31}"), None, {"n": n})
    with Stream(changes, "trim_horizon", table="t", make=lambda change: change, page=page) as stream:
        count = 0
        while next(stream) is not None:
            count += 1
            assert sum(len(reader.buffer) for reader in stream._active.readers.values()) <= page * shards
    assert count == 3000
