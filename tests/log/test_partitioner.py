"""The setting `partitioner`: everything that appends to a topic places keys by it, and nothing changes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import BadSetting, HomeError
from tailrace.home import Home
from tailrace.log import catalog
from tailrace.log.catalog import topic_key
from tailrace.log.format.chunk import Chunk
from tailrace.log.interchange.folder import export_topic, import_topic
from tailrace.log.topic import Topic
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.placement import place
from tailrace.log.write.repartition import regroup
from tailrace.log.write.staged_chunk import place_staged, stage_chunks
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item, Key, Set, Update
from tests.log.homes import HERE, homes
from tests.log.partitioning import kafka_partition, keys_in_place

MANY = [b"order-%d" % n for n in range(300)]
FEW = MANY[:5]
TABLE = pa.table({"key": MANY, "value": MANY})

home = homes(HERE)


@pytest.fixture
def topic(home: Home) -> Topic:
    return home.topic("orders", partitions=5, partitioner="murmur2")


# -- whatever appends
def test_appends_and_transactions(home: Home, topic: Topic) -> None:
    topic.append([(key, b"v") for key in FEW])
    topic.append(TABLE)
    topic.append(pa.table({"key": [*MANY, None, None], "value": [*MANY, b"x", b"y"]}))
    with home.transaction("orders") as some:
        acks = [some.send(key, b"v") for key in MANY]
    assert [ack.partition for ack in acks] == [kafka_partition(key, 5) for key in MANY]
    with topic.transaction() as alone:
        alone.send(FEW[0], b"v", headers={"h": b"x"})
    assert keys_in_place(topic) == len(FEW) + 3 * len(MANY) + 1


@pytest.mark.parametrize("keys", [FEW, MANY, [FEW[0]], [b"k" * 200, b"j" * 1000]])
def test_producers(topic: Topic, keys: list[bytes]) -> None:
    with topic.producer() as out:
        acks = [out.send(key, b"v") for key in keys]
        special = out.send(keys[0], b"v", headers={"h": b"x"})
        sent = out.send_batch([(key, b"v") for key in keys])
        loose = out.send(None, b"v")
    assert [ack.partition for ack in (*acks, special)] == [kafka_partition(key, 5) for key in (*keys, keys[0])]
    assert {span.partition for span in sent.result()} == {kafka_partition(key, 5) for key in keys}
    assert loose.partition in range(5)
    spans = topic.named_producer("loader").send_batch([(key, b"v") for key in keys])
    assert {span.partition for span in spans or ()} == {kafka_partition(key, 5) for key in keys}
    assert keys_in_place(topic) == 3 * len(keys) + 1


def test_a_producer_of_asyncio(topic: Topic) -> None:
    async def send() -> None:
        async with topic.aio.producer() as out:
            for key in MANY:
                await out.send(key, b"v")
            await out.send_batch(TABLE)

    asyncio.run(send())
    assert keys_in_place(topic) == 2 * len(MANY)


def test_chunks_that_one_process_stages_and_another_commits(topic: Topic) -> None:
    batch = pa.record_batch(
        [pa.array([0] * 300, pa.timestamp("ms", "UTC")), pa.array([0] * 300, pa.uint8()), MANY, MANY],
        names=["timestamp", "attributes", "key", "value"],
    )
    staged = stage_chunks(topic.store, topic.log, topic.described, [batch])
    topic.grow(8)
    placed = topic.store.run(place_staged(topic.log, [staged]))
    assert placed is not None
    topic.store.run(commit([placed]))
    assert keys_in_place(topic) == len(MANY)


def test_a_producer_that_did_not_know_that_the_topic_has_grown(home: Home, topic: Topic) -> None:
    stranger = home.topic("orders")
    stranger.ends()
    topic.grow(12)
    with stranger.producer() as out:
        acks = [out.send(key, b"v") for key in MANY]
    assert [ack.partition for ack in acks] == [kafka_partition(key, 12) for key in MANY]
    assert keys_in_place(topic, 12) == len(MANY)


def test_a_chunk_that_is_spread_twice() -> None:
    buffer = Buffer(2, 1000, partitioner="murmur2")
    for key in MANY:
        buffer.add(key, b"v", 1000)
    twice = regroup(regroup(buffer.encode("none"), 5), 7)
    assert twice.partitioner == "murmur2"
    for q, batches in twice.batches().items():
        assert {kafka_partition(key, 7) for batch in batches for key in batch.column(2).to_pylist()} == {q}


def test_keys_that_were_placed_by_another_partitioner_are_not_stored(home: Home, topic: Topic) -> None:
    wrong = TopicLog(topic.name, topic.id, topic.log.inline_bytes, topic.log.joins_inline, partitions=5)
    with topic.transaction() as kept:
        kept.send(b"k", b"v")
        chunk: Chunk = kept._batches["orders"].buffer.encode("none")
    with pytest.raises(AssertionError, match="keys were placed by murmur2"):
        topic.store.run(place(wrong, chunk))


def test_a_copy_and_an_import_go_on_as_the_topic_did(home: Home, topic: Topic, tmp_path: Path) -> None:
    topic.append(TABLE)
    export_topic(topic, tmp_path / "out")
    back = home.topic("back", partitions=5, partitioner="murmur2")
    import_topic(back, tmp_path / "out")
    home.copy(tmp_path / "copy")
    with tailrace.open(tmp_path / "copy") as copied:
        for one in (back, copied.topic("orders")):
            one.append(TABLE)
            assert one.settings.partitioner == "murmur2"
            assert keys_in_place(one) == 2 * len(MANY)


# -- the setting
def test_a_topic_keeps_its_partitioner(home: Home, topic: Topic) -> None:
    with pytest.raises(BadSetting, match=r"partitioner stays as it was made, here murmur2: .* make another topic"):
        topic.configure(partitioner="sha256")
    with pytest.raises(BadSetting, match="here sha256"):
        home.topic("plain", partitions=1).configure(partitioner="murmur2")
    with pytest.raises(BadSetting, match=r"'orders' has partitioner='murmur2' and keeps it; open it without"):
        home.topic("orders", partitions=5, partitioner="sha256")
    assert home.topic("orders", partitions=5, partitioner="murmur2").id == topic.id
    topic.configure(compression="zstd", partitioner="murmur2")
    assert {one.partitioner for _, _, one in topic.history()} == {"murmur2"}
    topic.append(TABLE)
    assert keys_in_place(home.topic("orders")) == len(MANY)


def test_new_topics_have_sha256(home: Home) -> None:
    plain = home.topic("plain", partitions=8)
    assert plain.settings.partitioner == plain.log.partitioner == "sha256"
    plain.append(TABLE)
    with pytest.raises(AssertionError):
        keys_in_place(plain)


def _item(key: Key) -> Steps[Item | None]:
    return (yield from calls.get(key))


class Before(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of versions without partitioners."""

    compression: str
    max_record_bytes: int
    retention_ms: int | None
    retention_bytes: int | None
    merge_bytes: int | None
    compact: bool
    compact_by: str
    tombstone_ms: int


