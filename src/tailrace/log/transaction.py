"""Transactions: records of one topic or of several that become readable together, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from tailrace.errors import BadInput, Closed, OutcomeUnknown, UnknownTopic
from tailrace.log.catalog import Described
from tailrace.log.record import attributes, milliseconds
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.acknowledgement import Ack, BatchAck, CommitBatch, OffsetSpan
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Headers
from tailrace.log.write.input import Records, pieces, rows
from tailrace.log.write.placement import Placed, place
from tailrace.storage.calls import Store
from tailrace.storage.limits import MAX_ACTIONS


class TopicTransaction:
    """Collects records and appends them in one guarded write when its `with` block ends; an exception drops them.

    With one topic that is one write of its head, with several one table transaction."""

    def __init__(
        self,
        store: Store,
        topics: Mapping[str, tuple[TopicLog, Described]],
        expected: Mapping[int, int] | None = None,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if not topics:
            raise BadInput("a transaction has at least one topic")
        self._store, self._topics, self._expected, self._wall = store, topics, expected, wall
        self._batches: dict[str, CommitBatch] = {}
        self._acks: list[BatchAck] = []
        self._closed = False

    def send(
        self,
        key: bytes | None = None,
        value: bytes | None = None,
        *,
        topic: str | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        mode: int = 0,
        op: int = 0,
        partition: int | None = None,
    ) -> Ack:
        """Add one record; its acknowledgement resolves when the transaction has been committed."""
        batch = self._batch(topic)
        stamp = int(self._wall() * 1000) if timestamp is None else milliseconds(timestamp)
        return Ack(batch, batch.buffer.add(key, value, stamp, headers, attributes(mode, op), partition))

    def send_batch(self, records: Records, *, topic: str | None = None, partition: int | None = None) -> BatchAck:
        """Add many records: an Arrow table or batch, or (key, value) pairs."""
        batch, ack = self._batch(topic), BatchAck()
        stamp, limit = int(self._wall() * 1000), batch.buffer.max_record_bytes
        for data in [rows(piece, stamp, limit) for piece in pieces(records)]:
            ack.parts += [(batch, *at) for at in batch.buffer.add_batch(data, partition)]
        self._acks.append(ack)
        return ack

    @property
    def spans(self) -> list[OffsetSpan]:
        """Where the records of `send_batch` are, once committed."""
        return [span for ack in self._acks for span in ack.result()]

    def commit(self) -> None:
        """Append everything now; raises, and appends nothing, if it cannot be done."""
        if self._closed:
            raise Closed("this transaction has ended; begin another one")
        self._closed = True
        filled = {name: batch for name, batch in self._batches.items() if batch.buffer.count}
        if not filled:
            return
        try:
            # A chunk that is an item of the same write is another action of it.
            inline = len(filled) <= MAX_ACTIONS // 2
            placed = [self._place(name, batch, inline) for name, batch in filled.items()]
            done = self._store.run(commit(placed))
        except BaseException as error:
            failure = error if isinstance(error, Exception) else OutcomeUnknown("interrupted while it was appended")
            for batch in filled.values():
                batch.finish(None, failure)
            raise
        for batch, appended in zip(filled.values(), done, strict=True):
            batch.finish(appended, None)

    def _place(self, name: str, batch: CommitBatch, inline: bool) -> Placed:
        log, described = self._topics[name]
        if log.joins_inline and not inline:
            log = replace(log, inline_bytes=0)
        chunk = batch.buffer.encode(described.settings.compression)
        return self._store.run(place(log, chunk, self._expected))

    def _batch(self, topic: str | None) -> CommitBatch:
        if self._closed:
            raise Closed("this transaction has ended; begin another one")
        if topic is None and len(self._topics) != 1:
            raise BadInput(f"say which topic: {', '.join(map(repr, self._topics))}")
        name = next(iter(self._topics)) if topic is None else topic
        if name not in self._topics:
            raise UnknownTopic(f"topic {name!r} is not part of this transaction: {', '.join(map(repr, self._topics))}")
        log, described = self._topics[name]
        if name not in self._batches:
            limit = described.settings.max_record_bytes
            self._batches[name] = CommitBatch(name, log.partitions, limit, log.next_turn(), partitioner=log.partitioner)
        return self._batches[name]

    def __enter__(self) -> TopicTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._closed:
            return
        if kind is None:
            self.commit()
            return
        self._closed = True
        for batch in self._batches.values():
            batch.finish(None, Closed("this transaction was dropped, because its block ended with an exception"))
