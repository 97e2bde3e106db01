"""Named producers: numbered batches, each stored once, however many processes send it, and however often.

    $Producer-<topic id>_<name>, 0    epoch, seq, id, page

Each life of the name starts by raising the epoch, which fences the lives before it.  A batch takes one transaction:
APPEND, and {seq = s, id, page} if epoch = mine and seq = s-1.  The caller decides once and for all what batch number s
holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.coordination.guard import Written
from tailrace.coordination.rules import in_force, rules
from tailrace.errors import BadInput, Fenced, GaveUp, OutcomeUnknown
from tailrace.log.catalog import Described, check_name
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.acknowledgement import BatchAck, CommitBatch, OffsetSpan
from tailrace.log.write.append import Appended
from tailrace.log.write.guarded_append import SequenceGuard, commit_guarded
from tailrace.log.write.input import Records, pieces, rows
from tailrace.log.write.lookup import find
from tailrace.log.write.placement import Placed, place
from tailrace.storage import calls
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Absent, Add, Equals, Item, Key, Put, Set, Update


def start(name: str) -> Steps[Item]:
    """Take a name, at an epoch above that of every earlier life.  A lost answer only wastes a number."""
    key = Key(f"$Producer-{name}")
    while True:
        if (yield from guard.read(key)) is None:
            fresh = {"epoch": 1, "seq": 0, "id": "", "page": 0}
            outcome = yield from guard.attempt(Put(key, fresh, (Absent(),)))
        else:
            outcome = yield from guard.attempt(Update(key, (Add("epoch", 1),)))
        if isinstance(outcome, Written) and outcome.items is not None and outcome.items[0] is not None:
            return outcome.items[0]


def last_batch(log: TopicLog, name: str) -> Steps[int]:
    """The number of the last batch stored under a name; 0 before the first.  The call fences no life of the
    producer."""
    item = yield from guard.read(Key(f"$Producer-{log.id}_{check_name('producer', name)}"))
    return int(item["seq"]) if item is not None else 0


@dataclass(slots=True)
class ProducerGuard(SequenceGuard):
    """The guard of one numbered batch."""

    epoch: int
    seq: int

    def action(self, id: str, page: int) -> Update:
        """The write whose condition is that this batch is the next one, and that no other life has taken the name."""
        when = rules({"named.epoch": Equals("epoch", self.epoch), "named.seq": Equals("seq", self.seq - 1)})
        return Update(self.key, (Set("seq", self.seq), Set("id", id), Set("page", page)), when)

    def moved(self, item: Item) -> bool:
        """Whether another process has sent a batch under the name, or taken the name, since then."""
        return (item["epoch"], item["seq"], item["id"]) != (self.seen["epoch"], self.seen["seq"], self.seen["id"])


def send(
    log: TopicLog, name: str, epoch: int, seen: Item, seq: int, make: Callable[[], Steps[Placed]]
) -> Steps[tuple[Appended, Item]]:
    """Append batch number `seq` of a name once.  Returns where it is, and the name's item."""
    item = seen
    while True:
        if item["epoch"] != epoch and in_force("named.epoch"):
            raise Fenced(
                f"another life of the producer {_shown(name)} has started (epoch {item['epoch']}); this one must stop"
            )
        if item["seq"] >= seq:
            return (yield from _repeated(log, item, seq)), item
        if item["seq"] != seq - 1:
            raise BadInput(
                f"the producer {_shown(name)} has sent batch {item['seq']}; the next is {item['seq'] + 1}, not {seq}"
            )
        placed = yield from make()
        numbering = ProducerGuard(Key(f"$Producer-{name}"), item, epoch, seq)
        _, stored = yield from commit_guarded([placed], numbering)
        item = stored if stored is not None else (yield from numbering.read())


def _shown(name: str) -> str:
    return repr(name.partition("_")[2] or name)


def _repeated(log: TopicLog, item: Item, seq: int) -> Steps[Appended]:
    """The result for a batch that is already in the log: its offsets if it is the last one sent, and its page
    exists."""
    if item["seq"] != seq:
        return Appended(None, {})
    while True:
        head = yield from log.head()
        found = yield from find(log, head, item["id"], -1, [item["page"]])
        if found is not None:
            return Appended(found or None, {}, head.partitions_at(item["page"]))
        yield from calls.pause(0)


class NamedProducer:
    """A producer with a name and numbered batches, idempotent across restarts.  Any thread may call it.

    `last` is the number of the last batch stored under this name, by this life or an earlier one: send the next, or
    send that one again to learn where it is."""

    def __init__(
        self, store: Store, log: TopicLog, described: Described, name: str, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._store, self._log, self._topic, self._wall = store, log, described, wall
        self.name = check_name("producer", name)
        self._key = f"{log.id}_{name}"
        self._item = store.run(start(self._key))
        self._epoch: int = self._item["epoch"]
        self._lock = threading.Lock()
        self._doubt: int | None = None

    @property
    def last(self) -> int:
        """The number of the last batch that is stored; 0 before the first."""
        seq: int = self._item["seq"]
        return seq

    def send_batch(
        self, records: Records, *, number: int | None = None, partition: int | None = None
    ) -> list[OffsetSpan] | None:
        """Store batch `number` (default: the next), once.  Returns its spans, or None if it is stored but its offsets
        are not known: later batches followed it, or its page is gone.  `Fenced` if a newer life has the name."""
        limit = self._topic.settings.max_record_bytes
        log, ack = self._log, BatchAck()
        batch = CommitBatch(log.name, log.partitions, limit, log.next_turn(), partitioner=log.partitioner)
        for piece in pieces(records):
            data = rows(piece, int(self._wall() * 1000), batch.buffer.max_record_bytes)
            ack.parts += [(batch, *at) for at in batch.buffer.add_batch(data, partition)]
        if not ack.parts:
            raise BadInput("a numbered batch has at least one record")
        chunk = batch.buffer.encode(self._topic.settings.compression)
        with self._lock:
            appended = self._send(number, lambda: place(self._log, chunk))
        if appended.offsets is None:
            return None
        batch.finish(appended, None)
        return ack.result()

    def _send(self, number: int | None, make: Callable[[], Steps[Placed]]) -> Appended:
        if number is None and self._doubt is not None:
            raise self._in_doubt(self._doubt)
        if number is not None and (number.__class__ is not int or number < 1):
            raise BadInput(f"a producer's batches are numbered from 1, not {number!r}")
        seq = self.last + 1 if number is None else number
        try:
            appended, self._item = self._store.run(send(self._log, self._key, self._epoch, self._item, seq, make))
        except (BadInput, Fenced):
            raise
        except GaveUp as error:
            self._doubt = seq
            raise self._in_doubt(seq) from error
        except BaseException:
            self._doubt = seq
            raise
        self._doubt = None
        return appended

    def _in_doubt(self, seq: int) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"batch {seq} of the producer {self.name!r} may be in the log, or come yet; send it again with number={seq}"
            ", or open the producer again and look at its `last`"
        )
