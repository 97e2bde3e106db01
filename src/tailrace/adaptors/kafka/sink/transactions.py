"""Transactions: one producer for a writer, which the brokers know by its transactional id.

When a producer calls `init_transactions`, the brokers fence every earlier producer of the same id and end the
transactions that those left open.  The producer then reads the writer's state once.  The state cannot change until
another producer calls `init_transactions`; the next transaction then fails as fenced, and no reader of committed
records sees any of it.  So the state need not be read again for each batch.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tailrace.adaptors.kafka.cluster import ANSWER_SECONDS, Cluster
from tailrace.adaptors.kafka.errors import FENCED, REFUSED, failed, rejected
from tailrace.adaptors.kafka.names import own_topic
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.kafka.sink.state import CONFIG, State, load, state_topic
from tailrace.errors import Conflict, Unavailable

MAX_RECORD_BYTES = 128 * 1024 * 1024
"""The client's own limit, set high: the limit that counts is the topic's."""
QUEUED_KILOBYTES = 64 * 1024
ANY_PARTITION = -1
"""The partitioner chooses the partition."""
_MOMENT = pa.int64()


class Overtaken(Conflict):
    """Another producer of the same transactional id has begun, so this transaction was not committed."""


class Transactions:
    """The transactions of one writer, from `open` until another process opens them."""

    def __init__(self, cluster: Cluster, settings: KafkaSink, pipeline: str, writer: str) -> None:
        self._cluster, self._settings = cluster, settings
        self._topic = state_topic(settings, pipeline, writer)
        self._id = own_topic("tailrace", settings.state, pipeline, writer)
        self._refused: tuple[Any, str, bytes | None] | None = None
        self._producer: Any = None
        self.state = State()

    def open(self) -> None:
        """Make the producer, which fences all earlier ones of this writer, and read the writer's state."""
        self._cluster.ensure(self._topic, 1, self._settings.replication, CONFIG)
        self._producer = self._cluster.producer(
            transactional_id=self._id,
            transaction_timeout_ms=self._settings.transaction_seconds * 1000,
            message_max_bytes=MAX_RECORD_BYTES,
            queue_buffering_max_kbytes=QUEUED_KILOBYTES,
            compression_type=self._settings.compression,
            linger_ms=5,
        )
        with self._cluster.guarded("beginning transactions", self._topic):
            self._producer.init_transactions(4 * ANSWER_SECONDS)
        self.state = load(self._cluster, self._topic, whole=True)

    def commit(
        self,
        records: Iterable[tuple[str, pa.RecordBatch]],
        state: State,
        notices: Iterable[tuple[str, int, bytes]] = (),
    ) -> None:
        """Append records and store a new state in one transaction.  `notices` are values without a key, each for one
        partition of a topic.

        `Overtaken` if another producer of this writer has begun, `Rejected` for a record that the brokers refuse,
        `Unavailable` if it takes so long that the brokers abort it."""
        self._refused = None
        with self._faults(time.monotonic()):
            self._producer.begin_transaction()
            for topic, batch in records:
                self._send_all(topic, batch)
            for topic, partition, notice in notices:
                self._send(topic, None, notice, None, int(time.time() * 1000), partition)
            for key, value in state.records(self.state).items():
                self._send(self._topic, key, value, None, int(time.time() * 1000))
            self._end()
        self.state = state

    def _send_all(self, topic: str, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name).to_pylist() for name in ("key", "value", "headers")]
        stamps = batch.column("timestamp").view(_MOMENT).to_pylist()
        for key, value, headers, stamp in zip(*columns, stamps, strict=True):
            self._send(topic, key, value, headers, stamp)
        self._producer.poll(0)

    def _send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[Mapping[str, Any]] | None,
        stamp: int,
        partition: int = ANY_PARTITION,
    ) -> None:
        given = [(one["name"], one["value"]) for one in headers or ()]
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, on_delivery=self._delivered, timestamp=stamp, headers=given or None
                )
                break
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and (self._refused is None or error.name() in REFUSED):
            self._refused = error, message.topic(), message.key()

    def _end(self) -> None:
        """Commit the transaction, and try again while the error is retriable, such as a missing answer."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._settings.transaction_seconds
        while True:
            try:
                self._producer.commit_transaction(ANSWER_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    @contextlib.contextmanager
    def _faults(self, begun: float) -> Iterator[None]:
        """Abort a transaction that fails, and raise tailrace's error for its cause."""
        from confluent_kafka import KafkaException

        self._cluster.reports.clear()
        try:
            yield
        except (KafkaException, SystemError) as raised:
            error = _error_of(raised)
            self._abort()
            if error.name() in FENCED or (self._refused is not None and self._refused[0].name() in FENCED):
                self._check_time(begun)
                raise Overtaken("another run of the same writer has begun") from None
            if self._refused is not None and self._refused[0].name() in REFUSED:
                refused, topic, key = self._refused
                raise rejected(refused, topic, topic, key) from None
            told = self._refused[0] if self._refused is not None and error.txn_requires_abort() else error
            what = self._refused[1] if self._refused is not None else ""
            raise failed(told, self._cluster.where, "writing a batch", self._cluster.reports, what) from None
        except BaseException:
            self._abort()
            raise

    def _check_time(self, begun: float) -> None:
        """Raise `Unavailable` if the brokers have fenced the producer because its transaction took too long."""
        seconds = self._settings.transaction_seconds
        if time.monotonic() - begun > seconds:
            raise Unavailable(
                f"Kafka at {self._cluster.where}: writing a batch took more than {seconds} s, and then the brokers "
                "abort its transaction; it is written again, and a larger transaction_seconds = … gives it more time"
            ) from None

    def _abort(self) -> None:
        """Abort the transaction.  If that fails, the next producer's `init_transactions` aborts it."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException, SystemError):
            self._producer.abort_transaction(ANSWER_SECONDS)

    def close(self) -> None:
        """Drop the producer and all that it has queued."""
        from confluent_kafka import KafkaException

        if self._producer is not None:
            with contextlib.suppress(KafkaException, SystemError):  # a fenced producer raises these
                self._producer.purge()
                self._producer.flush(1.0)
            self._producer = None


def _error_of(raised: BaseException) -> Any:
    """The client's error behind an exception.  A fenced producer raises it inside a callback, so Python hands it on as
    the cause or context of a SystemError."""
    from confluent_kafka import KafkaException

    found: BaseException | None = raised
    while found is not None and not isinstance(found, KafkaException):
        found = found.__cause__ or found.__context__
    if found is None:
        raise raised
    return found.args[0]
