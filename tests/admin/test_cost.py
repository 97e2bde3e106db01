"""What a topic costs: metered requests are those of the real servers, and the prices are one table."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

import tailrace
from tailrace.admin import cost
from tailrace.admin.cost import GIB, Cost, estimate, prices
from tailrace.admin.traffic import Traffic, traffic
from tailrace.errors import BadInput, BadSetting
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.compaction.compaction import compact
from tailrace.log.upkeep.compaction.round import CompactionSettings
from tailrace.log.upkeep.merge import merge_all
from tests.cli.runs import Cli
from tests.log.driving import simulated_home


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less is metered."""
    monkeypatch.setattr(cost, "METERED_COMMITS", 20)
    monkeypatch.setattr(cost, "IDLE_SECONDS", 1.0)
    monkeypatch.setattr(cost, "LINGERS", (0.1, 1.0))


def test_requests_are_those_that_real_servers_count() -> None:
    """tests/log/test_requests.py counts the same on SeaweedFS and dynoxide."""
    topic, bill = cost._scratch(8)
    topic.ends()
    bill.clear()
    topic.append([(b"key-%d" % n, b"x" * 2000) for n in range(64)])
    assert bill.requests == {"put": 1, "UpdateItem": 1}
    assert bill.units["writes"] == 1, "of a head below a KiB"
    bill.clear()
    with topic.producer(linger=0) as out:
        out.send(b"k", b"small").result(30)
    assert bill.requests == {"PutItem": 1, "UpdateItem": 1}
    bill.clear()
    assert sum(1 for _ in topic.records()) == 65
    assert bill.requests["get"] == 1


def test_an_estimate(quick: None) -> None:
    told: list[int] = []
    found = estimate(8, 1024, GIB, prices(), told=told.append)
    assert sum(told) == len(cost.LINGERS) + 3
    assert found.full.requests["put"] == 256, "a GiB in chunks of 4 MiB"
    assert found.idle_producer.total == 0
    assert 0 < found.idle_consumer.dollars < 1
    assert found.full.dollars < found.rates[-1].gib.dollars < found.rates[0].gib.dollars
    assert found.rates[0].day.dollars == pytest.approx(found.rates[0].gib.dollars), "a GiB a day"
    assert found.rates[0].commit_bytes == int(GIB / 86400 * 0.1)


# --- by a topic's own traffic
def sent(topic: Topic, commits: int, every: int = 1000, first: int = 10**12) -> None:
    """A commit of ten records every so many milliseconds."""
    with topic.producer(linger=0) as out:
        for n in range(commits):
            stamps = pa.array([first + n * every] * 10, pa.timestamp("ms", "UTC"))
            keys = pa.array([b"%d" % i for i in range(10)])
            # a batch is one commit: the producer's thread might commit the first of ten single records by itself
            out.send_batch(pa.table({"key": keys, "value": [b"x" * 300] * 10, "timestamp": stamps})).result()


def lately(topic: Topic) -> Traffic:
    found = topic.store.run(traffic(topic.log))
    assert found is not None
    return found


@pytest.mark.parametrize("merged", [False, True])
def test_what_came_is_counted_from_the_pages(merged: bool) -> None:
    home, _ = simulated_home("objects")
    topic = home.topic("t", partitions=2)
    sent(topic, 301)
    if merged:
        topic.store.run(merge_all(topic.log))
    assert topic.store.run(topic.log.head()).page > 2
    found = lately(topic)
    assert (found.chunks, found.records, found.seconds) == (301, 3010, 300)
    assert found.bytes > 3010 * 300
    assert found.bytes_a_day == pytest.approx(found.bytes * 86_400 / 300, rel=0.01)


def test_a_day_is_counted_and_not_what_is_older() -> None:
    home, _ = simulated_home("joined")
    topic = home.topic("t", partitions=1)
    sent(topic, 5)
    sent(topic, 25, every=3_600_000, first=10**12 + 3 * 86_400_000)
    found = lately(topic)
    assert (found.chunks, found.seconds) == (25, 86_400)


