"""Jobs on a real cluster, while its workers and drivers are killed: each row once, in order in its partition."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.home import Home
from tailrace.log.topic import Topic
from tests.pipeline.runs import process
from tests.servers.aws import new_bucket, new_table
from tests.servers.prepare import SHORT_LIVED
from tests.servers.process import Server
from tests.spark.cluster import Cluster, cluster, finished, job, kill_all, wait_for
from tests.spark.direct import values

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]
RECORDS, ROWS = 3000, 80_000


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
@pytest.mark.parametrize("kind", ["disk", pytest.param("cloud", marks=pytest.mark.soak)])
def test_a_stream_and_a_batch_on_a_cluster_where_things_die(
    standing: Cluster, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    home: Home = request.getfixturevalue(kind)
    source, out = home.topic("orders", partitions=3), home.topic("out", partitions=3)
    bulk = home.topic("bulk", partitions=1)
    for start in range(0, RECORDS, 500):
        source.append([(b"%d" % n, b"%d" % n) for n in range(start, start + 500)])
    log, report, checkpoint = tmp_path / "driver.log", tmp_path / "report", tmp_path / "checkpoint"
    arguments = {"master": standing.master, "home": home.url, "checkpoint": str(checkpoint), "most": 400}
    with job("begin", log, **arguments) as driver:
        wait_for((checkpoint / "offsets" / "1").exists, driver, log)
        time.sleep(1)  # in the middle of the second batch's tasks, which take two
        standing.kill("two")
        at = ended(home)
        wait_for(lambda: ended(home) > at, driver, log)  # it goes on with the one that is left
        kill_all(driver.pid)
    assert 0 < at < ended(home) < RECORDS
    assert not (checkpoint / "commits" / "1").exists(), "in the log, and Spark does not know it"
    standing.add("two")
    wait_for(lambda: standing.applications() == 0, None, log)
    with job("resume", log, **arguments, rows=ROWS, report=str(report)) as driver:
        finished(driver, log)
    assert values(out) == values(source)
    found = json.loads(report.read_text())
    assert found["bulk"] == [ROWS, ROWS, ROWS - 1]
    assert found["origin"].endswith("/tailrace.zip/tailrace/__init__.py"), "the driver's own, not what is installed"
    assert [int(v.rstrip(b".")) for v in values(bulk)[0] if v] == list(range(ROWS))
    assert len(lost(home, bulk)) >= 2, "a task that failed and one that hung had put something"


def lost(home: Home, topic: Topic) -> set[str]:
    """The objects of a topic that nothing refers to."""
    listed = {o.name.rpartition("/")[2] for o in home.store.objects.list(f"topics/{topic.id}/")}
    return listed - {entry.id for entry in home.store.run(topic.log.head()).own.entries}


PIPELINE = """
name = "shop"
home = "./data"

[source]
adaptor = "file"
path = "in/orders.jsonl"

[[branch]]
save = {adaptor = "file", path = "./out", format = "jsonl", plain = true}
"""


def described(folder: Path) -> None:
    """A pipeline's file with relative paths, what it reads, and another folder to run it from."""
    (folder / "in").mkdir(parents=True)
    (folder / "elsewhere").mkdir()
    (folder / "shop.toml").write_text(PIPELINE)
    (folder / "in" / "orders.jsonl").write_text("".join(f'{{"id": {n}}}\n' for n in range(ROWS // 20)))


def ran(folder: Path, master: str) -> tuple[int, str]:
    """One run of it: its exit code, and what it said."""
    with process(
        folder / "elsewhere",
        "run",
        "../shop.toml",
        "--once",
        "--master",
        master,
        "--conf",
        "spark.executor.memory=500m",
        "--conf",
        f"spark.executor.extraJavaOptions={SHORT_LIVED}",
    ) as run:
        code = run.wait(600)
    return code, (folder / "elsewhere" / "said").read_text()


def written(folder: Path) -> list[int]:
    lines = [line for path in folder.glob("out/**/*.jsonl") for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def test_relative_paths_are_those_of_the_pipelines_file_in_every_task(standing: Cluster, tmp_path: Path) -> None:
    described(tmp_path)
    code, said = ran(tmp_path, standing.master)
    assert code == 0, said
    assert written(tmp_path) == list(range(ROWS // 20))
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"said"}, "nothing where it was started"
    stray = [path for name in ("data", "out") for path in standing.place.glob(f"**/{name}")]
    assert stray == [], "nothing where the tasks ran"


@pytest.mark.parametrize(
    ("hidden", "what"),
    [
        ("out", "the sink 'file'"),
        pytest.param("data", "the home", marks=pytest.mark.soak),
        pytest.param("in", "orders.jsonl", marks=pytest.mark.soak),
    ],
)
def test_a_folder_that_a_host_does_not_share_is_refused_before_the_first_row(
    standing: Cluster, tmp_path: Path, hidden: str, what: str
) -> None:
    described(tmp_path)
    (tmp_path / hidden).mkdir(exist_ok=True)
    for name in list(standing.workers):
        standing.kill(name)
    wait_for(lambda: standing.alive() == 0, None, tmp_path / "elsewhere" / "said")
    standing.add("apart", hidden=tmp_path / hidden)
    code, said = ran(tmp_path, standing.master)
    standing.kill("apart")
    assert code == 1
    assert what in said
    assert "mounted" in said
    assert written(tmp_path) == []
    with tailrace.open(tmp_path / "data") as home:
        assert sum(end for _, end in home.topic("shop-log").ends().values()) == 0
