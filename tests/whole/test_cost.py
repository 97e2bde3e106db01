"""What a topic costs: metered requests are those of the real servers, and the prices are one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import BadInput, BadSetting
from tailrace.whole import cost
from tailrace.whole.cost import GIB, Cost, estimate, prices
from tests.cli.runs import Cli


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less is metered."""
    monkeypatch.setattr(cost, "COMMITS", 20)
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
    found = estimate(8, 1024, GIB, prices())
    assert found.full.requests["put"] == 256, "a GiB in chunks of 4 MiB"
    assert found.idle_producer.total == 0
    assert 0 < found.idle_consumer.dollars < 1
    assert found.full.dollars < found.rates[-1].gib.dollars < found.rates[0].gib.dollars
    assert found.rates[0].day.dollars == pytest.approx(found.rates[0].gib.dollars), "a GiB a day"
    assert found.rates[0].commit_bytes == int(GIB / 86400 * 0.1)


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
    found = cli("topic", "cost", "orders", "--json").json
    assert found["partitions"] == 3
    assert 500 < found["record_bytes"] < 1500
    assert "is no size" in cli.fails("topic", "cost", "--per-day", "much").err
