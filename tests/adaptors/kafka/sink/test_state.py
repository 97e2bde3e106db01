"""The stored state, read without a broker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError

from tailrace.adaptors.kafka.cluster import Cluster, TopicInfo
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.kafka.sink import state, transactions
from tailrace.adaptors.kafka.sink.state import OFFSETS, load
from tailrace.adaptors.kafka.sink.transactions import Transactions
from tailrace.errors import Unavailable


class Message:
    """A record, or the end of the partition."""

    def __init__(self, offset: int, key: bytes = b"", value: bytes = b"", error: Any = None) -> None:
        self._told = offset, key, value, error

    def offset(self) -> int:
        return self._told[0]

    def key(self) -> bytes:
        return self._told[1]

    def value(self) -> bytes:
        return self._told[2]

    def error(self) -> Any:
        return self._told[3]


class Consumer:
    """Gives these messages, and then the last one for ever."""

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)

    def assign(self, partitions: Any) -> None: ...

    def poll(self, seconds: float) -> Message:
        return self._messages.pop(0) if len(self._messages) > 1 else self._messages[0]

    def close(self) -> None: ...


class Producer:
    def init_transactions(self, seconds: float) -> None: ...


class Broker(Cluster):
    """A broker whose transactions can be read only to the offset 2, although the state's topic has four records."""

    def __init__(self) -> None:
        super().__init__(KafkaSink(brokers="127.0.0.1:9"))

    def ensure(self, *given: Any) -> None: ...

    def describe(self, topics: Any, *, operations: bool = False) -> dict[str, TopicInfo]:
        return {name: TopicInfo("id", (0,)) for name in topics}

    def _offsets(self, asked: Any) -> dict[tuple[str, int], int]:
        return {one: 0 if spec._value == -2 else 4 for one, spec in asked.items()}

    def producer(self, **more: Any) -> Any:
        return Producer()

    def consumer(self, **more: Any) -> Any:
        old = msgspec.json.encode({"epoch": 1, "offsets": {"0": 5}, "claimed": True})
        end = Message(2, error=KafkaError(KafkaError._PARTITION_EOF))
        return Consumer(Message(0, OFFSETS, old), end)


def test_a_state_that_cannot_be_read_to_its_end_is_not_taken_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that was committed would be written again.  Who only looks may leave out a transaction that is open."""
    for module in (state, transactions):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.05)
    broker = Broker()
    with pytest.raises(Unavailable, match="cannot be read to its end"):
        Transactions(broker, KafkaSink(brokers="127.0.0.1:9"), "p", "w").open()
    assert load(broker, "topic").fence.offsets == {"0": 5}
