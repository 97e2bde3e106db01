"""What the cloud is asked for, counted on real servers: S3 by SeaweedFS, DynamoDB by dynoxide."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tailrace.errors import HomeError
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.write.buffer import RECORD_OVERHEAD_BYTES
from tailrace.log.write.input import CHUNK_BYTES
from tailrace.storage.aws.buckets import BucketObjects, open_bucket
from tailrace.storage.aws.dynamodb import DynamoTable
from tailrace.storage.calls import Store
from tests.servers import aws
from tests.servers.process import Server

pytestmark = pytest.mark.server

MIB = 1 << 20


class Cloud:
    """A home in the cloud, and what it has asked for since the last look."""

    def __init__(self, table: DynamoTable, objects: BucketObjects) -> None:
        self.table, self.objects = table, objects
        self.home = Home("s3://…", Store(table, objects))
        self.asked()

    def asked(self) -> Counter[str]:
        """Requests since the last time this was asked."""
        out = self.table.requests + self.objects.requests
        self.table.requests.clear()
        self.objects.requests.clear()
        return out


@contextlib.contextmanager
def cloud_on(dynoxide: Server, seaweedfs: Server, bucket: str) -> Iterator[Cloud]:
    with aws.table(dynoxide) as table:
        objects = open_bucket(f"s3://{bucket}/home", session=aws.session_of(seaweedfs), endpoint=seaweedfs.url)
        yield Cloud(table, objects)
        objects.close()


@pytest.fixture
def cloud(dynoxide: Server, seaweedfs: Server) -> Iterator[Cloud]:
    with cloud_on(dynoxide, seaweedfs, aws.new_bucket(seaweedfs)) as made:
        yield made


def test_an_append_over_eight_partitions_is_one_put_and_one_update(cloud: Cloud) -> None:
    topic = cloud.home.create_topic("t", 8)
    topic.ends()
    cloud.asked()
    topic.append([(b"key-%d" % n, b"x" * 2000) for n in range(64)])
    assert cloud.asked() == {"put": 1, "UpdateItem": 1}
    assert len({r.partition for r in topic.records()}) == 8


def test_a_small_append_is_one_put_of_an_item_and_one_update(cloud: Cloud) -> None:
    topic = cloud.home.create_topic("t", 8)
    topic.ends()
    cloud.asked()
    with topic.producer(linger=0) as out:
        out.send(b"k", b"small").result(30)
    assert cloud.asked() == {"PutItem": 1, "UpdateItem": 1}


def test_a_transaction_over_two_topics(cloud: Cloud) -> None:
    one, two = cloud.home.create_topic("one"), cloud.home.create_topic("two")
    one.ends(), two.ends()
    cloud.asked()
    with cloud.home.transaction(one, two) as t:
        t.send(b"k", b"x" * 10_000, topic="one")
        t.send(b"k", b"x" * 10_000, topic="two")
    assert cloud.asked() == {"put": 2, "TransactWriteItems": 1, "GetItem": 2}, "DynamoDB does not say the offsets"


def test_idle_producers_topics_and_homes_ask_for_nothing(cloud: Cloud) -> None:
    topic = cloud.home.create_topic("t", 8)
    with topic.producer() as out, topic.producer() as _never_used:
        out.send(b"k", b"v").result(30)
        cloud.asked()
        time.sleep(1.5)
        assert cloud.asked() == {}


def test_reading_a_chunk_is_one_get(cloud: Cloud) -> None:
    topic = cloud.home.create_topic("t", 8)
    topic.append([(b"key-%d" % n, b"x" * 2000) for n in range(64)])
    cloud.asked()
    assert sum(1 for _ in topic.records()) == 64
    asked = cloud.asked()
    assert asked["get"] == 1, "of all its partitions together"
    assert asked["GetItem"] <= 4
    assert set(asked) == {"get", "GetItem"}


# --- a gibibyte
RECORD = 1024


def requests_for(count: int, partitions: int) -> float:
    """What `count` records of 1 KiB cost at most: a put and an update for each chunk; and for each page a refused
    update, a transaction that rolls the head, a look at it."""
    per_chunk = CHUNK_BYTES // (RECORD + RECORD_OVERHEAD_BYTES)
    chunks = count / per_chunk + 1
    entry = 30 + partitions * 34  # its id, and for each run its numbers at their largest
    pages = min(chunks, chunks * entry / heads.MAX_ENTRY_BYTES + 1)
    return 2 * chunks + 3 * pages


def test_a_gibibyte_costs_less_than_a_thousandth_of_an_object_for_each_event(cloud: Cloud) -> None:
    """64 MiB are sent with default settings and counted; a gibibyte is sixteen times that."""
    topic = cloud.home.create_topic("t", 8)
    topic.ends()
    cloud.asked()
    count, value = 64 * MIB // RECORD, b"x" * (RECORD - 8)
    with topic.producer() as out:
        for n in range(count):
            out.send(b"%08d" % n, value)
    asked = cloud.asked()
    total = sum(asked.values())
    events = 1024 * MIB // RECORD
    print(f"64 MiB: {total} requests {dict(asked)}; 1 GiB: {16 * total}, one object per event: {events}")
    assert asked["put"] <= count * (RECORD + RECORD_OVERHEAD_BYTES) / CHUNK_BYTES + 2, "chunks are full"
    assert total <= requests_for(count, 8) + 20
    assert 16 * total <= events / 1000
    assert max(requests_for(events, partitions) for partitions in (1, 8, 64)) <= events / 1000, "by the formula"
    assert requests_for(events, 128) <= events / 750, "every chunk of so many partitions fills a page"
    assert sum(batch.num_rows for batch in topic.read()) == count


# --- what is missing
def test_a_bucket_that_is_missing(dynoxide: Server, seaweedfs: Server) -> None:
    missing = "there is no bucket for s3://tailrace-there-is-none/home; make it"
    with pytest.raises(HomeError, match=missing), cloud_on(dynoxide, seaweedfs, "tailrace-there-is-none"):
        pass


def test_a_bucket_that_was_removed(dynoxide: Server, seaweedfs: Server) -> None:
    bucket = aws.new_bucket(seaweedfs)
    with cloud_on(dynoxide, seaweedfs, bucket) as cloud:
        topic = cloud.home.create_topic("t")
        aws.session_of(seaweedfs).client("s3", endpoint_url=seaweedfs.url).delete_bucket(Bucket=bucket)
        began = time.monotonic()
        with pytest.raises(HomeError, match=f"there is no bucket for s3://{bucket}/home; make it"):
            topic.append([(b"k", b"x" * 10_000)])
        assert time.monotonic() - began < 20
        topic.append([(b"k", b"small")])
        assert [r.value for r in topic.records()] == [b"small"], "and the process goes on"


def test_a_table_that_is_missing(dynoxide: Server, seaweedfs: Server) -> None:
    with aws.table(dynoxide, "tailrace-there-is-none") as table:
        objects = open_bucket("s3://b/home", session=aws.session_of(seaweedfs), endpoint=seaweedfs.url)
        with pytest.raises(HomeError, match="there is no table 'tailrace-there-is-none'; `tailrace home create"):
            Home("s3://…", Store(table, objects))