def test_what_merging_has_forgotten_or_compaction_has_removed_is_not_guessed() -> None:
    home, _ = simulated_home("objects")
    topic = home.topic("t", partitions=1)
    sent(topic, 100)
    for _ in range(3):
        topic.store.run(clean(topic.log))
    topic.store.run(merge_all(topic.log))
    sent(topic, 200, first=10**12 + 200_000)
    found = lately(topic)
    assert found.chunks < 300
    assert found.records == 10 * found.chunks
    topic.store.run(compact(topic.log, CompactionSettings()))
    after = topic.store.run(traffic(topic.log))
    assert after is None or after.chunks < found.chunks


def test_of_compacted_pages_nothing_is_counted_though_their_chunks_are_known() -> None:
    """The bytes that are left are not those that came."""
    home, _ = simulated_home("objects")
    topic = home.topic("t", partitions=1)
    sent(topic, 100)
    still_open = len(topic.store.run(topic.log.head()).own.entries)
    assert still_open < 100
    assert topic.store.run(compact(topic.log, CompactionSettings())).records > 0
    sent(topic, 100, first=10**12 + 200_000)
    found = lately(topic)
    assert (found.chunks, found.records) == (still_open + 100, 10 * (still_open + 100))


def test_too_little_to_tell() -> None:
    home, _ = simulated_home("joined")
    topic = home.topic("t", partitions=1)
    assert topic.store.run(traffic(topic.log)) is None
    sent(topic, 50)
    assert topic.store.run(traffic(topic.log)) is None


def test_a_day_of_it_is_metered_by_its_own_chunks(quick: None) -> None:
    found = estimate(2, 300, GIB, prices(), Traffic(chunks=1000, records=10_000, bytes=3_000_000, seconds=8640))
    assert found.real is not None
    assert found.real.day.requests["UpdateItem"] == pytest.approx(10_000, rel=0.15), "as many commits, and refused ones"
    assert found.real.day.requests["PutItem"] == pytest.approx(10_000, rel=0.01), "of 3 KB: items of their own"


def test_dollars_follow_the_prices() -> None:
    _, bill = cost._scratch(1)
    bill.clear()
    bill.requests.update(put=1000, get=1000, UpdateItem=5)
    bill.units.update(writes=1_000_000, reads=2_000_000)
    asked = {"write_units_million": 1, "read_units_million": 10, "puts_thousand": 100, "gets_thousand": 1000}
    assert Cost.of(bill, asked).dollars == 1 + 20 + 100 + 1000


def test_prices_can_be_changed(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('region = "mars"\nputs_thousand = 1')
    assert prices(own) == {**prices(), "region": "mars", "puts_thousand": 1}
    own.write_text("put_thousand = 1")
    with pytest.raises(BadSetting, match="did you mean 'puts_thousand'"):
        prices(own)
    own.write_text('puts_thousand = "cheap"')
    with pytest.raises(BadInput, match="is a number"):
        prices(own)
    with pytest.raises(BadInput, match="cannot be read"):
        prices(tmp_path / "none.toml")


def test_the_command(quick: None, tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    cli("topic", "create", "orders", "--partitions", "3")
    cli("topic", "append", "orders", input="x" * 500)
    out = cli("topic", "cost", "orders", "--per-day", "5GiB").out
    assert "3 partitions, records of " in out
    assert "5.0 GiB a day, by how long a producer lingers" in out
    assert "less than a minute" in out
    with tailrace.open(tmp_path / "home") as home:
        sent(home.topic("orders"), 100, first=int(time.time() * 1000))
    out = cli("topic", "cost", "orders").out
    assert "1,001 records in 101 chunks of " in out
    assert "a day of what came lately" in out
    found = cli("topic", "cost", "orders", "--json").json
    real = found["real"]["traffic"]
    assert real["chunks"] == 101
    assert found["per_day"] == pytest.approx(real["bytes"] * 86_400 / real["seconds"], rel=0.01)
    assert found["partitions"] == 3
    assert 300 < found["record_bytes"] < 1500
    assert "is no size" in cli.fails("topic", "cost", "--per-day", "much").err
