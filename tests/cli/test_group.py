"""`tailrace group`: list, describe, reset, delete."""

from __future__ import annotations

import pytest

import tailrace
from tailrace.coordination import lease
from tests.cli.runs import Cli


def consume(cli: Cli, topic: str, group: str, count: int) -> None:
    """Read some records as a group, and commit them."""
    with tailrace.open(cli.home) as home, home.topic(topic).consumer(group, start="earliest") as consumer:
        for n, _ in enumerate(consumer, 1):
            if n == count:
                consumer.commit()
                break


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """A topic of five records; `billing` has read two of them, and `audit` all."""
    cli("topic", "create", "orders")
    cli("topic", "append", "orders", input="a\nb\nc\nd\ne\n")
    consume(cli, "orders", "billing", 2)
    consume(cli, "orders", "audit", 5)
    return cli


def test_list(orders: Cli) -> None:
    rows = orders("group", "list").rows
    assert rows[0] == ["GROUP", "TOPIC", "MEMBERS", "LAG", "OLDEST"]
    assert rows[1] == ["audit", "orders", "0", "0", "-"]
    assert rows[2][:4] == ["billing", "orders", "0", "3"]
    found = orders("group", "list", "--topic", "orders", "--json").json
    assert [(g["group"], g["topic"], g["members"], g["lag"]["records"]) for g in found] == [
        ("audit", "orders", 0, 0),
        ("billing", "orders", 0, 3),
    ]
    assert "there is no topic 'other'" in orders.fails("group", "list", "--topic", "other").err


def test_none_yet(cli: Cli) -> None:
    cli("topic", "create", "orders")
    assert "no groups yet" in cli("group", "list").out
    assert cli("group", "list", "--json").json == []
    assert "there is no group 'billing'; there are: none yet" in cli.fails("group", "describe", "billing").err


def test_describe(orders: Cli) -> None:
    about = orders("group", "describe", "billing", "--json").json
    assert (about["group"], about["topic"], about["members"], about["lag"]["records"]) == ("billing", "orders", [], 3)
    (partition,) = about["partitions"]
    assert (partition["partition"], partition["position"], partition["end"]) == (0, 2, 5)
    rows = orders("group", "describe", "billing").rows
    assert ["topic", "orders"] in rows
    assert rows[-1][:4] == ["0", "2", "5", "3"]
    assert "groups" not in orders("group", "describe", "audit").out
    assert ["lag", "none"] in orders("group", "describe", "audit").rows
    assert ["groups", "audit,", "billing"] in orders("topic", "describe", "orders").rows


def test_a_member_is_shown(orders: Cli) -> None:
    with tailrace.open(orders.home) as home, home.topic("orders").consumer("billing", member="ann") as consumer:
        next(iter(consumer))
        about = orders("group", "describe", "billing", "--json").json
        text = orders("group", "describe", "billing").rows
    assert [m["name"] for m in about["members"]] == ["ann"]
    assert about["members"][0]["partitions"] == [0]
    assert ["MEMBER", "HOST", "PID", "PARTITIONS"] in text
    assert [row[-1] for row in text if row and row[0] == "0"] == ["ann"]


def test_a_group_of_several_topics_must_be_told_apart(orders: Cli) -> None:
    orders("topic", "create", "clicks")
    orders("topic", "append", "clicks", input="a\n")
    consume(orders, "clicks", "billing", 1)
    err = orders.fails("group", "describe", "billing").err
    assert "several topics have a group 'billing'; say which with --topic: clicks, orders" in err
    assert orders("group", "describe", "billing", "--topic", "clicks", "--json").json["topic"] == "clicks"
    assert "topic 'clicks' has no group 'audit'" in orders.fails("group", "describe", "audit", "--topic", "clicks").err


def test_reset_asks_and_moves(orders: Cli) -> None:
    assert (
        "Move group 'billing' of 'orders' to 0?" in orders.fails("group", "reset", "billing", "--to", 0, input="n").err
    )
    assert orders("group", "reset", "billing", "--to", "latest", "--yes", "--json").json == {
        "group": "billing",
        "topic": "orders",
        "positions": [{"partition": 0, "position": 5}],
    }
    assert orders("group", "reset", "billing", "--to", "earliest", input="y\n").rows[-1] == ["0", "0"]
    assert orders("group", "describe", "billing", "--json").json["lag"]["records"] == 5
    assert "is no position" in orders.fails("group", "reset", "billing", "--to", "noon", "--yes").err


def test_reset_and_delete_are_refused_while_members_read(orders: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        tailrace.open(orders.home) as home,
        home.topic("orders").consumer("billing", member="ann", ttl=1.0) as consumer,
    ):
        next(iter(consumer))
        for command in (("reset", "billing", "--to", "latest"), ("delete", "billing")):
            ran = orders.fails("group", *command, "--yes")
            assert "has active members: ann" in ran.err
            assert f"looking whether its members are alive, for up to {lease.TTL_SECONDS:.0f} s" in ran.err
        orders("group", "reset", "billing", "--to", "latest", "--yes", "--force")
    assert orders("group", "describe", "billing", "--json").json["lag"]["records"] == 0


def test_delete_asks_and_deletes(orders: Cli) -> None:
    orders.fails("group", "delete", "billing", input="n\n")
    assert len(orders("group", "list", "--json").json) == 2
    assert orders("group", "delete", "billing", "--yes").out == "deleted group 'billing' of 'orders'\n"
    assert [g["group"] for g in orders("group", "list", "--json").json] == ["audit"]
    assert "there is no group 'billing'; there are: audit" in orders.fails("group", "delete", "billing", "-y").err
