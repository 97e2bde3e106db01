"""What is said when something is wrong: one line, with what mends it, and never a password."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tailrace.adaptors.contract import Who
from tailrace.adaptors.kafka import cluster
from tailrace.adaptors.kafka.settings import KafkaSink, KafkaSource
from tailrace.adaptors.kafka.sink.writer import KafkaWriter
from tailrace.adaptors.kafka.source.reader import KafkaReader
from tailrace.errors import BadSetting, NotReady, TailraceError, Unavailable
from tests.adaptors.kafka.place import Place
from tests.adaptors.kafka.sink.test_writer import rows
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_ports

RIGHT = {"security": "sasl_plaintext", "user": "reader", "password": "right-password"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1.0)


def said(settings: dict[str, Any], kind: type[TailraceError]) -> list[str]:
    """What both ends say when they are checked."""
    found = []
    for end in (KafkaReader(KafkaSource(**settings)), KafkaWriter(KafkaSink(**settings))):
        with pytest.raises(kind) as caught:
            end.check()
        end.close()
        found.append(str(caught.value))
        assert "\n" not in found[-1]
        assert "password-of" not in found[-1] + repr(end)
    return found


def test_a_wrong_host(kafka: KafkaServer) -> None:
    (port,) = free_ports(1)
    for brokers in (f"127.0.0.1:{port}", "no-such-host.invalid:9092"):
        for text in said({"brokers": brokers}, Unavailable):
            assert brokers in text
            assert "is a broker running there" in text


def test_a_wrong_password(kafka: KafkaServer) -> None:
    settings = {**RIGHT, "brokers": kafka.secured, "password": "password-of-another"}
    for text in said(settings, NotReady):
        assert "check user, password, mechanism and security" in text


def test_a_port_that_wants_a_password(kafka: KafkaServer) -> None:
    for text in said({"brokers": kafka.secured}, Unavailable):
        assert "do brokers and security in the settings fit it" in text


def test_a_user_needs_sasl(kafka: KafkaServer) -> None:
    for text in said({"brokers": kafka.url, "user": "reader", "password": "password-of-reader"}, BadSetting):
        assert "a user goes with security = 'sasl_ssl'" in text


def test_the_right_password(kafka: KafkaServer) -> None:
    KafkaReader(KafkaSource(brokers=kafka.secured, **RIGHT)).check()


@pytest.fixture
def hidden(kafka: KafkaServer, place: Place) -> str:
    """A topic that only somebody else may read and write."""
    topic = place.make("orders", 1)
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:other", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    for future in place.admin.create_acls([rule]).values():
        future.result()
    deadline = time.monotonic() + 20  # brokers come to know of it by and by
    with contextlib.closing(place.reader(brokers=kafka.secured, **RIGHT)) as reader, contextlib.suppress(NotReady):
        while time.monotonic() < deadline:
            reader.check_namespaces(["orders"])
    return topic


def test_a_missing_right(kafka: KafkaServer, place: Place, hidden: str) -> None:
    reader = place.reader(brokers=kafka.secured, **RIGHT)
    with pytest.raises(NotReady, match=r"Read --operation Write --operation Describe --topic"):
        reader.check_namespaces(["orders"])
    writer = place.writer(brokers=kafka.secured, **RIGHT)
    with pytest.raises(NotReady, match=r"kafka-acls\.sh"):
        writer.finish([writer.stage([rows("orders", range(2))])], Who("p", "w", 1), {"0": 1})
    writer.close()


def test_a_missing_topic_is_not_made_unless_asked_for(place: Place) -> None:
    """The broker would make none by itself, and is never asked to by a typo."""
    writer = place.writer(partitions=3)
    batch = rows("orders", range(2))
    order = r"set create = true, or: kafka-topics.sh .* --create --topic .*orders --partitions 3"
    with pytest.raises(NotReady, match=order):
        writer.try_out([batch])
    with pytest.raises(NotReady, match=order):
        writer.finish([writer.stage([batch])], Who("p", "w", 1), {"0": 1})
    writer.close()
    with pytest.raises(NotReady, match=order):
        place.writer(topic=f"{place.prefix}orders", partitions=3).check()
    assert f"{place.prefix}orders" not in place.admin.list_topics(timeout=10).topics


def test_a_name_that_no_topic_can_have(place: Place) -> None:
    with pytest.raises(NotReady, match=r"no topic can be called '.*Größe': letters.*remap"):
        place.writer(create=True).stage([rows("Größe", range(2))])
