"""A reader of a stream holds some pages, however much there is to read."""

from __future__ import annotations

from tailrace.storage.tables import Key
from tailrace.streams.stream import Stream
from tailrace.testing import SimulatedChanges


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
