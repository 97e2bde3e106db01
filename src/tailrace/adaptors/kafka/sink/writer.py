"""The writer: every message a record of a topic, each batch one transaction that also has the offsets.

A reader of committed records (`isolation.level=read_committed`) sees every message once.  One of uncommitted records
may see those of batches that failed as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from tailrace.adaptors.contract import Guarantee, Staged, Who, Writer
from tailrace.adaptors.kafka.cluster import Cluster
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.kafka.sink.encoding import encoded
from tailrace.adaptors.kafka.sink.stage import Share, records_of, stage
from tailrace.adaptors.kafka.sink.state import State, WrittenTopic, load, state_topic
from tailrace.adaptors.kafka.sink.transactions import Overtaken, Transactions
from tailrace.adaptors.sinks import missing_targets
from tailrace.errors import Fenced

T = TypeVar("T")
MAX_BATCH_ATTEMPTS = 3
"""How often a batch is begun again after another process of the same run, or of one that ends, has begun one."""


class KafkaWriter(Writer):
    """Writes topics of one cluster."""

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __init__(self, settings: KafkaSink) -> None:
        self._settings = settings
        self._transactions: Transactions | None = None

    def __repr__(self) -> str:
        return f"KafkaWriter({self._settings!r})"

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._settings)

    def check(self) -> None:
        """The address, the password, and the topic if there is one for all."""
        there = self._cluster.topics()
        if (topic := self._settings.topic) is not None and not self._settings.create and topic not in there:
            raise self._not_made(topic, topic)

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Make records of them, and look for their topics."""
        wanted = {topic: namespace for topic, namespace, _ in encoded(rows, self._settings)}
        there = self._cluster.describe(wanted)
        for topic, namespace in wanted.items():
            if topic not in there and not self._settings.create:
                raise self._not_made(topic, namespace)

    # -- offsets
    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """Epoch and offsets of the last batch that was committed."""
        return load(self._cluster, state_topic(self._settings, pipeline, writer)).fence.restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """As `restore`; and earlier epochs can commit nothing any more."""
        self._leave()

        def claimed(transactions: Transactions) -> Mapping[str, Any] | None:
            before = transactions.state
            if (fence := before.fence.claim(who)) is not None:
                transactions.commit((), before.after(fence, {}))
            return before.fence.restored()

        return self._in_turn(who, claimed)

    def _in_turn(self, who: Who, do: Callable[[Transactions], T]) -> T:
        """Do something in a transaction; again if another process has begun one meanwhile, and this run may go on."""
        for _ in range(MAX_BATCH_ATTEMPTS):
            if self._transactions is None:
                transactions = Transactions(self._cluster, self._settings, who.pipeline, who.writer)
                self._transactions = transactions
                try:
                    transactions.open()
                except BaseException:
                    self._leave()
                    raise
            try:
                return do(self._transactions)
            except Overtaken:
                self._leave()
            except BaseException:
                self._leave()
                raise
        raise Fenced(f"another run of the writer {who.writer!r} goes on writing; this one must stop")

    def _leave(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.close()

    def lost(self, who: Who) -> list[str]:
        """Topics that were deleted, made again or not."""
        written = load(self._cluster, state_topic(self._settings, who.pipeline, who.writer)).topics
        there = self._cluster.describe(written)
        return [
            f"the topic {name}"
            for name, one in sorted(written.items())
            if name not in there or there[name].id != one.id
        ]

    def forget(self, who: Who) -> None:
        """Forget which topics were written to."""

        def forgotten(transactions: Transactions) -> None:
            if transactions.state.topics:
                transactions.state.fence.admit(who)
                transactions.commit((), State(transactions.state.fence))

        self._in_turn(who, forgotten)

    # -- rows
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Into the answer itself, or into a topic of tailrace's own."""
        return stage(lambda: self._cluster, self._settings, rows)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Append what was staged, and keep the offsets, in one transaction.  Again, it changes nothing."""
        shares = [share.detail for share in staged if isinstance(share.detail, Share)]

        def finished(transactions: Transactions) -> None:
            before = transactions.state
            if before.fence.is_repeat(who, offsets):
                return
            topics = self._topics(shares, before, who)
            parts = [part for share in shares for part in share.parts]
            records = records_of(self._cluster, self._settings, parts)
            transactions.commit(records, before.after(before.fence.finish(who, offsets), topics))

        self._in_turn(who, finished)

    def _topics(self, shares: Sequence[Share], state: State, who: Who) -> dict[str, WrittenTopic]:
        """The topics of a batch, made where they are missing and may be."""
        wanted: dict[str, list[str]] = {}
        for share in shares:
            for topic, namespaces in share.topics.items():
                wanted.setdefault(topic, []).extend(namespaces)
        there = self._cluster.describe(wanted)
        for topic, namespaces in wanted.items():
            known = state.topics.get(topic)
            if known is not None and (topic not in there or there[topic].id != known.id):
                raise missing_targets.gone(who, ", ".join(namespaces), topic, "topic")
            if topic not in there:
                self._make(topic, namespaces[0])
        there |= self._cluster.describe(topic for topic in wanted if topic not in there)
        return {
            topic: WrittenTopic(there[topic].id, _joined(state.topics.get(topic), namespaces))
            for topic, namespaces in wanted.items()
        }

    def _make(self, topic: str, namespace: str) -> None:
        if not self._settings.create:
            raise self._not_made(topic, namespace)
        self._cluster.create(topic, self._settings.partitions, self._settings.replication)

    def _not_made(self, topic: str, namespace: str) -> Exception:
        order = (
            f"kafka-topics.sh --bootstrap-server … --create --topic {topic} --partitions {self._settings.partitions}"
        )
        return missing_targets.not_made(namespace, "topic", order)

    def close(self) -> None:
        """Give up connections."""
        self._leave()
        if "_cluster" in self.__dict__:
            self._cluster.close()


def _joined(known: WrittenTopic | None, namespaces: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*(known.namespaces if known is not None else ()), *namespaces}))
