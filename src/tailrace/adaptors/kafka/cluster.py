"""The cluster: brokers behind an address, the topics there are, their ids, and where their partitions begin and end."""

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
"""How long an answer is waited for; an election takes a few seconds."""

NO_ID = "A" * 22
"""A topic's id where brokers have none: zero.  Without ids nobody knows a topic that was made again."""
RETRY_PAUSE_SECONDS = 0.1
"""Seconds before a question is asked again."""


class TopicInfo(NamedTuple):
    """A topic: its id, which no other ever has, and its partitions.  `operations`: what the user may do with it."""

    id: str
    partitions: tuple[int, ...]
    operations: frozenset[str] = frozenset()


class Cluster:
    """One cluster.  Connects when first asked; clients are made once for a process."""

    def __init__(self, settings: KafkaSettings) -> None:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise NotInstalled("kafka needs a package: pip install 'tailrace[kafka]'")
        if (settings.user is None) == settings.security.startswith("sasl"):
            raise BadSetting("a user goes with security = 'sasl_ssl' or 'sasl_plaintext', and these with a user")
        self._settings, self.reports = settings, Reports()

    @property
    def where(self) -> str:
        """The brokers, as people call them."""
        return self._settings.brokers

    def config(self, **more: Any) -> dict[str, Any]:
        """What a client is made from."""
        given = self._settings
        config: dict[str, Any] = {
            "bootstrap.servers": given.brokers,
            "client.id": "tailrace",
            "security.protocol": given.security,
            "error_cb": self.reports,
            "log_level": 0,  # what there is to say comes as an error
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
        """The client for questions."""
        from confluent_kafka.admin import AdminClient

        config = self.config()
        del config["allow.auto.create.topics"]
        return self._made(AdminClient, config)

    def consumer(self, **more: Any) -> Consumer:
        """A new consumer that is told where to read, and for which no offset is ever chosen by itself."""
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
        """A new producer, which neither loses nor doubles nor reorders what it sends."""
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
        """Raise the client's errors as tailrace's."""
        from confluent_kafka import KafkaException

        self.reports.clear()
        try:
            yield
        except KafkaException as error:
            if "admin" in self.__dict__:
                self.admin.poll(0)  # has it tell what it knows
            raise failed(error.args[0], self.where, doing, self.reports, what) from None

    def close(self) -> None:
        """Give up connections."""
        self.__dict__.pop("admin", None)

    # -- topics
    def topics(self) -> dict[str, tuple[int, ...]]:
        """The partitions of every topic that this user may see."""
        with self.guarded("asking for its topics"):
            found = self.admin.list_topics(timeout=ANSWER_SECONDS).topics
        return {name: tuple(sorted(one.partitions)) for name, one in sorted(found.items()) if one.error is None}

    def describe(self, topics: Iterable[str], *, operations: bool = False) -> dict[str, TopicInfo]:
        """Those of some topics that are there."""
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
        """Make a topic, unless it is there, and wait until brokers know of it."""
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
        """Make a topic if it is missing; where it is there, no right to make any is needed."""
        if topic not in self.describe([topic]):
            self.create(topic, partitions, replication, config)

    # -- offsets
    def first_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The first offset that each partition has."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def next_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offset that the next record of each partition gets."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def offsets_at(self, partitions: Iterable[tuple[str, int]], milliseconds: int) -> dict[tuple[str, int], int]:
        """The first offset of each partition whose record is of this moment or later; else its next."""
        from confluent_kafka.admin import OffsetSpec

        some = list(partitions)
        found = self._offsets(dict.fromkeys(some, OffsetSpec.for_timestamp(milliseconds)))
        none = self.next_offsets(one for one in some if found[one] < 0)
        return found | none

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
            except Unavailable:  # a topic that is new has no leaders yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_PAUSE_SECONDS)
