"""The logs under test, each with what it promises when it acknowledges."""

from functools import partial

from benchmarks.contract import Contestant, in_folder
from benchmarks.logs import disk, kafka, nats, ours, redis

ARROW = Contestant(
    name="tailrace, Arrow",
    promise="synced",
    bulk="send_batch() of 4 MiB",
    single="send().result()",
    reader="read() as Arrow batches",
    serve=in_folder,
    connect=partial(ours.connect, kind=ours.TailraceArrow),
)
PLACED = Contestant(
    name="tailrace, Arrow, partition given",
    promise="synced",
    bulk="send_batch(partition=…) of 4 MiB",
    single=ARROW.single,
    reader=ARROW.reader,
    serve=in_folder,
    connect=partial(ours.connect, kind=ours.TailracePlaced),
)
RECORDS = Contestant(
    name="tailrace, records",
    promise="synced",
    bulk="send() for each record",
    single="send().result()",
    reader="records() one by one",
    serve=in_folder,
    connect=ours.connect,
)
GROUP = Contestant(
    name="tailrace, consumer group",
    promise="synced",
    bulk=RECORDS.bulk,
    single=RECORDS.single,
    reader="a loop over consumer(), from joining to the commit",
    serve=in_folder,
    connect=partial(ours.connect, kind=ours.TailraceGroup),
)
KAFKA = Contestant(
    name="Kafka, synced",
    promise="synced: acks=all, flush.messages=1",
    bulk="produce() for each record, librdkafka's batches up to 4 MiB",
    single="produce() without linger",
    reader="consume() of 1,000",
    serve=partial(kafka.serve, flush=True),
    connect=kafka.connect,
    peer=True,
)
KAFKA_DEFAULT = Contestant(
    name="Kafka, default",
    promise="not synced, lost with the power: acks=all",
    bulk=KAFKA.bulk,
    single=KAFKA.single,
    reader=KAFKA.reader,
    serve=partial(kafka.serve, flush=False),
    connect=kafka.connect,
)
REDIS = Contestant(
    name="Redis Streams",
    promise="synced: appendfsync always",
    bulk="pipelines of 2,000 XADD",
    single="XADD",
    reader="pipelined XRANGE of 200",
    serve=redis.serve,
    connect=redis.connect,
    peer=True,
)
NATS = Contestant(
    name="NATS JetStream",
    promise="synced: sync_interval always",
    bulk="atomic batches of 1,000",
    single="publish()",
    reader="ordered push consumer",
    serve=nats.serve,
    connect=nats.connect,
    peer=True,
)
DISK = Contestant(
    name="write + fdatasync",
    promise="synced",
    bulk="the same bytes, no format, 4 MiB at a time",
    single="216 bytes at the end of a file",
    reader="4 MiB at a time, nothing parsed",
    serve=in_folder,
    connect=disk.connect,
)
DISK_IN_PLACE = Contestant(
    name="fdatasync, in place",
    promise="synced",
    bulk=DISK.bulk,
    single="216 bytes over old ones, no file grows",
    reader=DISK.reader,
    serve=in_folder,
    connect=partial(disk.connect, kind=disk.DiskInPlace),
)
