"""The cluster: its clients, its topics with their ids, and the first and next offsets of their partitions."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.adaptors.kafka.errors import MISSING, Reports, failed
from tailrace.adaptors.kafka.settings import KafkaSettings
from tailrace.errors import BadSetting, NotInstalled, NotReady, Unavailable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 15.0
"""How long a request waits for its answer.  The election of a partition's leader takes a few seconds."""

NO_ID = "A" * 22
"""The zero id, which brokers without topic ids give.  Only by its id can a topic that was deleted and made again be
told from the one before it."""
RETRY_PAUSE_SECONDS = 0.1
"""Seconds between two attempts of a request."""


class TopicInfo(NamedTuple):
    """A topic: its id, which no other topic ever has, its partitions, and the operations that the user is allowed."""

    id: str
    partitions: tuple[int, ...]
    operations: frozenset[str] = frozenset()


class Cluster:
    """One cluster.  Connects with the first request, and keeps its admin client until `close`."""

    def __init__(self, settings: KafkaSettings) -> None:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise NotInstalled("kafka needs a package: pip install 'tailrace[kafka]'")
        if (settings.user is None) == settings.security.startswith("sasl"):
            raise BadSetting("a user goes with security = 'sasl_ssl' or 'sasl_plaintext', and these with a user")
        self._settings, self.reports = settings, Reports()

    @property
    def where(self) -> str:
        """The brokers' addresses as the settings have them, for messages."""
        return self._settings.brokers

    def config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a client: connection and security from the settings, and the options given here."""
        given = self._settings
        config: dict[str, Any] = {
            "bootstrap.servers": given.brokers,
            "client.id": "tailrace",
            "security.protocol": given.security,
            "error_cb": self.reports,
            "log_level": 0,  # the client would log to stderr; its errors come through error_cb
            "allow.auto.create.topics": False,
        }
        if given.user is not None:
            config |= {"sasl.mechanism": given.mechanism, "sasl.username": given.user}
            config["sasl.password"] = given.password or ""
        files = {"ssl.ca.location": given.ca, "ssl.certificate.location": given.certificate}
        files["ssl.key.location"] = given.certificate_key
        config |= {name: path for name, path in files.items() if path}
        return config | {name.replace("_", "."): value for name, value in more.items()}

    @cached_property
    def admin(self) -> AdminClient:
        """The admin client, which asks for topics and offsets and makes topics."""
        from confluent_kafka.admin import AdminClient

        config = self.config()
        del config["allow.auto.create.topics"]
        return self._made(AdminClient, config)

    def consumer(self, **more: Any) -> Consumer:
        """A new consumer.  The caller assigns partitions with offsets: the consumer commits none, and where an offset
        is missing it reports an error and does not reset to another."""
        from confluent_kafka import Consumer

        config = {"group_id": "tailrace", **more}
        return self._made(
            Consumer,
            self.config(
                enable_auto_commit=False, enable_auto_offset_store=False, auto_offset_reset="error",
                enable_partition_eof=True, **config,
            ),
        )  # fmt: skip

    def producer(self, **more: Any) -> Producer:
        """A new idempotent producer: its retries neither lose, duplicate nor reorder records."""
        from confluent_kafka import Producer

        config = self.config(enable_idempotence=True, partitioner="murmur2_random", **more)
        del config["allow.auto.create.topics"]
        return self._made(Producer, config)

    def _made(self, kind: Any, config: dict[str, Any]) -> Any:
        from confluent_kafka import KafkaException

        try:
            return kind(config)
        except KafkaException as error:
            raise BadSetting(f"the settings of Kafka at {self.where}: {error.args[0].str()}") from None

    @contextlib.contextmanager
    def guarded(self, doing: str, what: str = "") -> Iterator[None]:
        """Raise the client's errors as tailrace's errors.  `doing` and `what` (a topic) go into the message."""
        from confluent_kafka import KafkaException

        self.reports.clear()
        try:
            yield
        except KafkaException as error:
            if "admin" in self.__dict__:
                self.admin.poll(0)  # lets the client call error_cb with pending errors
            raise failed(error.args[0], self.where, doing, self.reports, what) from None

    def close(self) -> None:
        """Drop the admin client and its connections."""
        self.__dict__.pop("admin", None)

    # -- topics
    def topics(self) -> dict[str, tuple[int, ...]]:
        """The partitions of every topic that the user is allowed to see."""
        with self.guarded("asking for its topics"):
            found = self.admin.list_topics(timeout=ANSWER_SECONDS).topics
        return {name: tuple(sorted(one.partitions)) for name, one in sorted(found.items()) if one.error is None}

    def describe(self, topics: Iterable[str], *, operations: bool = False) -> dict[str, TopicInfo]:
        """The description of each of these topics that exists.  `NotReady` if the brokers have no topic ids."""
        from confluent_kafka import KafkaException, TopicCollection

        names = sorted(set(topics))
        found: dict[str, TopicInfo] = {}
        if not names:
            return found
        with self.guarded("asking for topics"):
            asked = self.admin.describe_topics(
                TopicCollection(names), include_authorized_operations=operations, request_timeout=ANSWER_SECONDS
            )
            for name, future in asked.items():
                try:
                    one = future.result()
                except KafkaException as error:
                    if error.args[0].name() in MISSING:
                        continue
                    raise failed(error.args[0], self.where, "asking for topics", self.reports, name) from None
                if str(one.topic_id) == NO_ID:
                    raise NotReady(f"Kafka at {self.where} has no ids of topics; 2.8 and newer can be used")
                allowed = frozenset(operation.name for operation in one.authorized_operations or ())
                found[name] = TopicInfo(str(one.topic_id), tuple(sorted(p.id for p in one.partitions)), allowed)
        return found

    def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic unless it exists, and wait until the brokers describe it."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=dict(config or {}))
        with self.guarded(f"making the topic {topic}", topic):
            try:
                self.admin.create_topics([new], request_timeout=ANSWER_SECONDS)[topic].result()
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
        deadline = time.monotonic() + ANSWER_SECONDS
        while topic not in self.describe([topic]):
            if time.monotonic() > deadline:
                raise Unavailable(f"Kafka at {self.where} has made the topic {topic}, and does not know of it yet")
            time.sleep(RETRY_PAUSE_SECONDS)

    def ensure(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Make a topic if it is missing.  If it exists, the user needs no right to make topics."""
        if topic not in self.describe([topic]):
            self.create(topic, partitions, replication, config)

    # -- offsets
    def first_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The first offset that each partition still has."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def next_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offset that the next record of each partition will get."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def offsets_at(self, partitions: Iterable[tuple[str, int]], milliseconds: int) -> dict[tuple[str, int], int]:
        """For each partition the offset of its first record of this time or later, or its next offset if it has no such
        record."""
        from confluent_kafka.admin import OffsetSpec

        some = list(partitions)
        ends = self.next_offsets(some)  # asked for first: a record that comes in between is not skipped
        found = self._offsets(dict.fromkeys(some, OffsetSpec.for_timestamp(milliseconds)))
        return {one: offset if offset >= 0 else ends[one] for one, offset in found.items()}

    def _offsets(self, asked: Mapping[tuple[str, int], Any]) -> dict[tuple[str, int], int]:
        from confluent_kafka import TopicPartition

        if not asked:
            return {}
        specs = {TopicPartition(topic, q): spec for (topic, q), spec in asked.items()}
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                with self.guarded("asking for offsets"):
                    answers = self.admin.list_offsets(specs, request_timeout=ANSWER_SECONDS)
                    return {(one.topic, one.partition): future.result().offset for one, future in answers.items()}
            except Unavailable:  # the partitions of a new topic have no leaders yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_PAUSE_SECONDS)
