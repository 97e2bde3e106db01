"""Spark's own Kafka source and sink, the peers of the questions about Spark, and a broker for them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from tests.servers.process import Missing

from benchmarks.logs import kafka

VERSION = "4.2.0"
PLACE = Path(__file__).parents[1] / ".servers" / "spark-kafka" / VERSION
# The newest connector there is, which works with Spark 4.3; its token provider is only there as of 4.0.0.
PARTS = {
    "spark-sql-kafka-0-10_2.13": ("org.apache.spark", VERSION),
    "spark-token-provider-kafka-0-10_2.13": ("org.apache.spark", "4.0.0"),
    "kafka-clients": ("org.apache.kafka", "3.9.1"),
    "commons-pool2": ("org.apache.commons", "2.12.1"),
}
PART = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"""


def jars() -> str:
    """The connector's jars for `spark.jars`, fetched by Maven the first time; "" where they cannot be had."""
    libs = PLACE / "libs"
    if not libs.exists():
        with contextlib.suppress(Missing):
            _fetch(libs)
    return ",".join(str(jar) for jar in sorted(libs.glob("*.jar")))


def _fetch(libs: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("no program 'mvn'")
    PLACE.mkdir(parents=True, exist_ok=True)
    parts = "".join(PART.format(group, name, version) for name, (group, version) in PARTS.items())
    (PLACE / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>tailrace</groupId><artifactId>spark-kafka</artifactId>"
        f"<version>1</version><dependencies>{parts}</dependencies></project>"
    )
    partial = PLACE / f"partial-{uuid.uuid4().hex}"
    done = subprocess.run(
        [maven, "-B", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={partial}"],
        cwd=PLACE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise Missing(f"Maven could not fetch it: {done.stdout[-300:]}")
    partial.rename(libs)


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker with an empty topic of 8 partitions, which syncs what it acknowledges; gives its address."""
    if not jars():
        raise Missing("no Spark connector for Kafka: Maven could not fetch it")
    with kafka.serve(folder, flush=True) as place:
        yield place.address


def read(spark: SparkSession, address: str) -> DataFrame:
    """All of the topic."""
    source = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": address}, subscribe=kafka.TOPIC)
    return source.load().select("key", "value")


def options(address: str) -> dict[str, str]:
    """What a sink is told."""
    return {"kafka.bootstrap.servers": address, "topic": kafka.TOPIC, "kafka.acks": "all"}
