"""Chunks that one process stages and another commits, after cleaning or growth has come between the two."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from tailrace.errors import ObjectMissing
from tailrace.log.format import manifest
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.write import joint_append
from tailrace.log.write.append import commit
from tailrace.log.write.input import pieces, rows
from tailrace.log.write.placement import Placed
from tailrace.log.write.staged_chunk import StagedChunks, place_staged, stage_chunks
from tests.log.homes import HERE, homes, orders

home = homes(HERE)
topic = orders(2)


def staged(topic: Topic, n: int, *, inline: bool) -> StagedChunks:
    log = topic.log if inline else replace(topic.log, inline_bytes=0)
    batches = [rows(piece, 1, 1 << 20) for piece in pieces([(b"k%d" % n, b"v%d" % n)])]
    return stage_chunks(topic.store, log, topic.described, batches)


def placed(topic: Topic, chunks: list[StagedChunks]) -> Placed:
    topic.store.run(topic.log.head())
    found = topic.store.run(place_staged(topic.log, chunks))
    assert found is not None
    return found


def fence(topic: Topic) -> None:
    """Clean twice: the fence is above what was staged before, whose objects the second cleaning removes."""
    for _ in range(2):
        topic.store.run(clean(topic.log))


def values(topic: Topic) -> list[bytes | None]:
    return sorted(record.value or b"" for record in topic.records())


def test_chunks_whose_bytes_go_with_the_head_survive_a_fence(topic: Topic) -> None:
    chunks = [staged(topic, n, inline=True) for n in range(3)]
    assert all(one.data for one in chunks)
    fence(topic)
    topic.store.run(commit([placed(topic, chunks)]))
    assert values(topic) == [b"v0", b"v1", b"v2"]


@pytest.mark.parametrize("inline", [True, False])
def test_chunks_are_copied_or_spread_again_when_the_topic_has_grown_behind_a_fence(topic: Topic, inline: bool) -> None:
    before = placed(topic, [staged(topic, n, inline=inline) for n in range(5)])
    topic.grow(5)
    after = topic.store.run(before.again())
    assert (before.partitions, after.partitions) == (2, 5)
    topic.store.run(commit([after]))
    assert values(topic) == [b"v%d" % n for n in range(5)]
    assert {record.partition for record in topic.records()} - {0, 1}


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("limit", ["entries", "inline"])
def test_many_chunks_become_objects(topic: Topic, limit: str, inline: bool) -> None:
    chunks = [staged(topic, n, inline=inline) for n in range(4)]
    module, name = (
        (manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST") if limit == "entries" else (joint_append, "MAX_INLINE_CHUNKS")
    )
    with patch.object(module, name, 3):
        found = placed(topic, chunks)
        assert not found.data
        assert len(found.entries) == (1 if limit == "entries" else 4)
        again = topic.store.run(found.again())
        topic.store.run(commit([again]))
    assert values(topic) == [b"v%d" % n for n in range(4)]


@pytest.mark.parametrize("listed", [True, False])
def test_a_staged_object_that_cleaning_has_removed_is_named(topic: Topic, listed: bool) -> None:
    chunks = [staged(topic, n, inline=False) for n in range(2)]
    with patch.object(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 0 if listed else 1 << 20):
        found = placed(topic, chunks)
        fence(topic)
        with pytest.raises(ObjectMissing, match=r"topics/"):
            topic.store.run(commit([found]))
    assert values(topic) == []
