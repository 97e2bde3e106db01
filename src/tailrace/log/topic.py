"""Topics: the door to the log.  Everything one can do with a topic starts here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from tailrace.coordination.process import user
from tailrace.coordination.watch import watch
from tailrace.errors import Lost, OutOfRange, UnknownPartition
from tailrace.log import catalog
from tailrace.log.catalog import Described
from tailrace.log.groups.group import offsets
from tailrace.log.integrity.quarantine import PassedOffsets, lift, passes, quarantine
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import POLL_BYTES, Reader
from tailrace.log.read.watch import Notifier, TopicFollower
from tailrace.log.record import Record
from tailrace.log.settings import TopicSettings
from tailrace.log.topic_log import TopicLog
from tailrace.log.transaction import TopicTransaction
from tailrace.log.write.acknowledgement import OffsetSpan
from tailrace.log.write.group_commit import GroupSettings
from tailrace.log.write.input import Records
from tailrace.log.write.linger import Linger
from tailrace.log.write.named_producer import NamedProducer
from tailrace.log.write.producer import Producer
from tailrace.storage.calls import Store

if TYPE_CHECKING:
    from tailrace.log.aio import AsyncTopic
    from tailrace.log.groups.consumer import Consumer

Position: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""Where to start: an end of the topic, an offset, or a time (the first record at or after it)."""


