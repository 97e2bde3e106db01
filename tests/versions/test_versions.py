"""Each home that an earlier version wrote is opened, read, scrubbed and continued by this one."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import tailrace
from tailrace.events import Event
from tailrace.home import Home
from tests.versions.write import LARGE, RECORDS, User

HOMES = sorted((Path(__file__).parent / "homes").glob("*.zip"))
PIPELINES = sorted((Path(__file__).parent / "pipelines").glob("*.zip"))


@pytest.fixture(params=HOMES, ids=lambda path: path.stem)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with zipfile.ZipFile(request.param) as packed:
        packed.extractall(tmp_path / "home")
    with tailrace.open(tmp_path / "home") as home:
        yield home


def test_there_are_homes() -> None:
    assert HOMES
    assert PIPELINES


def test_a_scrub_finds_nothing(home: Home) -> None:
    assert not home.scrub().damages


def test_records_are_there_and_more_can_be_appended(home: Home) -> None:
    orders = home.topic("orders")
    records = list(orders.records())
    assert len(records) == RECORDS + 3
    assert sorted(int(record.value or b"") for record in records if (record.value or b"").isdigit()) == list(
        range(RECORDS)
    )
    assert [record.key for record in records if record.value == LARGE] == [b"large"]
    assert [list(record.headers) for record in records if record.headers] == [[("who", b"ann")]]
    before = orders.ends()
    (span,) = orders.append([(b"order-1", b"more")])
    assert span.offset == before[span.partition][1]


def test_keys_go_on_in_their_partitions(home: Home) -> None:
    for name in {"orders", "kafka"} & set(home.topics()):
        topic = home.topic(name)
        places = {(record.key, record.partition) for record in topic.records()}
        topic.append([(key, b"more") for key, _ in places])
        assert {(record.key, record.partition) for record in topic.records()} == places


def test_settings_growth_and_compaction(home: Home) -> None:
    packed = home.topic("packed")
    assert packed.settings.compression == "zstd"
    assert [record.value for record in packed.records()] == [b"v" * 100] * 50
    grown = home.topic("grown")
    assert grown.partitions == 3
    assert Counter(record.value for record in grown.records()) == {b"before": 20, b"after": 20}
    last = {record.key: record.value for record in home.topic("state").records()}
    assert last == {b"k%d" % n: b"%d" % (36 + n) for n in range(4)}


def test_a_group_goes_on_where_it_was(home: Home) -> None:
    with home.topic("orders").consumer("billing", max_seconds=5) as consumer:
        left = sum(1 for _ in consumer)
    assert 0 < left <= RECORDS + 3 - 99


def test_a_named_producer_knows_its_number(home: Home) -> None:
    orders = home.topic("orders")
    loader = orders.named_producer("loader")
    assert loader.last == 1
    loader.send_batch([(b"loaded", b"once")], number=1)
    loader.send_batch([(b"loaded", b"twice")], number=2)
    assert [record.value for record in orders.records() if record.key == b"loaded"] == [b"once", b"twice"]


def test_events_their_unfolds_and_the_feed(home: Home) -> None:
    events = home.events()
    long = events.stream("Cart-long")
    assert [event.data[:4] for event in long.read()] == [b"%04d" % n for n in range(60)]
    assert [event.data for event in events.stream("Cart-1").tip().unfolds()] == [b'{"n": 2}']
    long.append([Event("Paid")], expected=60)
    events.catch_up()
    seen = [(event.stream, event.index) for event in events.feed()]
    assert Counter(stream for stream, _ in seen) == {"Cart-long": 61, "Cart-1": 2}
    assert [index for stream, index in seen if stream == "Cart-long"] == list(range(61))


def test_the_table_of_a_model(home: Home) -> None:
    engine = home.engine()
    engine.bind(User)
    assert {user.id: user.visits for user in engine.scan(User)} == {UUID(int=n): n for n in range(5)}
    stream = engine.stream(User, "latest")
    engine.save(User(id=UUID(int=9), email="new@example.com"))
    found = [record for record in (next(stream) for _ in range(5)) if record is not None]
    assert [record.new.email for record in found] == ["new@example.com"]


def test_upkeep_and_a_copy(home: Home, tmp_path: Path) -> None:
    assert not [done.error for done in home.upkeep() if done.error]
    home.copy(tmp_path / "copy")
    with tailrace.open(tmp_path / "copy") as copy:
        assert copy.topics() == home.topics()
        assert {"grown", "orders", "packed", "state"} <= set(home.topics())
        assert not copy.scrub().damages


@pytest.fixture(params=PIPELINES, ids=lambda path: path.stem)
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a pipeline's home, and of what it wrote."""
    with zipfile.ZipFile(request.param) as packed:
        packed.extractall(tmp_path)
    return tmp_path


def command(pipeline: Path, *words: str) -> list[Any]:
    """What a command prints with --json, for the home of a pipeline."""
    program = Path(sys.executable).with_name("tailrace")
    done = subprocess.run(
        [program, *words, "--json", "--home", pipeline / "home"], capture_output=True, text=True, check=True
    )
    listed: list[Any] = json.loads(done.stdout) if done.stdout.startswith("[") else []
    return listed or [json.loads(line) for line in done.stdout.splitlines()]


def test_the_log_of_a_pipeline_and_how_far_its_writers_are(pipeline: Path) -> None:
    messages = command(pipeline, "xlog", "show", "shop")
    assert Counter((one["namespace"], one["mode"], one["op"]) for one in messages) == {
        ("public.orders", "copy", "insert"): 20,
        ("public.orders", "sync", "update"): 5,
        ("public.customers", "copy", "insert"): 2,
        ("public.customers", "sync", "delete"): 1,
    }
    (writer,) = command(pipeline, "offset", "list", "shop")
    assert (writer["writer"], writer["acknowledged"], writer["pending"]) == ("lake", 28, 0)
    with tailrace.open(pipeline / "home") as home:
        assert not home.scrub().damages
        assert not [done.error for done in home.upkeep() if done.error]
