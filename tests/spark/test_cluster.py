"""Jobs on a real cluster, while its workers and drivers are killed: each row once, in order in its partition."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.home import Home
from tests.servers.aws import new_bucket, new_table
from tests.servers.process import Server
from tests.spark.cluster import Cluster, cluster, finished, job, kill_all, scratch, wait_for
from tests.spark.direct import values

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]
RECORDS = 3000


@pytest.fixture(scope="module")
def standing() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as made:
        yield made


@pytest.fixture
def cloud(seaweedfs: Server, dynoxide: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home on an S3 server and a DynamoDB server."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": seaweedfs.key,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.secret,
        "AWS_REGION": seaweedfs.region,
        "AWS_DEFAULT_REGION": seaweedfs.region,
    }.items():
        monkeypatch.setenv(name, value)
    table, bucket = new_table(dynoxide), new_bucket(seaweedfs)
    url = f"s3://{bucket}/home?table={table}&endpoint={seaweedfs.url}&table_endpoint={dynoxide.url}"
    with tailrace.open(url) as made:
        made.__dict__["url"] = url
        yield made


def ended(home: Home) -> int:
    return sum(end for _, end in home.topic("out").ends().values())


@pytest.mark.server
@pytest.mark.parametrize("kind", ["disk", "cloud"])
def test_a_worker_and_a_driver_killed_in_the_middle_of_a_stream(
    standing: Cluster, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    home: Home = request.getfixturevalue(kind)
    source, out = home.topic("orders", partitions=3), home.topic("out", partitions=3)
    for start in range(0, RECORDS, 500):
        source.append([(b"%d" % n, b"%d" % n) for n in range(start, start + 500)])
    log, checkpoint = tmp_path / "driver.log", scratch()
    arguments = {"master": standing.master, "home": home.url, "checkpoint": str(checkpoint), "most": 400}
    with job("copy", log, delay=0.003, **arguments) as driver:
        wait_for(lambda: ended(home) > 0, driver, log)
        standing.kill("two")
        at = ended(home)
        wait_for(lambda: ended(home) > at, driver, log)  # it goes on with the one that is left
        kill_all(driver.pid)
    assert at < ended(home) < RECORDS, "the job was too quick to be killed in its middle"
    standing.add("two")
    wait_for(lambda: standing.applications() == 0, None, log)
    with job("copy", log, **arguments) as driver:
        finished(driver, log)
    assert values(out) == values(source)
    shutil.rmtree(checkpoint)


def test_tasks_that_fail_hang_and_run_twice(standing: Cluster, disk: Home, tmp_path: Path) -> None:
    topic = disk.topic("orders", partitions=1)
    rows, report, log = 80_000, tmp_path / "report", tmp_path / "driver.log"
    arguments = {"master": standing.master, "home": disk.url, "rows": rows, "report": str(report)}
    with job("bulk", log, **arguments) as driver:
        finished(driver, log)
    assert json.loads(report.read_text()) == [rows, rows, rows - 1]
    assert [int(v.rstrip(b".")) for v in values(topic)[0] if v] == list(range(rows))
    listed = {o.name.rpartition("/")[2] for o in disk.store.objects.list("topics/")}
    referred = {entry.id for entry in disk.store.run(topic.log.head()).own.entries}
    assert len(listed - referred) >= 2, "both losers had put something"
