"""Topics as tables: incremental, each record once, also when a publisher dies or two are at it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import tailrace
from tailrace.adaptors.delta.ledger import DeltaLedger
from tailrace.adaptors.delta.store import DeltaStore
from tailrace.adaptors.delta.table import DeltaLakeTable
from tailrace.errors import BadSetting, Busy, Diverged, NotReady, PositionLost
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.pipeline.publish import publication
from tailrace.pipeline.publish.publication import Publication, Published
from tests.adaptors.lake.crashes import Killed, Steps


@pytest.fixture
def home(tmp_path: Path) -> Any:
    with tailrace.open(tmp_path / "home") as home:
        yield home


def send(topic: Topic, first: int, end: int) -> None:
    with topic.producer() as out:
        for n in range(first, end):
            out.send(b"%d" % (n % 5), b"%d" % n, headers=[("n", b"h")] if n % 2 else ())


def publish(topic: Topic, folder: Path, **more: Any) -> Published:
    with closing(Publication(topic, "delta", {"path": str(folder)}, **more)) as made:
        return made.run()


def rows(folder: Path, name: str = "orders") -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(f"{folder}/{name}").scan()).to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_what_has_come_since_is_added(home: Home, tmp_path: Path) -> None:
    topic, lake = home.topic("orders", partitions=3), tmp_path / "lake"
    assert publish(topic, lake).records == 0
    assert rows(lake) == []
    for first in (0, 50):
        send(topic, first, first + 50)
        assert publish(topic, lake).records == 50
        assert publish(topic, lake) == Published(0, 0, {q: end for q, (_, end) in topic.ends().items()})
    topic.grow(5)
    send(topic, 100, 150)
    assert publish(topic, lake).records == 50
    found = rows(lake)
    assert sorted(int(row["value"]) for row in found) == list(range(150))
    assert [(row["partition"], row["offset"]) for row in found] == [
        (q, n) for q, (_, end) in sorted(topic.ends().items()) for n in range(end)
    ]
    odd = next(row for row in found if row["value"] == b"7")
    assert (odd["key"], [tuple(one.values()) for one in odd["headers"]]) == (b"2", [("n", b"h")])
    commit = next(one for one in DeltaTable(f"{lake}/orders").history() if "tailrace" in one)
    assert json.loads(commit["tailrace"])["offsets"]["0"]["topic"] == topic.id


def test_a_publisher_dies_at_every_step(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "COMMIT_BYTES", 1)
    topic, sent, at, dead = home.topic("orders", partitions=2), 0, 2, True
    while dead:
        lake = tmp_path / str(at)
        send(topic, sent, sent + 6)
        sent += 6
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(at)
            steps.watch(patch, DeltaLakeTable, "append")
            steps.watch(patch, DeltaLedger, "swap")
            steps.watch(patch, DeltaStore, "put", "remove")
            try:
                publish(topic, lake)
                dead = False
            except Killed:
                pass
        publish(topic, lake)
        assert sorted(int(row["value"]) for row in rows(lake)) == list(range(sent))
        at += 5


def test_one_at_a_time(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = home.topic("orders", partitions=1)
    send(topic, 0, 5)
    monkeypatch.setattr(publication, "LEASE_SECONDS", 0.0)
    with closing(Publication(topic, "delta", {"path": str(tmp_path / "lake")})) as first:
        first.run()
        with pytest.raises(Busy, match="is published there by process"):
            publish(topic, tmp_path / "lake")
        assert publish(topic, tmp_path / "other").records == 5


def test_another_topic_of_the_same_name_is_refused(home: Home, tmp_path: Path) -> None:
    topic = home.topic("orders", partitions=1)
    send(topic, 0, 5)
    publish(topic, tmp_path / "lake")
    home.delete_topic("orders")
    with pytest.raises(Diverged, match="another topic 'orders'"):
        publish(home.topic("orders", partitions=1), tmp_path / "lake")


def test_a_table_that_is_gone_is_not_begun_again_in_silence(home: Home, tmp_path: Path) -> None:
    topic = home.topic("orders", partitions=1)
    send(topic, 0, 5)
    publish(topic, tmp_path / "lake")
    (tmp_path / "lake" / "orders").rename(tmp_path / "gone")
    with pytest.raises(NotReady, match=r"the table .*/lake/orders: it was dropped"):
        publish(topic, tmp_path / "lake")


def test_what_retention_has_removed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = home.topic("orders", partitions=1)
    send(topic, 0, 5)
    publish(topic, tmp_path / "lake")
    send(topic, 5, 10)
    ends = topic.ends
    monkeypatch.setattr(Topic, "ends", lambda self: {q: (8, end) for q, (_, end) in ends().items()})
    with pytest.raises(PositionLost, match=r"published up to 0:5, and begins at 0:8 .* --skip-lost"):
        publish(topic, tmp_path / "lake")
    assert publish(topic, tmp_path / "lake", skip_lost=True).records == 2


def test_what_cannot_be_published_to(home: Home, tmp_path: Path) -> None:
    topic = home.topic("orders", partitions=1)
    with pytest.raises(BadSetting, match="published to delta"):
        Publication(topic, "stdout", {})
    with pytest.raises(BadSetting, match="'keep' is not for a publication"):
        Publication(topic, "delta", {"path": str(tmp_path), "keep": "state"})
