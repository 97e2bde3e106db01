"""The reader: follows the topics of a cluster from the start that the settings name.

There is no copy, because a topic has nothing but its log.  This package imports the Kafka client only inside functions:
an installation without it can still describe the adaptor."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import cached_property

from tailrace.adaptors.contract import Changes, Namespace, Position, Reader
from tailrace.adaptors.formats.codec import codec
from tailrace.adaptors.formats.start import moment
from tailrace.adaptors.kafka.cluster import Cluster
from tailrace.adaptors.kafka.names import namespaces_of
from tailrace.adaptors.kafka.settings import KafkaSource
from tailrace.adaptors.kafka.source.follower import Follower
from tailrace.adaptors.kafka.source.position import Group, GroupPosition, grouped
from tailrace.errors import NotReady


class KafkaReader(Reader):
    """Reads the topics of a cluster, without those that begin with two underscores, which hold no data of users."""

    follows = True

    def __init__(self, settings: KafkaSource) -> None:
        self._settings = settings
        self._follower: Follower | None = None
        self._changes: Generator[Changes] | None = None

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._settings)

    def __repr__(self) -> str:
        return f"KafkaReader({self._settings!r})"

    def check(self) -> None:
        """Connect, and check the schema and the start."""
        codec(self._settings)
        moment(self._settings.start)
        self._cluster.topics()

    def check_namespaces(self, namespaces: Sequence[str]) -> None:
        """Raise `NotReady` if the user is not allowed to read one of these topics."""
        found = self._cluster.describe(map(self._topic, namespaces), operations=True)
        for name, topic in found.items():
            if topic.operations and not topic.operations & {"READ", "ALL"}:
                raise NotReady(
                    f"Kafka at {self._cluster.where} does not let {self._settings.user or 'this user'} read the topic "
                    f"{name}; kafka-acls.sh --bootstrap-server … --add --allow-principal User:NAME --operation Read "
                    f"--topic {name}"
                )

    def _topic(self, namespace: str) -> str:
        return f"{self._settings.prefix}{namespace}"

    def namespaces(self) -> list[Namespace]:
        """Every topic that has the prefix, as a namespace without the prefix."""
        return [Namespace(name) for name in namespaces_of(self._cluster.topics(), self._settings.prefix)]

    def begin(self, namespaces: Sequence[str]) -> Position:
        """The first offset to read of every partition.  Only the topics' own retention keeps the records from there."""
        found = self._cluster.describe(map(self._topic, namespaces))
        partitions = [(name, q) for name, topic in found.items() for q in topic.partitions]
        at = moment(self._settings.start)
        if at is not None:
            offsets = self._cluster.offsets_at(partitions, at)
        elif self._settings.start == "latest":
            offsets = self._cluster.next_offsets(partitions)
        else:
            offsets = self._cluster.first_offsets(partitions)
        return grouped({name: topic.id for name, topic in found.items()}, offsets, self._settings.receivers)

    def splits(self, position: Position) -> Sequence[str]:
        """The groups that the pipeline began with, even if the setting `receivers` was changed since."""
        return list(position["splits"])

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """The records of a group's partitions, also of those that are added to its topics and of new topics."""
        self._follower = Follower(
            self._cluster, self._settings, GroupPosition.read(position), Group.read(split), namespaces
        )
        self._changes = self._follower.changes()
        return self._changes

    def acknowledge(self, position: Position) -> None:
        """Commit the position's offsets for the consumer group of the settings, if there is one."""
        if self._follower is not None and self._settings.group is not None:
            self._follower.show(GroupPosition.read(position))

    def close(self) -> None:
        """Stop following, and close the connections."""
        if self._changes is not None:
            self._changes.close()
        if "_cluster" in self.__dict__:
            self._cluster.close()