class Topic:
    """A named, partitioned, ordered log of records.  `home.topic(name)` makes one; it is cheap, and safe from any
    thread."""

    def __init__(self, store: Store, described: Described) -> None:
        self.store, self.described = store, described
        self.log = TopicLog(described.name, described.id, store.table.inline_bytes, store.table.joins_inline)
        self.log.partitions, self.log.partitioner = described.partitions, described.settings.partitioner
        self.log.turn = store.rng.randrange(1 << 16)  # many short-lived processes append a little each
        self.log.on_commit = lambda: watch(store).signal(described.id)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, partitions={self.partitions})"

    @property
    def name(self) -> str:
        """Its name."""
        return self.described.name

    @property
    def id(self) -> str:
        """Its unique id; a topic made again under the same name has a different one."""
        return self.described.id

    @property
    def partitions(self) -> int:
        """How many partitions it has, as far as this process knows: its next read or append notices growth."""
        return self.log.partitions

    @property
    def settings(self) -> TopicSettings:
        """Its settings, as of when it was opened or last configured here."""
        return self.described.settings

    # -- settings
    def configure(self, **settings: Any) -> TopicSettings:
        """Change settings; the former ones stay readable in `history`."""
        wall = int(time.time() * 1000)
        self.described = self.store.run(catalog.change_settings(self.name, settings, wall, self.id))
        return self.settings

    def history(self) -> list[tuple[int, int, TopicSettings]]:
        """Every set of settings it has had: (version, milliseconds since 1970, settings)."""
        return self.store.run(catalog.history(self.id))

    def grow(self, partitions: int) -> bool:
        """Give the topic more partitions; False if it already has as many.  See docs/guide/log.md, "More partitions".

        Records stay where they are.  From now on a key's partition follows from the new number of partitions.  A group
        reads beyond this point only once it has committed everything before it, so that a key's order holds."""
        grown = self.store.run(catalog.grow(self.log, partitions))
        self.log.on_commit()
        return grown

    # -- writing
    def producer(self, *, linger: float | None = None, max_bytes: int = 64 * 1024 * 1024) -> Producer:
        """A producer for many records.  `linger`: seconds that a commit waits for further records; by default none on
        disk, and 0.1 to 1 in the cloud: longer when less is sent, but 0.1 when a sender waits."""
        local = self.log.joins_inline
        wait = Linger.of(linger, local=local)
        return Producer(
            self.store, self.log, self.described, GroupSettings(wait, max_bytes, max_puts=2 if local else 4)
        )

    def named_producer(self, name: str) -> NamedProducer:
        """A producer whose numbered batches are stored once, however often they are sent, and by however many
        processes."""
        return NamedProducer(self.store, self.log, self.described, name)

    def append(self, records: Records, *, expected: Mapping[int, int] | None = None) -> list[OffsetSpan]:
        """Append some records as one atomic write, durable when this returns.

        `expected` = {partition: next offset}: append only if these are still the next offsets; else `Expected` is
        raised."""
        with self.transaction(expected=expected) as transaction:
            transaction.send_batch(records)
        return transaction.spans

    def transaction(self, *, expected: Mapping[int, int] | None = None) -> TopicTransaction:
        """Records of any partitions that become readable together, or not at all: `with topic.transaction() as t`."""
        for q in expected or {}:
            self._check_partition(q)
        return TopicTransaction(self.store, {self.name: (self.log, self.described)}, expected)

    # -- reading
    def ends(self) -> dict[int, tuple[int, int]]:
        """For each partition: the lowest offset that is kept, and the next one to be written."""
        head = self.store.run(self.log.head())
        return {q: (head.floor[q], head.next[q]) for q in range(head.partitions)}

    def offset_at(self, partition: int, position: Position) -> int:
        """The offset that a position stands for in a partition at this moment."""
        return self._offsets(partition, position)[partition]

    def _offsets(self, partition: int | None, position: Position) -> dict[int, int]:
        if partition is not None:
            self._check_partition(partition)
        wanted = range(self.partitions) if partition is None else [partition]
        return self.store.run(offsets(self.log, wanted, position))

    def read(
        self,
        partition: int | None = None,
        start: Position = "earliest",
        *,
        max_bytes: int = POLL_BYTES,
        from_floor: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """All current records as Arrow: partition, offset, timestamp, attributes, key, value (and perhaps headers).

        `max_bytes` bounds what is fetched at a time.  A start below the floor is an error; with `from_floor` reading
        starts at the floor instead."""
        for fetched in self.fetch(partition, start, max_bytes=max_bytes, from_floor=from_floor):
            yield as_arrow(fetched)

    def records(self, partition: int | None = None, start: Position = "earliest") -> Iterator[Record]:
        """All current records, one by one, in order within each partition."""
        for fetched in self.fetch(partition, start):
            yield from as_records(self.name, fetched)

    def fetch(
        self,
        partition: int | None = None,
        start: Position = "earliest",
        *,
        max_bytes: int = POLL_BYTES,
        from_floor: bool = False,
    ) -> Iterator[Fetched]:
        """All current records as they are stored: runs of one partition's records."""
        positions, ends = self._offsets(partition, start), self.ends()
        if partition is not None and positions[partition] > ends[partition][1]:
            raise OutOfRange(
                f"offset {positions[partition]} of partition {partition} of {self.name!r} is beyond its end, "
                f"{ends[partition][1]}",
                floor=ends[partition][0],
                end=ends[partition][1],
            )
        # the floor may have risen since, and with it the earliest offset
        reader = Reader(self.log, positions, from_floor=from_floor or start == "earliest")
        reader.until = {q: end for q, (_, end) in ends.items()}
        while fetched := self.store.run(reader.poll(max_bytes)):
            reader.from_floor = from_floor
            yield from fetched

    # -- damage
    def quarantine(self, lost: Iterable[Lost], why: str, *, who: str = "", where: str = "") -> int:
        """Let readers pass over damaged offsets, for good or until `lift`; records which user decided so, when and why.

        `lost` is as `Damaged` and a scrub name it.  Records that can be read are still read."""
        wall = int(time.time() * 1000)
        return self.store.run(quarantine(self.log, list(lost), where, why, who or user(), wall))

    def quarantined(self) -> list[PassedOffsets]:
        """The offsets that readers pass over where they are damaged, and who decided so."""
        return self.store.run(passes(self.log))

    def lift(self, partition: int | None = None) -> list[PassedOffsets]:
        """Take back decisions of `quarantine`, all of them or those of one partition; returns them."""
        return self.store.run(lift(self.log, partition))

    # -- following
    def consumer(self, group: str, **settings: Any) -> Consumer:
        """A member of a consumer group, to iterate over.  `Consumer` says what it does, `ConsumerSettings` explains its
        settings: member, start, auto_commit, commit_interval, max_seconds, ttl, prefetch, from_floor."""
        from tailrace.log.groups.consumer import Consumer
        from tailrace.log.groups.prefetch import ConsumerSettings

        return Consumer(self.store, self, group, ConsumerSettings.of(settings))

    def follow(
        self, partition: int | None = None, start: Position = "latest", *, from_floor: bool = False
    ) -> TopicFollower:
        """Records as they come, without a group: an iterator that waits at the end until its `stop` is called."""
        reader = Reader(self.log, self._offsets(partition, start), from_floor=from_floor, every=partition is None)
        return TopicFollower(self.store, reader, lambda fetched: as_records(self.name, fetched))

    def on_append(self, callback: Callable[[Mapping[int, int]], object]) -> Notifier:
        """Call a function from another thread with the next offsets by partition whenever any process has appended
        records: once for one append, less often for many in quick succession.  Closing the returned object ends the
        calls."""
        return Notifier(self.store, self.log, callback)

    @property
    def aio(self) -> AsyncTopic:
        """The same topic for asyncio."""
        from tailrace.log.aio import AsyncTopic

        return AsyncTopic(self.store, self)

    def _check_partition(self, partition: int) -> None:
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < self.partitions:
            raise UnknownPartition(
                f"topic {self.name!r} has no partition {partition!r}; it has 0 to {self.partitions - 1}"
            )


def as_arrow(fetched: Fetched) -> pa.RecordBatch:
    """The fetched records of a topic as Arrow, with partition and offsets as columns."""
    rows = fetched.data.num_rows
    partition = pa.repeat(pa.scalar(fetched.partition, pa.int32()), rows)
    return pa.RecordBatch.from_arrays(
        [partition, fetched.offsets, *fetched.data.columns], names=["partition", "offset", *fetched.data.schema.names]
    )


def as_records(topic: str, fetched: Fetched) -> Iterator[Record]:
    """The fetched records of a topic, one by one."""
    data = fetched.data
    headers: Any = repeat(())
    if (at := data.schema.get_field_index("headers")) >= 0:
        headers = [tuple((h["name"], h["value"]) for h in row or ()) for row in data.column(at).to_pylist()]
    columns = (_numbers(data, 0, "q"), data.column(2).to_pylist(), data.column(3).to_pylist(), headers)
    offsets: Any = range(fetched.offset, fetched.end) if fetched.gaps is None else fetched.gaps.to_pylist()
    rows = zip(repeat(topic), repeat(fetched.partition), offsets, *columns, _numbers(data, 1, "B"), strict=False)
    return map(_record, rows)


_record: Callable[[tuple[Any, ...]], Record] = partial(tuple.__new__, Record)
"""Makes a record from a tuple of all its fields, without a Python call for each field."""


def _numbers(data: pa.RecordBatch, column: int, kind: Literal["q", "B"]) -> list[int]:
    """A column without nulls, straight from its bytes."""
    numbers = data.column(column)
    buffer = numbers.buffers()[1]
    whole = memoryview(buffer).cast("B").cast(kind) if buffer is not None else memoryview(b"")
    return whole[numbers.offset : numbers.offset + len(numbers)].tolist()
