"""Debezium: its engine with the connector for PostgreSQL, from its jars on Maven Central, writing records to a file."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers import maven
from tests.servers.kafka import java
from tests.servers.kept import PLACE, kept
from tests.servers.postgres import PASSWORD, Postgres
from tests.servers.process import HOST, Missing, folder, running

VERSION = "3.4.3"
JARS = (
    f"io.debezium:debezium-connector-postgres:{VERSION}.Final",
    f"io.debezium:debezium-embedded:{VERSION}.Final",
    "org.slf4j:slf4j-simple:1.7.36",
)
MAIN = """
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.util.Properties;

public class Main {
    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileInputStream(given[0]));
        PrintStream out = new PrintStream(given[1], "UTF-8");
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(settings)
            .notifying(record -> {
                String value = record.value();
                out.println(record.destination() + "\\t" + record.key() + "\\t" + value);
                out.flush();
            }).build();
        engine.run();
    }
}
"""
PREFIX = "shop"
"""What the names of its topics begin with."""


class Record(NamedTuple):
    """A record as Kafka would have it."""

    topic: str
    key: bytes | None
    value: bytes | None

    @property
    def document(self) -> Any:
        """Its value as JSON."""
        return None if self.value is None else json.loads(self.value)


class Debezium:
    """A running engine."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def records(self, table: str = "") -> list[Record]:
        """What it has written so far, of all tables or of one."""
        lines = self._out.read_bytes().splitlines(keepends=True) if self._out.exists() else []
        parts = [line.rstrip(b"\n").split(b"\t") for line in lines if line.endswith(b"\n")]
        found = [Record(topic.decode(), _none(key), _none(value)) for topic, key, value in parts]
        return [one for one in found if not table or one.topic == f"{PREFIX}.{table}"]


def _none(text: bytes) -> bytes | None:
    return None if text == b"null" else text


@contextlib.contextmanager
def debezium(server: Postgres, database: str, *, schemas: bool = False, **settings: str) -> Iterator[Debezium]:
    """An engine that follows the tables of a database, after a copy of them.  `settings` are the connector's own, with
    underscores for dots."""
    jars = maven.jars(f"debezium/{VERSION}", *JARS)
    main = kept(PLACE / "debezium" / VERSION / "main", lambda made: _compile(made, jars))
    given = {
        "name": "tests",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": HOST,
        "database.port": server.port,
        "database.user": "postgres",
        "database.password": PASSWORD,
        "database.dbname": database,
        "topic.prefix": PREFIX,
        "plugin.name": "pgoutput",
        "slot.name": f"debezium_{database}",
        "publication.name": f"debezium_{database}",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "converter.schemas.enable": str(schemas).lower(),
        "poll.interval.ms": "10",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    with folder(None) as home:
        properties, out, log = home / "engine.properties", home / "records", home / "server.log"
        properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        command = [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
        command += ["-cp", f"{jars}/*:{main}", "Main", str(properties), str(out)]
        with running(command, lambda: b"Processing messages" in log.read_bytes(), log=log, patience=120):
            yield Debezium(out)


def _compile(made: Path, jars: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        raise Missing(
            "no program 'javac' to compile ten lines with; `apt-get install openjdk-17-jdk-headless` brings it"
        )
    source = made.parent / "Main.java"
    source.write_text(MAIN)
    made.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([javac, "-cp", f"{jars}/*", "-d", str(made), str(source)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"javac could not compile the engine's starter: {done.stderr[-1000:]}")
