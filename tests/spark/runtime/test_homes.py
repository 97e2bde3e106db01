"""Homes in Spark's processes, and who can reach them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructType

from tailrace.errors import BadSetting
from tailrace.home.open_homes import MAX_OPEN_HOMES
from tailrace.spark.format import Tailrace
from tailrace.spark.runtime.homes import check_reach, home_at, one_host, settled


def test_a_home_is_made_absolute_where_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_HOME", raising=False)
    assert settled(None) == str(tmp_path / ".tailrace")
    assert settled("./here") == str(tmp_path / "here")
    assert settled("s3://bucket/x?table=t") == "s3://bucket/x?table=t"
    monkeypatch.setenv("TAILRACE_HOME", "there")
    assert settled(None) == str(tmp_path / "there")


@pytest.mark.parametrize(
    ("master", "near"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://10.0.0.1:7077", False),
        ("yarn", False),
        ("k8s://https://example:443", False),
        ("", False),
    ],
)
def test_which_masters_have_one_machine(master: str, near: bool) -> None:
    assert one_host(master) is near


def test_a_folder_is_refused_on_several_machines(tmp_path: Path) -> None:
    class Far(Tailrace):
        one_host = False

    read, write = {"home": str(tmp_path), "subscribe": "orders"}, {"home": str(tmp_path), "topic": "orders"}
    schema = StructType().add("value", BinaryType())
    for refused in (
        lambda: Far(read).schema(),
        lambda: Far(read).reader(schema),
        lambda: Far(read).streamReader(schema),
        lambda: Far(write).writer(schema, False),
        lambda: Far(write).streamWriter(schema, False),
    ):
        with pytest.raises(BadSetting, match=r"a folder of one machine.*sharedHome"):
            refused()
    check_reach("s3://bucket/x?table=t", False)
    check_reach(str(tmp_path), True)
    with pytest.raises(BadSetting, match="sharedHome"):
        check_reach(f"file://{tmp_path}", False, "another-machine")
    check_reach(f"file://{tmp_path}", False, os.uname().nodename)


def test_a_home_is_opened_once_per_process(tmp_path: Path) -> None:
    url = str(tmp_path / "home")
    assert home_at(url) is home_at(url)
    child = os.fork()
    if child == 0:  # what was open before the fork is not used after it
        try:
            home_at(url).topics()
        except Exception as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_driver_that_visits_many_homes_keeps_few_of_them_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    for n in range(MAX_OPEN_HOMES):
        home_at(str(tmp_path / f"first-{n}")).topic("t", 1).append([(None, b"x")])
    few = descriptors()
    for n in range(3 * MAX_OPEN_HOMES):
        home_at(str(tmp_path / f"second-{n}")).topic("t", 1).append([(None, b"x")])
    assert descriptors() < 2 * few
    assert home_at(str(tmp_path / "first-0")).topic("t").ends() == {0: (0, 1)}


def test_workers_do_not_look_through_all_modules_after_every_task(spark: SparkSession, tmp_path: Path) -> None:
    def frozen(url: str) -> int:
        home_at(url)
        return gc.get_freeze_count()

    url = str(tmp_path / "home")
    (there,) = spark.sparkContext.parallelize([url], 1).map(frozen).collect()
    assert there > 10_000
    assert frozen(url) == 0
