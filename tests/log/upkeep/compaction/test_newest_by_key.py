"""Which records stay, where offsets follow each other and where compaction has left gaps."""

from __future__ import annotations

import dataclasses
import random

import pyarrow as pa
import pytest
from msgspec import structs

from tailrace.log.format.chunk import OFFSETS, encode
from tailrace.log.upkeep.compaction import newest_by_key
from tailrace.log.upkeep.compaction.newest_by_key import NewestByKey, Rows, each_rows
from tailrace.log.upkeep.repack import RunToPack, with_offsets
from tailrace.log.write.record_batch import batch_of


def rows(keys: bytes, offsets: list[int]) -> Rows:
    """A record for each letter, its key, at these offsets."""
    batch = batch_of([b"%c" % key for key in keys], [b"v"] * len(keys), [*range(len(keys))])
    return Rows(batch, pa.array(offsets, pa.int64()))


def kept(found: NewestByKey, *some: Rows) -> list[int]:
    """The offsets that stay, told by offsets, and the same by keys."""
    stay = found.kept(0, some, None, known=True)
    assert stay == found.kept(0, some, None, known=False)
    return [n for one, mask in zip(some, stay, strict=True) for n in one.offsets.filter(mask).to_pylist()]


def test_the_last_of_each_key_stays() -> None:
    some = rows(b"abac", [5, 6, 7, 8]), rows(b"bd", [9, 10])
    found = NewestByKey()
    for one in some:
        found.add(0, one)
    found.settle()
    assert kept(found, *some) == [7, 8, 9, 10]
    assert kept(found, some[0]) == [7, 8]


@pytest.mark.parametrize("gaps", [False, True])
def test_whatever_is_forgotten_on_the_way(gaps: bool) -> None:
    """Settling after any record gives the same as settling once."""
    draw = random.Random(7)
    for _ in range(100):
        count = draw.randrange(1, 40)
        offsets = sorted(draw.sample(range(200), count)) if gaps else [*range(50, 50 + count)]
        keys = bytes(draw.choices(b"abcdefgh", k=count))
        found, some = NewestByKey(), []
        at = 0
        while at < count:
            size = draw.randrange(1, 6)
            some.append(rows(keys[at : at + size], offsets[at : at + size]))
            found.add(0, some[-1])
            at += size
            if draw.random() < 0.3:
                found.settle()
        found.settle()
        last = dict(zip(keys, offsets, strict=True))
        assert kept(found, *some) == sorted(last.values())


@pytest.mark.parametrize("at_once", [1, 10, 1 << 20])
def test_records_of_neighbouring_pieces_keep_their_offsets(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where compacted pieces, whose offsets have gaps, lie between others."""
    monkeypatch.setattr(newest_by_key, "BYTES_PER_COPY", at_once)
    pieces = [piece(b"ab", 0), piece(b"cd", 2), piece(b"ef", 4, [5, 7]), piece(b"gh", 8, [8, 9]), piece(b"ij", 10)]
    found = [*each_rows(pieces)]
    assert [n for one in found for n in one.offsets.to_pylist()] == [0, 1, 2, 3, 5, 7, 8, 9, 10, 11]
    assert b"".join(k for one in found for k in one.batch.column("key").to_pylist()) == b"abcdefghij"
    assert all("offset" not in one.batch.schema.names for one in found)
    assert len(found) == {1: 5, 10: 5, 1 << 20: 3}[at_once]


def test_records_on_either_side_of_what_is_wholly_gone_keep_their_offsets() -> None:
    """Of a compacted piece nothing may be left: no batch of it lies between its neighbours, which do not join."""
    gone = piece(b"xy", 2, [2, 3])
    gone = dataclasses.replace(gone, run=structs.replace(gone.run, length=0), data=memoryview(b""))
    assert [one.offsets.to_pylist() for one in each_rows([piece(b"ab", 0), gone, piece(b"cd", 4)])] == [[0, 1], [4, 5]]


def piece(keys: bytes, first: int, offsets: list[int] | None = None) -> RunToPack:
    """A run of a chunk, of a compacted one if there are offsets."""
    some = rows(keys, offsets or [0] * len(keys))
    chunk = encode({0: [with_offsets(some.batch, some.offsets) if offsets else some.batch]})
    assert chunk.kind == (OFFSETS if offsets else 0)
    return RunToPack(chunk.kind, chunk.runs[0], first, memoryview(chunk.parts[1]), "here")
