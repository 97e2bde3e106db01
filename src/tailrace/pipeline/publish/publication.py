"""Publications: the records of a topic appended to a table, each once.

    partition, offset, timestamp, attributes, key, value, headers

The commit that adds records to the table also stores the offset of each partition there.  The home has only a lease, so
that one process at a time publishes a topic to a place.  A later process continues from the offsets in the table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.adaptors import registry
from tailrace.adaptors.contract import Who, Writer
from tailrace.adaptors.lake.writer import LakeWriter
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.records import rows_from
from tailrace.coordination.lease import Lease
from tailrace.errors import BadInput, BadSetting, Busy, Diverged, Fenced, NotReady, PositionLost
from tailrace.log.format.chunk import SCHEMAS
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.log.record import Mode
from tailrace.log.topic import Topic

COMMIT_BYTES = 128 * 1024 * 1024
"""The approximate size of the records that one commit adds."""
LEASE_SECONDS = 15.0
"""How long to wait for the lease of a process that has ended without giving it back."""


@dataclass(slots=True)
class Published:
    """How many records and commits a run has added, and the next offset of each partition in the table."""

    records: int
    commits: int
    offsets: dict[int, int]


class Publication:
    """Publishes a topic to a table at one place.

    `settings` are those of the adaptor's sink, without the ones that a publication sets itself."""

    def __init__(self, topic: Topic, adaptor: str, settings: Mapping[str, Any], *, skip_lost: bool = False) -> None:
        given = {"keep": "changes", "plain": True, "every": 0.0}
        if taken := sorted(given.keys() & settings.keys()):
            raise BadSetting(f"{taken[0]!r} is not for a publication: records are appended as they are")
        self._topic, self._skip_lost = topic, skip_lost
        if not issubclass(registry.adaptor(adaptor).writer or type(None), LakeWriter):
            raise BadSetting(f"{adaptor!r} has no tables that records are appended to; topics are published to delta")
        self._writer: Writer = registry.make_writer(adaptor, {**settings, **given})
        place = hashlib.sha256(repr((adaptor, settings.get("path", ""), settings.get("catalog", ""))).encode())
        self._lease = Lease(topic.store, f"publish-{topic.name}-{place.hexdigest()[:16]}")

    def run(self, told: Callable[[int], object] = lambda _: None) -> Published:
        """Add the records that the topic has now and the table lacks; `told` is called with the number of records of
        each commit.

        `Busy` while another process publishes there, `Diverged` if table and topic contradict each other,
        `PositionLost` if retention has removed records that were not published."""
        self._writer.check()
        if not self._lease.acquire(wait=LEASE_SECONDS):
            holder = self._lease.holder()
            raise Busy(
                f"{self._topic.name!r} is published there by process {holder.get('pid')} on {holder.get('host')} now; "
                "wait for it, or stop it"
            )
        who = self._who()
        kept = self._writer.claim(who)
        at = self._positions(kept)
        if gone := self._writer.lost(who):
            raise NotReady(
                f"{', '.join(gone)}: it was dropped, emptied or put back to an earlier version by another program; "
                "publish to another place, and all records that the topic keeps are there"
            )
        done = Published(0, 0, at)
        for some in self._batches(at):
            self._commit(some, who, done)
            told(sum(one.data.num_rows for one in some))
        if kept is None and not done.commits:  # an empty topic gets an empty table, too
            self._commit([Fetched(0, at[0], pa.RecordBatch.from_pylist([], SCHEMAS[1]))], who, done)
        return done

    def _who(self) -> Who:
        """This run with an epoch above every earlier one, even if the home was restored from a backup."""
        names = "publish", self._topic.name
        kept = self._writer.restore(*names)
        return Who(*names, max(self._lease.epoch, kept["epoch"] + 1 if kept is not None else 0))

    def _positions(self, kept: Mapping[str, Any] | None) -> dict[int, int]:
        """The next offset of each partition; refuses a table of another topic, and one that is ahead of this topic."""
        ends, name = self._topic.ends(), self._topic.name
        if kept is None:
            return {q: floor for q, (floor, _) in ends.items()}
        marks = {int(q): mark for q, mark in kept["offsets"].items()}
        if ids := {mark["topic"] for mark in marks.values()} - {self._topic.id}:
            raise Diverged(
                f"the table has the records of another topic {name!r} (id {min(ids)}): that was deleted and made "
                "again, or is in another home; publish this one to another place"
            )
        at = {q: marks[q]["low"] if q in marks else 0 for q in ends}
        for q, (floor, end) in ends.items():
            if at[q] > end:
                raise Diverged(
                    f"the table has {name!r} up to {q}:{at[q]}, and the topic ends at {q}:{end}: the home was "
                    "restored from an earlier copy; publish to another place"
                )
            if at[q] < floor and not (self._skip_lost or q not in marks):
                raise PositionLost(
                    f"{name!r} was published up to {q}:{at[q]}, and begins at {q}:{floor} by now: what is in between "
                    "was removed and is not in the table; go on without it: --skip-lost"
                )
            at[q] = max(at[q], floor)
        return at

    def _batches(self, at: Mapping[int, int]) -> Iterator[list[Fetched]]:
        """The records up to the topic's current ends, in groups for one commit each."""
        until = {q: end for q, (_, end) in self._topic.ends().items() if q in at}
        reader = Reader(self._topic.log, at, until=until, from_floor=self._skip_lost)
        held: list[Fetched] = []
        while fetched := self._topic.store.run(reader.poll()):
            for one in fetched:
                if "value" not in one.data.schema.names:
                    raise BadInput(f"the topic {self._topic.name!r} holds rows, not records: it is a pipeline's own")
            held += fetched
            if sum(one.data.nbytes for one in held) >= COMMIT_BYTES:
                yield held
                held = []
        if held:
            yield held

    def _commit(self, some: list[Fetched], who: Who, done: Published) -> None:
        if not self._lease.held:
            raise Fenced(f"another process publishes {self._topic.name!r} there by now; this one must stop")
        for one in some:
            done.offsets[one.partition] = one.end
        rows = (placed(rows_from(who.writer, one, Mode.COPY), one.partition, one.offsets) for one in some)
        staged = self._writer.stage(rows)
        marks = {str(q): {"low": low, "ahead": {}, "topic": self._topic.id} for q, low in done.offsets.items()}
        self._writer.finish([staged], who, marks)
        done.records, done.commits = done.records + staged.rows, done.commits + 1

    def close(self) -> None:
        """Release the lease, and close the writer."""
        self._lease.release()
        self._writer.close()