def test_versions_without_partitioners_open_the_topics_that_they_can_append_to(home: Home, topic: Topic) -> None:
    home.topic("plain", partitions=5).configure(compression="lz4")
    stored: dict[str, Any] = {}
    for name in ("plain", "orders"):
        item = home.store.run(_item(topic_key(name)))
        assert item is not None
        stored[name] = item["settings"]
    assert msgspec.convert(stored["plain"], Before).compression == "lz4"
    with pytest.raises(msgspec.ValidationError, match="partitioner"):
        msgspec.convert(stored["orders"], Before)


@pytest.mark.parametrize("newer", [{"partitioner": "crc32"}, {"sorted_by": "key"}])
def test_settings_of_a_newer_version_are_refused(home: Home, topic: Topic, newer: dict[str, Any]) -> None:
    def change() -> Steps[None]:
        changes = tuple(Set(("settings", name), value) for name, value in newer.items())
        yield from calls.write(Update(topic_key("orders"), changes))

    home.store.run(change())
    with pytest.raises(HomeError, match=r"topic 'orders' has settings that this version .*: a newer one made it; upg"):
        home.topic("orders")
    assert home.topics() == ["orders"]
    assert home.store.run(catalog.overview())[0][0] == "orders"
    (done,) = home.upkeep()
    assert "a newer one made it" in (done.error or "")
