"""The writer: makes each message a record of a topic, and commits a batch and its offsets in one transaction.

A consumer with `isolation.level=read_committed` sees every message exactly once.  A consumer of uncommitted records may
also see the messages of batches that failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.formats.envelope import truncated
from tailrace.adaptors.kafka.cluster import Cluster
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.kafka.sink.encoding import encoded, topic_of
from tailrace.adaptors.kafka.sink.stage import Share, records_of, stage
from tailrace.adaptors.kafka.sink.state import State, WrittenTopic, load, state_topic
from tailrace.adaptors.kafka.sink.transactions import Overtaken, Transactions
from tailrace.adaptors.sinks import missing_targets
from tailrace.errors import BadInput, BadSetting, Fenced

T = TypeVar("T")
MAX_BATCH_ATTEMPTS = 3
"""How often a batch is tried before the writer gives up because another process keeps opening its transactions."""


class KafkaWriter(Writer):
    """Writes topics of one cluster."""

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __init__(self, settings: KafkaSink) -> None:
        if settings.truncates and (settings.format != "debezium" or settings.topic is not None):
            raise BadSetting("truncates = true goes with format = 'debezium', and with a topic for each namespace")
        self._settings = settings
        self.commands = frozenset({TRUNCATE} if settings.truncates else ())  # type: ignore[misc]  # not of the class
        self._transactions: Transactions | None = None

    def __repr__(self) -> str:
        return f"KafkaWriter({self._settings!r})"

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._settings)

    def check(self) -> None:
        """Connect, and raise if the settings name one topic for all messages that is missing and not to be made."""
        there = self._cluster.topics()
        if (topic := self._settings.topic) is not None and not self._settings.create and topic not in there:
            raise self._not_made(topic, topic)

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Encode these rows as records, and raise if one of their topics is missing and not to be made."""
        wanted = {topic: namespace for topic, namespace, _ in encoded(rows, self._settings)}
        there = self._cluster.describe(wanted)
        for topic, namespace in wanted.items():
            if topic not in there and not self._settings.create:
                raise self._not_made(topic, namespace)

    # -- offsets
    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """The stored epoch, and the offsets of the last batch that was committed; None before the first."""
        return load(self._cluster, state_topic(self._settings, pipeline, writer)).fence.restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """As `restore`, and from then on no earlier epoch can commit."""
        self._leave()

        def claimed(transactions: Transactions) -> Mapping[str, Any] | None:
            before = transactions.state
            if (fence := before.fence.claim(who)) is not None:
                transactions.commit((), before.after(fence, {}))
            return before.fence.restored()

        return self._in_turn(who, claimed)

    def _in_turn(self, who: Who, do: Callable[[Transactions], T]) -> T:
        """Call `do` with the writer's open transactions.  If another process has opened them since, open them again and
        repeat; `Fenced` after `MAX_BATCH_ATTEMPTS`, or from `do` if a newer run has claimed the sink."""
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
        """The topics that this writer has written to and that were deleted since, whether made again or not."""
        written = load(self._cluster, state_topic(self._settings, who.pipeline, who.writer)).topics
        there = self._cluster.describe(written)
        return [
            f"the topic {name}"
            for name, one in sorted(written.items())
            if name not in there or there[name].id != one.id
        ]

    def forget(self, who: Who) -> None:
        """Forget which topics this writer has written to."""

        def forgotten(transactions: Transactions) -> None:
            if transactions.state.topics:
                transactions.state.fence.admit(who)
                transactions.commit((), State(transactions.state.fence))

        self._in_turn(who, forgotten)

    # -- rows
    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stage a task's share in its result, and what is too large for that in the staging topic."""
        return stage(lambda: self._cluster, self._settings, rows)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Append the staged records and store the offsets in one transaction.  A repeated call changes nothing."""
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

    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Append a truncate to every partition of the namespace's topic: in each the order of the records says what it
        removes.  After a crash it may be there twice, with no record between."""
        if command.name not in self.commands:
            raise BadInput(f"{namespace}: Kafka has no command {command.name!r} with these settings")
        topic, value = topic_of(namespace, self._settings), truncated(namespace, int(time.time() * 1000))

        def announced(transactions: Transactions) -> None:
            state, there = transactions.state, self._cluster.describe([topic])
            state.fence.admit(who)
            known = state.topics.get(topic)
            if known is not None and (topic not in there or there[topic].id != known.id):
                raise missing_targets.gone(who, namespace, topic, "topic")
            if topic in there:
                transactions.commit((), state, [(topic, q, value) for q in there[topic].partitions])

        self._in_turn(who, announced)

    def _topics(self, shares: Sequence[Share], state: State, who: Who) -> dict[str, WrittenTopic]:
        """The topics of a batch with their ids and namespaces.  Makes missing topics if the settings allow it; raises
        if a topic that the writer has written to is gone or was made again."""
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
        """Close the producer and the connections."""
        self._leave()
        if "_cluster" in self.__dict__:
            self._cluster.close()


def _joined(known: WrittenTopic | None, namespaces: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*(known.namespaces if known is not None else ()), *namespaces}))
