"""`tailrace topic read` and `tail`."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.cli.topic.reading import _last
from tailrace.log.upkeep.retention import raise_floor
from tests.cli.runs import PROGRAM, Cli


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """A topic of two partitions: six records, one a second, of every kind."""
    with tailrace.open(cli.home) as home, home.topic("orders", partitions=2).producer() as out:
        out.send(b"k0", b"v0", timestamp=1000, partition=0)
        out.send(b"k1", b"v1", timestamp=2000, partition=1)
        out.send(None, b"\xff\x00", timestamp=3000, partition=0)
        out.send(b"k3", None, timestamp=4000, partition=1, mode=1, op=2)
        out.send(b"k4", "é\n\x1b[31m".encode(), timestamp=5000, partition=0)
        out.send(b"k5", b"v5", timestamp=6000, partition=1, headers=[("trace", b"1"), ("raw", b"\xfe")])
    return cli


LINES = {
    "0:0": "0:0\t1970-01-01T00:00:01.000Z\tk0\tv0",
    "1:0": "1:0\t1970-01-01T00:00:02.000Z\tk1\tv1",
    "0:1": "0:1\t1970-01-01T00:00:03.000Z\tnull\thex:ff00",
    "1:1": "1:1\t1970-01-01T00:00:04.000Z\tk3\tnull\tdelete/sync",
    "0:2": "0:2\t1970-01-01T00:00:05.000Z\tk4\té\\n\\x1b[31m",
    "1:2": "1:2\t1970-01-01T00:00:06.000Z\tk5\tv5\ttrace=1\traw=hex:fe",
}


def test_text(orders: Cli) -> None:
    assert sorted(orders("topic", "read", "orders").out.splitlines()) == sorted(LINES.values())


def test_jsonl_has_always_the_same_fields(orders: Cli) -> None:
    records = [json.loads(line) for line in orders("topic", "read", "orders", "--format", "jsonl").out.splitlines()]
    assert records == orders("topic", "read", "orders", "--json").json
    by_place = {(r["partition"], r["offset"]): r for r in records}
    assert by_place[0, 0] == {
        "partition": 0, "offset": 0, "timestamp": 1000, "key": "k0", "value": "v0", "headers": [],
        "mode": "copy", "op": "insert",
    }  # fmt: skip
    assert by_place[0, 1]["key"] is None
    assert by_place[0, 1]["value"] == {"base64": "/wA="}
    assert (by_place[1, 1]["value"], by_place[1, 1]["mode"], by_place[1, 1]["op"]) == (None, "sync", "delete")
    assert by_place[0, 2]["value"] == "é\n\x1b[31m"
    assert by_place[1, 2]["headers"] == [["trace", "1"], ["raw", {"base64": "/g=="}]]


def test_an_empty_topic_in_every_format(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "empty")
    assert cli("topic", "read", "empty").out == ""
    assert cli("topic", "read", "empty", "--json").json == []
    assert cli("topic", "read", "empty", "--format", "jsonl").out == ""
    assert cli("topic", "tail", "empty").out == ""
    cli("topic", "read", "empty", "--format", "parquet", "--output", tmp_path / "empty.parquet")
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0


def test_arrow_and_parquet(orders: Cli, tmp_path: Path) -> None:
    orders("topic", "read", "orders", "--format", "parquet", "-o", tmp_path / "o.parquet")
    table = pq.read_table(tmp_path / "o.parquet")
    orders("topic", "read", "orders", "--format", "arrow", "-o", tmp_path / "o.arrow")
    assert pa.ipc.open_stream((tmp_path / "o.arrow").read_bytes()).read_all().equals(table)
    assert table.schema.names == ["partition", "offset", "timestamp", "attributes", "key", "value", "headers"]
    assert (None, b"\xff\x00") in [*zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)]
    assert {p.name for p in tmp_path.iterdir()} == {"home", "o.parquet", "o.arrow"}


def test_binary_to_a_pipe(orders: Cli) -> None:
    done = subprocess.run(
        [PROGRAM, "topic", "read", "orders", "--format", "arrow"], env=orders.env(), capture_output=True, check=True
    )
    assert pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all().num_rows == 6


@pytest.mark.parametrize(
    ("options", "places"),
    [
        (("--max", 0), ""),
        (("--partition", 1), "1:0 1:1 1:2"),
        (("--partition", 1, "--from", 1), "1:1 1:2"),
        (("--from", "latest"), ""),
        (("--from", "earliest", "--partition", 0, "--max", 2), "0:0 0:1"),
        (("--from", "1970-01-01T00:00:03.5Z"), "0:2 1:1 1:2"),
        (("--from", 2), "0:2 1:2"),
        (("--from", 3, "--partition", 0), ""),
    ],
)
def test_where_to_begin_and_end(orders: Cli, options: tuple[object, ...], places: str) -> None:
    lines = orders("topic", "read", "orders", *options).out.splitlines()
    assert sorted(lines) == sorted(LINES[place] for place in places.split())


def test_at_most_so_many(orders: Cli) -> None:
    assert len(orders("topic", "read", "orders", "-n", 4).out.splitlines()) == 4
    assert len(orders("topic", "read", "orders", "--max", 4, "--json").json) == 4


def test_below_the_floor_and_beyond_the_end(orders: Cli) -> None:
    with tailrace.open(orders.home) as home:
        home.store.run(raise_floor(home.topic("orders").log, {0: 2}))
    err = orders.fails("topic", "read", "orders", "--from", 1, "--partition", 0).err
    assert "offset 1 of partition 0 of 'orders' was removed; the first that is kept is 2" in err
    assert orders("topic", "read", "orders", "--from", 1, "--partition", 0, "--from-floor").out == LINES["0:2"] + "\n"
    assert "is beyond its end, 3" in orders.fails("topic", "read", "orders", "--from", 9, "--partition", 0).err


def test_what_cannot_be_read(orders: Cli, tmp_path: Path) -> None:
    assert "has no partition 2; it has 0 to 1" in orders.fails("topic", "read", "orders", "--partition", 2).err
    assert "'noon' is no position" in orders.fails("topic", "read", "orders", "--from", "noon").err
    err = orders.fails("topic", "read", "orders", "-o", tmp_path / "no" / "where").err
    assert "cannot write" in err
    assert "No such file" in err


def test_a_failed_read_leaves_no_file(orders: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    out.write_bytes(b"before")
    orders.fails("topic", "read", "orders", "--partition", 7, "--format", "parquet", "-o", out)
    assert out.read_bytes() == b"before"
    assert {p.name for p in tmp_path.iterdir()} == {"home", "out.parquet"}


def test_tail_gives_the_last_by_time(orders: Cli) -> None:
    in_order = [LINES[place] for place in ("0:0", "1:0", "0:1", "1:1", "0:2", "1:2")]
    assert orders("topic", "tail", "orders").out.splitlines() == in_order
    assert orders("topic", "tail", "orders", "-n", 3).out.splitlines() == in_order[-3:]
    assert orders("topic", "tail", "orders", "-n", 0).out == ""
    assert orders("topic", "tail", "orders", "--partition", 1, "-n", 2).out.splitlines() == [LINES["1:1"], LINES["1:2"]]
    lines = orders("topic", "tail", "orders", "-n", 2, "--json").out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [2, 2]
    assert "has no partition 5" in orders.fails("topic", "tail", "orders", "--partition", 5).err


def test_tail_keeps_the_order_of_a_partition_whose_time_runs_backwards(cli: Cli) -> None:
    with tailrace.open(cli.home) as home, home.topic("a", partitions=2).producer() as out:
        for stamp, partition in ((5000, 0), (1000, 0), (3000, 1), (6000, 1)):
            out.send(None, b"v", timestamp=stamp, partition=partition)
    places = [line.split("\t")[:2] for line in cli("topic", "tail", "a").out.splitlines()]
    assert [place for place, _ in places] == ["1:0", "0:0", "0:1", "1:1"]
    assert places[2][1] == "1970-01-01T00:00:01.000Z"


def test_tail_ends_where_following_begins(orders: Cli) -> None:
    """What is appended between the two looks is printed once, by the second."""
    with tailrace.open(orders.home) as home:
        topic = home.topic("orders")
        ends = topic.ends()
        with topic.producer() as out:
            out.send(None, b"late", partition=0)
        assert [record.value for record in _last(topic, ends, 100)].count(b"late") == 0
